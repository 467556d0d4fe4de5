"""The stable hash of a key, by which it belongs to a virtual node. It is a durable contract: it never changes.

A key of more than 128 bytes is replaced by its SHA-256 first. Then, modulo 2**64, over the key's little-endian words of
8 bytes, the last one filled up with zeros:

    h = length * A + B
    for each word:  h = rotate_left(h ^ (word * B), 29) * A
    h ^= h >> 32;  h *= C;  h ^= h >> 29;  h *= A;  h ^= h >> 32

with A = 0x9E3779B97F4A7C15, B = 0xC2B2AE3D27D4EB4F, C = 0xD6E8FEB86659FD93. The virtual node is `h % count`.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from headwater.ingest.keys.ragged import WORD_BYTES, UInt64s, Words
from headwater.ingest.model import Int64s
from headwater.kernel.errors import UsageError

LONG_KEY_BYTES = 128
"""Keys with more bytes than this are hashed and stored by their SHA-256."""

_A = 0x9E3779B97F4A7C15
_B = 0xC2B2AE3D27D4EB4F
_C = 0xD6E8FEB86659FD93


def hash_all(data: npt.NDArray[np.uint8], offsets: Int64s) -> UInt64s:
    """The hash of every key; one pass over those that have a first word, one over those with a second, and so on."""
    lengths = np.diff(offsets)
    starts = offsets[:-1]
    is_long = lengths > LONG_KEY_BYTES
    if is_long.any():
        rows = np.flatnonzero(is_long)
        digests = [hashlib.sha256(data[offsets[row] : offsets[row + 1]].tobytes()).digest() for row in rows.tolist()]
        starts, lengths = starts.copy(), lengths.copy()
        starts[rows], lengths[rows] = len(data) + 32 * np.arange(len(rows)), 32
        data = np.concatenate([data, np.frombuffer(b"".join(digests), dtype=np.uint8)])
    return _finish(_mix_words(data, starts, lengths))


def hash_of(key: bytes) -> int:
    """The hash of one key."""
    data = np.frombuffer(key, dtype=np.uint8)
    return int(hash_all(data, np.array([0, len(key)], dtype=np.int64))[0])


def virtual_nodes(hashes: UInt64s, count: int) -> Int64s:
    """The virtual node, from 0, of each key with these hashes, when there are `count` of them."""
    if count < 1:
        raise UsageError(f"{count} virtual nodes hold no key", hint="a topology has at least one", count=count)
    return (hashes % np.uint64(count)).astype(np.int64)


def _mix_words(data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> UInt64s:
    mixed = lengths.astype(np.uint64) * np.uint64(_A) + np.uint64(_B)
    words = Words(data, starts, lengths)
    rows: Int64s | slice = slice(None)
    for before in range(0, int(lengths.max(initial=0)), WORD_BYTES):
        if before >= lengths.min(initial=0):
            rows = np.flatnonzero(lengths > before)
        turned = mixed[rows] ^ (words.at(before, rows) * np.uint64(_B))
        mixed[rows] = ((turned << np.uint64(29)) | (turned >> np.uint64(35))) * np.uint64(_A)
    return mixed


def _finish(mixed: UInt64s) -> UInt64s:
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(_C)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(_A)
    mixed ^= mixed >> np.uint64(32)
    return mixed
