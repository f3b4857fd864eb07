"""Right and wrong configurations, at a reload and at a start."""

import time

from support import MachineTest, config_file, journal, journal_end, maructl, run, systemctl, until

BAD_CONFIG = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a14"
RELOADED = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a13"


class Configuration(MachineTest):
    def setUp(self):
        super().setUp()
        self.file = config_file()
        original = self.file.read_text()
        self.addCleanup(self.file.write_text, original)

    def test_a_reload_takes_effect_in_the_same_process(self):
        worker = self.worker()
        worker.store(4)
        pid, since = systemctl.pid(), journal_end()
        self.file.write_text('[cpu]\nworker_bytes = "16MiB"\nuid_bytes = "16MiB"\nhost_bytes = "16MiB"\n')
        systemctl("reload", "marud.service")
        until("the reload is logged", lambda: journal(f"MESSAGE_ID={RELOADED}", since=since))
        self.assertEqual(systemctl.pid(), pid)
        systemctl.until_state("active")
        self.assertEqual(systemctl.show("SubState"), "running")
        self.assertEqual(worker.hits(), 4)
        with self.assertRaisesRegex(AssertionError, "Maru(Full|Quota)"):
            self.worker("second", bytes=32 << 20)

    def test_the_manager_sees_a_reload_begin_and_end(self):
        systemctl("start", "marud.service")
        since = journal_end()
        systemctl("reload", "marud.service")
        said = until("both are logged", lambda: [
            text for text in (e["MESSAGE"] for e in journal("UNIT=marud.service", since=since))
            if text.startswith("Reload")][1:] and True)
        self.assertTrue(said)

    def test_a_wrong_reload_changes_nothing(self):
        worker = self.worker()
        worker.store(4)
        pid, since = systemctl.pid(), journal_end()
        self.file.write_text("[sessions]\ntimeuot = \"3s\"\n")
        systemctl("reload", "marud.service")
        lines = until("the mistake is logged", lambda: journal(f"MESSAGE_ID={BAD_CONFIG}", since=since))
        self.assertIn(f"{self.file}:2", lines[0]["MESSAGE"])
        self.assertIn("timeout", lines[0]["MESSAGE"])
        self.assertEqual((systemctl.pid(), systemctl.show("ActiveState")), (pid, "active"))
        self.assertEqual(worker.hits(), 4)

    def test_a_wrong_start_ends_with_2_and_is_not_repeated(self):
        since = journal_end()
        self.file.write_text("[cpu]\nhost_bytes = \"much\"\n")
        self.assertNotEqual(systemctl.status("start", "marud.service"), 0)
        self.assertEqual(systemctl.show("ActiveState"), "failed")
        self.assertEqual(systemctl.show("ExecMainStatus"), "2")
        # RestartSec is 100 ms.
        time.sleep(1)
        self.assertEqual(systemctl.show("ActiveState"), "failed")
        self.assertEqual(systemctl.show("NRestarts"), "0")
        said = [e["MESSAGE"] for e in journal("_SYSTEMD_UNIT=marud.service", since=since)]
        self.assertTrue(any(f"{self.file}:2" in text for text in said), said)

    def test_a_worker_outlives_starts_that_fail(self):
        worker = self.worker()
        worker.store(8)
        original = self.file.read_text()
        self.file.write_text("nonsense = 1\n")
        since = journal_end()
        self.assertNotEqual(systemctl.status("restart", "marud.service"), 0)
        # The worker knocks, and each knock starts marud again; not as fast as it can fail.
        begin = time.monotonic()
        until("marud was started again", lambda: len(self.failures(since)) >= 3)
        self.assertGreater(time.monotonic() - begin, 2)
        self.assertEqual(systemctl.show("NRestarts"), "0")
        self.assertEqual(systemctl.show("ActiveState", "marud.socket"), "active")
        # The right file is enough: nobody has to start anything.
        self.file.write_text(original)
        worker.until_attached()
        until("every object is a hit again", lambda: worker.hits() == 8)

    @staticmethod
    def failures(since):
        return [e for e in journal("_SYSTEMD_UNIT=marud.service", since=since) if "nonsense" in e["MESSAGE"]]

    def test_check_config_says_what_a_start_would_say(self):
        self.file.write_text("nonsense = 1\n")
        self.assertIn("nonsense", run("sh", "-c", "marud --check-config 2>&1; [ $? -eq 2 ]"))

    def test_maructl_reload_does_the_same(self):
        systemctl("start", "marud.service")
        since = journal_end()
        maructl("reload")
        until("the reload is logged", lambda: journal(f"MESSAGE_ID={RELOADED}", since=since))
