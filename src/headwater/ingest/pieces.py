"""Pieces of a scan on the wire: the very bytes of a `ScanResponse`, without a copy into a message and out of it.

A `ScanResponse` that holds a piece is the tag of the field, the length of the piece, and the piece.
"""

from __future__ import annotations

from headwater.rpc.ingest.v1 import ingest_pb2 as pb

_BYTES = 2  # protobuf's number of what has a length
_TAG = pb.ScanResponse.DESCRIPTOR.fields_by_name["piece"].number << 3 | _BYTES
_MORE = 0x80


def written(piece: memoryview | pb.ScanResponse) -> bytes:
    """A piece as a message."""
    if isinstance(piece, pb.ScanResponse):
        return piece.SerializeToString()
    head = bytearray([_TAG])
    left = piece.nbytes
    while left >= _MORE:
        head.append(left & (_MORE - 1) | _MORE)
        left >>= 7
    head.append(left)
    return b"".join((head, piece))


def read(message: bytes) -> memoryview:
    """The piece of a message."""
    length, place = 0, 1
    while place < min(len(message), 6):
        byte = message[place]
        length |= (byte & (_MORE - 1)) << 7 * (place - 1)
        place += 1
        if byte < _MORE:
            break
    if message and message[0] == _TAG and place + length == len(message):
        return memoryview(message)[place:]
    # Another version may say more than the piece.
    return memoryview(pb.ScanResponse.FromString(message).piece)
