# SPDX-License-Identifier: Apache-2.0
"""The scheduler side's record of one request."""

from __future__ import annotations

import itertools
from array import array
from typing import Any, List, Optional

from maru import Digests

_numbers = itertools.count(1)


class RequestRecord:
    """From the first time it is seen to the step that says it has finished."""

    __slots__ = (
        "number",
        "prompt",
        "bypass",
        "blind",
        "digests",
        "sent",
        "blocks",
        "local",
        "promised",
        "done",
        "probe_first",
        "probe_prefix",
        "probe_until",
        "probed",
        "no_load",
        "loading",
        "missed",
    )

    def __init__(self, request: Any) -> None:
        self.number = next(_numbers)
        """What the worker knows it by; never used twice."""
        # A copy: the digests are of these tokens, whatever a request that goes on adds later. As the
        # hash takes it, so that this is the one time that the prompt's tokens are gone through.
        self.prompt = array("I")
        self.bypass = bypasses(request)
        try:
            self.prompt.fromlist(_listed(getattr(request, "prompt_token_ids", None)))
        except (OverflowError, TypeError):  # what is no token id has no digest
            self.bypass = True
        self.blind = blind(request)
        """Stores, and loads nothing: its prompt's log-probabilities must be computed."""
        self.digests: Optional[Digests] = None
        self.sent = False
        """Has the worker its digests?"""
        self.blocks: List[int] = []
        self.local = 0
        """Tokens that the engine had itself at the last probe."""
        self.promised = 0
        """Tokens to load in the step that is being made."""
        self.done = 0
        """Chunks that are stored, were loaded, or were the engine's already."""
        self.probe_first = -1
        self.probe_prefix = 0
        self.probe_until = 0.0
        self.probed = False
        self.no_load = False
        """A load of it failed: it computes from now on."""
        self.loading: Optional[range] = None
        """Chunks that this step loads."""
        self.missed = ""

    def block_array(self, chunks: range, blocks_per_chunk: int) -> array:
        return array(
            "I", self.blocks[chunks.start * blocks_per_chunk : chunks.stop * blocks_per_chunk]
        )


def _listed(tokens: Any) -> List[int]:
    return tokens if isinstance(tokens, list) else list(tokens or ())


def bypasses(request: Any) -> bool:
    """Is its KV more than a function of its prompt's token ids? Then the cache is not for it."""
    return bool(
        getattr(request, "prompt_token_ids", None) is None
        or getattr(request, "cache_salt", None)
        or getattr(request, "prompt_embeds", None) is not None
        or getattr(request, "mm_features", None)
        or getattr(request, "lora_request", None) is not None
        or getattr(request, "pooling_params", None) is not None
    )


def blind(request: Any) -> bool:
    sampling = getattr(request, "sampling_params", None)
    return bool(
        getattr(request, "skip_reading_prefix_cache", False)
        or getattr(sampling, "prompt_logprobs", None) is not None
    )
