# SPDX-License-Identifier: Apache-2.0
"""Maru behind the interface of the comparison of systems that `tests/bench.sh --peers DIR` runs.

DIR has driver.py and common.py, which say what a peer is: a Server that is started and stopped, and a Client with
put, get, exists and their batches. $MARUD is the program, $MARU_LIBRARY the library.
"""

import os
import shutil
import subprocess
import tempfile
import time

import maru
from common import Base

NAME, SHARED = "Maru", True
SLACK = 256 << 20


class Server:
    """A marud of its own, in a folder of its own."""

    def __init__(self, pool, port, tag):
        self.folder = tempfile.mkdtemp(prefix="maru-peer-")
        sock = os.path.join(self.folder, "marud.sock")
        config = os.path.join(self.folder, "marud.toml")
        with open(config, "w", encoding="utf-8") as out:
            out.write(
                f'[daemon]\nsocket = "{sock}"\nruntime_directory = "{self.folder}"\n'
                f'[cpu]\nhost_bytes = "{pool + SLACK}"\n'
            )
        log = os.path.join(self.folder, "log")
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(
                [os.environ.get("MARUD", "marud"), "--user", "--config", config], stdout=out, stderr=out
            )
        for _ in range(400):
            if os.path.exists(sock) or self.process.poll() is not None:
                break
            time.sleep(0.025)
        if not os.path.exists(sock):
            with open(log, encoding="utf-8") as text:
                raise RuntimeError(f"marud ({tag}, {port}) did not start: {text.read()[-1000:]}")
        self.args = {"sock": sock, "pool": pool}
        self.pids = {"marud": self.process.pid}

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Client(Base):
    """One worker; both clients' pools are of scope host, so that each reads what the other stored."""

    def __init__(self, args, size, cid, src, dst):
        self.size = size
        self.client = maru.Client(f"peer-{cid}", socket_path=args["sock"], timeout_ms=60_000)
        self.namespace = self.client.namespace("peers")
        self.namespace.describe(size, "bench")
        # Two clients share what the server has.
        self.pool = self.client.pool(args["pool"] // 2, scope="host", wait_populated=True)
        self.sources = [memoryview(src)[at : at + size] for at in range(0, len(src) - size + 1, size)]
        self.targets = [memoryview(dst)[at : at + size] for at in range(0, len(dst) - size + 1, size)]
        self.mine = []

    def digests(self, keys):
        return maru.Digests(b"".join(key.to_bytes(32, "little") for key in keys))

    def put_batch(self, keys, offs):
        digests = self.digests(keys)
        sources = [self.sources[o // self.size] for o in offs]
        stored = self.namespace.store(self.pool, digests, sources).succeeded
        # A pool of scope host is granted its memory as it fills.
        for _ in range(2000):
            if stored == len(keys):
                break
            time.sleep(0.001)
            stored = self.namespace.store(self.pool, digests, sources).succeeded
        self.mine.extend(keys)
        if stored != len(keys):
            raise RuntimeError(f"stored {stored} of {len(keys)}")
        return stored

    def put(self, key, off):
        self.put_batch([key], [off])

    def get_batch(self, keys, offs):
        buffers = [self.targets[o // self.size] for o in offs]
        return self.namespace.load(self.digests(keys), buffers).succeeded

    def get(self, key, off):
        return self.get_batch([key], [off]) == 1

    def exists(self, keys):
        return self.namespace.probe(self.digests(keys)).prefix

    def clear(self):
        for first in range(0, len(self.mine), 1024):
            self.namespace.retire(self.digests(self.mine[first : first + 1024]))
        self.mine.clear()
        for _ in range(5000):
            if self.pool.info().retiring_bytes == 0:
                return
            time.sleep(0.001)

    def close(self):
        self.pool.close(forced=True)
        self.client.close()
