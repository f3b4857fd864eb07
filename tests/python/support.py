# SPDX-License-Identifier: Apache-2.0
"""What the tests share: a marud of their own if MARUD names one, names, and skips with a reason.

With MARU_LIBRARY naming the in-process fake and no MARUD, the same tests run against the fake.
"""

import contextlib
import gc
import itertools
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import maru

PACKAGE = pathlib.Path(maru.__file__).resolve().parents[1]
MARUD = os.environ.get("MARUD")
FAKE = "fake" in os.path.basename(os.environ.get("MARU_LIBRARY", ""))
MIB = 1 << 20
FORMAT = "raw-v1"

_numbers = itertools.count(1)


def unique(what):
    """A name that no other test uses."""
    return f"{what}-{os.getpid()}-{next(_numbers)}"


def optional(module):
    """The module, or a skip that names it."""
    try:
        return __import__(module)
    except ImportError:
        reason = f"{module} is not installed for Python {sys.version.split()[0]}"
        raise unittest.SkipTest(reason) from None


class Daemon:
    """A marud of this process's user in a directory of its own, started by @prefix."""

    def __init__(self, prefix=()):
        self._prefix = list(prefix)
        self._directory = tempfile.TemporaryDirectory(prefix="maru-py-")
        self.directory = pathlib.Path(self._directory.name)
        self.socket_path = str(self.directory / "marud.sock")
        self.config = CONFIG
        self._process = None

    def start(self):
        """Start it and wait for READY=1, which comes when start-up is really done."""
        ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = str(self.directory / "notify")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        ready.bind(path)
        ready.settimeout(30)
        config = self.directory / "marud.toml"
        config.write_text(self.config.format(directory=self.directory))
        environment = dict(os.environ, NOTIFY_SOCKET=path)
        environment.pop("LD_PRELOAD", None)  # a sanitizer's run-time, for Python alone
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, MARUD, "--user", "--config", str(config)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        with ready:
            try:
                while b"READY=1" not in ready.recv(4096).split(b"\n"):
                    pass
            except socket.timeout:
                raise AssertionError("marud did not become ready:\n" + self.log()) from None

    @property
    def pid(self):
        return self._process.pid

    def stop(self, number=signal.SIGTERM):
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=30)
            self._process = None

    def log(self):
        return (self.directory / "log").read_text(errors="replace")

    def cleanup(self):
        self.stop(signal.SIGKILL)
        self._directory.cleanup()


CONFIG = """
[daemon]
socket = "{directory}/marud.sock"
runtime_directory = "{directory}"

[cpu]
host_bytes = "64G"
segment_bytes = "4M"

[limits]
namespaces = 65536
namespaces_per_uid = 65536
"""


class MaruTest(unittest.TestCase):
    """A test with a client: of a real marud, one per class, or of the fake."""

    daemon = None
    needs_daemon = False

    @classmethod
    def setUpClass(cls):
        if not os.environ.get("MARU_LIBRARY"):
            raise unittest.SkipTest("MARU_LIBRARY is not set: no libmaru.so.0 to test")
        if not MARUD and (cls.needs_daemon or not FAKE):
            raise unittest.SkipTest("MARUD is not set: no marud to test with")
        if MARUD:
            cls.daemon = Daemon()
            cls.addClassCleanup(cls.daemon.cleanup)
            cls.daemon.start()

    def socket_path(self):
        return self.daemon.socket_path if self.daemon else None

    def client(self, engine=None, **options):
        """A client that the test may leave open; its own errors at the end are the test's."""
        opened = maru.Client(engine or unique("engine"), socket_path=self.socket_path(), **options)
        self.addCleanup(self._close, opened)
        return opened

    def _close(self, client):
        gc.collect()  # views in frames of a failed assertion
        if not client.closed:
            client.close()

    def assertBytes(self, actual, expected):
        """Equal contents, item by item; a failure tells where, and prints no megabytes."""
        self.assertEqual(len(actual), len(expected))
        for number, (one, other) in enumerate(zip(actual, expected)):
            if bytes(one) != bytes(other):
                at = next(i for i, (a, b) in enumerate(zip(bytes(one), bytes(other))) if a != b)
                self.fail(f"object {number} differs from offset {at} on")

    def worker(self, length=65536, capacity=16 * MIB, **options):
        """(client, pool, namespace) ready to store objects of @length bytes."""
        client = self.client(**options)
        pool = client.pool(capacity, wait_populated=True)
        namespace = client.namespace(unique("namespace"))
        namespace.describe(length, FORMAT)
        return client, pool, namespace

    def digests(self, namespace, count, first=0):
        """Digests of @count chunks that differ from those of another @first."""
        return namespace.digests(range(first, first + 4 * count), 4)

    def stored(self, length=65536, count=1):
        """(client, pool, namespace, digests, contents) of objects that are in the cache."""
        client, pool, namespace = self.worker(length)
        digests = self.digests(namespace, count)
        contents = [pattern(length, index) for index in range(count)]
        results = namespace.store(pool, digests, contents)
        self.assertEqual(results.succeeded, count, list(results))
        return client, pool, namespace, digests, contents

    def program(self, text, *arguments, check=0):
        """Run @text in a Python of its own, like this one; the test fails unless it exits
        @check.
        """
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(PACKAGE), environment.get("PYTHONPATH")])
        )
        if self.socket_path():
            environment["MARU_SOCKET"] = self.socket_path()
        ended = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", text, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(ended.returncode, check, ended.stdout + ended.stderr)
        return ended


def pattern(length, number):
    """@length bytes that say which object they are, at every offset."""
    unit = b"".join(
        ((number * 2654435761 + i) & 0xFFFFFFFF).to_bytes(4, "little") for i in range(256)
    )
    return (unit * (length // len(unit) + 1))[:length]
