"""The socket is systemd's: it starts marud, and it stays what it is when marud goes."""

import fcntl
import os
import pwd
import stat
import subprocess
import time

from support import SOCKET, MachineTest, maructl, systemctl


class Activation(MachineTest):
    def test_the_first_client_starts_marud(self):
        self.assertEqual(systemctl.show("ActiveState"), "inactive")
        self.assertTrue(stat.S_ISSOCK(os.stat(SOCKET).st_mode))
        worker = self.worker()
        self.assertEqual(worker.store(4), 4)
        self.assertEqual(worker.hits(), 4)
        self.assertEqual(systemctl.show("ActiveState"), "active")
        self.assertEqual(os.stat(f"/proc/{systemctl.pid()}").st_uid, pwd.getpwnam("maru").pw_uid)

    def test_the_socket_outlives_marud(self):
        before = os.stat(SOCKET)
        maructl("status")
        for _ in range(3):
            systemctl("stop", "marud.service")
            self.assertEqual(systemctl.show("ActiveState", "marud.socket"), "active")
            self.assertEqual(os.stat(SOCKET).st_ino, before.st_ino)
            maructl("status")
            self.assertEqual(systemctl.show("ActiveState"), "active")
        after = os.stat(SOCKET)
        self.assertEqual((after.st_ino, after.st_mode, after.st_uid), (before.st_ino, before.st_mode, before.st_uid))

    def test_the_socket_goes_with_its_unit(self):
        systemctl("stop", "marud.service", "marud.socket")
        self.assertFalse(os.path.exists(SOCKET))

    def test_ready_comes_only_when_it_serves(self):
        # A second instance would wait for the lock of the first, and so does a start that finds it held.
        maructl("status")
        systemctl("stop", "marud.service")
        lock = open("/run/maru/marud.lock", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX)
        systemctl("start", "--no-block", "marud.service")
        client = subprocess.Popen(["maructl", "status"], stdout=subprocess.DEVNULL)
        begin = time.monotonic()
        seen = set()
        # Less than marud waits before it gives up.
        while time.monotonic() - begin < 0.5:
            seen.add(systemctl.show("ActiveState"))
            self.assertIsNone(client.poll(), "a client was answered by a marud that is not ready")
        self.assertLessEqual(seen, {"inactive", "activating"})
        lock.close()
        systemctl.until_state("active")
        self.assertEqual(systemctl.show("StatusText"), "Serving")
        self.assertEqual(client.wait(timeout=30), 0)
