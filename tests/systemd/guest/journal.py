"""What marud says is in the journal, with fields to find it by."""

import os
import pwd
import signal

from support import MachineTest, journal, journal_end, maructl, systemctl, until

STARTED = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a11"
STOPPING = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a12"
SESSION = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a17"


class Journal(MachineTest):
    def test_a_start_and_a_stop_have_their_ids(self):
        since = journal_end()
        systemctl("start", "marud.service")
        pid = systemctl.pid()
        systemctl("stop", "marud.service")
        started = until("the start is logged", lambda: journal(f"MESSAGE_ID={STARTED}", since=since))[0]
        self.assertEqual(started["SYSLOG_IDENTIFIER"], "marud")
        self.assertEqual(started["_SYSTEMD_UNIT"], "marud.service")
        self.assertEqual(started["_PID"], str(pid))
        self.assertEqual(started["_UID"], str(pwd.getpwnam("maru").pw_uid))
        self.assertEqual(started["PRIORITY"], "5")
        self.assertTrue(started["MARU_EPOCH"].isdigit())
        self.assertIn("fd store: systemd", started["MESSAGE"])
        stopped = until("the stop is logged", lambda: journal(f"MESSAGE_ID={STOPPING}", since=since))[0]
        self.assertIn("SIGTERM", stopped["MESSAGE"])

    def test_a_session_is_found_by_its_fields(self):
        since = journal_end()
        worker = self.worker()
        session = worker("info")["session"]
        worker.send_signal(signal.SIGKILL)
        uid = pwd.getpwnam("alice").pw_uid
        found = until("the session is logged", lambda: journal(f"MARU_SESSION={session}", since=since))
        self.assertEqual({entry["MESSAGE_ID"] for entry in found}, {SESSION})
        self.assertEqual({entry["MARU_UID"] for entry in found}, {str(uid)})

    def test_no_line_is_lost_or_tells_a_secret(self):
        since = journal_end()
        worker = self.worker()
        worker.store(4)
        os.kill(systemctl.pid(), signal.SIGKILL)
        worker.until_attached()
        maructl("status")
        lines = [entry["MESSAGE"] for entry in journal("SYSLOG_IDENTIFIER=marud", since=since)]
        self.assertGreaterEqual(len(lines), 2)
        self.assertFalse([line for line in lines if "were lost" in line or "token" in line])
