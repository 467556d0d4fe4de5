"""Durable bytes: golden files that every later version must still read, and write the same."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.kernel.errors import CorruptError
from headwater.kernel.ids import Ulid
from headwater.sequence.codec import (
    Body,
    EnvelopeCodec,
    decode_boundary,
    decode_pin_record,
    encode_boundary,
    encode_pin_record,
)
from headwater.sequence.model import LAST_ID, Pin, PinRecord

GOLDEN = Path(__file__).parent / "golden"
ONE, TWO = Ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV"), Ulid("01BX5ZZKBKACTAV9WEVGEMMVRZ")
BODY = Body(ONE, TWO, b'{"refs": {"main": 7}}\n')
RECORD = PinRecord(
    7,
    ONE,
    (Pin(TWO, "query 4711", granted=True, expires_at=datetime(2026, 11, 15, 9, 30, tzinfo=UTC)),),
    attempt=TWO,
)


def test_the_sequenced_object() -> None:
    golden = (GOLDEN / "sequenced-1.bin").read_bytes()
    assert EnvelopeCodec().decode(golden, "x") == BODY
    assert EnvelopeCodec().encode(BODY) == golden


def test_the_boundary() -> None:
    golden = (GOLDEN / "boundary.bin").read_bytes()
    assert golden == b"12"
    assert decode_boundary(golden, "x") == 12
    assert encode_boundary(12) == golden


def test_the_pin_record() -> None:
    golden = (GOLDEN / "pins-1.json").read_bytes()
    assert decode_pin_record(golden, "x") == RECORD
    assert decode_pin_record(golden, "x").attempt == TWO
    assert encode_pin_record(RECORD) == golden


ulids = st.sampled_from([ONE, TWO])


@given(st.builds(Body, ulids, st.none() | ulids, st.binary(max_size=200)))
def test_any_body_comes_back(body: Body) -> None:
    assert EnvelopeCodec().decode(EnvelopeCodec().encode(body), "x") == body


@given(st.builds(Body, ulids, st.none() | ulids, st.binary(min_size=1, max_size=50)), st.data())
def test_no_damage_goes_unnoticed(body: Body, data: st.DataObject) -> None:
    whole = EnvelopeCodec().encode(body)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CorruptError, match="some/path"):
        EnvelopeCodec().decode(whole[:cut], "some/path")
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytes([whole[place] ^ (1 << data.draw(st.integers(0, 7)))])
    with pytest.raises(CorruptError, match="some/path"):
        EnvelopeCodec().decode(whole[:place] + flipped + whole[place + 1 :], "some/path")


@given(st.integers(0, LAST_ID))
def test_any_boundary_comes_back(value: int) -> None:
    assert decode_boundary(encode_boundary(value), "x") == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        (GOLDEN / "pins-1.json").read_bytes().replace(b'"format": 1', b'"format": 2'),
        (GOLDEN / "pins-1.json").read_bytes().replace(b"+00:00", b""),
        (GOLDEN / "pins-1.json").read_bytes().replace(b"01BX5", b"01BX6"),
        (GOLDEN / "pins-1.json").read_bytes().replace(b"true", b"false"),
        (GOLDEN / "pins-1.json").read_bytes()[:-10],
    ],
)
def test_bad_pin_records_are_named(data: bytes) -> None:
    with pytest.raises(CorruptError, match="some/path"):
        decode_pin_record(data, "some/path")
