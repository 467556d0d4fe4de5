"""What a scan reads and what it gives, beside plain Python over the same rows."""

from __future__ import annotations

import datetime as dt
import operator
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.ingest.apply.model import BadRequestError, TableUpdate, UpdateRequest
from headwater.ingest.buffer.model import BlockView
from headwater.ingest.keys import encode
from headwater.ingest.model import TIMESTAMP_COLUMN, Position, TableShape
from headwater.ingest.scan.decide import Ages, ages_of, may_hold
from headwater.ingest.scan.footers import Footer, Footers
from headwater.ingest.scan.model import Comparison, Predicate, ScanRequest
from headwater.ingest.scan.protocol import rows_of_block
from headwater.ingest.visibility.model import BelowBaseError
from tests.unit.ingest_world import IngestWorld, field, ingest_world

SCHEMA = pa.schema(
    [
        field("id", pa.int64(), 1, nullable=False),
        field("v", pa.string(), 2),
        field("d", pa.float64(), 3),
        field("n", pa.decimal128(9, 2), 4),
        field("day", pa.date32(), 5),
        field("at", pa.timestamp("us", tz="UTC"), 6),
        field("raw", pa.binary(), 7),
        field("b", pa.bool_(), 8),
    ]
)
COMPARED: dict[Comparison, Callable[[Any, Any], bool]] = {
    Comparison.EQUAL: operator.eq,
    Comparison.NOT_EQUAL: operator.ne,
    Comparison.LESS: operator.lt,
    Comparison.LESS_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_EQUAL: operator.ge,
}
EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def row(number: int) -> dict[str, Any]:
    """Values that grow with the number, so that row groups differ; every seventh has none."""
    if number % 7 == 0:
        return {"id": number}
    return {
        "id": number,
        "v": f"{number:05}",
        "d": float("nan") if number % 11 == 0 else number / 4,
        "n": Decimal(number) / 4,
        "day": EPOCH.date() + dt.timedelta(days=number),
        "at": EPOCH + dt.timedelta(seconds=number),
        "raw": number.to_bytes(4, "big"),
        "b": number > 100,
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IngestWorld]:
    """Rows of many row groups, of timestamps 1 to 8; some deleted at 9."""
    with filled_world(tmp_path_factory.mktemp("node"), is_flushed=True) as made:
        yield made


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IngestWorld]:
    """The same rows, while they wait for their files."""
    with filled_world(tmp_path_factory.mktemp("node"), is_flushed=False) as made:
        yield made


@pytest.fixture(params=["files", "blocks"])
def world(request: pytest.FixtureRequest) -> IngestWorld:
    """The rows in either place."""
    made: IngestWorld = request.getfixturevalue(request.param)
    return made


@contextmanager
def filled_world(folder: Path, *, is_flushed: bool) -> Iterator[IngestWorld]:
    with ingest_world(folder, schema=SCHEMA) as made:
        for turn in range(1, 9):
            made.node.applier.apply(made.request(turn, inserts=[row(each) for each in of_turn(turn)]))
        if is_flushed:
            made.node.flush()
        made.node.applier.apply(made.request(9, deletes=[{"id": each} for each in range(0, 200, 20)]))
        yield made


def of_turn(turn: int) -> range:
    return range((turn - 1) * 25, turn * 25)


def wanted(world: IngestWorld, timestamp: int) -> list[dict[str, Any]]:
    numbers = [each for turn in range(1, min(timestamp, 8) + 1) for each in of_turn(turn)]
    if timestamp >= 9:
        numbers = [each for each in numbers if each % 20]
    made = world.batch([row(each) for each in numbers if world.is_here({"id": each})])
    rows: list[dict[str, Any]] = made.to_pylist()
    return rows


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """NaN is NaN here."""
    return str(found) == str(expected)


class Reads:
    """How many row groups are read; the others are told apart by footers that are known."""

    def __init__(self, world: IngestWorld, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = world.node.scanner._open_file

        def counted(name: str) -> pa.NativeFile:
            self.count += 1
            return real(name)

        patch.setattr(world.node.scanner, "_open_file", counted)


@pytest.mark.parametrize("timestamp", [0, 1, 4, 8, 9, 1 << 62])
def test_rows_of_a_timestamp(world: IngestWorld, timestamp: int) -> None:
    assert same(world.rows(timestamp), wanted(world, timestamp))


@pytest.mark.parametrize("column", SCHEMA.names)
@pytest.mark.parametrize("comparison", COMPARED)
def test_predicates_of_every_type(world: IngestWorld, column: str, comparison: Comparison) -> None:
    compare = COMPARED[comparison]
    rows = wanted(world, 9)
    for number in (3, 94, 197, 1000):
        value = row(number)[column]
        literal = str(value) if isinstance(value, Decimal | dt.date) and not isinstance(value, dt.datetime) else value
        if isinstance(value, dt.datetime):
            literal = (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        found = world.rows(9, predicates=(Predicate(column, comparison, literal),))
        expected = [each for each in rows if each[column] is not None and compare(each[column], value)]
        assert same(found, expected), number


@pytest.mark.parametrize("column", ["id", "v", "b"])
def test_nulls(world: IngestWorld, column: str) -> None:
    for comparison, is_null in ((Comparison.IS_NULL, True), (Comparison.IS_NOT_NULL, False)):
        found = world.rows(9, predicates=(Predicate(column, comparison),))
        assert same(found, [each for each in wanted(world, 9) if (each[column] is None) is is_null])


def test_blocks_that_cannot_fit_are_not_looked_at(blocks: IngestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[BlockView]()

    def noted(block: BlockView, *rest: Any) -> Iterator[pa.RecordBatch]:
        looked.append(block)
        return rows_of_block(block, *rest)

    monkeypatch.setattr("headwater.ingest.scan.protocol.rows_of_block", noted)
    blocks.rows(9)
    everything = len(looked)
    for _ in range(2):
        looked.clear()
        found = blocks.rows(9, predicates=(Predicate("id", Comparison.GREATER_EQUAL, 190),))
        assert [each["id"] for each in found] == [each["id"] for each in wanted(blocks, 9) if each["id"] >= 190]
        assert 0 < len(looked) < everything / 3


def test_a_block_that_is_not_full_has_no_bounds_yet(tmp_path: Path) -> None:
    with ingest_world(tmp_path) as world:
        for turn in range(1, 12):
            world.node.applier.apply(world.request(turn, inserts=[{"id": turn, "v": "a"}]))
            here = [turn] if world.is_here({"id": turn}) else []
            found = world.rows(turn, predicates=(Predicate("id", Comparison.GREATER_EQUAL, turn),))
            assert [each["id"] for each in found] == here


def test_a_block_of_nulls(tmp_path: Path) -> None:
    with ingest_world(tmp_path) as world:
        world.node.applier.apply(world.request(1, inserts=[{"id": each, "v": None} for each in range(40)]))
        assert not world.rows(1, predicates=(Predicate("v", Comparison.GREATER, ""),))
        assert len(world.rows(1, predicates=(Predicate("v", Comparison.IS_NULL),))) == len(world.rows(1)) > 0


@pytest.mark.parametrize("is_flushed", [True, False])
def test_uuids_are_compared(tmp_path: Path, is_flushed: bool) -> None:
    schema = pa.schema([field("id", pa.int64(), 1, nullable=False), field("u", pa.uuid(), 2)])
    with ingest_world(tmp_path, schema=schema) as world:
        uuids = {each: uuid.UUID(int=each << 100) for each in range(40)}
        rows = [{"id": each, "u": known.bytes} for each, known in uuids.items()]
        world.node.applier.apply(world.request(1, inserts=rows))
        if is_flushed:
            world.node.flush()
        here = [each for each in uuids if world.is_here({"id": each})]
        for comparison, compare in COMPARED.items():
            found = world.rows(1, predicates=(Predicate("u", comparison, uuids[here[3]].bytes),))
            assert [each["id"] for each in found] == [each for each in here if compare(uuids[each], uuids[here[3]])]


def test_what_cannot_fit_is_not_read(files: IngestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = files
    world.rows(9)
    reads = Reads(world, monkeypatch)
    world.rows(9)
    everything, reads.count = reads.count, 0
    found = world.rows(9, predicates=(Predicate("id", Comparison.GREATER_EQUAL, 190),))
    assert [each["id"] for each in found] == [each["id"] for each in wanted(world, 9) if each["id"] >= 190]
    assert 0 < reads.count < everything / 3
    reads.count = 0
    world.rows(9, predicates=(Predicate("v", Comparison.GREATER, "99999"),))
    world.rows(9, predicates=(Predicate("id", Comparison.IS_NULL),))
    assert reads.count == 0
    world.rows(2)
    assert 0 < reads.count < everything / 2


def test_columns_and_predicates_are_independent(world: IngestWorld) -> None:
    found = world.rows(9, columns=("v",), predicates=(Predicate("id", Comparison.EQUAL, 3),))
    assert found == ([{"v": "00003"}] if world.is_here({"id": 3}) else [])


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("predicates", [(), (Predicate("id", Comparison.GREATER, 99),)])
def test_a_read_below_the_base_is_refused_also_where_nothing_was_deleted(
    tmp_path: Path, is_flushed: bool, predicates: tuple[Predicate, ...]
) -> None:
    with ingest_world(tmp_path) as world:
        world.node.applier.apply(world.request(3, inserts=[{"id": each, "v": "a"} for each in range(40)]))
        if is_flushed:
            world.node.flush()
            assert not any(group.has_deletions for group in world.node.visibility.groups(1))
        world.node.fold(5)
        assert bool(world.rows(5, predicates=predicates)) is not bool(predicates)
        with pytest.raises(BelowBaseError):
            world.rows(4, predicates=predicates)


def test_footers_are_kept_for_those_that_are_asked_for() -> None:
    footers, footer = Footers(2), footer_of(id=[1])
    for each in (1, 2):
        footers.keep(each, footer)
    footers.get(1)
    footers.keep(3, footer)
    assert [footers.get(each) is footer for each in (1, 2, 3)] == [True, False, True]


def footer_of(**columns: Any) -> Footer:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return Footer(pq.read_metadata(pa.BufferReader(sink.getvalue())))


@pytest.mark.parametrize(
    ("stamps", "timestamp", "ages"),
    [
        ([3, 5], 2, Ages.ALL_LATER),
        ([3, 5], 3, Ages.SOME_LATER),
        ([3, 5], 4, Ages.SOME_LATER),
        ([3, 5], 5, Ages.NONE_LATER),
        ([None, None], 5, Ages.SOME_LATER),
    ],
)
def test_ages_by_statistics(stamps: list[int | None], timestamp: int, ages: Ages) -> None:
    assert (
        ages_of(footer_of(**{TIMESTAMP_COLUMN: pa.array(stamps, pa.int64())}).column(0, TIMESTAMP_COLUMN), timestamp)
        is ages
    )
    assert ages_of(footer_of(other=[1]).column(0, TIMESTAMP_COLUMN), timestamp) is Ages.SOME_LATER


@pytest.mark.parametrize(
    ("comparison", "literal", "may"),
    [
        (Comparison.EQUAL, 2, False),
        (Comparison.EQUAL, 3, True),
        (Comparison.EQUAL, 7, True),
        (Comparison.EQUAL, 8, False),
        (Comparison.LESS, 3, False),
        (Comparison.LESS, 4, True),
        (Comparison.LESS_EQUAL, 2, False),
        (Comparison.LESS_EQUAL, 3, True),
        (Comparison.GREATER, 7, False),
        (Comparison.GREATER, 6, True),
        (Comparison.GREATER_EQUAL, 8, False),
        (Comparison.GREATER_EQUAL, 7, True),
        (Comparison.NOT_EQUAL, 3, True),
        (Comparison.IS_NULL, None, False),
        (Comparison.IS_NOT_NULL, None, True),
    ],
)
def test_what_a_row_group_may_hold(comparison: Comparison, literal: int | None, may: bool) -> None:
    shape = TableShape(1, "t", pa.schema([("id", pa.int64()), ("x.y", pa.int64())]), ("id",), 1, "t")
    assert may_hold(Predicate("id", comparison, literal), shape, footer_of(id=[3, 7]).column(0, "id")) is may
    dotted = footer_of(**{"x.y": [3, 7]}).column(0, "x.y")
    assert may_hold(Predicate("x.y", comparison, literal), shape, dotted), "a dot says nothing of which column it is"


def test_moments_that_python_has_no_year_for(tmp_path: Path) -> None:
    schema = pa.schema([field("id", pa.int64(), 1, nullable=False), field("at", pa.timestamp("us", tz="UTC"), 2)])
    with ingest_world(tmp_path, schema=schema) as world:
        keys = [each for each in range(64) if world.is_here({"id": each})]
        homes = world.topology.virtual_nodes_of(encode(world.batch([{"id": each} for each in keys]), ("id",)))
        here = [key for key, home in zip(keys, homes, strict=True) if home == homes[0]][:2]
        moments = pa.array([5, 2**60], pa.timestamp("us", tz="UTC"))
        rows = pa.RecordBatch.from_arrays([pa.array(here, pa.int64()), moments], schema=schema)
        update = TableUpdate("t", int(homes[0]), 1, inserts=rows)
        world.node.applier.apply(UpdateRequest(Position(1, 0), (update,)))
        late = ScanRequest("t", 1, predicates=(Predicate("at", Comparison.GREATER, 3),))
        for _ in range(2):
            assert sum(batch.num_rows for batch in world.node.scan(late)[1]) == 2
            world.node.flush()


def test_a_scan_of_no_columns_is_refused(world: IngestWorld) -> None:
    with pytest.raises(BadRequestError, match="no column of t"):
        world.node.scan(ScanRequest("t", 1, columns=()))


def test_few_rows_of_many_appends_are_one_batch(tmp_path: Path) -> None:
    with ingest_world(tmp_path, schema=SCHEMA) as world:
        wanted = [each for each in range(200) if world.is_here({"id": each})]
        for timestamp, key in enumerate(wanted, 1):
            world.node.applier.apply(world.request(timestamp, inserts=[{"id": key}]))
        found = list(world.node.scan(ScanRequest("t", len(wanted)))[1])
        assert sorted(each["id"] for each in world.rows(3)) == wanted[:3]
    assert sorted(key for batch in found for key in batch.column("id").to_pylist()) == wanted
    segments = [each for buffer in world.node.buffers.all() for each in buffer.segments()]
    assert len(found) == sum(len(each.blocks) for each in segments) < len(wanted)


def test_a_scan_that_finds_nothing_is_heard(tmp_path: Path) -> None:
    with ingest_world(tmp_path, schema=SCHEMA) as world:
        keys = [each for each in range(600) if world.is_here({"id": each})]
        world.node.applier.apply(
            world.request(1, inserts=[{"id": each, "v": "ax" if each % 2 else "c"} for each in keys])
        )
        world.node.flush()
        wanted = ScanRequest("t", 1, predicates=(Predicate("v", Comparison.EQUAL, "b"),))
        groups = sum(each.num_row_group for each in world.node.list_files("t"))
        found = [batch.num_rows for batch in world.node.scan(wanted)[1]]
    assert groups >= 32
    assert found == [0] * (groups // 16)
