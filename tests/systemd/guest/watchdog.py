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
            os.kill(pid, signal.SIGSTOP)
            systemctl.until_new_pid(pid)
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
            time.sleep(4)
            self.assertEqual(systemctl.pid(), pid)
            self.assertEqual(worker("info")["reconnects"], 0)
            systemctl("stop", "marud.service")

    def test_the_default_is_set(self):
        systemctl("start", "marud.service")
        self.assertEqual(systemctl.show("WatchdogUSec"), "30s")
        self.assertNotEqual(systemctl.show("WatchdogTimestampMonotonic"), "0")
