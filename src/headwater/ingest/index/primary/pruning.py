"""What no replay can need any more is forgotten, in parts, so that writers wait for one part at most.

Excess is all that a crash in between leaves. Each part is decided inside the transaction that deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np

from headwater.ingest.index.primary import codec
from headwater.ingest.index.primary.environment import Environment
from headwater.ingest.index.primary.model import NOTHING
from headwater.ingest.model import Timestamp

_PRUNED_TOGETHER = 2_000


def prune_history(environment: Environment, table_id: int, below: Timestamp) -> int:
    """Forget chunks of versions that were replaced before `below`; says how many."""
    with environment.reading() as transaction:
        entries = _under(transaction, environment.history, codec.table_prefix(table_id))
        # Numbers follow commits, and streams have times of their own: so all are looked at.
        due = [key for key, value in entries if codec.decode_chunk_head(value) < below]
    for start in range(0, len(due), _PRUNED_TOGETHER):
        with environment.writing() as transaction:
            for key in due[start : start + _PRUNED_TOGETHER]:
                transaction.delete(key, db=environment.history)
    return len(due)


def prune_tombstones(environment: Environment, table_id: int, below: Timestamp) -> int:
    """Forget keys that were deleted before `below` and have not come back; says how many entries were looked at."""
    due = list[bytes]()
    with environment.reading() as transaction:
        for key, _ in _under(transaction, environment.tombstones, codec.table_prefix(table_id)):
            if codec.tombstones_timestamp(key) >= below:
                break
            due.append(key)
    for key in due:
        timestamp = codec.tombstones_timestamp(key)
        with environment.writing() as transaction:
            stored = codec.decode_tombstones(transaction.get(key, db=environment.tombstones) or codec.NO_TOMBSTONES)
            held = codec.decode_held(map(transaction.get, stored, repeat(codec.ABSENT)))
            # Since then the key may have got a row, or have been deleted again.
            is_due = (held.timestamps == timestamp) & (held.row_ids == NOTHING)
            for place in np.flatnonzero(is_due).tolist():
                transaction.delete(stored[place])
            transaction.delete(key, db=environment.tombstones)
    return len(due)


def _under(transaction: Any, tree: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    cursor = transaction.cursor(tree)
    if cursor.set_range(prefix):
        for key, value in cursor:
            if not key.startswith(prefix):
                return
            yield key, value
