"""The user's unit under a real user manager: no privilege, the same promises."""

import os
import pathlib
import pwd
import re
import signal
import stat

from sandbox import ALLOWED
from support import HERE, MachineTest, Manager, Worker, drop_in, journal, journal_end, run, status_of, systemctl, until

RELOADED = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a13"

# What the user's units say as the system's do; that it works is seen there.
SAME = {
    "marud.service": (
        "Type", "Restart", "RestartUSec", "RestartPreventExitStatus", "ExecReload", "ExecStopPost", "WatchdogUSec",
        "TimeoutStartUSec", "TimeoutStopUSec", "StartLimitIntervalUSec", "FileDescriptorStoreMax", "RuntimeDirectory",
        "RuntimeDirectoryPreserve", "UMask", "NoNewPrivileges", "RestrictRealtime", "RestrictSUIDSGID",
        "RestrictAddressFamilies", "LockPersonality", "MemoryDenyWriteExecute", "SystemCallArchitectures",
    ),
    "marud.socket": (
        "FileDescriptorName", "PassCredentials", "RemoveOnStop", "StartLimitIntervalUSec", "TriggerLimitIntervalUSec",
    ),
}

# As far as a user's manager can take it.
FORBIDDEN = {"inet": "EAFNOSUPPORT", "netlink": "EAFNOSUPPORT", "code": "EPERM", "shadow": "EACCES"}


class UserUnit(MachineTest):
    def setUp(self):
        super().setUp()
        self.uid = pwd.getpwnam("bob").pw_uid
        systemctl("start", f"user@{self.uid}.service")
        self.manager = Manager("bob")
        self.manager("daemon-reload")
        self.manager("start", "marud.socket")
        self.addCleanup(self.manager, "stop", "marud.service", "marud.socket")
        self.runtime = f"/run/user/{self.uid}"
        self.socket = f"{self.runtime}/maru/marud.sock"

    def own_worker(self):
        worker = Worker("mine-" + self.id().rsplit(".", 1)[-1], user="bob",
                        environment={"XDG_RUNTIME_DIR": self.runtime}, socket=self.socket)
        self.addCleanup(worker.end)
        return worker

    def test_the_first_client_starts_it_and_only_its_user_may(self):
        info = os.stat(self.socket)
        self.assertEqual((info.st_uid, oct(stat.S_IMODE(info.st_mode))), (self.uid, oct(0o600)), self.socket)
        worker = self.own_worker()
        self.assertEqual(worker.store(8), 8)
        self.assertEqual(os.stat(f"/proc/{self.manager.pid()}").st_uid, self.uid)
        self.assertEqual(status_of("runuser", "-u", "alice", "--", "maructl", "--socket", self.socket, "status"), 3)
        # The system's is another one, and was not woken.
        self.assertEqual(systemctl.show("ActiveState"), "inactive")

    def test_all_that_is_its_own_lies_in_one_directory_of_its_user(self):
        self.own_worker()
        directory = f"{self.runtime}/maru"
        info = os.stat(directory)
        self.assertEqual((info.st_uid, oct(stat.S_IMODE(info.st_mode))), (self.uid, oct(0o700)), directory)
        self.assertLessEqual({"marud.sock", "metrics.sock", "marud.lock", "sessions"}, set(os.listdir(directory)))
        # Its socket goes with its unit.
        self.manager("stop", "marud.service", "marud.socket")
        self.assertFalse(os.path.exists(self.socket), self.socket)

    def test_systemd_reads_the_units_without_complaint(self):
        out = run(*self.manager.prefix, "sh", "-c",
                  "systemd-analyze --user verify --man=no marud.service marud.socket 2>&1", check=False)
        self.assertEqual(out, "")

    def test_it_promises_what_the_systems_unit_does(self):
        def said(manager, unit, name):
            value = manager.show(name, unit)
            command = re.search(r"argv\[\]=(.*?) ; ignore_errors", value)
            return command[1] if command else value

        for unit, names in SAME.items():
            for name in names:
                with self.subTest(unit=unit, property=name):
                    ours = said(systemctl, unit, name)
                    self.assertNotEqual(ours, "", f"systemd knows no {name}")
                    self.assertEqual(said(self.manager, unit, name), ours)

    def test_it_is_watched_and_confined(self):
        other, since = self.worker(), journal_end()
        with drop_in(f"[Service]\nExecStartPre={HERE}/sandbox-probe {other.pid}\n", manager=self.manager):
            self.manager("start", "marud.service")
        self.assertNotEqual(self.manager.show("WatchdogTimestampMonotonic"), "0", "the watchdog was never fed")
        status = pathlib.Path(f"/proc/{self.manager.pid()}/status").read_text()
        self.assertEqual(re.findall(r"^(NoNewPrivs|CapEff):\s+(\w+)$", status, re.M),
                         [("CapEff", "0" * 16), ("NoNewPrivs", "1")])
        found = dict(entry["MESSAGE"].split()[1:3] for entry in journal("_SYSTEMD_USER_UNIT=marud.service", since=since)
                     if entry["MESSAGE"].startswith("probe "))
        self.assertEqual({name: found.get(name) for name in ALLOWED if found.get(name) != "ok"}, {})
        self.assertEqual({name: found.get(name) for name in FORBIDDEN if found.get(name) != FORBIDDEN[name]}, {})

    def test_kill_9_and_restart_lose_nothing(self):
        worker = self.own_worker()
        worker.store(8)
        until("the user's manager keeps the segments", lambda: self.manager.stored() >= 2)
        for end in (lambda pid: os.kill(pid, signal.SIGKILL), lambda pid: self.manager("restart", "marud.service")):
            pid = self.manager.pid()
            end(pid)
            self.manager.until_new_pid(pid)
            worker.until_attached()
            until("every object is a hit again", lambda: worker.hits() == 8)
        worker.end()
        until("nothing is stored for nobody", lambda: self.manager.stored() == 0)

    def test_deaths_in_a_row_reach_no_limit(self):
        # By default 5 starts in 10 s.
        worker = self.own_worker()
        worker.store(8)
        pid = self.manager.pid()
        for _ in range(8):
            os.kill(pid, signal.SIGKILL)
            pid = self.manager.until_new_pid(pid)
        # By the unit itself, whether or not a client knocks.
        self.assertGreaterEqual(int(self.manager.show("NRestarts")), 8, "NRestarts")
        worker.until_attached()
        until("every object is a hit again", lambda: worker.hits() == 8)

    def test_a_reload_takes_effect_in_the_same_process(self):
        self.own_worker()
        pid, since = self.manager.pid(), journal_end()
        self.manager("reload", "marud.service")
        until("the reload is logged", lambda: journal(
            f"MESSAGE_ID={RELOADED}", "_SYSTEMD_USER_UNIT=marud.service", since=since))
        self.assertEqual(self.manager.pid(), pid)

    def test_enabling_puts_the_socket_into_the_start_of_the_users_manager(self):
        self.manager("enable", "marud.service")
        self.addCleanup(self.manager, "disable", "marud.socket")
        self.assertEqual(self.manager("is-enabled", "marud.socket").strip(), "enabled")
        home = pwd.getpwnam("bob").pw_dir
        self.assertTrue(os.path.islink(f"{home}/.config/systemd/user/sockets.target.wants/marud.socket"))

    def test_a_wrong_configuration_is_named_and_not_repeated(self):
        place = f"{pwd.getpwnam('bob').pw_dir}/.config/maru"
        run("runuser", "-u", "bob", "--", "mkdir", "-p", place)
        with open(f"{place}/marud.toml", "w", encoding="utf-8") as file:
            file.write("nonsense = 1\n")
        self.addCleanup(os.unlink, f"{place}/marud.toml")
        since = journal_end()
        self.assertNotEqual(self.manager.status("start", "marud.service"), 0,
                            f"marud started, whatever {place}/marud.toml says")
        self.assertEqual(self.manager.show("ActiveState"), "failed", "it is started again")
        self.assertEqual(self.manager.show("ExecMainStatus"), "2", "ExecMainStatus")
        self.assertEqual(self.manager.show("NRestarts"), "0", "NRestarts")
        said = [e["MESSAGE"] for e in journal("_SYSTEMD_USER_UNIT=marud.service", since=since)]
        self.assertTrue(any(f"{place}/marud.toml:1" in text and "nonsense" in text for text in said), said)
        self.manager("reset-failed")
