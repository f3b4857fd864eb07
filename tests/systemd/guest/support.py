"""What the tests share: systemctl, the journal, and workers of other users."""

import contextlib
import json
import os
import pathlib
import pwd
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).parent
SOCKET = "/run/maru/marud.sock"
PATIENCE = 30  # seconds; only a failure takes that long


def run(*command, check=True, **options):
    """Its stdout as text; with @check anything but success fails with what it said."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, **options
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def status_of(*command):
    return subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE
    ).returncode


def until(what, condition):
    """Waits for what nothing tells; @what is the failure's text."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.02)
    return value


class Manager:
    """systemctl for the system, or for one user's manager."""

    def __init__(self, user=None):
        self.prefix = []
        self.command = ["systemctl"]
        if user is not None:
            runtime = f"/run/user/{pwd.getpwnam(user).pw_uid}"
            self.prefix = ["runuser", "-u", user, "--", "env", f"XDG_RUNTIME_DIR={runtime}"]
            self.command = ["systemctl", "--user"]

    def __call__(self, *arguments):
        return run(*self.prefix, *self.command, *arguments)

    def status(self, *arguments):
        return status_of(*self.prefix, *self.command, *arguments)

    def show(self, name, unit="marud.service"):
        return self("show", "--value", "-p", name, unit).strip()

    def pid(self):
        return int(self.show("MainPID"))

    def stored(self):
        """How many descriptors the manager keeps for marud."""
        return int(self.show("NFileDescriptorStore"))

    def until_state(self, state, unit="marud.service"):
        until(f"{unit} is {state}, it is {self.show('ActiveState', unit)}",
              lambda: self.show("ActiveState", unit) == state)

    def until_new_pid(self, old):
        return until(f"marud has another pid than {old}",
                     lambda: (pid := self.pid()) not in (0, old)
                     and self.show("ActiveState") == "active" and pid)


systemctl = Manager()


def journal(*matches, since=0):
    """Entries as dictionaries, after @since. journalctl's own --after-cursor loses the first match."""
    run("journalctl", "--sync")
    entries = map(json.loads, run("journalctl", "--no-pager", "-o", "json", *matches).splitlines())
    return [entry for entry in entries if int(entry["__REALTIME_TIMESTAMP"]) > since]


def journal_end():
    """When the last entry of now came."""
    run("journalctl", "--sync")
    last = run("journalctl", "--no-pager", "-n", "1", "-o", "json")
    return int(json.loads(last)["__REALTIME_TIMESTAMP"])


@contextlib.contextmanager
def drop_in(text, unit="marud.service", manager=systemctl):
    """A drop-in for as long as the block lasts."""
    directory = pathlib.Path(f"/run/systemd/{'user' if manager.prefix else 'system'}/{unit}.d")
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "test.conf"
    path.write_text(text)
    manager("daemon-reload")
    try:
        yield
    finally:
        path.unlink()
        manager("daemon-reload")


class Worker:
    """A process of user @user with a pool and objects in it; see worker.py."""

    def __init__(self, engine, user="alice", environment=None, **options):
        command = ["runuser", "-u", user, "--", "env", *(f"{k}={v}" for k, v in (environment or {}).items())]
        self.process = subprocess.Popen(
            [*command, sys.executable, "-B", str(HERE / "worker.py"), json.dumps({"engine": engine, **options})],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self.pid = self._answer()["pid"]

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the worker ended: {self.process.wait(timeout=PATIENCE)}")
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(f"the worker says: {answer['error']}")
        return answer

    def __call__(self, verb, **arguments):
        self.process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def store(self, count):
        return self("store", count=count)["stored"]

    def hits(self):
        """How many of its objects it reads back with the right bytes, without storing any again."""
        return self("verify")["hits"]

    def until_attached(self):
        return until("the worker is attached", lambda: (i := self("info"))["state"] == "attached" and i)

    def send_signal(self, number):
        os.kill(self.pid, number)

    def end(self):
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            try:
                self.process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()


def config_file():
    places = map(pathlib.Path, ("/etc/maru/marud.toml", "/usr/local/etc/maru/marud.toml"))
    return next(place for place in places if place.exists())


def maructl(*arguments, **options):
    return json.loads(run("maructl", "--json", *arguments, **options))


class MachineTest(unittest.TestCase):
    """Each test begins with the socket open, nobody attached and marud not running."""

    def setUp(self):
        systemctl("reset-failed")
        systemctl("stop", "marud.service", "marud.socket")
        systemctl("start", "marud.socket")

    def worker(self, engine="engine", **options):
        worker = Worker(f"{engine}-{self.id().rsplit('.', 1)[-1]}", **options)
        self.addCleanup(worker.end)
        return worker
