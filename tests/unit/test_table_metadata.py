"""metadata.json: every version is read, damage and the unknown are told apart, nothing unknown is lost."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType

from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import seeded
from headwater.sequence.codec import Body
from headwater.storage.file import FileStore
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Create
from headwater.tables import metadata as metadata_module
from headwater.tables.evolve import upgrade
from headwater.tables.files import Files, normalise
from headwater.tables.head import MetadataCodec, head_namespace
from headwater.tables.metadata import decode_metadata, encode_metadata
from headwater.tables.model import NewFile, OutsideLakeError, TableCorruptError, UnsupportedTableError

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
SPEC = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))


def document(version: int = 2) -> dict[str, Any]:
    made = new_table_metadata(SCHEMA, SPEC, UNSORTED_SORT_ORDER, "file:///t", {"format-version": str(version)})
    if version == 3:
        made = made.model_copy(update={"next_row_id": 0})
    parsed: dict[str, Any] = json.loads(encode_metadata(made))
    return parsed


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("compress", [False, True])
def test_every_version_comes_back_as_it_was(version: int, compress: bool) -> None:
    original = document(version)
    data = json.dumps(original).encode()
    decoded = decode_metadata(gzip.compress(data) if compress else data, "m")
    assert decoded.format_version == version
    assert json.loads(encode_metadata(decoded)) == original
    # PyIceberg, which reads v3, reads what it would not write.
    assert TableMetadataUtil.parse_raw(encode_metadata(decoded).decode()).schema() == decoded.schema()


def nested(depth: int) -> dict[str, Any]:
    """A document with a column of lists in lists."""
    kind: Any = "long"
    for number in range(depth):
        kind = {"type": "list", "element-id": number + 10, "element-required": False, "element": kind}
    made = document(3)
    made["schemas"][0]["fields"][0]["type"] = kind
    return made


def with_snapshots(current: object, main: object) -> bytes:
    """Two snapshots, 5 and 6; which one is current, and where main is."""
    made = document(3)
    made["snapshots"] = [
        {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": number,
            "manifest-list": "l",
            "first-row-id": 0,
            "added-rows": 0,
            "summary": {"operation": "append"},
        }
        for number in (5, 6)
    ]
    made["last-sequence-number"] = 6
    made["current-snapshot-id"] = current
    made["refs"] = {"main": {"snapshot-id": main, "type": "branch"}} if main else {}
    return json.dumps(made).encode()


def change(path: str, value: object) -> bytes:
    """The document with one thing changed; None removes it."""
    changed = document(3)
    *way, last = path.split("/")
    place: Any = changed
    for each in way:
        place = place[int(each) if each.isdigit() else each]
    if value is None:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return json.dumps(changed).encode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not JSON, or was cut short"),
        (json.dumps(document()).encode()[:200], "is not JSON, or was cut short"),
        (gzip.compress(json.dumps(document()).encode())[:80], "is not JSON, or was cut short"),
        (b"[1]", "it has no format-version"),
        (b"{}", "it has no format-version"),
        (change("format-version", "two"), "it has no format-version"),
        (change("location", None), "is not table metadata: location: Field required"),
        (change("schemas", None), "is not table metadata: current-schema-id 0"),
        (change("current-schema-id", 9), "is not table metadata"),
        (change("default-spec-id", 9), "is not table metadata"),
        (change("current-snapshot-id", 12), "has no snapshot 12"),
        (change("partition-specs/0/fields/0/transform", 7), "is not table metadata"),
        (change("schemas/0/fields/0/type", "decimal(99)"), "is not table metadata"),
        (change("format-version", True), "it has no format-version"),
        (change("schemas", 1), "is not table metadata"),
        (change("schemas/0/fields", -1), "is not table metadata"),
        (change("snapshots", 1), "is not table metadata"),
        (change("statistics", [{"statistics-path": "p", "blob-metadata": 1}]), "is not table metadata"),
        (change("statistics", [{"statistics-path": "p", "blob-metadata": [1]}]), "is not table metadata"),
        (change("next-row-id", 2**70), "has more than 64 bits"),
        (change("schemas/0/fields/0/initial-default", "x"), "initial-default of column id is 'x', which is no long"),
        (change("schemas/0/fields/0/write-default", True), "write-default of column id is True, which is no long"),
        (json.dumps(nested(300)).encode(), "recursion"),
        (b'{"a":' * 100_000, "is not JSON, or was cut short: maximum recursion"),
        (with_snapshots(6, 6).replace(b'"append"', b'"append", "total-records": 7'), "total-records of snapshot 5"),
        (with_snapshots(None, 6), "says that snapshot None is current, and that main is at snapshot 6"),
        (with_snapshots(-1, 6), "says that snapshot None is current, and that main is at snapshot 6"),
        (with_snapshots(5, 6), "says that snapshot 5 is current, and that main is at snapshot 6"),
        (with_snapshots(6, 5), "says that snapshot 6 is current, and that main is at snapshot 5"),
    ],
)
def test_damage_is_told_with_the_file(data: bytes, said: str) -> None:
    with pytest.raises(TableCorruptError) as caught:
        decode_metadata(data, "file:///t/m.json")
    assert caught.value.message.startswith("file:///t/m.json")
    assert said in caught.value.message
    assert caught.value.fields["path"] == "file:///t/m.json"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (change("format-version", 4), "format version 4"),
        (change("format-version", 0), "format version 0"),
        (change("partition-specs/0/fields/0/transform", "zorder"), "zorder"),
        (change("schemas/0/fields/1/type", "variant"), "column name is of type variant"),
        (change("schemas/0/fields/1/type", "geometry"), "column name is of type geometry"),
        (
            change(
                "schemas/0/fields/1/type",
                {"type": "list", "element-id": 9, "element": "variant", "element-required": False},
            ),
            "column name.element is of type variant",
        ),
    ],
)
def test_what_is_not_known_is_refused_and_not_called_damage(data: bytes, said: str) -> None:
    with pytest.raises(UnsupportedTableError) as caught:
        decode_metadata(data, "file:///t/m.json")
    assert said in caught.value.message
    assert "file:///t/m.json" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(("current", "main", "seen"), [(6, 6, 6), (5, 5, 5), (6, None, 6), (None, None, None)])
def test_main_and_the_current_snapshot_agree(current: object, main: object, seen: int | None) -> None:
    assert decode_metadata(with_snapshots(current, main), "m").current_snapshot_id == seen


def test_deep_types_are_read_as_far_as_others_read_them() -> None:
    assert decode_metadata(json.dumps(nested(100)).encode(), "m").schema().fields


def test_compressed_metadata_does_not_grow_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps(document()).encode()
    monkeypatch.setattr(metadata_module, "MOST_BYTES", len(data))
    assert decode_metadata(gzip.compress(data), "m")
    monkeypatch.setattr(metadata_module, "MOST_BYTES", len(data) - 1)
    with pytest.raises(TableCorruptError, match=r"^m is not JSON, or was cut short: it has more than"):
        decode_metadata(gzip.compress(data), "m")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_same_table_is_the_same_bytes(version: int) -> None:
    data = json.dumps(document(version)).encode()
    first = encode_metadata(decode_metadata(data, "m"))
    assert encode_metadata(decode_metadata(data, "m")) == first
    assert encode_metadata(decode_metadata(first, "m")) == first


def test_what_the_model_does_not_know_is_carried_over() -> None:
    base = document(3)
    base["encryption-keys"] = [{"key-id": "k"}]
    base["snapshots"] = [
        {
            "snapshot-id": 5,
            "sequence-number": 1,
            "timestamp-ms": 1,
            "manifest-list": "l",
            "first-row-id": 0,
            "added-rows": 0,
            "key-id": "k",
            "summary": {"operation": "append"},
        }
    ]
    metadata = decode_metadata(json.dumps(base).encode(), "m")
    again = json.loads(encode_metadata(metadata, base=base))
    assert again["encryption-keys"] == [{"key-id": "k"}]
    assert again["snapshots"][0]["key-id"] == "k"
    assert "encryption-keys" not in json.loads(encode_metadata(metadata))


def test_an_upgraded_table_drops_what_only_v1_has() -> None:
    base = document(1)
    assert "schema" in base
    metadata = upgrade(decode_metadata(json.dumps(base).encode(), "m"), 2, datetime.now(UTC))
    again = json.loads(encode_metadata(metadata, base=base))
    assert again["format-version"] == 2
    assert not {"schema", "partition-spec"} & again.keys()


def test_statistics_with_foreign_blobs_are_read_and_kept() -> None:
    base = document(2)
    blob = {"type": "presto-sum-data-size-bytes-v1", "snapshot-id": 5, "sequence-number": 1, "fields": [1]}
    base["statistics"] = [
        {
            "snapshot-id": 5,
            "statistics-path": "file:///t/s.puffin",
            "file-size-in-bytes": 10,
            "file-footer-size-in-bytes": 5,
            "blob-metadata": [blob, {**blob, "type": "apache-datasketches-theta-v1"}],
        }
    ]
    metadata = decode_metadata(json.dumps(base).encode(), "m")
    assert [each.statistics_path for each in metadata.statistics] == ["file:///t/s.puffin"]
    assert json.loads(encode_metadata(metadata, base=base))["statistics"] == base["statistics"]


class TestHead:
    """A metadata.json is an object of its table's sequence."""

    def test_writer_and_predecessor_are_properties(self) -> None:
        writer, previous, another = (new_ulid(SystemClock(), seeded(n)) for n in (1, 2, 3))
        payload = encode_metadata(decode_metadata(json.dumps(document()).encode(), "m"))
        data = MetadataCodec().encode(Body(writer, previous, payload))
        body = MetadataCodec().decode(data, "m")
        assert (body.writer, body.previous) == (writer, previous)
        properties = decode_metadata(data, "m").properties
        assert properties["headwater.writer"] == writer
        # The first of its line has no predecessor, whatever the payload was made from.
        first = MetadataCodec().encode(Body(writer, None, data))
        assert MetadataCodec().decode(first, "m").previous is None
        # Bytes that say who and after whom already stay as they are.
        assert MetadataCodec().encode(Body(writer, previous, data)) is data
        assert MetadataCodec().decode(MetadataCodec().encode(Body(previous, writer, data)), "m").writer == previous
        assert MetadataCodec().decode(MetadataCodec().encode(Body(writer, another, data)), "m").previous == another

    @pytest.mark.parametrize(
        "data", [b"", b"{}", b'{"properties": {}}', b'{"properties": {"headwater.writer": "x"}}', b"[" * 100_000]
    )
    def test_what_was_not_written_here_is_no_head(self, data: bytes) -> None:
        with pytest.raises(TableCorruptError, match="m is not table metadata written here"):
            MetadataCodec().decode(data, "m")

    def test_where_it_lies(self) -> None:
        assert head_namespace("ns/t").path_of(7) == "ns/t/metadata/00000000000000000007.metadata.json"


class TestFiles:
    @pytest.mark.parametrize(
        ("location", "same"),
        [
            ("/a/b", "file:///a/b"),
            ("file:/a/b", "file:///a/b"),
            ("file:///a/b", "file:///a/b"),
            ("s3a://b/k", "s3://b/k"),
            ("S3N://b/k", "s3://b/k"),
            ("s3://b/k%20x y", "s3://b/k%20x y"),
            ("gs://b/k", "gs://b/k"),
            ("//a//b", "file:///a/b"),
            ("file:////a//b///c", "file:///a/b/c"),
            ("s3://b//k", "s3://b//k"),
        ],
    )
    def test_one_spelling(self, location: str, same: str) -> None:
        assert normalise(location) == same

    def test_the_longest_prefix_wins_and_aligns_to_segments(self) -> None:
        outer, inner = MemoryStore(SystemClock()), MemoryStore(SystemClock())
        files = Files({"s3://b/lake": outer, "s3a://b/lake/other/": inner})
        assert files.place("s3n://b/lake/other/x") == (inner, "x")
        assert files.place("s3://b/lake/others/x") == (outer, "others/x")

    @pytest.mark.parametrize(
        "location",
        ["s3://b/lakes/x", "s3://c/lake/x", "/etc/passwd", "s3://b/lake/../x", "s3://b/lake/", "x", "s3://b/lake"],
    )
    def test_outside_is_refused(self, location: str) -> None:
        files = Files({"s3://b/lake": MemoryStore(SystemClock())})
        with pytest.raises(OutsideLakeError) as caught:
            files.read(location)
        assert location in caught.value.message
        assert "s3://b/lake" in (caught.value.hint or "")

    def test_new_files_never_replace_others(self) -> None:
        store = MemoryStore(SystemClock())
        files = Files({"s3://b/lake": store})
        files.write([NewFile("s3://b/lake/x", b"1")])
        assert files.read("s3://b/lake/x") == b"1"
        with pytest.raises(Exception, match="x"):
            files.write([NewFile("s3://b/lake/x", b"2")])
        assert files.read("s3://b/lake/x") == b"1"

    def test_a_missing_file_is_told(self) -> None:
        store = MemoryStore(SystemClock())
        store.put("y", b"", Create())
        with pytest.raises(TableCorruptError, match=r"^s3://b/lake/x is missing"):
            Files({"s3://b/lake": store}).read("s3://b/lake/x")

    def test_slashes_in_a_row_count_as_one_for_reading(self) -> None:
        store = MemoryStore(SystemClock())
        store.put("t/data/x", b"1", Create())
        assert Files({"s3://b/lake": store}).read("s3://b/lake/t//data///x") == b"1"
        assert Files({"file:///lake": store}).read("file:///lake//t//data/x") == b"1"

    def test_in_a_bucket_no_name_is_written_that_others_would_not_find(self) -> None:
        store = MemoryStore(SystemClock())
        with pytest.raises(OutsideLakeError):
            Files({"s3://b/lake": store}).write([NewFile("s3://b/lake/t//x", b"1")])
        Files({"file:///lake": store}).write([NewFile("file:///lake/t//x", b"1")])
        assert [each.path for each in store.list()] == ["t/x"]

    @pytest.mark.parametrize("span", [(10, 20), (2**62, 2**62 + 5), (3, 3)])
    def test_a_range_that_is_not_there_names_the_whole_location(self, span: tuple[int, int]) -> None:
        store = MemoryStore(SystemClock())
        store.put("x", b"12345", Create())
        with pytest.raises(TableCorruptError, match=r"^s3://b/lake/x has no bytes \d+ to \d+") as caught:
            Files({"s3://b/lake": store}).read("s3://b/lake/x", span=span)
        assert caught.value.fields["path"] == "s3://b/lake/x"


class TestLinks:
    """A symbolic link under a prefix must not lead to files outside of it."""

    def files(self, folder: Path) -> Files:
        (folder / "lake" / "t").mkdir(parents=True)
        (folder / "outside").mkdir()
        (folder / "outside" / "secret").write_bytes(b"secret")
        (folder / "lake" / "t" / "own").write_bytes(b"own")
        return Files({f"file://{folder}/lake": FileStore(folder / "lake", SystemClock(), seeded(1))})

    @pytest.mark.parametrize("wanted", ["link/secret", "t/file", "t/loop"])
    def test_out_of_the_prefix_is_refused(self, wanted: str, tmp_path: Path) -> None:
        files = self.files(tmp_path)
        (tmp_path / "lake" / "link").symlink_to(tmp_path / "outside")
        (tmp_path / "lake" / "t" / "file").symlink_to("../../outside/secret")
        (tmp_path / "lake" / "t" / "loop").symlink_to("../link/secret")
        location = f"file://{tmp_path}/lake/{wanted}"
        with pytest.raises(OutsideLakeError, match="lies outside the lake"):
            files.read(location)
        with pytest.raises(OutsideLakeError):
            files.write([NewFile(f"{location}/more", b"x")])
        assert [each.name for each in (tmp_path / "outside").iterdir()] == ["secret"]

    def test_within_the_prefix_is_followed(self, tmp_path: Path) -> None:
        files = self.files(tmp_path)
        (tmp_path / "lake" / "other").symlink_to(tmp_path / "lake" / "t")
        assert files.read(f"file://{tmp_path}/lake/other/own") == b"own"

    def test_the_lake_itself_may_be_reached_by_a_link(self, tmp_path: Path) -> None:
        self.files(tmp_path)
        (tmp_path / "here").symlink_to(tmp_path / "lake")
        (tmp_path / "lake" / "other").symlink_to(tmp_path / "lake" / "t")
        store = FileStore(tmp_path / "here", SystemClock(), seeded(1))
        files = Files({f"file://{tmp_path}/here": store})
        assert files.read(f"file://{tmp_path}/here/t/own") == b"own"
        assert files.read(f"file://{tmp_path}/here/other/own") == b"own"
