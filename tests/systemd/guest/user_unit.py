"""The user's unit under a real user manager: no privilege, the same promises."""

import os
import pwd
import signal
import stat

from support import MachineTest, Manager, Worker, run, status_of, systemctl, until


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
        self.assertEqual((info.st_uid, stat.S_IMODE(info.st_mode)), (self.uid, 0o600))
        worker = self.own_worker()
        self.assertEqual(worker.store(8), 8)
        self.assertEqual(os.stat(f"/proc/{self.manager.pid()}").st_uid, self.uid)
        self.assertEqual(status_of("runuser", "-u", "alice", "--", "maructl", "--socket", self.socket, "status"), 3)
        # The system's is another one, and was not woken.
        self.assertEqual(systemctl.show("ActiveState"), "inactive")

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

    def test_a_wrong_configuration_is_named_and_not_repeated(self):
        place = f"{pwd.getpwnam('bob').pw_dir}/.config/maru"
        run("runuser", "-u", "bob", "--", "mkdir", "-p", place)
        with open(f"{place}/marud.toml", "w", encoding="utf-8") as file:
            file.write("nonsense = 1\n")
        self.addCleanup(os.unlink, f"{place}/marud.toml")
        self.assertNotEqual(self.manager.status("start", "marud.service"), 0)
        self.assertEqual(self.manager.show("ExecMainStatus"), "2")
        self.assertEqual(self.manager.show("NRestarts"), "0")
        self.manager("reset-failed")
