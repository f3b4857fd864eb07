# SPDX-License-Identifier: Apache-2.0
"""Engines in containers: in pid, user and mount namespaces of their own, as container engines make them.

Needs root, which makes the namespaces; without it each test says so. A contained engine is a child of this
process that enters its namespaces before it opens anything of Maru.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import traceback
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import maru
import support

MARUCTL = os.environ.get("MARUCTL", "")
SO_PEERPIDFD = 77  # Linux 6.5
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
LENGTH = 65536
libc = ctypes.CDLL(None, use_errno=True)


def call(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Contained:
    """@body(self) in a process of its own, whose answers come one a line as JSON."""

    def __init__(self, body, uid=0, kinds=CLONE_NEWPID, inner_uid=None, before=None):
        from_it, answers = os.pipe()
        orders, to_it = os.pipe()
        self.answers, self.orders = os.fdopen(answers, "w"), os.fdopen(orders)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(from_it)
            os.close(to_it)
            self._enter(body, uid, kinds, inner_uid, before)
        self.answers.close()
        self.orders.close()
        self.from_it, self.to_it = os.fdopen(from_it), os.fdopen(to_it, "w")

    def _enter(self, body, uid, kinds, inner_uid, before):
        status = 1
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            if uid:  # a process that changed its uid may not write its own maps unless this is said
                call(libc.prctl(4, 1, 0, 0, 0))
            if inner_uid is not None:
                call(libc.unshare(CLONE_NEWUSER))
                pathlib.Path("/proc/self/setgroups").write_text("deny")
                pathlib.Path("/proc/self/uid_map").write_text(f"{inner_uid} {uid} 1")
                pathlib.Path("/proc/self/gid_map").write_text(f"{inner_uid} {uid} 1")
            call(libc.unshare(kinds))
            # The first process of the new pid namespace; it dies with this one, as a container does.
            child = os.fork()
            if child == 0:
                call(libc.prctl(1, signal.SIGKILL, 0, 0, 0))
                if before:
                    before()
                body(self)
                status = 0
                os._exit(status)
            self.answers.close()
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        except BaseException as error:  # nothing of the test may run twice
            traceback.print_exc()
            with contextlib.suppress(OSError, ValueError):
                self.say(failed=f"{type(error).__name__}: {error}")
        finally:
            os._exit(status if status >= 0 else 128 - status)

    # Inside.
    def say(self, **facts):
        self.answers.write(json.dumps(facts) + "\n")
        self.answers.flush()

    def wait(self):
        """Until the test lets it go on; its end is a go as well."""
        self.orders.readline()

    # Outside.
    def heard(self):
        line = self.from_it.readline()
        if not line:
            raise AssertionError("the contained process ended without an answer")
        facts = json.loads(line)
        if "failed" in facts:
            raise AssertionError(f"the contained process failed: {facts['failed']}")
        return facts

    def go(self):
        self.to_it.write("\n")
        self.to_it.flush()

    def end(self):
        """Its exit status, after the last order."""
        with contextlib.suppress(BrokenPipeError):
            self.to_it.close()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return status

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        for end in (self.from_it, self.to_it):
            with contextlib.suppress(BrokenPipeError):
                end.close()


def small_shm():
    """A /dev/shm without room, as containers have it by default for what engines need."""
    call(libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None))  # MS_REC | MS_PRIVATE
    call(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=4k"))


def engine(path, name, rounds=1):
    """Stores eight objects, loads and compares them at each go, and says what it is inside."""

    def body(self):
        with maru.Client(name, socket_path=path) as client:
            pool = client.pool(16 << 20, wait_populated=True)
            namespace = client.namespace("contained")
            namespace.describe(LENGTH, support.FORMAT)
            digests = namespace.digests(range(32), 4)
            contents = [support.pattern(LENGTH, i) for i in range(8)]
            stored = namespace.store(pool, digests, contents).succeeded
            for _ in range(rounds):
                right = 0
                with namespace.acquire(digests) as leases:
                    for lease, wanted in zip(leases, contents):
                        right += lease is not None and bytes(lease.view) == wanted
                self.say(pid=os.getpid(), uid=os.getuid(), stored=stored, right=right)
                self.wait()

    return body


class ContainerTest(unittest.TestCase):
    def setUp(self):
        for name in ("MARUD", "MARUCTL", "MARU_LIBRARY"):
            if not os.environ.get(name):
                self.skipTest(name + " is not set")
        if os.geteuid() != 0:
            self.skipTest("not root: namespaces and other users cannot be made")
        if "lib" in os.environ.get("LD_PRELOAD", ""):
            self.skipTest("a sanitizer's run-time is in this process: it cannot fork and go on")

    def marud(self, *prefix):
        daemon = support.Daemon(prefix)
        self.addCleanup(daemon.cleanup)
        daemon.directory.chmod(0o711)
        daemon.start()
        return daemon

    def contained(self, body, **how):
        try:
            made = Contained(body, **how)
        except OSError as error:
            self.skipTest(f"namespaces cannot be made here: {error}")
        self.addCleanup(made.kill)
        return made

    def maructl(self, daemon, *words):
        said = subprocess.run(
            [MARUCTL, "--socket", daemon.socket_path, *words, "--json"],
            capture_output=True,
            text=True,
            timeout=30,
        )
        self.assertEqual(said.returncode, 0, f"maructl {' '.join(words)}: {said.stderr}")
        return json.loads(said.stdout)

    def sessions(self, daemon):
        return self.maructl(daemon, "session")["sessions"]

    def until(self, condition, what, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)

    def charged(self, daemon):
        status = self.maructl(daemon, "status")
        return status["host_reserved_bytes"] + status["unproven_bytes"]

    def assertNothingCharged(self, daemon):
        self.until(
            lambda: not self.sessions(daemon) and self.charged(daemon) == 0,
            "the memory of a process that has gone is still charged",
        )

    def test_an_engine_in_a_pid_namespace(self):
        daemon = self.marud()
        inside = self.contained(engine(daemon.socket_path, "contained"))
        seen = inside.heard()
        self.assertEqual((seen["pid"], seen["stored"], seen["right"]), (1, 8, 8))
        # The operator sees the process as the host does.
        (session,) = self.sessions(daemon)
        self.assertEqual(session["pid"], self.child_of(inside.pid))
        self.assertGreater(self.charged(daemon), 0)
        # Its death is noticed and proven from outside.
        inside.kill()
        self.assertNothingCharged(daemon)

    def child_of(self, pid):
        return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def test_an_engine_in_user_pid_network_and_mount_namespaces(self):
        """Rootless: root inside is 2001 for marud. Nothing of Maru needs /dev/shm."""
        daemon = self.marud()
        inside = self.contained(
            engine(daemon.socket_path, "rootless"),
            uid=2001,
            inner_uid=0,
            kinds=CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET,
            before=small_shm,
        )
        seen = inside.heard()
        self.assertEqual(seen, {"pid": 1, "uid": 0, "stored": 8, "right": 8})
        (session,) = self.sessions(daemon)
        self.assertEqual(session["uid"], 2001)
        inside.go()
        self.assertEqual(inside.end(), 0)
        self.assertNothingCharged(daemon)

    def test_an_engine_is_taken_back_by_a_restarted_marud(self):
        daemon = self.marud()
        inside = self.contained(engine(daemon.socket_path, "kept", rounds=2))
        self.assertEqual(inside.heard()["right"], 8)
        (before,) = self.sessions(daemon)
        daemon.stop(signal.SIGKILL)
        daemon.start()
        # Its record is there at once; whether it is found inside its namespace is another matter.
        self.until(
            lambda: [session["state"] for session in self.sessions(daemon)] == ["attached"],
            "it did not come back",
        )
        (after,) = self.sessions(daemon)
        for fact in ("session", "pid", "uid", "engine", "reserved_bytes"):
            self.assertEqual(after[fact], before[fact], fact)
        inside.go()
        self.assertEqual(inside.heard()["right"], 8)
        inside.kill()
        self.assertNothingCharged(daemon)

    def test_a_user_that_marud_does_not_know_is_refused(self):
        """marud in a user namespace where root alone has a name."""
        daemon = self.marud("unshare", "--user", "--map-root-user")

        def body(self):
            try:
                maru.Client("stranger", socket_path=daemon.socket_path, connect_ms=2000)
                self.say(error="")
            except maru.MaruError as error:
                self.say(error=str(error))

        refused = self.contained(body, uid=2001, kinds=0).heard()
        self.assertIn("its user does not exist in marud's user namespace", refused["error"])
        # Root has one, there and here.
        known = self.contained(engine(daemon.socket_path, "known"), kinds=0)
        self.assertEqual(known.heard()["right"], 8)

    def marud_in_a_pid_namespace(self):
        daemon = self.marud("unshare", "--pid", "--fork", "--kill-child")
        one, other = socket.socketpair()
        with one, other:
            try:
                os.close(one.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD))
            except OSError:
                with self.assertRaisesRegex(maru.MaruError, "Linux 6.5"):
                    maru.Client("outside", socket_path=daemon.socket_path, connect_ms=2000)
                self.skipTest("this kernel has no SO_PEERPIDFD: marud refuses, and says so")
        return daemon

    def test_marud_in_a_pid_namespace(self):
        """Clients have no number there: their exit is seen all the same, their names are not."""
        daemon = self.marud_in_a_pid_namespace()
        first = self.contained(engine(daemon.socket_path, "first"), kinds=0)
        second = self.contained(engine(daemon.socket_path, "second", rounds=2), kinds=0)
        self.assertEqual([e.heard()["right"] for e in (first, second)], [8, 8])
        sessions = {session["engine"]: session for session in self.sessions(daemon)}
        self.assertEqual(set(sessions), {"first", "second"})
        for session in sessions.values():
            self.assertEqual((session["pid"], session["command"]), (0, "-"))
        # Without a number they are two processes all the same.
        first.kill()
        self.until(
            lambda: [session["engine"] for session in self.sessions(daemon)] == ["second"],
            "the end of the one process is not that one's alone",
        )
        self.assertEqual(self.charged(daemon), sessions["second"]["reserved_bytes"])
        second.go()
        self.assertEqual(second.heard()["right"], 8)
        second.kill()
        self.assertNothingCharged(daemon)

    def test_a_restarted_marud_in_a_pid_namespace_takes_nobody_back(self):
        """It cannot tell who its clients were; they hear of it, and begin again."""
        daemon = self.marud_in_a_pid_namespace()

        def body(self):
            with maru.Client("before", socket_path=daemon.socket_path) as client:
                pool = client.pool(16 << 20, wait_populated=True)
                self.say(state=client.info().state)
                self.wait()
                try:
                    client.namespace("contained").describe(LENGTH, support.FORMAT)
                    self.say(refused="")
                except maru.MaruError as error:
                    self.say(refused=type(error).__name__)
                pool.close(forced=True)
            engine(daemon.socket_path, "after")(self)

        inside = self.contained(body, kinds=0)
        self.assertEqual(inside.heard()["state"], "attached")
        daemon.stop(signal.SIGKILL)
        daemon.start()
        inside.go()
        self.assertEqual(inside.heard()["refused"], "MaruFenced")
        self.assertEqual(inside.heard()["right"], 8)
        self.assertEqual([session["engine"] for session in self.sessions(daemon)], ["after"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
