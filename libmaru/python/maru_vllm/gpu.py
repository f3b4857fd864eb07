# SPDX-License-Identifier: Apache-2.0
"""What differs when the engine's KV is on a GPU: the stream to be in order on, and a pool to register.

What must stay true:
- Copies are given to the stream that the engine computes on: behind the kernels that wrote the blocks,
  and before those that read them.
- Registering the pool is only about speed. It runs in a thread of its own, may fail, and no step waits
  for it. The thread ends with the pool, or with ``stop``.
"""

from __future__ import annotations

import logging
import threading
from typing import Optional

import maru

logger = logging.getLogger("maru_vllm")

LOOK_AGAIN_S = 0.25


def current_stream(device: int) -> int:
    """The handle of this thread's current stream on @device."""
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream)


class Registration:
    """Registers what is populated of @pool with CUDA, until all of it is."""

    def __init__(self, pool: maru.Pool, device: int) -> None:
        self._pool = pool
        self._device = device
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maru-register", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                populating = self._pool.info().populating  # before: what comes later is met next time
                self._pool.cuda_register(device=self._device)
                if not populating:
                    return
                self._stop.wait(LOOK_AGAIN_S)
        except (maru.MaruClosed, maru.MaruFenced, maru.MaruForked):
            pass  # the pool is over, and its registration with it
        except maru.MaruError as error:
            logger.warning(
                "maru: the pool is not registered with CUDA, which makes copies slower: %s", error
            )

    def stop(self, timeout: Optional[float] = None) -> None:
        """Nothing new is registered. What is being registered now is waited for, up to @timeout."""
        self._stop.set()
        self._thread.join(timeout)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()
