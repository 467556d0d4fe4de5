"""Theta sketches, as the blob `apache-datasketches-theta-v1` of Puffin files holds them.

A sketch keeps the smallest hashes of the values that it has seen, and the bound below which it has kept all of them.
Up to `KEPT` different values it is exact. The hash is MurmurHash3 (x64, 128 bits, of which the first 64 without their
lowest) under the seed of Apache DataSketches, of the value's single-value serialisation, as the Iceberg specification
has it. The bytes are DataSketches' compact, ordered form:

    0       preamble longs: 1 empty, 2 exact, 3 estimating
    1, 2    serial version 3, family 3 (compact)
    3, 4    0
    5       flags: read only 2, empty 4, compact 8, ordered 16
    6       hash of the seed, 2 bytes
    8       number of hashes, 4 bytes; sampling probability 1.0, 4 bytes        (2 or 3 longs)
    16      theta, 8 bytes                                                     (3 longs)
    then    the hashes, 8 bytes each, ascending; everything little-endian
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import mmh3
import numpy as np
from numpy.typing import NDArray

THETA_BLOB: Final = "apache-datasketches-theta-v1"
KEPT: Final = 4096

_SEED: Final = 9001
_SEED_HASH: Final = 0x93CC
_MOST: Final = 2**63 - 1
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED = 2, 4, 8, 16
_SERIAL_VERSION = _COMPACT_FAMILY = 3


class ThetaSketch:
    """The different values that were seen, or as many of them as are needed to tell how many there are."""

    def __init__(self) -> None:
        self._hashes: NDArray[np.int64] = np.empty(0, np.int64)
        self._theta = _MOST

    def add(self, values: Iterable[bytes]) -> None:
        """See some values. Empty ones are passed over, as DataSketches does."""
        new = np.fromiter((mmh3.hash64(each, _SEED, signed=False)[0] >> 1 for each in values if each), dtype=np.int64)
        hashes = np.unique(np.concatenate([self._hashes, new[new < self._theta]]))
        if len(hashes) > KEPT:
            self._theta, hashes = int(hashes[KEPT]), hashes[:KEPT]
        self._hashes = hashes

    @property
    def estimate(self) -> int:
        """How many different values there are: exact while there are few."""
        if self._theta == _MOST:
            return len(self._hashes)
        return round(len(self._hashes) * (_MOST / self._theta))

    def to_bytes(self) -> bytes:
        """The blob."""
        count, flags = len(self._hashes), _READ_ONLY | _COMPACT | _ORDERED
        estimating = self._theta != _MOST
        longs = 3 if estimating else 2 if count else 1
        head = struct.pack(
            "<BBBBBBH", longs, _SERIAL_VERSION, _COMPACT_FAMILY, 0, 0, flags if count else flags | _EMPTY, _SEED_HASH
        )
        if count:
            head += struct.pack("<if", count, 1.0)
        if estimating:
            head += struct.pack("<q", self._theta)
        return head + self._hashes.astype("<i8").tobytes()
