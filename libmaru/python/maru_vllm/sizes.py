# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them, with the one meaning that marud and maructl give them too.

A number with an optional fraction, optional blanks, an optional unit in either case. Every unit is
binary: "8G", "8g", "8GB" and "8GiB" are all 8 * 2**30 bytes. A part of a byte is cut off.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

_POWERS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SIZE = re.compile(r"([0-9]+)(?:\.([0-9]+))?[ \t]*([A-Za-z]*)")
_ALLOWED = "a number with an optional unit B, K, M, G, T or P, such as '8G' or '1.5 GiB'"


def parse_size(value: Any) -> int:
    """Bytes of @value, an int or a text. ValueError says what is wrong and what is allowed."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"{value!r} is not a size: must be {_ALLOWED}")
    if isinstance(value, int):
        value = str(value)
    match = _SIZE.fullmatch(value.strip(" \t"))
    if match is None:
        raise ValueError(f"{value!r} is not a size: must be {_ALLOWED}")
    whole, fraction, unit = match.groups()
    power = _POWERS.get(_letter(unit))
    if power is None:
        raise ValueError(f"{value!r} has the unknown unit {unit!r}: must be {_ALLOWED}")
    number = Fraction(int(whole))
    if fraction:
        number += Fraction(int(fraction), 10 ** len(fraction))
    size = int(number * 1024**power)
    if size < 1:
        raise ValueError(f"{value!r} is less than one byte: must be at least 1 byte")
    if size >= 1 << 64:
        raise ValueError(f"{value!r} is too large: must be below 2**64 bytes")
    return size


def _letter(unit: str) -> str:
    """The letter of "g", "GB" or "GiB"; itself when it is none of these."""
    upper = unit.upper()
    for suffix in ("IB", "B"):
        if len(upper) == 1 + len(suffix) and upper.endswith(suffix):
            return upper[0] if upper[0] != "B" else unit
    return upper
