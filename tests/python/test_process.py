# SPDX-License-Identifier: Apache-2.0
"""Processes: fork, pickling, threads at close, and the end of the interpreter."""

import copy
import ctypes
import errno
import gc
import os
import pickle
import signal
import sys
import threading
import unittest
import unittest.mock
import warnings
from collections import deque

import maru
from support import MaruTest, optional


def in_child(function):
    """Run @function in a fork; what it returns, as text, comes back with the wait status."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: a fork with threads
        pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            os.write(writer, str(function()).encode())
            os._exit(0)
        except BaseException as error:
            os.write(writer, repr(error).encode())
            os._exit(1)
    os.close(writer)
    with open(reader, "rb") as output:
        text = output.read().decode()
    return text, os.waitpid(pid, 0)[1]


class ForkTest(MaruTest):
    def test_every_use_in_a_child_is_refused(self):
        client, pool, ns, digests, contents = self.stored()
        lease = ns.acquire(digests)[0]
        run = pool.reserve(65536)
        queue = client.queue()
        uses = [
            client.info,
            client.close,
            lambda: client.namespace("x"),
            lambda: client.pool(1 << 20),
            client.queue,
            pool.info,
            pool.close,
            lambda: pool.reserve(1),
            lambda: ns.probe(digests),
            lambda: ns.store(pool, digests, contents),
            lambda: ns.load(digests, [bytearray(65536)]),
            lambda: ns.acquire(digests),
            lambda: ns.retire(digests),
            lambda: lease.view,
            lease.release,
            lambda: run.view,
            run.abort,
            lambda: run.write(b"x"),
            queue.fileno,
            queue.reap,
            queue.close,
        ]

        def child():
            refused = 0
            for use in uses:
                try:
                    use()
                except maru.MaruForked as error:
                    assert "fork" in error.strerror, error
                    refused += 1
            return refused

        self.assertEqual(in_child(child), (str(len(uses)), 0))
        self.assertEqual(bytes(lease.view), contents[0])
        run.abort()
        queue.close()

    @unittest.skipIf(
        "libtsan" in os.environ.get("LD_PRELOAD", ""),
        "the thread sanitizer refuses a forked child's threads: their handles repeat those of the parent's",
    )
    def test_a_child_that_drops_everything_disturbs_nothing(self):
        client, pool, ns, digests, contents = self.stored()
        box = [client, pool, ns, ns.acquire(digests), pool.reserve(65536)]
        view = box[3][0].view
        del client, pool

        def child():
            nonlocal view
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                del view
                box.clear()
                gc.collect()
            with maru.Client("of-the-child", socket_path=self.socket_path()) as own:
                return own.info().leases

        self.assertEqual(in_child(child), ("0", 0))
        self.assertEqual(box[0].info().leases, 1)
        self.assertEqual(view, contents[0])

    def test_a_child_may_leave_the_block_of_its_parent(self):
        def child():
            opened.__exit__(None, None, None)
            return opened.closed

        with maru.Client("parent-block", socket_path=self.socket_path()) as opened:
            self.assertEqual(in_child(child), ("False", 0))
            self.assertEqual(opened.info().state, "attached")

    def test_a_fork_while_a_thread_holds_the_lock_does_not_hang(self):
        client = self.client()

        def child():
            signal.alarm(20)
            try:
                client.info()
            except maru.MaruForked:
                return "refused"

        with client._handle.lock:
            thread = threading.Thread(target=lambda: results.append(in_child(child)))
            results = []
            thread.start()
            thread.join()
        self.assertEqual(results, [("refused", 0)])


    def test_a_fork_by_c_code_is_refused_by_libmaru_itself(self):
        """It runs none of Python's handlers of forks."""
        client, pool, ns, digests, contents = self.stored()
        fork = ctypes.PyDLL(None).fork  # keeps the GIL
        reader, writer = os.pipe()
        pid = fork()
        if pid == 0:
            said = []
            for use in (client.info, lambda: ns.probe(digests), lambda: pool.reserve(1), client.close):
                try:
                    use()
                    said.append("done")
                except maru.MaruForked:
                    said.append("refused")
                except BaseException as error:
                    said.append(repr(error))
            os.write(writer, " ".join(said).encode())
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as output:
            self.assertEqual(output.read(), b"refused refused refused refused")
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(ns.probe(digests).prefix, 1)


class PickleTest(MaruTest):
    def test_handles_are_neither_pickled_nor_copied(self):
        client, pool, ns, digests, contents = self.stored()
        leases = ns.acquire(digests)
        run = pool.reserve(65536)
        queue = client.queue()
        operation = queue.probe(ns, digests)
        for handle in (client, pool, ns, leases, leases[0], run, queue, operation):
            for use in (pickle.dumps, copy.copy, copy.deepcopy):
                with self.subTest(kind=type(handle).__name__, use=use.__name__):
                    with self.assertRaisesRegex(TypeError, "handle of this process"):
                        use(handle)
        run.abort()
        queue.reap(timeout_ms=10000)

    def test_plain_data_is_pickled(self):
        client, pool, ns, digests, contents = self.stored()
        for data in (
            digests,
            maru.Key(digests[0], 1, 2),
            maru.Manifest(0, 2),
            client.info(),
            pool.info(),
        ):
            self.assertEqual(pickle.loads(pickle.dumps(data)), data)
        error = maru.MaruFull(28, "no room")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), again.errno, again.strerror), (maru.MaruFull, 28, "no room"))


class CloseTest(MaruTest):
    def test_a_client_in_use_is_not_closed(self):
        client = self.client()
        inside, leave = threading.Event(), threading.Event()

        def work():
            with client._handle:  # what every call does around C
                inside.set()
                leave.wait(30)

        thread = threading.Thread(target=work)
        thread.start()
        inside.wait(30)
        with self.assertRaisesRegex(maru.MaruBusy, r"1 call\(s\) of other threads"):
            client.close()
        leave.set()
        thread.join()
        client.close()

    def test_calls_and_closes_that_meet_see_each_other(self):
        """No lock is around a call: in every order of their steps one of the two gives way."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        self.addCleanup(sys.setswitchinterval, interval)
        for _ in range(3):
            client = self.client()
            pool = client.pool(1 << 20)
            handle, seen, go_on = pool._handle, set(), threading.Event()

            def work(pool=pool, handle=handle, seen=seen, go_on=go_on):
                while True:
                    try:
                        with handle as pointer:
                            if pointer is None or handle.closed:
                                seen.add("a call runs on what is closed")
                            go_on.set()
                    except maru.MaruClosed as error:
                        if "is closed" in error.strerror:
                            return

            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            go_on.wait(30)
            closing = pool
            while closing is not None:
                try:
                    closing.close()
                    closing = None
                except maru.MaruBusy:
                    pass
            for thread in threads:
                thread.join()
            self.assertEqual(seen, set())
            self.assertEqual((len(handle.uses), len(handle.root.uses)), (0, 0))
            client.close()

    def calls(self):
        """Every way by which a call is announced: the handle that it uses, and the call."""
        client, pool, ns, digests, contents = self.stored()

        def enter(handle):
            with handle:
                pass

        return [
            (pool._handle, lambda: enter(pool._handle)),
            (client._handle, lambda: enter(client._handle)),
            (client._handle, lambda: ns.probe(digests)),
            (client._handle, lambda: ns.probe(digests + digests)),
        ]

    def test_a_close_between_the_steps_of_a_call_keeps_it_out(self):
        for handle, call in self.calls():

            class Uses(deque):
                def append(self, use):
                    handle.uses = deque()
                    self.closed = handle.begin_close()
                    handle.uses = self
                    super().append(use)

            handle.uses = uses = Uses()
            with self.assertRaisesRegex(maru.MaruClosed, f"this {handle.what} is being closed"):
                call()
            self.assertTrue(uses.closed)
            self.assertEqual((len(uses), len(handle.root.uses)), (0, 0))
            handle.end_close(False)
            handle.uses = deque()
            call()

    def test_a_call_between_the_steps_of_a_close_is_kept_out_or_seen(self):
        for handle, call in self.calls():
            entered = []

            class Uses(deque):
                def __len__(self):
                    found = super().__len__()
                    handle.uses = deque()
                    try:
                        call()
                        entered.append(handle)
                    except maru.MaruClosed:
                        pass
                    handle.uses = self
                    return found

            handle.uses = Uses()
            self.assertTrue(handle.begin_close())
            self.assertEqual(entered, [])
            handle.end_close(False)
            handle.uses = deque()

    def test_a_probe_is_a_call_until_it_has_returned(self):
        client, pool, ns, digests, contents = self.stored()
        library, seen = client._handle.library, []

        def closed_meanwhile(*arguments):
            with self.assertRaisesRegex(maru.MaruBusy, r"1 call\(s\)"):
                client.close()
            seen.append(len(arguments))
            return 1

        with unittest.mock.patch.object(library, "untyped_probe", closed_meanwhile):
            ns.probe(digests)
        self.assertEqual(seen, [6])
        for end in (KeyboardInterrupt, ctypes.ArgumentError):
            with unittest.mock.patch.object(library, "untyped_probe", side_effect=end):
                with self.assertRaises(end):
                    ns.probe(digests)
        with unittest.mock.patch.object(library, "untyped_probe", return_value=-errno.EDQUOT):
            with self.assertRaises(maru.MaruQuota):
                ns.probe(digests)
        self.assertEqual(len(client._handle.uses), 0)
        client.close()
        with self.assertRaisesRegex(maru.MaruClosed, "this client is closed"):
            ns.probe(digests)

    def test_every_call_gives_back_what_was_dropped(self):
        for handle, call in self.calls():
            root = handle.root
            root.dead.append(0)  # a token of nothing
            with unittest.mock.patch.object(type(root), "drain", side_effect=KeyboardInterrupt):
                with self.assertRaises(KeyboardInterrupt):
                    call()
            self.assertEqual((len(handle.uses), len(root.uses)), (0, 0))
            call()
            self.assertEqual(len(root.dead), 0)

    def test_a_client_that_is_left_open_is_a_resource_warning(self):
        opened = maru.Client("left-open", socket_path=self.socket_path())
        with self.assertWarnsRegex(ResourceWarning, "unclosed maru.Client for engine 'left-open'"):
            del opened
            gc.collect()
        maru.Client("left-open", socket_path=self.socket_path()).close()

    def test_a_closed_client_warns_of_nothing(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with maru.Client("closed", socket_path=self.socket_path()) as opened:
                pass
            self.assertIn("closed", repr(opened))
            del opened
            gc.collect()


EXIT_WITH_VIEWS = """
import sys, maru
length = 1 << 20
client = maru.Client("exit-with-a-view")
pool = client.pool(8 << 20, wait_populated=True)
ns = client.namespace("exit")
ns.describe(length, "raw-v1")
digests = ns.digests(range(8), 4)
ns.store(pool, digests, [bytes([1]) * length, bytes([2]) * length])
leases = ns.acquire(digests)
run = pool.reserve(length)
kept = [leases[0].view, leases[1].view[5:], run.view]
make = sys.argv[1]
if make == "numpy":
    import numpy
    kept = [numpy.frombuffer(kept[0], "u4"), numpy.frombuffer(kept[1], "u1")]
elif make == "torch":
    import torch
    kept = [torch.frombuffer(kept[0], dtype=torch.uint8)]
elif make == "cycle":
    class Node:
        def __del__(self):
            assert bytes(self.views[0][:3]) == b"\\1\\1\\1"
    node = Node()
    node.views, node.itself = kept, node
elif make == "late":
    import atexit
    atexit.register(lambda: print(bytes(kept[1][:2])))
sys.modules["kept_to_the_very_end"] = kept
del leases, ns, pool
"""


class ExitTest(MaruTest):
    def test_the_interpreter_may_end_with_live_views(self):
        for kind in ("memoryview", "cycle", "late"):
            with self.subTest(kind=kind):
                ended = self.program(EXIT_WITH_VIEWS, kind)
                self.assertNotIn("Exception ignored", ended.stderr)
                if kind == "late":
                    self.assertEqual(ended.stdout.strip(), str(b"\2\2"))

    def test_the_interpreter_may_end_with_live_numpy_arrays(self):
        optional("numpy")
        self.program(EXIT_WITH_VIEWS, "numpy")

    def test_the_interpreter_may_end_with_live_tensors(self):
        optional("torch")
        self.program(EXIT_WITH_VIEWS, "torch")

    def test_the_interpreter_may_end_in_a_block(self):
        ended = self.program(
            """
import maru, sys
with maru.Client("exit-in-block") as client, client.pool(1 << 20) as pool:
    sys.exit(3)
""",
            check=3,
        )
        self.assertEqual(ended.stderr, "")

    def test_a_thread_may_be_inside_a_call_at_the_end(self):
        self.program("""
import maru, threading
client = maru.Client("exit-thread")
queue = client.queue()
started = threading.Event()
def wait():
    started.set()
    queue.reap(timeout_ms=600000)
threading.Thread(target=wait, daemon=True).start()
started.wait()
""")


if __name__ == "__main__":
    unittest.main()
