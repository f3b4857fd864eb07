# SPDX-License-Identifier: Apache-2.0
"""Blocks whose bytes are not what vLLM takes them for, after a load that failed.

vLLM keeps such blocks, and what was computed from them in the failing step, under their hashes in its
own prefix cache, and trusts that the request computes them again in the next step. It may not: it can
be aborted or preempted before. So they lose their hashes at once, here. What must stay true: a block
in this set is in nobody's prefix cache, and nothing computed from it is stored.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Iterable, List, Optional, Set

logger = logging.getLogger("maru_vllm")


class GarbageBlocks:
    def __init__(self) -> None:
        self._blocks: Set[int] = set()
        self._evict: Optional[Callable[[Set[int]], Any]] = None

    def bind(self, owner: Any) -> None:
        """@owner, a KV cache manager or a block pool, can take hashes away."""
        evict = getattr(owner, "evict_blocks", None)
        if callable(evict):
            self._evict = evict

    @property
    def can_evict(self) -> bool:
        """If not, nothing may be loaded: a failure could not be repaired."""
        return self._evict is not None

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, blocks: Iterable[int]) -> None:
        added = set(blocks)
        self._blocks |= added
        if added and self._evict is not None:
            try:
                self._evict(added)
            except Exception:
                # The hashes may still be there. Nothing that is loaded after this could be repaired.
                logger.exception("maru: vLLM did not evict blocks; nothing is loaded from now on")
                self._evict = None

    def written(self, blocks: Iterable[int]) -> None:
        """@blocks are written whole in the step that is being made."""
        if self._blocks:
            self._blocks.difference_update(blocks)

    def first_in(self, blocks: List[int]) -> int:
        """Index of the first of @blocks that is garbage, or -1."""
        if self._blocks:
            for index, block in enumerate(blocks):
                if block in self._blocks:
                    return index
        return -1
