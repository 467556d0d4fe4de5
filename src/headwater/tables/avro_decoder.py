"""Avro values from bytes that may lie: nothing outside of them is ever read, and no bit of a value is lost.

PyIceberg's own fast decoder keeps neither promise: it checks no bounds, so that a damaged length reads foreign memory
or ends the process, and it rounds doubles to floats. This one is plain Python, with the loops that matter written out.
"""

from __future__ import annotations

import struct

from pyiceberg.avro.decoder import BinaryDecoder

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
# A number of 64 bits needs ten groups of seven.
_LONGEST_SHIFT = 63


class BoundedDecoder(BinaryDecoder):
    """Decodes one byte string from its beginning; past its end is `IndexError` or `EOFError`."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def tell(self) -> int:
        """How many bytes are behind us."""
        return self._at

    @property
    def is_at_end(self) -> bool:
        """Whether every byte was read."""
        return self._at == len(self._data)

    def read(self, n: int) -> bytes:
        """The next bytes, all of them."""
        start = self._at
        end = start + n
        if n < 0 or end > len(self._data):
            raise EOFError(f"{n} bytes are said to follow, and {len(self._data) - start} do")
        self._at = end
        return self._data[start:end]

    def skip(self, n: int) -> None:
        """Pass over bytes that are there."""
        if n < 0 or self._at + n > len(self._data):
            raise EOFError(f"{n} bytes are said to follow, and {len(self._data) - self._at} do")
        self._at += n

    def read_boolean(self) -> bool:
        """One byte, 0 or 1."""
        value = self._data[self._at]
        if value > 1:
            raise ValueError(f"{value} is neither true nor false")
        self._at += 1
        return value == 1

    def read_int(self) -> int:
        """An int or a long: groups of seven bits, the lowest first, the sign in the lowest bit."""
        data, at = self._data, self._at
        byte = data[at]
        at += 1
        if byte < 0x80:
            self._at = at
            return (byte >> 1) ^ -(byte & 1)
        number, shift = byte & 0x7F, 7
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > _LONGEST_SHIFT:
                raise ValueError("a number has more than 64 bits")
        self._at = at
        return (number >> 1) ^ -(number & 1)

    def read_ints(self, n: int) -> tuple[int, ...]:
        """Numbers in a row; those that are small, as most are, without a call for each."""
        data, at, read_int = self._data, self._at, self.read_int
        if n > len(data) - at:
            raise EOFError(f"{n} numbers are said to follow, and {len(data) - at} bytes do")
        found = []
        for _ in range(n):
            byte = data[at]
            if byte < 0x80:
                at += 1
                found.append((byte >> 1) ^ -(byte & 1))
            else:
                self._at = at
                found.append(read_int())
                at = self._at
        self._at = at
        return tuple(found)

    def read_int_bytes_dict(self, n: int, dest: dict[int, bytes]) -> None:
        """Pairs of a number and bytes; short ones again without a call for each."""
        data, read_int, read_bytes = self._data, self.read_int, self.read_bytes
        length = len(data)
        for _ in range(n):
            key = read_int()
            at = self._at
            end = at + 1 + (data[at] >> 1)
            # One byte, and even: a length below 64, and not a negative one.
            if not data[at] & 0x81 and end <= length:
                dest[key] = data[at + 1 : end]
                self._at = end
            else:
                dest[key] = read_bytes()

    def read_float(self) -> float:
        """Four bytes, the lowest first."""
        value: float = _FLOAT.unpack(self.read(4))[0]
        return value

    def read_double(self) -> float:
        """Eight bytes, the lowest first."""
        value: float = _DOUBLE.unpack(self.read(8))[0]
        return value

    def read_bytes(self) -> bytes:
        """A length, and as many bytes."""
        return self.read(self.read_int())
