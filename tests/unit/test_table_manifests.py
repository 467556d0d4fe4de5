"""Manifests and manifest lists: what PyIceberg writes is read, what we write PyIceberg reads, damage is damage."""

from __future__ import annotations

import decimal
import io
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    clear_manifest_cache,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from headwater.tables.avro import avro_schema, write_avro
from headwater.tables.evolve import upgrade
from headwater.tables.manifest_writing import EntryToWrite, ManifestTerms, write_manifest, write_manifest_list
from headwater.tables.manifests import (
    MANIFEST_LIST_SEAL,
    first_row_id_of,
    live_files,
    manifest_list_seal,
    read_manifest,
    read_manifest_list,
    with_counts,
    with_first_row_id,
)
from headwater.tables.model import LiveFile, TableCorruptError, TableFile, TableUsageError, TableVersion
from headwater.tables.operations import append
from tests.fixtures.tables import TableWorld

ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "day", DateType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "key", UUIDType()),
    NestedField(5, "price", DecimalType(9, 2)),
    NestedField(6, "big", DecimalType(38, 3)),
    NestedField(7, "name of it", StringType()),
    NestedField(8, "code", FixedType(3)),
    NestedField(9, "time", TimeType()),
    NestedField(10, "ratio", DoubleType()),
)
VALUES: dict[str, object] = {
    "day": 20000,
    "at": 1_700_000_000_000_000,
    "key": uuid.UUID(int=7),
    "price": decimal.Decimal("-12.34"),
    "big": decimal.Decimal("12345678901234567890.123"),
    "name of it": "ü x",
    "code": b"abc",
    "time": 86_399_999_999,
    "ratio": 0.1,
}


class MemoryFiles:
    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
        data = self.files[location.removeprefix("file://")]
        return data if span is None else data[span[0] : span[1]]


class DiskFiles:
    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
        data = Path(location.removeprefix("file://")).read_bytes()
        return data if span is None else data[span[0] : span[1]]


def spec_of(*fields: tuple[str, Transform[Any, Any]], spec_id: int = 0) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(
                SCHEMA.find_field(name).field_id,
                1000 + place,
                transform,
                name if isinstance(transform, IdentityTransform) else f"{name} part",
            )
            for place, (name, transform) in enumerate(fields)
        ),
        spec_id=spec_id,
    )


def metadata_of(version: int, spec: PartitionSpec) -> TableMetadata:
    return new_table_metadata(SCHEMA, spec, UNSORTED_SORT_ORDER, "file:///t", {"format-version": str(version)})


def file_of(path: str, partition: Iterable[object] = (), **values: Any) -> TableFile:
    file = TableFile.from_args(
        _table_format_version=3,
        content=values.pop("content", DataFileContent.DATA),
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=values.pop("record_count", 10),
        file_size_in_bytes=100,
        **values,
    )
    file.spec_id = values.get("spec_id", 0)
    assert isinstance(file, TableFile)
    return file


def line_for(path: str, data: bytes, **values: Any) -> ManifestFile:
    return ManifestFile.from_args(
        _table_format_version=3,
        **{
            "manifest_path": path,
            "manifest_length": len(data),
            "partition_spec_id": 0,
            "content": ManifestContent.DATA,
            "sequence_number": 5,
            "min_sequence_number": 1,
            "added_snapshot_id": 77,
            **values,
        },
    )


@pytest.mark.parametrize("version", [2, 3])
def test_what_we_write_pyiceberg_and_we_read_alike(version: int, tmp_path: Path) -> None:
    spec = spec_of(*((name, IdentityTransform()) for name in VALUES))
    terms = ManifestTerms(metadata_of(version, spec), snapshot_id=9, sequence_number=4)
    file = file_of(
        "file:///t/a.parquet",
        VALUES.values(),
        column_sizes={1: 10, 2: 20},
        value_counts={1: 10},
        null_value_counts={1: 0},
        nan_value_counts={10: 1},
        lower_bounds={1: b"\x01" * 8},
        upper_bounds={1: b"\x02" * 8},
        split_offsets=[4],
        sort_order_id=0,
    )
    nulls = file_of("file:///t/b.parquet", [None] * len(VALUES))
    location = str(tmp_path / "m.avro")
    entries = [
        EntryToWrite(ADDED, LiveFile(file, 4, None, 9)),
        EntryToWrite(EXISTING, LiveFile(nulls, 2, 1, 3)),
        EntryToWrite(DELETED, LiveFile(file_of("file:///t/c.parquet", VALUES.values()), 3, 3, 5)),
    ]
    line, data = write_manifest(terms, location, ManifestContent.DATA, spec, entries)
    Path(location).write_bytes(data)

    assert line.manifest_length == len(data)
    assert (line.added_files_count, line.existing_files_count, line.deleted_files_count) == (1, 1, 1)
    assert (line.added_rows_count, line.existing_rows_count, line.deleted_rows_count) == (10, 10, 10)
    assert (line.sequence_number, line.min_sequence_number) == (4, 2)
    assert line.partitions is not None
    assert [each.contains_null for each in line.partitions] == [True] * len(VALUES)

    ours = read_manifest(DiskFiles(), line)
    theirs = line.fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.status == other.status
        assert (mine.snapshot_id, mine.sequence_number) == (other.snapshot_id, other.sequence_number)
        assert mine.file_sequence_number == other.file_sequence_number
        assert mine.data_file.file_path == other.data_file.file_path
        # PyIceberg's fast decoder rounds doubles, the last of the values, to floats.
        assert mine.data_file.partition._data[:-1] == other.data_file.partition._data[:-1]
        assert mine.data_file._data[:3] == other.data_file._data[:3]
        assert mine.data_file._data[4:16] == other.data_file._data[4:]
    read = ours[0]
    assert list(read.data_file.partition._data) == list(VALUES.values())
    assert dict(read.data_file.lower_bounds) == {1: b"\x01" * 8}
    assert [(each.snapshot_id, each.sequence_number, each.file_sequence_number) for each in ours] == [
        (9, 4, 4),
        (3, 2, 1),
        (9, 3, 3),
    ]


def test_the_header_says_what_engines_look_for() -> None:
    spec = spec_of(("day", DayTransform()), ("name of it", BucketTransform(8)))
    terms = ManifestTerms(metadata_of(3, spec), 9, 4)
    line, data = write_manifest(
        terms,
        "m",
        ManifestContent.DELETES,
        spec,
        [EntryToWrite(ADDED, LiveFile(file_of("x", [1, 2], content=DataFileContent.POSITION_DELETES), 4, None, 9))],
    )
    reader = fastavro.reader(io.BytesIO(data))
    assert {"schema", "schema-id", "partition-spec", "partition-spec-id", "format-version", "content"} <= set(
        reader.metadata
    )
    assert reader.metadata["content"] == "deletes"
    assert reader.metadata["format-version"] == "3"
    written: Any = reader.writer_schema
    partition = written["fields"][4]["type"]["fields"][3]["type"]
    # A name that Avro does not allow is spelled as Iceberg's Java writer spells it.
    assert [field["name"] for field in partition["fields"]] == ["day_x20part", "name_x20of_x20it_x20part"]
    assert line.content is ManifestContent.DELETES


class TestInheritance:
    """What an entry does not say itself, its manifest says."""

    def entries(self, statuses: Iterable[tuple[ManifestEntryStatus, int | None]], **line: Any) -> list[Any]:
        spec = spec_of()
        terms = ManifestTerms(metadata_of(3, spec), 77, 5)
        _, data = write_manifest(
            terms,
            "m",
            ManifestContent.DATA,
            spec,
            [
                EntryToWrite(status, LiveFile(file_of(f"f{place}", first_row_id=row_id), 5, 5, 1))
                for place, (status, row_id) in enumerate(statuses)
            ],
        )
        return read_manifest(MemoryFiles({"m": data}), line_for("m", data, **line))

    def test_numbers_of_added_files(self) -> None:
        [added] = self.entries([(ADDED, None)])
        assert (added.snapshot_id, added.sequence_number, added.file_sequence_number) == (77, 5, 5)
        assert added.data_file.spec_id == 0

    def test_row_ids_count_on_from_the_manifests_own(self) -> None:
        found = self.entries(
            [(ADDED, None), (EXISTING, 500), (DELETED, None), (EXISTING, None), (ADDED, None)], first_row_id=1000
        )
        assert [each.data_file.first_row_id for each in found] == [1000, 500, None, 1010, 1020]

    def test_without_row_ids_in_the_manifest_there_are_none(self) -> None:
        [added] = self.entries([(ADDED, None)])
        assert added.data_file.first_row_id is None

    def test_deleted_entries_are_not_live(self) -> None:
        found = live_files(self.entries([(ADDED, None), (DELETED, None)]))
        assert [each.file.file_path for each in found] == ["f0"]


@pytest.mark.parametrize("version", [2, 3])
def test_a_manifest_list_is_read_as_it_was_written(version: int, tmp_path: Path) -> None:
    spec = spec_of(("day", DayTransform()))
    terms = ManifestTerms(metadata_of(version, spec), 9, 4)
    entry = EntryToWrite(ADDED, LiveFile(file_of("x", [19000]), 4, None, 9))
    line, _ = write_manifest(terms, "file:///t/m.avro", ManifestContent.DATA, spec, [entry])
    if version == 3:
        line = with_first_row_id(line, 40)
    data = write_manifest_list(terms, None, [line], 40 if version == 3 else None)
    location = tmp_path / "list.avro"
    location.write_bytes(data)
    snapshot = Snapshot(snapshot_id=9, sequence_number=4, timestamp_ms=1, manifest_list=str(location))
    [ours] = read_manifest_list(DiskFiles(), snapshot)
    clear_manifest_cache()
    [theirs] = snapshot.manifests(PyArrowFileIO())
    assert ours._data[:15] == theirs._data
    assert ours._data[:15] == line._data[:15]
    assert first_row_id_of(ours) == (40 if version == 3 else None)


@pytest.mark.parametrize("version", [1, 2])
def test_what_pyiceberg_writes_is_read(version: int, tmp_path: Path) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("d")
    rows = pa.table({"id": [1, 2, 3], "g": ["a", "b", None]})
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "g"))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "g", StringType()))
    table = catalog.create_table("d.t", schema, partition_spec=spec, properties={"format-version": str(version)})
    table.append(rows)
    table.append(rows)
    table.delete("id = 2")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    clear_manifest_cache()
    manifests = read_manifest_list(DiskFiles(), snapshot)
    assert [each.manifest_path for each in manifests] == [each.manifest_path for each in snapshot.manifests(table.io)]
    for manifest in manifests:
        ours = read_manifest(DiskFiles(), manifest)
        theirs = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        assert [(each.status, each.data_file.file_path, each.data_file.partition) for each in ours] == [
            (each.status, each.data_file.file_path, each.data_file.partition) for each in theirs
        ]
        assert [(each.sequence_number, each.snapshot_id) for each in ours] == [
            (each.sequence_number, each.snapshot_id) for each in theirs
        ]
    table.catalog.close()


class TestDamage:
    """A manifest that was cut short must not look like one with fewer files."""

    def written(self) -> bytes:
        spec = spec_of()
        terms = ManifestTerms(metadata_of(2, spec), 9, 4)
        _, data = write_manifest(
            terms,
            "m",
            ManifestContent.DATA,
            spec,
            [EntryToWrite(ADDED, LiveFile(file_of(f"file:///t/{n}.parquet"), 4, None, 9)) for n in range(3)],
        )
        return data

    def line(self, data: bytes, **values: Any) -> ManifestFile:
        counts = {"added_files_count": 3, "existing_files_count": 0, "deleted_files_count": 0}
        return line_for("m", data, **{**counts, **values})

    @pytest.mark.hazard("T1")
    def test_a_manifest_cut_anywhere_is_an_error_that_names_it(self) -> None:
        data = self.written()
        header_ends = data.rindex(b"avro.schema")
        for length in [*range(60), *range(header_ends, len(data))]:
            with pytest.raises(TableCorruptError, match=r"^m (is not a whole Avro file|has 0 entries, and 3 by)"):
                read_manifest(MemoryFiles({"m": data[:length]}), self.line(data))

    def test_a_flipped_byte_never_passes_in_silence(self) -> None:
        """It is an error, or (in the header's words) changes nothing; entries are checked by what they deflate to."""
        data = self.written()
        sound = [each.data_file.file_path for each in read_manifest(MemoryFiles({"m": data}), self.line(data))]
        start = data.index(data[-16:]) + 16
        for place in range(start, len(data) - 16):
            broken = bytearray(data)
            broken[place] ^= 0x40
            try:
                entries = read_manifest(MemoryFiles({"m": bytes(broken)}), self.line(data))
            except TableCorruptError:
                continue
            assert len(entries) == len(sound)

    def test_bytes_behind_the_end(self) -> None:
        data = self.written()
        with pytest.raises(TableCorruptError):
            read_manifest(MemoryFiles({"m": data + b"more"}), self.line(data))

    def test_the_wrong_kind(self) -> None:
        data = self.written()
        line = self.line(data, content=ManifestContent.DELETES)
        with pytest.raises(TableCorruptError, match="holds data, though the manifest list says deletes"):
            read_manifest(MemoryFiles({"m": data}), line)

    def test_something_else(self) -> None:
        with pytest.raises(TableCorruptError, match="it does not begin like one"):
            read_manifest(MemoryFiles({"m": b"PAR1 and so on"}), line_for("m", b""))

    def entry_line(self, *entries: EntryToWrite, sequence_number: int = 4, **line: Any) -> tuple[bytes, ManifestFile]:
        terms = ManifestTerms(metadata_of(2, spec_of()), 9, sequence_number)
        _, data = write_manifest(terms, "m", ManifestContent.DATA, spec_of(), entries)
        return data, line_for("m", data, sequence_number=sequence_number, **line)

    def test_a_manifest_that_does_not_say_its_kind_holds_data(self) -> None:
        data = self.written()
        reader = fastavro.reader(io.BytesIO(data))
        out = io.BytesIO()
        fastavro.writer(out, reader.writer_schema, list(reader), metadata={"format-version": "2"})
        silent = out.getvalue()
        assert len(read_manifest(MemoryFiles({"m": silent}), self.line(silent))) == 3
        with pytest.raises(TableCorruptError, match="m holds data, though the manifest list says deletes"):
            read_manifest(MemoryFiles({"m": silent}), self.line(silent, content=ManifestContent.DELETES))

    def test_a_manifest_of_another_spec(self) -> None:
        data = self.written()
        with pytest.raises(TableCorruptError, match="m is of partition spec 0, though the manifest list says 9"):
            read_manifest(MemoryFiles({"m": data}), self.line(data, partition_spec_id=9))

    def test_an_older_file_without_a_number_would_have_its_deletes_forgotten(self) -> None:
        lost: Any = None
        data, line = self.entry_line(EntryToWrite(EXISTING, LiveFile(file_of("x"), lost, 1, 1)))
        with pytest.raises(TableCorruptError, match=r"^m has an entry .* has no sequence number"):
            read_manifest(MemoryFiles({"m": data}), line)

    @pytest.mark.parametrize(
        ("values", "said"),
        [
            ({"content": DataFileContent.EQUALITY_DELETES}, "does not belong into a manifest of this kind"),
            ({"record_count": -1}, "has -1 rows"),
        ],
    )
    def test_an_entry_that_makes_no_sense(self, values: dict[str, Any], said: str) -> None:
        data, line = self.entry_line(EntryToWrite(ADDED, LiveFile(file_of("x", **values), 4, None, 9)))
        with pytest.raises(TableCorruptError, match=f"^m has an entry that makes no sense: x {said}"):
            read_manifest(MemoryFiles({"m": data}), line)


class TestLists:
    """A manifest list that lost a line, or has one twice, would change what the table holds."""

    COUNTS: ClassVar = {
        "added_files_count": 1,
        "existing_files_count": 0,
        "deleted_files_count": 0,
        "added_rows_count": 10,
        "existing_rows_count": 0,
        "deleted_rows_count": 0,
    }

    def listed(self, *paths: str, **values: Any) -> bytes:
        terms = ManifestTerms(metadata_of(2, spec_of()), 9, 4)
        lines = [line_for(path, b"12345", **{**self.COUNTS, **values}) for path in paths]
        return write_manifest_list(terms, None, lines, None)

    def read(self, data: bytes, *, seal: str | None = None, location: str = "s3://lake/l", **options: Any) -> Any:
        summary = Summary(Operation.APPEND, **({MANIFEST_LIST_SEAL: seal} if seal else {}))
        snapshot = Snapshot(snapshot_id=9, timestamp_ms=1, manifest_list=location, summary=summary)
        return read_manifest_list(MemoryFiles({location: data}), snapshot, **options)

    def test_a_manifest_named_twice(self) -> None:
        with pytest.raises(TableCorruptError, match=r"^s3://lake/l names b twice"):
            self.read(self.listed("a", "b", "c", "b"))

    def test_a_list_cut_between_its_blocks_does_not_fit_its_seal(self) -> None:
        data = self.listed(*(f"s3://lake/t/metadata/{n:040}-m0.avro" for n in range(400)))
        sync = data[-16:]
        cut = data[: data.index(sync, data.index(sync) + 16) + 16]
        seal = manifest_list_seal("s3://lake/l", data)
        assert len(self.read(data, seal=seal)) == 400
        assert 0 < len(self.read(cut)) < 400
        with pytest.raises(TableCorruptError, match=r"^s3://lake/l has \d+ bytes that are not those"):
            self.read(cut, seal=seal)

    def test_the_seal_of_a_list_that_was_moved_says_nothing(self) -> None:
        """Tools that move a table write its lists anew, and keep the summaries."""
        seal = manifest_list_seal("s3://lake/l", self.listed("s3://lake/a", "s3://lake/b"))
        assert len(self.read(self.listed("s3://other/a"), seal=seal, location="s3://other/l")) == 1

    def test_a_spec_that_the_table_does_not_know(self) -> None:
        assert len(self.read(self.listed("a"), spec_ids={0, 1})) == 1
        with pytest.raises(TableCorruptError, match=r"^s3://lake/l says that a is of partition spec 9"):
            self.read(self.listed("a", partition_spec_id=9), spec_ids={0, 1})

    @pytest.mark.parametrize(
        "values",
        [{"manifest_length": -1}, {"partition_spec_id": -1}, {"added_files_count": -1}, {"added_rows_count": -5}],
    )
    def test_a_line_that_makes_no_sense(self, values: dict[str, Any]) -> None:
        with pytest.raises(TableCorruptError, match=r"^s3://lake/l has a line that makes no sense, for 'a'"):
            self.read(self.listed("a", **values))


class TestCounts:
    """Lists of v1 tables may leave counts out. What is not known is not zero."""

    def manifest(self) -> tuple[MemoryFiles, bytes]:
        terms = ManifestTerms(metadata_of(2, spec_of()), 9, 4)
        entries = [
            EntryToWrite(ADDED, LiveFile(file_of("a", record_count=1), 4, None, 9)),
            EntryToWrite(EXISTING, LiveFile(file_of("b", record_count=10), 2, 2, 3)),
            EntryToWrite(EXISTING, LiveFile(file_of("c", record_count=100), 2, 2, 3)),
            EntryToWrite(DELETED, LiveFile(file_of("d", record_count=1000), 2, 2, 3)),
        ]
        _, data = write_manifest(terms, "m", ManifestContent.DATA, spec_of(), entries)
        return MemoryFiles({"m": data}), data

    def test_unknown_counts_are_counted(self) -> None:
        files, data = self.manifest()
        line = with_counts(files, line_for("m", data))
        assert (line.added_files_count, line.existing_files_count, line.deleted_files_count) == (1, 2, 1)
        assert (line.added_rows_count, line.existing_rows_count, line.deleted_rows_count) == (1, 110, 1000)
        assert line.manifest_path == "m"

    def test_known_counts_cost_nothing(self) -> None:
        line = line_for("m", b"", **TestLists.COUNTS)
        assert with_counts(MemoryFiles({}), line) is line

    @pytest.mark.parametrize("name", TestLists.COUNTS)
    def test_an_unknown_count_is_never_written_as_zero(self, name: str) -> None:
        terms = ManifestTerms(metadata_of(2, spec_of()), 9, 4)
        line = line_for("s3://lake/m", b"", **{**TestLists.COUNTS, name: None})
        with pytest.raises(TableUsageError, match=f"{name} of s3://lake/m is not known"):
            write_manifest_list(terms, None, [line], None)

    @pytest.mark.parametrize("version", [2, 3])
    def test_an_upgraded_table_keeps_its_rows(self, version: int, world: TableWorld) -> None:
        made = world.create(Schema(NestedField(1, "a", LongType())), format_version=2)
        made = world.commit(append(world.staging(), made, pa.table({"a": [1, 2]})))
        snapshot = made.metadata.current_snapshot()
        assert snapshot is not None
        [line] = read_manifest_list(world.files, snapshot)
        path = Path(snapshot.manifest_list.removeprefix("file://"))
        path.unlink()
        written = avro_schema(MANIFEST_LIST_FILE_SCHEMAS[1], "manifest_file")
        names = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[1].fields]
        known = {
            "manifest_path": line.manifest_path,
            "manifest_length": line.manifest_length,
            "partition_spec_id": 0,
            "added_snapshot_id": line.added_snapshot_id,
        }
        path.write_bytes(write_avro(written, [dict.fromkeys(names) | known], {"format-version": "1"}))
        snapshots = [
            snapshot.model_copy(
                update={"summary": Summary(Operation.APPEND), "sequence_number": 0, "first_row_id": None}
            )
        ]
        metadata = made.metadata.model_copy(update={"snapshots": snapshots})
        old = TableVersion(upgrade(metadata, version, datetime.now(UTC)) if version > 2 else metadata, made.location)
        staged = append(world.staging(), old, pa.table({"a": [3]}))
        world.files.write(staged.files)
        extra = frozenset({"_row_id"}) if version == 3 else frozenset[str]()
        rows = world.rows(TableVersion(staged.metadata), extra=extra)
        assert sorted(rows["a"].to_pylist()) == [1, 2, 3]
        if version == 3:
            assert sorted(rows["_row_id"].to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType()], ids=str)
def test_partitions_of_nanoseconds_are_read_again(kind: IcebergType) -> None:
    schema = Schema(NestedField(1, "at", kind))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "at"))
    metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///t", {"format-version": "3"})
    value = 1_700_000_000_123_456_789
    entry = EntryToWrite(ADDED, LiveFile(file_of("x", [value]), 4, None, 9))
    line, data = write_manifest(ManifestTerms(metadata, 9, 4), "m", ManifestContent.DATA, spec, [entry])
    [found] = read_manifest(MemoryFiles({"m": data}), line)
    assert found.data_file.partition == Record(value)


def test_two_partitions_of_one_fixed_type(tmp_path: Path) -> None:
    schema = Schema(*(NestedField(n, f"u{n}", UUIDType()) for n in (1, 2)))
    spec = PartitionSpec(*(PartitionField(n, 999 + n, IdentityTransform(), f"u{n}") for n in (1, 2)))
    metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///t", {"format-version": "3"})
    values = [uuid.UUID(int=1), uuid.UUID(int=2)]
    entry = EntryToWrite(ADDED, LiveFile(file_of("x", values), 4, None, 9))
    line, data = write_manifest(ManifestTerms(metadata, 9, 4), "m", ManifestContent.DATA, spec, [entry])
    [found] = read_manifest(MemoryFiles({"m": data}), line)
    assert found.data_file.partition == Record(*values)
    line[0] = str(tmp_path / "m.avro")
    Path(line.manifest_path).write_bytes(data)
    [theirs] = line.fetch_manifest_entry(PyArrowFileIO())
    assert theirs.data_file.partition == Record(*values)
