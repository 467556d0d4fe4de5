"""What the lake tells of a change that is sent again: the table as it is, older documents of it, and older commits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.snapshots import Snapshot

from headwater.catalog.model import TableContent
from headwater.kernel.errors import HeadwaterError
from headwater.server.iceberg.decide import is_creation, is_of, without_own
from headwater.server.iceberg.model import TableChange
from headwater.server.iceberg.protocol import Desk
from headwater.server.iceberg.resent import Sending, added_snapshots, creating, sending, was_given
from headwater.tables.metadata import decode_metadata


def sent(desk: Desk, changes: Sequence[TableChange]) -> Sending:
    """Whether the request was committed before: whoever asks again has not heard the answer (P5).

    It lands as a whole: one table that does not have it proves that it is new. Only tables that it makes, or adds
    snapshots to, can tell that it is not.
    """
    if not any(added_snapshots(each.updates) or is_creation(each.requirements) for each in changes):
        return Sending.FIRST
    found, now = desk.stand.contents([each.key for each in changes]), desk.staging.clock.now()
    seen = set()
    for each in changes:
        content = found.get(each.key)
        metadata = desk.stand.open(content).metadata if isinstance(content, TableContent) else None
        if is_creation(each.requirements):
            seen.add(Sending.FIRST if metadata is None else creating(without_own(each.updates), metadata, now))
        elif metadata is None or not is_of(each.requirements, metadata):
            seen.add(_sent_to_another(desk, each, now))
        else:
            seen.add(sending(each.updates, metadata, now, _gone(desk, each, metadata)))
    return next(each for each in (Sending.FIRST, Sending.UNKNOWN, Sending.AGAIN) if each in seen)


def _sent_to_another(desk: Desk, change: TableChange, now: datetime) -> Sending:
    """The same for a table that was dropped or renamed since: what it was last tells, and nobody can be shown it."""
    for content in desk.past(change.key):
        metadata = desk.stand.open(content).metadata
        if is_of(change.requirements, metadata):
            found = sending(change.updates, metadata, now, _gone(desk, change, metadata))
            return Sending.UNKNOWN if found is Sending.AGAIN else found
    return Sending.FIRST


def _gone(desk: Desk, change: TableChange, metadata: TableMetadata) -> list[Snapshot]:
    """Snapshots with the numbers of those that the change brings, which only older documents of the table show."""
    found = []
    for each in added_snapshots(change.updates):
        number = each.sequence_number
        if number is None or not was_given(each, metadata):
            continue
        for entry in reversed(metadata.metadata_log):
            try:
                older = decode_metadata(desk.state.files.read(entry.metadata_file), entry.metadata_file)
            except HeadwaterError:  # it is gone, and nothing is known
                break
            same = [held for held in older.snapshots if held.sequence_number == number]
            found += same
            if same or isinstance(older, TableMetadataV1) or older.last_sequence_number < number:
                break
    return found
