#!/usr/bin/env python3
"""The installed units keep what marud depends on, and systemd reads them without complaint."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = sys.argv[1], sys.argv[2]


def read_unit(path):
    """Values by key: a key may stand several times, so configparser will not do."""
    values = {}
    with open(path, encoding="utf-8") as unit:
        for line in unit:
            line = line.strip()
            if line and line[0] not in "#[" and "=" in line:
                key, value = line.split("=", 1)
                values.setdefault(key, []).append(value)
    return values


SERVICES = {
    "system": os.path.join(BUILD, "systemd", "marud.service"),
    "user": os.path.join(BUILD, "systemd", "user", "marud.service"),
}
SOCKETS = {
    "system": os.path.join(SOURCE, "systemd", "marud.socket"),
    "user": os.path.join(SOURCE, "systemd", "user", "marud.socket"),
}


class Units(unittest.TestCase):
    def test_services_keep_what_marud_depends_on(self):
        for name, path in SERVICES.items():
            with self.subTest(name):
                unit = read_unit(path)
                self.assertEqual(unit["Type"], ["notify"])
                self.assertEqual(unit["StartLimitIntervalSec"], ["0"])
                self.assertEqual(unit["RuntimeDirectoryPreserve"], ["yes"])
                self.assertEqual(unit["RestartPreventExitStatus"], ["2"])
                self.assertIn("WatchdogSec", unit)
                self.assertGreaterEqual(int(unit["FileDescriptorStoreMax"][0]), 4096)

    def test_clients_stay_visible(self):
        for name, path in SERVICES.items():
            with self.subTest(name):
                unit = read_unit(path)
                for key in ("PrivateUsers", "ProtectProc", "ProcSubset", "PrivatePIDs"):
                    self.assertNotIn(key, unit)

    def test_sockets_keep_message_boundaries(self):
        for name, path in SOCKETS.items():
            with self.subTest(name):
                unit = read_unit(path)
                self.assertTrue(unit["ListenSequentialPacket"][0].endswith("/maru/marud.sock"))
                self.assertNotIn("ListenStream", unit)
                # What gives up takes the service and its descriptors with it.
                self.assertEqual(unit["StartLimitIntervalSec"], ["0"])
                self.assertEqual(unit["TriggerLimitIntervalSec"], ["0"])

    def test_a_reload_needs_no_program_that_a_small_system_lacks(self):
        for name, path in SERVICES.items():
            with self.subTest(name):
                self.assertTrue(read_unit(path)["ExecReload"][0].startswith("/bin/sh "))

    def test_service_names_the_installed_program(self):
        for name, path in SERVICES.items():
            with self.subTest(name):
                program = read_unit(path)["ExecStart"][0].split()[0]
                self.assertTrue(os.path.isabs(program), program)
                self.assertEqual(os.path.basename(program), "marud")

    def test_the_manual_has_every_message_id_and_the_units_drop_in(self):
        with open(os.path.join(SOURCE, "man", "marud.8"), encoding="utf-8") as page:
            manual = page.read()
        with open(os.path.join(SOURCE, "daemon", "event", "journal.h"), encoding="utf-8") as header:
            ids = re.findall(r'"([0-9a-f]{32})"', header.read())
        self.assertGreaterEqual(len(ids), 9)
        self.assertEqual([one for one in ids if f".It Li {one}\n" not in manual], [])
        with open(SERVICES["system"], encoding="utf-8") as unit:
            shown = re.search(r"^#   \[Service\]\n(?:#   .*\n)+", unit.read(), re.M)[0]
        drop_in = shown.replace("#   ", "")
        self.assertTrue(drop_in in manual, f"not in the manual:\n{drop_in}")

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_reads_them_without_complaint(self):
        for name in SERVICES:
            with self.subTest(name), tempfile.TemporaryDirectory() as place:
                service = os.path.join(place, "marud.service")
                with open(SERVICES[name], encoding="utf-8") as original:
                    lines = original.read().splitlines()
                with open(service, "w", encoding="utf-8") as copy:
                    # What is not installed on the machine that builds is not the unit's fault.
                    for line in lines:
                        if line.startswith("ExecStart="):
                            line = "ExecStart=/bin/true"
                        if not line.startswith("Documentation="):
                            copy.write(line + "\n")
                shutil.copy(SOCKETS[name], place)
                result = subprocess.run(
                    ["systemd-analyze", "verify", "--man=no", service],
                    env={**os.environ, "SYSTEMD_UNIT_PATH": place + ":"},
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                    check=False)
                about_us = [line for line in result.stdout.splitlines() if "marud" in line]
                self.assertEqual(about_us, [], result.stdout)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_the_filter_of_system_calls_has_what_marud_calls(self):
        def calls(group):
            out = subprocess.run(["systemd-analyze", "syscall-filter", group],
                                 stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
            found = set()
            for word in out.split():
                if word == "#" or word.startswith("#"):
                    continue
                if word.startswith("@") and word != group:
                    found |= calls(word)
                else:
                    found.add(word)
            return found
        allowed = set()
        for line in read_unit(SERVICES["system"])["SystemCallFilter"]:
            for group in line.removeprefix("~").split():
                if line.startswith("~"):
                    allowed -= calls(group)
                else:
                    allowed |= calls(group)
        needed = {"memfd_create", "fcntl", "pidfd_open", "accept4", "sendto", "sendmsg", "recvmsg", "epoll_wait",
                  "eventfd2", "timerfd_settime", "signalfd4", "flock", "mmap", "ftruncate", "fchmod",
                  "getrandom", "prlimit64", "io_uring_setup", "io_uring_enter", "io_uring_register", "getsockopt", "setsockopt", "clone3", "rename"}
        self.assertEqual(needed - allowed, set())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
