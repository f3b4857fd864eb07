"""The hardened unit is hard, and marud does its whole job in it."""

import json
import os
import pathlib
import pwd
import re
import urllib.request

from support import HERE, MachineTest, config_file, drop_in, journal, journal_end, maructl, run, systemctl, until

EXPOSURE = 1.5
CAP_SYS_RESOURCE = 24
NO_METRICS = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a1a"
NEVER = ("PrivateUsers", "ProtectProc", "ProcSubset")

ALLOWED = {"memfd", "io_uring", "unix", "pidfd", "proc-stat", "proc-comm", "meminfo", "own-directory"}
FORBIDDEN = {
    "inet": {"EAFNOSUPPORT"}, "netlink": {"EAFNOSUPPORT"}, "etc": {"EROFS"}, "shadow": {"EACCES"},
    "mount": {"EPERM"}, "namespace": {"EPERM"}, "chown": {"EPERM"}, "setuid": {"EPERM"},
    "nice": {"EPERM"}, "bpf": {"EPERM"}, "keyring": {"EPERM"}, "code": {"EPERM"},
}


def unit_text():
    return systemctl("cat", "marud.service")


class Sandbox(MachineTest):
    def test_the_exposure_is_low(self):
        out = run("systemd-analyze", "security", "--no-pager", "marud.service")
        level = float(re.search(r"Overall exposure level.*: ([0-9.]+)", out)[1])
        self.assertLessEqual(level, EXPOSURE, out)

    def test_every_hole_is_explained_in_the_unit(self):
        out = run("systemd-analyze", "security", "--no-pager", "--json=short", "marud.service")
        comments = " ".join(line for line in unit_text().splitlines() if line.startswith("#"))
        holes = [e["name"] for e in json.loads(out) if e["exposure"] not in (None, "0") and not e["set"]]
        self.assertTrue(holes)
        self.assertEqual([name for name in holes if name not in comments], [])

    def test_clients_stay_visible(self):
        for line in unit_text().splitlines():
            self.assertFalse(line.startswith(NEVER), line)

    def test_the_process_has_nothing_to_lose(self):
        maructl("status")
        pid = systemctl.pid()
        status = dict(line.split(":\t", 1) for line in
                      pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        uid = str(pwd.getpwnam("maru").pw_uid)
        self.assertEqual(status["Uid"].split(), [uid] * 4)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"].strip(), status["Seccomp"].strip()), ("1", "2"))
        self.assertEqual(systemctl.show("OOMScoreAdjust"), "-900")
        # Whether the machine around this one lets anybody have it.
        manager = re.search(r"CapEff:\t(\w+)", pathlib.Path("/proc/1/status").read_text())[1]
        if int(manager, 16) & (1 << CAP_SYS_RESOURCE):
            self.assertEqual(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text().strip(), "-900")
        for space, same in (("mnt", False), ("net", False), ("user", True), ("pid", True)):
            ours, its = (os.readlink(f"/proc/{p}/ns/{space}") for p in ("self", pid))
            self.assertEqual(ours == its, same, space)

    def test_what_marud_needs_is_allowed_and_nothing_else(self):
        other = self.worker()
        since = journal_end()
        with drop_in(f"[Service]\nExecStartPre={HERE}/sandbox-probe {other.pid}\n"):
            systemctl("restart", "marud.service")
        found = dict(entry["MESSAGE"].split()[1:3] for entry in journal("_SYSTEMD_UNIT=marud.service", since=since)
                     if entry["MESSAGE"].startswith("probe "))
        self.assertEqual({name: found.get(name) for name in ALLOWED}, dict.fromkeys(ALLOWED, "ok"))
        for name, codes in FORBIDDEN.items():
            self.assertIn(found.get(name), codes, name)
        # Allowed; whether there are any is the host's.
        self.assertIn(found.get("memfd-huge"), {"ok", "ENOMEM", "ENOSYS"})

    def test_workers_of_two_users_are_served_and_told_apart(self):
        workers = [self.worker(user=user) for user in ("alice", "bob")]
        for worker in workers:
            self.assertEqual(worker.store(8), 8)
            self.assertEqual(worker.hits(), 8)
        uids = {session["uid"] for session in maructl("session")["sessions"]}
        self.assertEqual(uids, {pwd.getpwnam(user).pw_uid for user in ("alice", "bob")})
        names = {session.get("command", session.get("comm")) for session in maructl("session")["sessions"]}
        self.assertTrue(all(names), "the names of other users' processes are hidden")

    def test_huge_pages_come_through_the_sandbox(self):
        info = pathlib.Path("/proc/meminfo").read_text()
        free = int(re.search(r"HugePages_Free:\s+(\d+)", info)[1])
        if "Hugepagesize:       2048 kB" not in info or free < 4:
            self.skipTest(f"{free} huge pages are free, 4 of 2 MiB are needed (vm.nr_hugepages)")
        worker = self.worker(huge_pages="required", bytes=8 << 20)
        worker.store(4)
        self.assertEqual(worker("info")["page"], 2 << 20)
        self.assertEqual(worker.hits(), 4)

    def test_the_drop_in_for_tcp_in_the_comments_is_right(self):
        lines = unit_text().splitlines()
        begin = lines.index("#   [Service]")
        text = []
        for line in lines[begin:]:
            if not line.startswith("#   "):
                break
            text.append(line[4:])
        file = config_file()
        self.addCleanup(file.write_text, file.read_text())
        file.write_text('[metrics]\ntcp = "127.0.0.1:9469"\n')
        with drop_in("\n".join(text) + "\n"):
            systemctl("restart", "marud.service")
            with urllib.request.urlopen("http://127.0.0.1:9469/metrics", timeout=30) as answer:
                self.assertIn(b"\n# TYPE maru_", answer.read())
            systemctl("stop", "marud.service")
        # Without the drop-in the address cannot be served: that is logged, and marud goes on.
        since = journal_end()
        maructl("status")
        until("it is logged", lambda: journal(f"MESSAGE_ID={NO_METRICS}", since=since))
        with self.assertRaises(OSError):
            urllib.request.urlopen("http://127.0.0.1:9469/metrics", timeout=30)

    def test_metrics_come_from_their_own_socket(self):
        maructl("status")
        info = os.stat("/run/maru/metrics.sock")
        self.assertEqual(info.st_uid, pwd.getpwnam("maru").pw_uid)
        self.assertIn("# TYPE maru_", run("runuser", "-u", "alice", "--", "maructl", "metrics"))
