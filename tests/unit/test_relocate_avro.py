"""Avro files changed in a few places: fastavro, which knows nothing of it, reads the same everywhere else."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.tables import relocate_lanes
from headwater.tables.avro import DAMAGE, read_container
from headwater.tables.model import TableCorruptError
from headwater.tables.relocate_avro import (
    Changes,
    Record,
    number,
    read_number,
    read_text,
    records_in,
    rewrite_records,
    spliced,
    text,
)
from headwater.tables.relocate_lanes import spans_of
from headwater.tables.relocate_schema import Choice, Fields, Fixed, Many, Number, Text, record_of

PATH = 100
MARKS = frozenset({PATH})
LONG = st.integers(-(2**63), 2**63 - 1)


def kinds() -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """An Avro type that is written in place, and its values."""
    plain: list[tuple[Any, st.SearchStrategy[Any]]] = [
        ("long", LONG),
        ("int", st.integers(-(2**31), 2**31 - 1)),
        ("boolean", st.booleans()),
        ("double", st.floats(allow_nan=False)),
        ("float", st.floats(width=32, allow_nan=False)),
        ("string", st.text(max_size=70)),
        ("bytes", st.binary(max_size=70)),
    ]
    return st.recursive(
        st.sampled_from(plain),
        lambda inner: st.one_of(
            inner.map(lambda kind: (["null", kind[0]], st.none() | kind[1]) if not isinstance(kind[0], list) else kind),
            inner.map(lambda kind: ({"type": "array", "items": kind[0]}, st.lists(kind[1], max_size=4))),
            inner.map(
                lambda kind: (
                    {"type": "map", "values": kind[0]},
                    st.dictionaries(st.text(max_size=4), kind[1], max_size=3),
                )
            ),
        ),
        max_leaves=3,
    )


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """A file of records, each with a path in a record within it, between fields of any types."""
    before, inner, after = (draw(st.lists(kinds(), max_size=3)) for _ in range(3))
    named = {"name": "path", "type": "string", "field-id": PATH}
    data_file = {
        "type": "record",
        "name": "r2",
        "fields": [named, *({"name": f"i{n}", "type": kind} for n, (kind, _) in enumerate(inner))],
    }
    schema = {
        "type": "record",
        "name": "r1",
        "fields": [
            *({"name": f"b{n}", "type": kind} for n, (kind, _) in enumerate(before)),
            {"name": "file", "type": data_file},
            *({"name": f"a{n}", "type": kind} for n, (kind, _) in enumerate(after)),
        ],
    }
    bucket = draw(st.sampled_from(["s3://us", "file:/lake", "/lake"]))
    record = st.fixed_dictionaries(
        {f"b{n}": values for n, (_, values) in enumerate(before)}
        | {f"a{n}": values for n, (_, values) in enumerate(after)}
        | {
            "file": st.fixed_dictionaries(
                {"path": st.integers(0, 10**70).map(lambda n: f"{bucket}/{n}.parquet")}
                | {f"i{n}": values for n, (_, values) in enumerate(inner)}
            )
        }
    )
    records = draw(st.lists(record, min_size=1, max_size=8))
    return encoded(schema, records, sync_interval=draw(st.sampled_from([1, 200, 16_000])))


def encoded(
    schema: dict[str, Any], records: list[Any], *, codec: str = "deflate", sync_interval: int = 16_000
) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec, sync_interval=sync_interval, metadata={"k": "ä"})
    return out.getvalue()


def decoded(data: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(data)))


def with_paths(change: Callable[[str], str]) -> Callable[[Record], Changes]:
    return lambda record: [(record.fields[PATH], text(change(read_text(record.block, record.fields[PATH][0]))))]


def walked(data: bytes) -> list[list[Any]]:
    header, _, blocks = read_container(data)
    return [[each.fields[PATH] for each in records_in(header, plain, count, MARKS)] for count, plain in blocks]


@settings(max_examples=60)
@given(written(), st.sampled_from(["", "x", "s3://another-bucket/" + "y" * 100]))
def test_only_the_paths_change(data: bytes, prefix: str) -> None:
    """Of any records; and where the lanes believe their guess, they find what a walk finds."""
    moved = rewrite_records(data, "f", MARKS, with_paths(lambda path: prefix + path))
    before, after = decoded(data), decoded(moved)
    assert [each["file"].pop("path") for each in after] == [prefix + each["file"].pop("path") for each in before]
    assert after == before
    header, sync, blocks = read_container(data)
    assert read_container(moved)[:2] == (header, sync)
    assert header["k"] == "ä"
    with suppress(relocate_lanes._NotProvenError):
        assert relocate_lanes._proven(header, list(blocks), PATH) == walked(data)


def entry_schema() -> dict[str, Any]:
    """Like a manifest's: numbers, a path, bounds that hold any text."""
    pair = {"type": "record", "name": "kv", "fields": [{"name": "k", "type": "int"}, {"name": "v", "type": "bytes"}]}
    return {
        "type": "record",
        "name": "entry",
        "fields": [
            {"name": "status", "type": "int"},
            {"name": "snapshot", "type": ["null", "long"]},
            {"name": "path", "type": "string", "field-id": PATH},
            {"name": "sizes", "type": ["null", {"type": "array", "items": "long"}]},
            {"name": "bounds", "type": ["null", {"type": "array", "items": pair}]},
            {"name": "key", "type": ["null", "bytes"]},
        ],
    }


def entries(count: int, bounds: Callable[[int], bytes], *, bucket: Callable[[int], str] = lambda _: "us") -> list[Any]:
    return [
        {
            "status": n % 3,
            "snapshot": None if n % 5 == 0 else n * 10**15,
            "path": f"s3://{bucket(n)}/t/{'x' * (n % 90)}/{n}.parquet",
            "sizes": None if n % 7 == 0 else list(range(n % 70)),
            "bounds": None if n % 11 == 0 else [{"k": m, "v": bounds(n)} for m in range(n % 4)],
            "key": None if n % 2 else b"k" * n,
        }
        for n in range(count)
    ]


@pytest.mark.parametrize("buckets", [("us",), ("us", "eu", "asia")])
def test_lanes_prove_a_manifest(buckets: tuple[str, ...]) -> None:
    records = entries(300, lambda n: b"b" * n, bucket=lambda n: buckets[n % len(buckets)])
    data = encoded(entry_schema(), records, sync_interval=500)
    header, _, blocks = read_container(data)
    assert relocate_lanes._proven(header, list(blocks), PATH) == walked(data)


@pytest.mark.parametrize(
    "records",
    [
        entries(100, lambda n: f"s3://us/t/{n}".encode()),
        # A bound that is the next path to the byte, with its length before it.
        entries(100, lambda n: text(f"s3://us/t/{'x' * ((n + 1) % 90)}/{n + 1}.parquet")),
        entries(100, lambda n: b"gs://x/", bucket=lambda n: ("us", "eu", "asia")[n % 3]),
    ],
    ids=["bounds like paths", "bounds that are paths", "several buckets"],
)
def test_a_wrong_guess_is_never_used(records: list[Any]) -> None:
    data = encoded(entry_schema(), records)
    header, _, blocks = read_container(data)
    assert spans_of(header, list(blocks), PATH) == walked(data)


def test_a_guess_that_only_counts_right_is_not_believed() -> None:
    """As many places as records, one of them made to look like one: what does not lead to the next is no proof."""
    records = entries(40, lambda _: b"")
    records[7]["path"] = "gs://other/7.parquet"
    records[20]["key"] = text("s3://us/t/not a path") + b"\x00\x00\x00"
    data = encoded(entry_schema(), records)
    header, _, blocks = read_container(data)
    read = list(blocks)
    with pytest.raises(relocate_lanes._NotProvenError):
        relocate_lanes._proven(header, read, PATH)
    assert spans_of(header, read, PATH) == walked(data)


@given(st.integers(0, 10**6), st.integers(1, 255), st.integers(0, 3))
def test_damage_is_told_and_lanes_read_no_more_than_a_walk(place: int, flip: int, cut: int) -> None:
    """One byte is another one, or the end is missing: an error, or the very same places as a walk finds."""
    data = encoded(entry_schema(), entries(40, lambda n: b"b" * n), codec="null")
    header, _, blocks = read_container(data)
    ((count, plain),) = list(blocks)
    at = place % len(plain)
    damaged = plain[:at] + bytes([plain[at] ^ flip]) + plain[at + 1 : len(plain) - cut]
    try:
        expected = [each.fields[PATH] for each in records_in(header, damaged, count, MARKS)]
    except DAMAGE as error:
        if "64 bits" not in str(error):  # a number that is too long is copied as it is
            with pytest.raises(DAMAGE):
                spans_of(header, [(count, damaged)], PATH)
    else:
        assert spans_of(header, [(count, damaged)], PATH) == [expected]


@pytest.mark.parametrize("cut", [1, 16, 17, 40])
def test_a_file_that_is_cut_short_is_named(cut: int) -> None:
    data = encoded(entry_schema(), entries(40, lambda _: b""))
    with pytest.raises(TableCorruptError, match=r"s3://us/m\.avro is not a whole Avro file"):
        rewrite_records(data[:-cut], "s3://us/m.avro", MARKS, with_paths(str))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2"])
def test_every_codec_becomes_deflate(codec: str) -> None:
    data = encoded(entry_schema(), entries(40, lambda _: b""), codec=codec)
    moved = rewrite_records(data, "f", MARKS, with_paths(str))
    assert decoded(moved) == decoded(data)
    assert read_container(moved)[0]["avro.codec"] == "deflate"


def test_lists_in_groups_with_their_size() -> None:
    """A writer may say the size of each group of a list; it must be true."""
    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "a", "type": {"type": "array", "items": "long"}},
            {"name": "path", "type": "string", "field-id": PATH},
        ],
    }
    header = {"avro.schema": json.dumps(schema)}
    grouped = number(-2) + number(2) + number(5) + number(6) + number(1) + number(7) + number(0) + text("p")
    (found,) = records_in(header, grouped, 1, MARKS)
    assert read_text(grouped, found.fields[PATH][0]) == "p"
    lying = number(-2) + number(3) + number(5) + number(6) + number(0) + text("p")
    with pytest.raises(ValueError, match="size"):
        list(records_in(header, lying, 1, MARKS))


def test_a_block_is_filled_by_its_records() -> None:
    data = encoded(entry_schema(), entries(3, lambda _: b""), codec="null")
    header, _, blocks = read_container(data)
    ((count, plain),) = list(blocks)
    for odd, said in ((plain + b"\x00", "something behind"), (b"", "says that it has 3 records")):
        with pytest.raises(ValueError, match=said):
            list(records_in(header, odd, count, MARKS))


@given(LONG)
def test_numbers(value: int) -> None:
    assert read_number(number(value), 0) == (value, len(number(value)))


def test_no_byte_is_changed_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        spliced(b"abcdef", [((0, 3), b"x"), ((2, 4), b"y")])


def test_the_shape_of_a_schema() -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "a", "type": {"type": "fixed", "name": "f", "size": 3}, "field-id": 1},
            {"name": "b", "type": ["null", "f"]},
            {"name": "c", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "d", "type": {"type": "enum", "name": "e", "symbols": ["x"]}},
            {"name": "g", "type": {"type": "map", "values": "bytes"}},
        ],
    }
    assert record_of(json.dumps(schema)) == Fields(
        (
            (1, Fixed(3)),
            (None, Choice((Fixed(0), Fixed(3)))),
            (None, Number()),
            (None, Number()),
            (None, Many(Fields(((None, Text()), (None, Text()))))),
        )
    )
    for wrong in ("nothing", {"type": "array", "items": "null"}, {"type": "fixed", "name": "f", "size": -1}):
        with pytest.raises(ValueError, match=r"its schema has|a list of nothing"):
            record_of(json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": wrong}]}))
