# SPDX-License-Identifier: Apache-2.0
"""What scheduler and worker tell each other: plain data, pickled between their processes.

Digests cross once per request; from then on a request is a number and chunks are indices.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Dict, List, Optional

from .base import KVConnectorHandshakeMetadata, KVConnectorMetadata, KVConnectorWorkerMetadata


@dataclass
class Handshake(KVConnectorHandshakeMetadata):
    """Worker to scheduler, once: what the engine's KV is called and cut into."""

    namespace_text: str
    chunk_tokens: int
    block_tokens: int
    block_bytes: int
    session: int
    """0: the worker has none yet."""


@dataclass
class Load:
    """Chunks first, first + 1, ... of a request, into blocks."""

    request: int
    first: int
    blocks: array
    """Block ids, those of a chunk together; NO_BLOCK where the engine has the block already."""


@dataclass
class Store:
    """Chunks first, first + 1, ... of a request, out of blocks."""

    request: int
    first: int
    blocks: array
    prefix: Optional[array] = None
    """In a step with loads: every block that this KV was computed from."""
    unprobed: bool = False
    """Nobody asked whether these chunks are present."""


@dataclass
class StepMetadata(KVConnectorMetadata):
    """Scheduler to worker, every step."""

    digests: Dict[int, bytes] = field(default_factory=dict)
    """Of requests that are named for the first time: 32 bytes per chunk of the prompt."""
    loads: List[Load] = field(default_factory=list)
    stores: List[Store] = field(default_factory=list)
    forget: List[int] = field(default_factory=list)
    reset: int = 0
    """Everything stored before this number was first seen is to be retired."""


@dataclass
class WorkerReport(KVConnectorWorkerMetadata):
    """Worker to scheduler, in steps that have something to tell."""

    handshake: Optional[Handshake] = None
    reset: int = 0
    """The last reset that was carried out."""
    damaged: List[bytes] = field(default_factory=list)
    """Digests of objects with a wrong checksum that are not this engine's to retire."""

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        assert isinstance(other, WorkerReport)
        return WorkerReport(
            other.handshake or self.handshake,
            max(self.reset, other.reset),
            self.damaged + other.damaged,
        )
