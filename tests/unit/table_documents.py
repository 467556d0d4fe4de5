"""Documents of tables without any file behind them, and a store of files for those that have some."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.types import (
    DateType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from headwater.kernel.clock import ManualClock
from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import seeded
from headwater.tables.create import new_table
from headwater.tables.metadata import decode_metadata, encode_metadata
from headwater.tables.model import TableCorruptError
from headwater.tables.rules import millis

START = datetime(2026, 1, 1, tzinfo=UTC)
INCARNATION = Ulid("01KDVQDG00AAAAAAAAAAAAAAAA")
OPERATION = Ulid("01KDVQDG00BBBBBBBBBBBBBBBB")

# A schema whose own ids are of no use: a table gives new ones, 1 to 13.
COLUMNS = Schema(
    NestedField(70, "id", LongType(), required=True),
    NestedField(60, "name", StringType()),
    NestedField(50, "born", DateType(), doc="a day"),
    NestedField(40, "seen", TimestampType()),
    NestedField(
        30,
        "home",
        StructType(NestedField(31, "city", StringType()), NestedField(32, "zip", IntegerType(), required=True)),
    ),
    NestedField(20, "tags", ListType(21, StructType(NestedField(22, "tag", StringType())), element_required=False)),
    NestedField(10, "counts", MapType(11, StringType(), 12, IntegerType(), value_required=False)),
    identifier_field_ids=[70],
)


def at(days: float) -> datetime:
    """Some days after the start."""
    return START + timedelta(days=days)


def table(schema: Schema = COLUMNS, **options: Any) -> TableMetadata:
    """A new table in the simplest way, at the start of time."""
    clock, randomness = ManualClock(START), seeded(1)
    given: dict[str, Any] = {"location": "s3://lake/t", "incarnation": INCARNATION, "operation": OPERATION}
    return new_table(schema, **given | options, clock=clock, randomness=randomness)


def snapshot(
    number: int, days: float, *, parent: int | None = None, schema_id: int | None = 0, rows: int = 1
) -> Snapshot:
    """A snapshot that was made so many days after the start."""
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent,
        sequence_number=number,
        timestamp_ms=millis(at(days)),
        manifest_list=f"s3://lake/t/metadata/snap-{number}.avro",
        summary=Summary(Operation.APPEND, **{"total-records": str(rows)}),
        schema_id=schema_id,
    )


def ref(number: int, kind: SnapshotRefType = SnapshotRefType.BRANCH, **settings: int) -> SnapshotRef:
    """A branch or a tag."""
    return SnapshotRef.model_validate({"snapshot-id": number, "type": kind, **settings})


def with_history(
    metadata: TableMetadata, snapshots: list[Snapshot], *, refs: dict[str, SnapshotRef] | None = None
) -> TableMetadata:
    """The table with these snapshots, of which the last is current unless `refs` says it."""
    named = refs or {"main": ref(snapshots[-1].snapshot_id)}
    log = [SnapshotLogEntry(snapshot_id=each.snapshot_id, timestamp_ms=each.timestamp_ms) for each in snapshots]
    current = named["main"].snapshot_id
    update = {
        "snapshots": snapshots,
        "refs": named,
        "current_snapshot_id": current,
        "snapshot_log": [*log[:-1], SnapshotLogEntry(snapshot_id=current, timestamp_ms=log[-1].timestamp_ms)],
        "last_sequence_number": len(snapshots),
        "last_updated_ms": max(each.timestamp_ms for each in snapshots),
    }
    return stored(metadata.model_copy(update=update))


def stored(metadata: TableMetadata) -> TableMetadata:
    """The table as a reader finds it: written and read again."""
    return decode_metadata(encode_metadata(metadata), "s3://lake/t/metadata/1.metadata.json")


class LocalFiles:
    """Reads local files, and counts how often each was read."""

    def __init__(self) -> None:
        self.reads: list[str] = []

    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
        self.reads.append(location)
        try:
            data = Path(location.removeprefix("file://")).read_bytes()
        except FileNotFoundError:
            raise TableCorruptError(location, "is missing") from None
        return data[slice(*span)] if span else data
