"""marud ends in each way it can end, with a worker attached: the worker's objects stay hits."""

import os
import signal

from support import MachineTest, maructl, systemctl, until


def memfds(pid):
    """How many descriptors of sealed memory a process holds."""
    found = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/memfd:")
        except OSError:
            pass
    return found


class Restart(MachineTest):
    def setUp(self):
        super().setUp()
        self.attached = self.worker()
        self.assertEqual(self.attached.store(16), 16)
        self.assertEqual(self.attached.hits(), 16)
        self.pid = systemctl.pid()
        self.segments = memfds(self.pid)
        self.assertGreater(self.segments, 0)

    def assert_all_there(self):
        self.attached.until_attached()
        until("every object is a hit again", lambda: self.attached.hits() == 16)

    def test_the_manager_keeps_every_segment(self):
        until("each segment and the worker's pidfd is stored", lambda: systemctl.stored() == self.segments + 1)
        self.attached.end()
        until("nothing is stored for nobody", lambda: systemctl.stored() == 0)
        self.assertEqual(maructl("pool")["pools"], [])

    def test_systemctl_restart_loses_nothing(self):
        systemctl("restart", "marud.service")
        self.assertNotEqual(systemctl.pid(), self.pid)
        self.assert_all_there()

    def test_kill_9_loses_nothing(self):
        os.kill(self.pid, signal.SIGKILL)
        systemctl.until_new_pid(self.pid)
        self.assert_all_there()

    def test_segments_come_from_the_manager_not_from_the_worker(self):
        # A stopped worker passes nothing: what the new marud holds was in the store.
        self.attached.send_signal(signal.SIGSTOP)
        try:
            os.kill(self.pid, signal.SIGKILL)
            pid = systemctl.until_new_pid(self.pid)
            self.assertEqual(memfds(pid), self.segments)
            self.assertEqual(len(maructl("pool")["pools"]), 1)
        finally:
            self.attached.send_signal(signal.SIGCONT)
        self.assert_all_there()

    def test_a_worker_that_dies_together_with_marud_leaves_nothing(self):
        os.kill(self.pid, signal.SIGKILL)
        self.attached.send_signal(signal.SIGKILL)
        systemctl.until_new_pid(self.pid)
        until("its pool is given back", lambda: maructl("pool")["pools"] == [])
        until("nothing is stored for nobody", lambda: systemctl.stored() == 0)

    def test_deaths_in_a_row_reach_no_limit(self):
        # Neither the service's nor the socket's: by default 5 starts in 10 s, 20 activations in 2 s.
        pid = self.pid
        for _ in range(25):
            os.kill(pid, signal.SIGKILL)
            pid = systemctl.until_new_pid(pid)
        self.assertGreaterEqual(int(systemctl.show("NRestarts")), 25)
        self.assertEqual(memfds(pid), self.segments)
        self.assert_all_there()

    def test_a_stop_and_a_start_lose_nothing_of_a_living_worker(self):
        # The store is emptied by a stop; the worker passes its segments again.
        systemctl("stop", "marud.service")
        systemctl("start", "marud.service")
        self.assert_all_there()
        until("the segments are stored again", lambda: systemctl.stored() == self.segments + 1)

    def test_reexecution_of_the_manager_loses_nothing(self):
        systemctl("daemon-reexec")
        self.assertEqual(systemctl.pid(), self.pid)
        os.kill(self.pid, signal.SIGKILL)
        systemctl.until_new_pid(self.pid)
        self.assert_all_there()
