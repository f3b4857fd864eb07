"""Installs the build as a package would, and looks at what systemd made of it. Runs first."""

import os
import pathlib
import pwd
import shutil
import stat
import unittest

from support import run, status_of, systemctl


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.copytree("/maru-stage", "/", symlinks=True, dirs_exist_ok=True)
        run("ldconfig")
        run("systemd-sysusers")
        run("systemd-tmpfiles", "--create")
        systemctl("daemon-reload")
        for user in ("alice", "bob"):
            run("useradd", "--create-home", "--shell", "/bin/sh", user)

    def test_the_user_is_a_system_user_without_a_shell(self):
        user = pwd.getpwnam("maru")
        self.assertLess(user.pw_uid, 1000)
        self.assertTrue(user.pw_shell.endswith("nologin"), user.pw_shell)
        self.assertEqual(user.pw_dir, "/run/maru")

    def test_the_runtime_directory_is_the_users(self):
        info = os.stat("/run/maru")
        self.assertEqual(stat.S_IMODE(info.st_mode), 0o755)
        self.assertEqual((info.st_uid, info.st_gid), pwd.getpwnam("maru")[2:4])

    def test_a_second_time_changes_nothing(self):
        before = pathlib.Path("/etc/passwd").read_text(), os.stat("/run/maru").st_ino
        run("systemd-sysusers")
        run("systemd-tmpfiles", "--create")
        self.assertEqual(before, (pathlib.Path("/etc/passwd").read_text(), os.stat("/run/maru").st_ino))

    def test_systemd_reads_the_units_without_complaint(self):
        out = run("systemd-analyze", "verify", "--man=no", "marud.service", "marud.socket", check=False)
        self.assertEqual(out, "")
        self.assertEqual(systemctl.show("LoadState"), "loaded")

    def test_the_installed_configuration_is_right(self):
        self.assertEqual(status_of("marud", "--check-config"), 0)

    def test_enabling_puts_the_socket_into_the_boot(self):
        systemctl("enable", "marud.service")
        self.addCleanup(systemctl, "disable", "marud.socket")
        self.assertEqual(systemctl("is-enabled", "marud.socket").strip(), "enabled")
        self.assertTrue(os.path.islink("/etc/systemd/system/sockets.target.wants/marud.socket"))
