#!/usr/bin/env python3
"""Every verb of maructl against a real marud with a worker attached, from a process of its own.

Run with MARUD, MARUCTL, MARU_LIBRARY and the Python package on PYTHONPATH; see meson.build.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import maru
from support import MIB, Daemon

TEXT = "maructl-test model=tiny"
BYTES = 8192


class MaructlTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.cleanup)
        self.daemon.start()

    def maructl(self, *arguments, status=0, socket=None):
        done = subprocess.run(
            [os.environ["MARUCTL"], "--socket", socket or self.daemon.socket_path, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
        )
        self.assertEqual(done.returncode, status, (arguments, done.stdout, done.stderr))
        # Results on one channel, diagnostics on the other.
        self.assertEqual(bool(done.stderr), status != 0, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def json(self, *arguments):
        return json.loads(self.maructl(*arguments, "--json"))

    def worker(self):
        client = maru.Client("engine-a", socket_path=self.daemon.socket_path)
        self.addCleanup(lambda: client.closed or client.close())
        ns = client.namespace(TEXT)
        ns.describe(BYTES, "raw-v1")
        pool = client.pool(MIB, wait_populated=True)
        keys = ns.digests([1, 2, 3], 1)
        ns.store(pool, keys, [bytes([n]) * BYTES for n in range(3)]).raise_failed()
        return client, ns, pool, keys

    def test_the_lists_show_what_the_worker_holds(self):
        client, ns, pool, keys = self.worker()
        leases = ns.acquire(keys[:2])
        status = self.json("status")
        self.assertEqual((status["sessions"], status["objects"], status["leases"]), (1, 3, 2))
        self.assertEqual(status["host_reserved_bytes"], MIB)
        (session,) = self.json("session")["sessions"]
        self.assertEqual((session["engine"], session["state"], session["pid"], session["uid"]),
                         ("engine-a", "attached", os.getpid(), os.getuid()))
        (shown,) = self.json("pool")["pools"]
        self.assertEqual((shown["medium"], shown["tier"], shown["scope"]), ("cpu", "L1", "worker"))
        self.assertEqual((shown["capacity_bytes"], shown["ready_bytes"]), (MIB, 3 * BYTES))
        (namespace,) = self.json("namespace")["namespaces"]
        self.assertEqual((namespace["text"], namespace["objects"]), (TEXT, 3))
        objects = self.json("object", TEXT)["objects"]
        self.assertEqual(sorted(o["leases"] for o in objects), [0, 1, 1])
        self.assertEqual({o["state"] for o in objects}, {"ready"})
        held = self.json("lease")["leases"]
        self.assertEqual(len(held), 2)
        for lease in held:
            self.assertEqual((lease["pid"], lease["uid"], lease["engine"], lease["count"]),
                             (os.getpid(), os.getuid(), "engine-a", 1))
            self.assertTrue(lease["command"])
            self.assertLess(lease["age_ms"], 60_000)
        usage = self.json("usage", shown["pool"])
        self.assertEqual((usage["ready_bytes"], usage["leases"]), (3 * BYTES, 2))
        self.assertEqual(self.json("usage")["reserved_bytes"], MIB)
        # The same for people.
        self.assertIn("engine-a", self.maructl("session"))
        self.assertIn(str(os.getpid()), self.maructl("lease"))
        leases.release()

    def test_explain_tells_why(self):
        client, ns, pool, keys = self.worker()
        digest = bytes(keys[0]).hex()
        told = self.json("explain", TEXT, digest, "--engine", "engine-a")
        self.assertTrue(told["hit"])
        self.assertTrue(told["replicas"][0]["eligible"])
        other = maru.Client("engine-b", socket_path=self.daemon.socket_path)
        self.addCleanup(other.close)
        told = self.json("explain", TEXT, digest, "--engine", "engine-b")
        self.assertFalse(told["hit"])
        self.assertFalse(told["replicas"][0]["eligible"])
        self.assertIn("engine-a", told["replicas"][0]["reason"])
        self.assertFalse(self.json("explain", TEXT, "00" * 32, "--engine", "engine-a")["hit"])

    def test_retire_leaves_the_reader_its_bytes(self):
        client, ns, pool, keys = self.worker()
        with ns.acquire(keys[:1]) as leases:
            self.maructl("retire", TEXT, bytes(keys[0]).hex())
            self.assertEqual(ns.probe(keys).prefix, 0)
            self.assertEqual(bytes(leases[0].view), bytes([0]) * BYTES)
        self.maructl("retire", TEXT)
        self.assertEqual(list(ns.probe(keys).hits), [False] * 3)

    def test_drain_admits_nothing_new_and_keeps_readers(self):
        client, ns, pool, keys = self.worker()
        self.maructl("drain", "on")
        with self.assertRaises(maru.MaruError):
            maru.Client("late", socket_path=self.daemon.socket_path, connect_ms=300)
        self.assertEqual(ns.probe(keys).prefix, 3)
        with ns.acquire(keys) as leases:
            self.assertEqual(len(leases), 3)
        self.maructl("drain", "off")
        maru.Client("late", socket_path=self.daemon.socket_path).close()

    def test_reload_reads_the_configuration_again(self):
        self.worker()
        config = self.daemon.directory / "marud.toml"
        config.write_text(config.read_text().replace('"64G"', '"32G"'))
        self.maructl("reload")
        self.assertEqual(self.json("status")["host_limit_bytes"], 32 << 30)
        # A mistake leaves the old configuration in force.
        config.write_text("[cpu]\nhost_byte = 1\n")
        self.maructl("reload")
        self.assertEqual(self.json("status")["host_limit_bytes"], 32 << 30)
        self.assertIn("host_bytes", self.daemon.log())

    def test_version_and_bench(self):
        self.assertEqual(self.json("version")["marud"], self.json("status")["version"])
        self.assertTrue(self.json("bench", "--count", "50"))

    def doctor(self, *arguments, **options):
        """What the doctor says, after its exit status was held against its problems."""
        done = subprocess.run([os.environ["MARUCTL"], "doctor", "--json", *arguments], text=True, timeout=60,
                              stdin=subprocess.DEVNULL, capture_output=True, **options)
        self.assertEqual(done.stderr, "")
        told = json.loads(done.stdout)
        counted = [finding["severity"] for finding in told["findings"]]
        self.assertEqual(counted.count("problem"), told["problems"])
        self.assertEqual(counted.count("warning"), told["warnings"])
        self.assertEqual(done.returncode, 1 if told["problems"] else 0, told)
        for finding in told["findings"]:
            self.assertEqual(finding["remedy"] == "", finding["severity"] == "ok", finding)
        return told["findings"]

    def test_the_doctor_examines_the_host_and_this_marud(self):
        self.worker()
        findings = self.doctor("--socket", self.daemon.socket_path)
        found = {finding["check"]: finding for finding in findings}
        self.assertEqual(found["socket"]["severity"], "ok")
        self.assertEqual(found["marud"]["severity"], "ok")
        self.assertIn(f"process {self.daemon.pid}", found["marud"]["found"])
        self.assertIn(f"process {self.daemon.pid}", found["descriptors-marud"]["found"])
        # The pool of the worker is populated: whatever its limits are, it lacks nothing.
        pools = [f for f in findings if f["check"] == "cgroup-memory" and "engine-a" in f["found"]]
        self.assertEqual([f["severity"] for f in pools], ["ok"] * len(pools))
        self.daemon.stop()
        found = {finding["check"]: finding["severity"]
                 for finding in self.doctor("--socket", self.daemon.socket_path + "-none")}
        self.assertEqual(found["marud"], "warning")
        self.assertNotIn("socket", found)

    def test_the_doctor_needs_no_privilege(self):
        if os.getuid() != 0:
            self.skipTest("not root: cannot become another user, and this one has none")
        # Its own copy: the build directory may be closed to others.
        directory = tempfile.mkdtemp(prefix="maru-doctor-", dir="/tmp")
        self.addCleanup(shutil.rmtree, directory)
        os.chmod(directory, 0o755)
        program = shutil.copy(os.environ["MARUCTL"], directory)
        os.chmod(self.daemon.directory, 0o755)
        done = subprocess.run([program, "doctor", "--json", "--socket", self.daemon.socket_path], text=True,
                              capture_output=True, timeout=60, user=54321, group=54321, extra_groups=[])
        self.assertEqual(done.stderr, "")
        found = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
        self.assertEqual(found["marud"]["severity"], "ok", found["marud"])
        os.chmod(self.daemon.socket_path, 0o600)
        done = subprocess.run([program, "doctor", "--json", "--socket", self.daemon.socket_path], text=True,
                              capture_output=True, timeout=60, user=54321, group=54321, extra_groups=[])
        found = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
        self.assertEqual(done.returncode, 1)
        self.assertEqual(found["socket"]["severity"], "problem")
        self.assertIn("mode 0600", found["socket"]["found"])
        self.assertIn("EACCES", found["marud"]["found"] + found["socket"]["found"])

    def test_tables_round_and_bytes_do_not(self):
        self.worker()
        self.assertIn("1 MiB", self.maructl("pool"))
        exact = self.maructl("pool", "--bytes")
        self.assertIn(str(MIB), exact)
        self.assertNotIn("MiB", exact)
        self.assertEqual(self.json("pool", "--bytes")["pools"][0]["capacity_bytes"], MIB)

    def test_the_exit_statuses_of_the_man_page(self):
        self.maructl("status", status=0)
        self.maructl("object", "0x1", status=1)
        self.maructl("status", "--no-such-option", status=2)
        self.maructl("status", status=3, socket="/nonexistent/m.sock")
        with open("/dev/full", "w") as full:  # an answer that could not be written is a failure
            done = subprocess.run([os.environ["MARUCTL"], "--socket", self.daemon.socket_path, "status"],
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("could not be written", done.stderr)

    def test_errors_name_what_was_wrong(self):
        self.assertIn("lease", self.maructl("leese", status=2))
        self.assertIn("--engine", self.maructl("explain", TEXT, "00" * 32, status=2))
        self.assertIn("/nonexistent", self.maructl("status", status=3, socket="/nonexistent/m.sock"))
        self.assertIn("'not a namespace'", self.maructl("object", "not a namespace", status=1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
