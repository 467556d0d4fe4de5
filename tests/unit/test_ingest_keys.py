"""Canonical key bytes and the stable hash, against plain Python that goes key by key."""

from __future__ import annotations

import hashlib
import struct
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.ingest.keys import NO_KEYS, KeyColumnError, Keys, encode, hash_of, keys_of, virtual_nodes
from headwater.kernel.errors import UsageError

MASK = 2**64 - 1


def plain_hash(key: bytes) -> int:
    """The documented hash, spelled out."""
    if len(key) > 128:
        key = hashlib.sha256(key).digest()
    a, b, c = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93
    h = (len(key) * a + b) & MASK
    for place in range(0, len(key), 8):
        word = int.from_bytes(key[place : place + 8].ljust(8, b"\0"), "little")
        h ^= (word * b) & MASK
        h = ((h << 29) | (h >> 35)) & MASK
        h = (h * a) & MASK
    h ^= h >> 32
    h = (h * c) & MASK
    h ^= h >> 29
    h = (h * a) & MASK
    return h ^ (h >> 32)


def one(array: pa.Array) -> list[bytes]:
    return encode(pa.record_batch([array], ["k"]), ("k",)).to_list()


def integer(value: int, size: int = 8) -> bytes:
    return (value + (1 << (8 * size - 1))).to_bytes(size, "big")


class TestOneColumn:
    @pytest.mark.parametrize(
        ("array", "expected"),
        [
            (pa.array([True, False]), [b"\1", b"\0"]),
            (pa.array([0, 7, -1], pa.int8()), [integer(0), integer(7), integer(-1)]),
            (pa.array([-(2**63), 2**63 - 1]), [b"\0" * 8, b"\xff" * 8]),
            (pa.array([2**32 - 1], pa.uint32()), [integer(2**32 - 1)]),
            (pa.array([date(1970, 1, 2), date(1969, 12, 31)]), [integer(1), integer(-1)]),
            (pa.array([time(0, 0, 1)], pa.time32("s")), [integer(10**9)]),
            (pa.array([time(0, 0, 1, 5)], pa.time64("us")), [integer(1_000_005_000)]),
            (pa.array([-1], pa.timestamp("ns")), [integer(-1) + struct.pack(">H", 999)]),
            (pa.array([1_234_567], pa.timestamp("ns")), [integer(1234) + struct.pack(">H", 567)]),
            (pa.array([Decimal("-1.5")], pa.decimal128(5, 1)), [integer(-15 * 10**37, 32)]),
            (pa.array(["", "ä", "a\0b"]), [b"", "ä".encode(), b"a\0b"]),
            (pa.array([b"\xff\0"], pa.large_binary()), [b"\xff\0"]),
            (pa.array([b"abc", b"\0\0\0"], pa.binary(3)), [b"abc", b"\0\0\0"]),
            (pa.array([uuid.UUID(int=5).bytes], pa.uuid()), [uuid.UUID(int=5).bytes]),
            (pa.array(["x", "y", "x"]).dictionary_encode(), [b"x", b"y", b"x"]),
            (
                pa.array(["view", "a view that is not inlined"], pa.string_view()),
                [b"view", b"a view that is not inlined"],
            ),
            (pa.array([], pa.string()), []),
            (pa.array([], pa.int32()), []),
            (pa.array([], pa.decimal128(9, 2)), []),
        ],
        ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
    )
    def test_it_has_the_documented_bytes(self, array: pa.Array, expected: list[bytes]) -> None:
        assert one(array) == expected

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (pa.array([5], pa.int32()), pa.array([5], pa.int64())),
            (pa.array([1.5], pa.float32()), pa.array([1.5], pa.float64())),
            (pa.array([0.0]), pa.array([-0.0])),
            (pa.array([Decimal("1.10")], pa.decimal32(5, 2)), pa.array([Decimal("1.1")], pa.decimal128(20, 1))),
            (pa.array([Decimal("7")], pa.decimal64(18, 0)), pa.array([Decimal("7.000")], pa.decimal256(40, 3))),
            (pa.array([3], pa.timestamp("s")), pa.array([3_000_000_000], pa.timestamp("ns"))),
            (pa.array([3], pa.timestamp("ms")), pa.array([3_000], pa.timestamp("us"))),
            (pa.array([3], pa.timestamp("us", "UTC")), pa.array([3], pa.timestamp("us", "Asia/Tokyo"))),
            (pa.array([1], pa.time32("ms")), pa.array([1_000_000], pa.time64("ns"))),
            (pa.array([86_400_000], pa.date64()), pa.array([date(1970, 1, 2)])),
            (pa.array(["abc"]), pa.array(["abc"], pa.large_string())),
            (pa.array(["abc"]), pa.array(["abc"]).dictionary_encode()),
        ],
    )
    def test_equal_values_have_equal_bytes(self, first: pa.Array, second: pa.Array) -> None:
        assert one(first) == one(second)

    @pytest.mark.parametrize(
        "array",
        [
            pa.array([-5, -1, 0, 1, 300]),
            pa.array([-float("inf"), -1e300, -1.5, -0.0, 1e-300, 2.0, float("inf")]),
            pa.array([Decimal("-9.99"), Decimal("-0.01"), Decimal("0"), Decimal("10")], pa.decimal128(9, 2)),
            pa.array([-(10**15), 0, 1, 10**15], pa.timestamp("us")),
        ],
    )
    def test_bytes_sort_as_values_do(self, array: pa.Array) -> None:
        assert one(array) == sorted(one(array))

    def test_a_moment_is_the_same_in_every_zone(self) -> None:
        tokyo = datetime(2026, 5, 5, 12, tzinfo=timezone(timedelta(hours=9)))
        utc = tokyo.astimezone(UTC)
        assert one(pa.array([tokyo], pa.timestamp("us", "Asia/Tokyo"))) == one(
            pa.array([utc], pa.timestamp("us", "UTC"))
        )

    @pytest.mark.parametrize("rows", [1, 7, 100])
    def test_slices_are_what_they_show(self, rows: int) -> None:
        columns: list[pa.Array] = [
            pa.array([value % 2 == 0 for value in range(120)]),
            pa.array(range(120)),
            pa.array([Decimal(value) for value in range(120)], pa.decimal128(10, 0)),
            pa.array([f"{value}" * (value % 5) for value in range(120)]),
            pa.array([bytes([value] * 4) for value in range(120)], pa.binary(4)),
            pa.array([f"{value % 3}" for value in range(120)]).dictionary_encode(),
            pa.array([f"{value}-and-more-than-twelve" for value in range(120)], pa.string_view()),
        ]
        for column in columns:
            assert one(column.slice(13, rows)) == one(column)[13 : 13 + rows]


class TestComposite:
    def test_lengths_of_all_but_the_last_text_stand_at_the_end(self) -> None:
        batch = pa.record_batch(
            {"a": ["x", "xy"], "n": pa.array([1, 2], pa.int32()), "b": ["yz", "z"], "c": [b"", b"!"]}
        )
        assert encode(batch, ("a", "n", "b", "c")).to_list() == [
            b"x" + integer(1) + b"yz" + struct.pack(">II", 1, 2),
            b"xy" + integer(2) + b"z!" + struct.pack(">II", 2, 1),
        ]
        assert encode(batch, ("n", "a")).to_list() == [integer(1) + b"x", integer(2) + b"xy"]

    @given(
        st.lists(st.tuples(st.text(max_size=5), st.integers(-3, 3), st.binary(max_size=5)), unique=True, max_size=30)
    )
    def test_different_rows_have_different_bytes(self, rows: list[tuple[str, int, bytes]]) -> None:
        kinds = (pa.string(), pa.int64(), pa.binary())
        columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
        keys = encode(pa.record_batch(columns, ["s", "n", "b"]), ("s", "n", "b")).to_list()
        assert len(set(keys)) == len(rows)
        for key, (text, number, tail) in zip(keys, rows, strict=True):
            spelled = text.encode()
            assert key == spelled + integer(number) + tail + struct.pack(">I", len(spelled))

    def test_a_text_of_a_mebibyte_among_short_ones(self) -> None:
        texts = ["s", "x" * 2**20, "", "y" * 300]
        batch = pa.record_batch({"a": texts, "b": ["1", "2", "3", "4"]}).slice(1)
        assert encode(batch, ("a", "b")).to_list() == [
            text.encode() + tail + struct.pack(">I", len(text))
            for text, tail in zip(texts[1:], [b"2", b"3", b"4"], strict=True)
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        ("array", "row", "says"),
        [
            (pa.array([1, None, 2]), 1, "null"),
            (pa.array(["a", None]), 1, "null"),
            (pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])), 1, "null"),
            (pa.array([1.0, float("nan")]), 1, "NaN"),
            (pa.array([0, 2**62], pa.timestamp("s")), 1, "out of range"),
        ],
    )
    def test_a_value_that_is_no_key_is_named(self, array: pa.Array, row: int, says: str) -> None:
        with pytest.raises(KeyColumnError, match=says) as caught:
            one(array)
        assert caught.value.fields["column"] == "k"
        assert caught.value.fields["row"] == row
        assert caught.value.hint

    @pytest.mark.parametrize(
        "kind",
        [pa.list_(pa.int32()), pa.uint64(), pa.float16(), pa.struct([("a", pa.int8())]), pa.duration("s"), pa.null()],
    )
    def test_a_type_that_is_no_key_is_named(self, kind: pa.DataType) -> None:
        with pytest.raises(KeyColumnError, match="cannot be part of a key") as caught:
            one(pa.array([], kind))
        assert caught.value.fields == {"column": "k", "type": str(kind)}

    def test_columns_must_be_there_once(self) -> None:
        batch = pa.record_batch([pa.array([1]), pa.array([2])], ["a", "a"])
        with pytest.raises(KeyColumnError, match="more than one column 'a'"):
            encode(batch, ("a",))
        with pytest.raises(KeyColumnError, match="no column 'b'") as caught:
            encode(batch, ("a", "b")[1:])
        assert "a, a" in str(caught.value)
        with pytest.raises(KeyColumnError, match="without key columns"):
            encode(batch, ())

    def test_a_decimal_out_of_range(self) -> None:
        with pytest.raises(KeyColumnError, match="no Iceberg decimal"):
            one(pa.array([Decimal(10) ** 60], pa.decimal256(76, 0)))


class TestKeys:
    @given(st.lists(st.binary(max_size=20), max_size=20), st.data())
    def test_take_and_back(self, plain: list[bytes], data: Any) -> None:
        keys = keys_of(plain)
        assert keys.to_list() == plain
        assert len(keys) == len(plain)
        if plain:
            chosen = data.draw(st.lists(st.integers(0, len(plain) - 1)))
            assert keys.take(np.array(chosen, dtype=np.int64)).to_list() == [plain[place] for place in chosen]
        mask = np.array([len(key) % 2 == 0 for key in plain], dtype=np.bool_)
        assert keys.take(mask).to_list() == [key for key in plain if len(key) % 2 == 0]

    def test_long_ones_too(self) -> None:
        plain = [b"a" * 5000, b"", b"b" * 257, b"c"]
        assert keys_of(plain).take(np.array([2, 0, 3, 1])).to_list() == [plain[2], plain[0], plain[3], plain[1]]

    @given(st.lists(st.binary(max_size=12), max_size=20))
    def test_their_order_is_that_of_the_bytes(self, plain: list[bytes]) -> None:
        ordered = [plain[place].ljust(16, b"\0") for place in keys_of(plain).order().tolist()]
        assert ordered == sorted(key.ljust(16, b"\0") for key in plain)

    def test_a_slice_of_a_text_column_keeps_its_own_keys(self) -> None:
        batch = pa.record_batch({"k": ["aa", "b", "cc"]}).slice(1)
        keys = encode(batch, ("k",))
        assert keys.hashes().tolist() == [plain_hash(b"b"), plain_hash(b"cc")]
        assert keys.take(np.array([1])).to_list() == [b"cc"]


class TestHash:
    def test_golden(self) -> None:
        """These never change: rows would belong to another node."""
        golden = {
            b"": 0xDC7B155B8F15A2AF,
            b"a": 0xD28FA8F85AE2BB7D,
            integer(42): 0x89B8F28CEF9D01B5,
            b"0123456789abcdef!": 0xE1775042BF412AD2,
            b"x" * 128: 0x95B3C6D508716720,
            b"x" * 129: 0xA33D1DC7B3F40A08,
        }
        assert {key: hash_of(key) for key in golden} == golden

    @given(st.lists(st.binary(max_size=140), max_size=20))
    def test_it_is_the_documented_one(self, plain: list[bytes]) -> None:
        assert keys_of(plain).hashes().tolist() == [plain_hash(key) for key in plain]

    def test_lengths_and_zeros_count(self) -> None:
        plain = [b"\0" * length for length in range(40)]
        assert len(set(keys_of(plain).hashes().tolist())) == 40

    def test_a_mebibyte_is_hashed_as_one(self) -> None:
        plain = [b"z" * 2**20, b"short"]
        assert keys_of(plain).hashes().tolist() == [plain_hash(key) for key in plain]

    def test_virtual_nodes_share_the_keys_evenly(self) -> None:
        batch = pa.record_batch({"k": np.arange(64_000)})
        nodes = virtual_nodes(encode(batch, ("k",)).hashes(), 64)
        counts = np.bincount(nodes, minlength=64)
        assert counts.min() > 850
        assert counts.max() < 1150
        assert nodes[:4].tolist() == [plain_hash(integer(number)) % 64 for number in range(4)]

    def test_no_virtual_nodes_are_refused(self) -> None:
        with pytest.raises(UsageError, match="0 virtual nodes"):
            virtual_nodes(np.array([1], dtype=np.uint64), 0)


def test_empty_keys() -> None:
    empty = Keys(np.empty(0, np.uint8), np.zeros(1, np.int64))
    assert (len(empty), empty.to_list(), empty.hashes().tolist()) == (0, [], [])


def test_keys_are_the_same_by_their_bytes_and_order() -> None:
    plain = [b"a", b"bc", b""]
    cut = keys_of([b"x", *plain])
    inside = Keys(cut.data, cut.offsets[1:])
    assert keys_of(plain).is_same(inside)
    for others in ([b"ab", b"c", b""], [b"bc", b"a", b""], [b"a", b"bc"], [b"a", b"bd", b""]):
        assert not keys_of(plain).is_same(keys_of(others))
    assert NO_KEYS.is_same(keys_of([]))
