"""A loop that stands still is killed and replaced."""

import os
import signal
import time

from support import MachineTest, drop_in, journal, journal_end, systemctl, until


class Watchdog(MachineTest):
    def test_a_loop_that_stands_still_is_replaced(self):
        with drop_in("[Service]\nWatchdogSec=1s\nTimeoutAbortSec=2s\n"):
            worker = self.worker()
            worker.store(8)
            pid, since = systemctl.pid(), journal_end()
            restarts = int(systemctl.show("NRestarts"))
            os.kill(pid, signal.SIGSTOP)
            systemctl.until_new_pid(pid)
            # By the unit itself: a marud that a client must wake has lost what the manager kept for it.
            self.assertEqual(int(systemctl.show("NRestarts")), restarts + 1, "NRestarts")
            said = [e["MESSAGE"] for e in journal("UNIT=marud.service", since=since)]
            self.assertTrue(any("Watchdog timeout" in text for text in said), said)
            worker.until_attached()
            until("every object is a hit again", lambda: worker.hits() == 8)
            systemctl("stop", "marud.service")

    def test_a_loop_that_runs_is_left_alone(self):
        with drop_in("[Service]\nWatchdogSec=3s\n"):
            worker = self.worker()
            pid = systemctl.pid()
            # Longer than the watchdog: it must have been fed, without any client's help.
            fed, begin = set(), time.monotonic()
            while time.monotonic() - begin < 4:
                fed.add(systemctl.show("WatchdogTimestampMonotonic"))
                time.sleep(0.1)
            self.assertEqual(systemctl.pid(), pid, "marud runs, and was replaced: nothing fed the watchdog")
            # Three to each period, so that one may come late.
            self.assertGreaterEqual(len(fed), 3, "the watchdog of 3 s is fed too rarely")
            self.assertEqual(worker("info")["reconnects"], 0)
            systemctl("stop", "marud.service")

    def test_the_default_is_set(self):
        systemctl("start", "marud.service")
        self.assertEqual(systemctl.show("WatchdogUSec"), "30s", "WatchdogSec= of the unit")
        self.assertNotEqual(systemctl.show("WatchdogTimestampMonotonic"), "0", "the watchdog was never fed")
