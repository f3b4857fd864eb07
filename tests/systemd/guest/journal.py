"""What marud says is in the journal, with fields to find it by."""

import os
import pwd
import re
import signal

from support import MachineTest, journal, journal_end, maructl, run, systemctl, until

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
        said = {}
        for what in ("opened a session", "has exited"):
            entries = until(f"the journal says of session {session}: {what}", lambda: [
                entry for entry in journal(f"MARU_SESSION={session}", since=since) if what in entry["MESSAGE"]])
            self.assertEqual(len(entries), 1, entries)
            said[what] = entries[0]
        for entry in said.values():
            self.assertEqual(entry["MESSAGE_ID"], SESSION)
            self.assertEqual(entry["MARU_UID"], str(uid))
            self.assertIn(str(worker.pid), re.findall("[0-9]+", entry["MESSAGE"]))
        # A death is something to see; that somebody came is not.
        self.assertEqual([entry["PRIORITY"] for entry in said.values()], ["6", "5"])

    @staticmethod
    def dropped():
        return re.findall("^maru_journal_dropped_total (.+)$", run("maructl", "metrics"), re.M)

    def test_no_line_is_lost_or_tells_a_secret(self):
        since = journal_end()
        worker = self.worker()
        worker.store(4)
        self.assertEqual(self.dropped(), ["0"])
        pid = systemctl.pid()
        os.kill(pid, signal.SIGKILL)
        systemctl.until_new_pid(pid)
        worker.until_attached()
        self.assertEqual(self.dropped(), ["0"])
        entries = journal("SYSLOG_IDENTIFIER=marud", since=since)
        lines = [entry["MESSAGE"] for entry in entries]
        self.assertEqual(len([e for e in entries if e.get("MESSAGE_ID") == STARTED]), 2, lines)
        self.assertEqual([line for line in lines if "were lost" in line], [])
        # A token has 16 bytes and a key 32, whatever name they go by. No number is as long in digits.
        for entry in entries:
            for field, value in entry.items():
                if field == "MESSAGE" or field.startswith("MARU_"):
                    self.assertIsInstance(value, str, f"{field} has bytes that are no text: {entry}")
                    self.assertIsNone(re.search("token|[0-9A-Fa-f]{24}", value), f"{field} tells a secret: {value}")
