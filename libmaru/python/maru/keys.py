# SPDX-License-Identifier: Apache-2.0
"""The identity of an object: prefix digests, keys, manifests.

An object is (namespace, prefix digest, shard, part). A prefix digest covers every token up to the
end of its chunk; it is seedless and the same in every process and on every host. These are plain
data: they may be pickled, compared and hashed, and used from any thread.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from typing import (
    Any,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
    overload,
)

from . import _abi, _library
from ._buffers import Buffers
from .errors import last_error

DIGEST_BYTES = _abi.DIGEST_BYTES
KEY_BYTES = ctypes.sizeof(_abi.maru_key)


class Digests(Sequence[bytes]):
    """A flat run of 32-byte digests, in prefix order. Immutable.

    Indexing gives ``bytes``, slicing gives ``Digests``. ``view`` is a read-only memoryview of all
    the bytes (32 x length), for ``numpy.frombuffer(d.view, "u1").reshape(-1, 32)``.
    """

    __slots__ = ("_flat",)  # bytes, whose address C takes: they neither move nor change

    def __init__(self, digests: Any = b"") -> None:
        """From a buffer of 32 x n bytes, or from single digests: ``bytes`` or hexadecimal text."""
        if type(digests) is bytes and len(digests) % DIGEST_BYTES == 0:
            self._flat = digests
            return
        try:
            flat = memoryview(digests)
        except TypeError:
            if isinstance(digests, str):
                raise TypeError("digests must be a sequence; for one write [text]") from None
            flat = memoryview(b"".join(_one_digest(digest) for digest in digests))
        if flat.nbytes % DIGEST_BYTES:
            raise ValueError(
                f"{flat.nbytes} bytes of digests: must be a multiple of {DIGEST_BYTES}"
            )
        self._flat = flat.tobytes()

    @property
    def view(self) -> memoryview:
        """All the bytes, read-only, without a copy."""
        return memoryview(self._flat)

    def hex(self) -> List[str]:
        """Each digest as 64 lower-case hexadecimal digits, as maructl shows it."""
        return [digest.hex() for digest in self]

    def __len__(self) -> int:
        return len(self._flat) // DIGEST_BYTES

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Digests: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[bytes, Digests]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return Digests(self._flat[start * DIGEST_BYTES : max(start, stop) * DIGEST_BYTES])
            return Digests(b"".join([self[i] for i in range(start, stop, step)]))
        at = range(len(self))[index] * DIGEST_BYTES
        return self._flat[at : at + DIGEST_BYTES]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._split())

    def _split(self) -> List[bytes]:
        flat = self._flat
        return [flat[i : i + DIGEST_BYTES] for i in range(0, len(flat), DIGEST_BYTES)]

    def __bytes__(self) -> bytes:
        return self._flat

    def __add__(self, other: Digests) -> Digests:
        if not isinstance(other, Digests):
            return NotImplemented
        return Digests(self._flat + other._flat)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Digests):
            return NotImplemented
        return self._flat == other._flat

    def __hash__(self) -> int:
        return hash(self._flat)

    def __reduce__(self) -> Any:
        return Digests, (self._flat,)

    def __repr__(self) -> str:
        shown = ", ".join(digest.hex()[:12] + ".." for digest in self[:3])
        return f"<maru.Digests {len(self)}: [{shown}{', ..' if len(self) > 3 else ''}]>"


def _one_digest(digest: Any) -> bytes:
    if isinstance(digest, str):
        digest = digest_parse(digest)
    try:
        made = bytes(memoryview(digest))
    except TypeError:
        raise TypeError(
            f"a digest is {DIGEST_BYTES} bytes or 64 hexadecimal digits, not a "
            f"{type(digest).__name__}"
        ) from None
    if len(made) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(made)}")
    return made


def as_digests(digests: Any) -> Digests:
    """@digests itself, or made into ``Digests``."""
    return digests if isinstance(digests, Digests) else Digests(digests)


class Key(NamedTuple):
    """One object inside a namespace."""

    digest: bytes
    shard: int = 0
    """Tensor- or pipeline-parallel shard; 0 with one rank."""
    part: int = 0
    """0: all local layers in one object."""


class Manifest(NamedTuple):
    """Which shards and parts make one chunk; a hit needs all of them."""

    first_shard: int = 0
    shard_count: int = 1
    first_part: int = 0
    part_count: int = 1

    @property
    def objects(self) -> int:
        """How many objects make one chunk."""
        return self.shard_count * self.part_count


Keys = Union[Digests, Sequence[Union[Key, Tuple[bytes, int, int], bytes, str]]]
"""What names objects: ``Digests`` mean shard 0, part 0; else a sequence of ``Key`` or digests."""


def uint32(value: int, name: str, least: int = 0) -> int:
    if not least <= value <= 0xFFFFFFFF:
        raise ValueError(f"{name} is {value}: must be from {least} to 4294967295")
    return value


def uint64(value: int, name: str) -> int:
    if not 0 <= value <= 0xFFFFFFFFFFFFFFFF:
        raise ValueError(f"{name} is {value}: must be from 0 to 18446744073709551615")
    return value


_PLAIN = bytes(8)  # shard 0, part 0


def key_bytes(keys: Keys) -> bytes:
    """@keys as the array of struct maru_key that C takes: digest, shard, part, one after the other."""
    if isinstance(keys, Digests):
        return _PLAIN.join(keys._split()) + _PLAIN if keys._flat else b""
    if isinstance(keys, (str, bytes, bytearray)):
        raise TypeError("keys must be a sequence of keys; for one write [key]")
    made = []
    for index, key in enumerate(keys):
        if isinstance(key, tuple):
            digest, shard, part = Key(*key)
            made.append(_one_digest(digest))
            made.append(uint32(shard, f"keys[{index}].shard").to_bytes(4, sys.byteorder))
            made.append(uint32(part, f"keys[{index}].part").to_bytes(4, sys.byteorder))
        else:
            made.append(_one_digest(key))
            made.append(_PLAIN)
    return b"".join(made)


def manifest_struct(manifest: Optional[Manifest]) -> Optional[_abi.maru_manifest]:
    """@manifest as C takes it; None stays NULL, one object a chunk."""
    if manifest is None:
        return None
    first_shard, shard_count, first_part, part_count = manifest
    return _abi.maru_manifest(
        ctypes.sizeof(_abi.maru_manifest),
        uint32(first_shard, "manifest.first_shard"),
        uint32(shard_count, "manifest.shard_count", 1),
        uint32(first_part, "manifest.first_part"),
        uint32(part_count, "manifest.part_count", 1),
    )


def text_bytes(text: str, name: str) -> bytes:
    """@text in UTF-8 for C, which ends it at the first NUL: so none may be inside."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be str, not {type(text).__name__}")
    encoded = text.encode("utf-8")
    if b"\0" in encoded:
        raise ValueError(f"{name} must not have a NUL character in it")
    return encoded


def _uint32_tokens(tokens: Any) -> Any:
    """@tokens as a contiguous buffer of uint32: @tokens itself where it is one, else a copy."""
    if isinstance(tokens, list):
        return _packed(tokens)
    if type(tokens) is array and tokens.typecode == "I":
        return memoryview(tokens)
    if isinstance(tokens, (str, bytes, bytearray)):
        raise TypeError(f"tokens must be integers, not {type(tokens).__name__}")
    try:
        view = memoryview(tokens)
    except TypeError:
        return _packed(list(tokens))
    if view.itemsize == 4 and view.format.lstrip("@=<") in ("I", "L") and view.c_contiguous:
        if view.ndim != 1:
            raise ValueError(f"tokens must have one dimension, not {view.ndim}")
        return view
    if view.ndim != 1:
        raise ValueError(f"tokens must have one dimension, not {view.ndim}")
    return _packed(view.tolist())


def _packed(tokens: List[int]) -> array:
    made = array("I")
    assert made.itemsize == 4
    try:
        made.fromlist(tokens)  # half the time of array("I", tokens), which counts references
    except OverflowError:
        raise ValueError("a token id is outside 0 to 4294967295") from None
    except TypeError as error:
        raise TypeError(f"tokens must be integers: {error}") from None
    return made


def prefix_digests(
    namespace_text: str, tokens: Any, chunk_tokens: int, parent: Optional[bytes] = None
) -> Digests:
    """Chained digests of a prompt's full chunks.

    tokens: token ids from 0 to 2**32 - 1: a list, ``array.array`` or numpy array. A contiguous
        buffer of uint32 is read in place; anything else is converted.
    chunk_tokens: tokens per chunk, at least 1; a partial last chunk gets no digest.
    parent: the digest of the chunk before tokens[0], to continue a prompt; None starts at the root.

    Returns len(tokens) // chunk_tokens digests. Never blocks; the GIL is free meanwhile. Raises
    MaruInvalid, ValueError, TypeError.
    """
    library = _library.load()
    text = text_bytes(namespace_text, "namespace_text")
    uint32(chunk_tokens, "chunk_tokens", 1)
    ids = _uint32_tokens(tokens)
    count = len(ids)
    made = array("B", bytes(count // chunk_tokens * DIGEST_BYTES))
    into = made.buffer_info()[0]
    before = _one_digest(parent) if parent is not None else None
    digest = library.by_address.maru_prefix_digests
    if type(ids) is array or count == 0:
        address = ids.buffer_info()[0] if count else None
        result = digest(text, address, count, chunk_tokens, before, into)
    elif type(tokens) is array:  # held in place by the view
        result = digest(text, tokens.buffer_info()[0], count, chunk_tokens, before, into)
    else:
        with Buffers([ids], writable=False, name="tokens") as held:
            result = digest(text, held.addresses[0], count, chunk_tokens, before, into)
    if result < 0:
        raise last_error(library, result)
    return Digests(made.tobytes())


def digest_format(digest: bytes) -> str:
    """A digest as 64 lower-case hexadecimal digits."""
    return _one_digest(digest).hex()


def digest_parse(text: str) -> bytes:
    """The inverse of digest_format(): exactly 64 hexadecimal digits, either case."""
    library = _library.load()
    made = _abi.maru_digest()
    result = library.maru_digest_parse(text_bytes(text, "digest"), made)
    if result < 0:
        raise last_error(library, result)
    return bytes(made.bytes)
