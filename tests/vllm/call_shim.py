# SPDX-License-Identifier: Apache-2.0
"""Steers a process that was started with the preloaded call shim; the layout is that of
tests/integration/shim/call_shim.h."""

import mmap
import struct

VARIABLE = "MARU_CALL_SHIM"
MAGIC = 0x6D616D6968733031
SENDMSG = 14
CALLS = 20
HEADER = struct.Struct("<Qq")
RULE = struct.Struct("<iiiII108s")


class CallShim:
    """The file of rules @path, made here if there is none."""

    def __init__(self, path):
        with open(path, "a+b") as file:
            file.truncate(HEADER.size + CALLS * RULE.size)
            self._map = mmap.mmap(file.fileno(), 0)
        if not any(self._map[: HEADER.size]):
            HEADER.pack_into(self._map, 0, MAGIC, 0)

    def fail(self, call, error):
        """Every @call of that process fails with @error from now on; 0: none does."""
        at = HEADER.size + call * RULE.size
        struct.pack_into("<ii", self._map, at + 4, 0, -1)
        struct.pack_into("<i", self._map, at, error)

    def failed(self, call):
        """How many have."""
        return RULE.unpack_from(self._map, HEADER.size + call * RULE.size)[4]
