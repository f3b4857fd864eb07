"""The Debian packages: installed, used from C and Python, upgraded under a worker, removed, purged.

One story in numbered parts: each begins where the one before ended.
"""

import glob
import os
import pathlib
import pwd
import unittest

from support import SOCKET, Worker, maructl, run, status_of, systemctl, until

NAMES = ["libmaru0", "libmaru-dev", "marud", "python3-maru"]
CONFIG = pathlib.Path("/etc/maru/marud.toml")


def dpkg(*arguments):
    return run("dpkg", "--force-confold", *arguments, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def debs(which):
    return sorted(glob.glob(f"/packages/{which}/*.deb"))


def state(package):
    """ "ii 0.1.0", "rc 0.1.0" or "" for one that dpkg does not know."""
    out = run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Version}", package, check=False).split()
    return " ".join(out) if out and out[0] != "un" else ""


def files():
    """Every path that a package could have left; not what dpkg, logs and Python write on their own."""
    found = set()
    for top in ("/etc", "/usr", "/var", "/opt", "/srv", "/run/maru"):
        for directory, folders, names in os.walk(top):
            folders[:] = [f for f in folders if f != "__pycache__"]
            found.update(os.path.join(directory, name) for name in folders + names)
    own = ("/var/lib/dpkg/", "/var/cache/", "/var/log/", "/var/tmp/", "/var/backups/")
    passwords = {"/etc/passwd-", "/etc/shadow-", "/etc/group-", "/etc/gshadow-", "/etc/.pwd.lock"}
    return {path for path in found if not path.startswith(own)} - passwords


class Package(unittest.TestCase):
    worker = None
    before = None

    @classmethod
    def setUpClass(cls):
        for user in ("alice", "bob"):
            run("useradd", "--create-home", "--shell", "/bin/sh", user)
        cls.before = files()

    @classmethod
    def tearDownClass(cls):
        if cls.worker is not None:
            cls.worker.end()

    def test_1_installs(self):
        dpkg("-i", *debs("first"))
        for name in NAMES:
            self.assertTrue(state(name).startswith("ii "), f"{name}: {state(name)}")
        self.assertEqual(run("dpkg", "--audit"), "")
        self.assertEqual(run("dpkg", "--verify", *NAMES, check=False), "")
        user = pwd.getpwnam("maru")
        self.assertLess(user.pw_uid, 1000)
        self.assertTrue(user.pw_shell.endswith("nologin"), user.pw_shell)

    def test_2_the_socket_is_open_and_marud_waits_for_a_client(self):
        self.assertEqual(systemctl.show("ActiveState", "marud.socket"), "active")
        self.assertEqual(systemctl("is-enabled", "marud.socket").strip(), "enabled")
        self.assertEqual(systemctl.show("ActiveState"), "inactive")
        self.assertNotEqual(status_of("systemctl", "--global", "is-enabled", "marud.socket"), 0)
        maructl("status")
        self.assertEqual(systemctl.show("ActiveState"), "active")
        self.assertEqual(status_of("marud", "--check-config"), 0)

    def test_3_a_c_program_stores_and_loads(self):
        example = "/usr/share/doc/libmaru-dev/examples/example.c"
        flags = run("pkg-config", "--cflags", "--libs", "maru").split()
        run("gcc", "-std=c99", "-Wall", "-Werror", example, *flags, "-o", "/tmp/example")
        out = run("runuser", "-u", "alice", "--", "/tmp/example")
        self.assertIn("2 chunks are readable", out)
        self.assertIn("chunk 1: 65536 bytes of 'b'", out)

    def test_4_a_python_program_stores_and_loads(self):
        program = "/usr/share/doc/python3-maru/examples/first_program.py"
        out = run("runuser", "-u", "alice", "--", "python3", "-W", "error", program)
        self.assertIn("3 of 3 chunks are in the cache", out)

    def test_5_an_upgrade_under_a_worker_loses_nothing(self):
        worker = type(self).worker = Worker("upgraded")
        self.assertEqual(worker.store(16), 16)
        until("the segments are stored", lambda: systemctl.stored() >= 2)
        CONFIG.write_text(CONFIG.read_text() + "\n# of the operator\n")
        socket, pid, version = os.stat(SOCKET).st_ino, systemctl.pid(), state("marud")
        dpkg("-i", *debs("second"))
        for name in NAMES:
            self.assertTrue(state(name).endswith("+next1"), f"{name}: {state(name)}")
        self.assertNotEqual(state("marud"), version)
        self.assertNotEqual(systemctl.until_new_pid(pid), pid)
        self.assertEqual(os.stat(SOCKET).st_ino, socket)
        worker.until_attached()
        until("every object is a hit again", lambda: worker.hits() == 16)
        self.assertTrue(CONFIG.read_text().endswith("# of the operator\n"))

    def test_6_a_socket_that_was_disabled_stays_so(self):
        systemctl("disable", "marud.socket")
        dpkg("-i", *debs("second"))
        self.assertEqual(status_of("systemctl", "is-enabled", "marud.socket"), 1)
        systemctl("enable", "marud.socket")

    def test_7_a_removal_stops_it_and_keeps_the_configuration(self):
        dpkg("-r", "marud")
        self.assertTrue(state("marud").startswith("rc "), state("marud"))
        self.assertFalse(os.path.exists(SOCKET))
        self.assertFalse(glob.glob("/usr/bin/maru*"))
        self.assertEqual(systemctl.show("LoadState", "marud.socket"), "not-found")
        comms = [path.read_text() for path in pathlib.Path("/proc").glob("[0-9]*/comm")]
        self.assertNotIn("marud\n", comms)
        self.assertTrue(CONFIG.exists())
        # The worker lost its cache, not its life.
        self.assertNotEqual(self.worker("info")["state"], "attached")

    def test_8_installed_again_the_worker_is_back(self):
        dpkg("-i", *(deb for deb in debs("second") if "/marud_" in deb))
        self.worker.until_attached()
        until("every object is a hit again", lambda: self.worker.hits() == 16)
        self.assertTrue(CONFIG.read_text().endswith("# of the operator\n"))

    def test_9_a_purge_leaves_nothing_but_the_user(self):
        self.worker.end()
        dpkg("-P", *NAMES)
        self.assertEqual([state(name) for name in NAMES], [""] * 4)
        self.assertEqual(sorted(files() - self.before), [])
        self.assertEqual(sorted(self.before - files()), [])
        # As Debian has it: files that a uid owns must not become somebody else's.
        self.assertEqual(pwd.getpwnam("maru").pw_dir, "/run/maru")
        self.assertEqual(systemctl("list-units", "--failed", "--no-legend"), "")
