"""How much room the batches of an Arrow body take once they are unfolded, before any of them is.

A few bytes can say that a batch holds billions of rows: compressed zeros, or nulls that take no room at all until they
become a column of the table. What a batch claims stands in its message, in front of its buffers.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa

from headwater.server.errors import ShapeError
from headwater.tables.claims import UntoldClaimError, claimed

MOST_BYTES = 1 << 30
MOST_ROWS = 1 << 26

_MAGIC = b"ARROW1\0\0"  # in front of a file, which is a stream from there on


def refuse_what_unfolds(path: Path) -> None:
    """Refuse a body of which one batch alone would take too much room; one that is no Arrow is left to its reader."""
    with pa.memory_map(str(path)) as body:
        if body.read(len(_MAGIC)) != _MAGIC:
            body.seek(0)
        try:
            for message in pa.ipc.MessageReader.open_stream(body):
                rows, size = claimed(message.metadata.to_pybytes(), message.body)
                if rows > MOST_ROWS or size > MOST_BYTES:
                    raise ShapeError(
                        413,
                        "too_large",
                        f"a batch of the body unfolds to {rows} rows and {size} bytes",
                        hint=f"send batches of at most {MOST_ROWS} rows and {MOST_BYTES} bytes; there may be many",
                    )
        except UntoldClaimError as error:
            raise ShapeError(
                415, "unsupported_media_type", f"the body cannot be read: {error}", hint="write it with a newer Arrow"
            ) from error
        except (pa.ArrowException, OSError, struct.error):
            return
