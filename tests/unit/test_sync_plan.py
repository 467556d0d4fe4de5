"""Which files are copied, and how they go together."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.kernel.errors import CorruptError, HeadwaterError
from headwater.regions.resolve import Resolution, Rule, RuleKind
from headwater.sync.diff.model import Needed
from headwater.sync.plan.codec import decode_batch, encode_batch
from headwater.sync.plan.decide import batched, is_shown, may_stay, once, planned
from headwater.sync.plan.model import (
    BatchLimits,
    Found,
    NotYetThereError,
    OccupiedError,
    PlannedFile,
    SizesDifferError,
)
from headwater.sync.runs.model import Shipped
from headwater.tables.reach import ReachKind

RULE = Rule(RuleKind.SOURCE, "s3://us/", "s3://eu/", "eu")


def resolution(source: str = "s3://us/x", destination: str = "s3://eu/x", region: str = "eu") -> Resolution:
    return Resolution(source, destination, region, "eu", RULE)


FOREIGN, LOCAL = resolution(), resolution("s3://eu/x")
ELSEWHERE = resolution(destination="s3://asia/x", region="asia")


@pytest.mark.parametrize(
    ("where", "found", "expected"),
    [
        (FOREIGN, None, PlannedFile("s3://us/x", "s3://eu/x", 7)),
        (FOREIGN, Found(7), PlannedFile("s3://us/x", "s3://eu/x", 7, is_present=True, must_read=True)),
        (FOREIGN, Found(7, "ab"), PlannedFile("s3://us/x", "s3://eu/x", 7, is_present=True)),
        (FOREIGN, Found(8), OccupiedError),
        (LOCAL, Found(7), PlannedFile("s3://eu/x", "s3://eu/x", 7, is_present=True)),
        (LOCAL, Found(6), OccupiedError),
        (LOCAL, None, PlannedFile("s3://eu/x", "s3://eu/x", 7)),
        (ELSEWHERE, Found(7), PlannedFile("s3://us/x", "s3://asia/x", 7, is_present=True, must_read=True)),
        (ELSEWHERE, None, NotYetThereError),
    ],
)
def test_one_file(where: Resolution, found: Found | None, expected: PlannedFile | type[HeadwaterError]) -> None:
    if isinstance(expected, PlannedFile):
        assert planned(where, 7, found) == expected
    else:
        with pytest.raises(expected, match=r"s3://(us|eu)/x"):
            planned(where, 7, found)


@pytest.mark.parametrize("shipped", [Shipped.SOME, Shipped.ALL])
def test_a_shipped_file_is_believed_by_its_size_and_the_sample(shipped: Shipped) -> None:
    there = PlannedFile("s3://us/x", "s3://eu/x", 7, is_present=True)
    assert planned(FOREIGN, 7, Found(7), shipped) == there
    assert planned(FOREIGN, 7, None, shipped) == replace(there, is_present=False)
    with pytest.raises(OccupiedError):
        planned(FOREIGN, 7, Found(8), shipped)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("kind", ReachKind)
def test_g3_what_localise_writes_anew_is_not_copied_and_yet_claimed_where_it_may_stay(kind: ReachKind) -> None:
    is_rewritten, needed = kind in (ReachKind.POSITION_DELETES, ReachKind.DELETION_VECTOR), Needed(kind, "x", 1)
    assert is_shown(needed) is not is_rewritten
    assert (may_stay(needed, LOCAL), may_stay(needed, FOREIGN)) == (is_rewritten, False)


def test_each_file_once() -> None:
    a, b = (resolution(f"s3://us/{name}", f"s3://eu/{name}") for name in ("a", "b"))
    assert list(once([(a, 1), (b, 2), (a, 1)])) == [(a, 1), (b, 2)]
    with pytest.raises(SizesDifferError, match="s3://us/a has 1 bytes by one manifest, and 3"):
        list(once([(a, 1), (b, 2), (a, 3)]))


FILES = st.lists(
    st.builds(
        PlannedFile,
        source=st.text(min_size=1),
        destination=st.text(min_size=1),
        size_bytes=st.integers(0, 300),
        is_present=st.booleans(),
        must_read=st.booleans(),
    ),
    max_size=40,
)


@given(files=FILES, most=st.integers(1, 10), most_bytes=st.integers(1, 500))
def test_batches_hold_every_file_once_and_no_more_than_they_may(
    files: list[PlannedFile], most: int, most_bytes: int
) -> None:
    made = list(batched(files, BatchLimits(most, most_bytes)))
    assert [each for batch in made for each in batch] == files
    for batch in made:
        weight = sum(each.size_bytes for each in batch if not each.is_present)
        assert 0 < len(batch) <= most
        assert weight <= most_bytes or len([each for each in batch if not each.is_present]) == 1
    for first, second in pairwise(made):  # and none is cut without need
        together = sum(each.size_bytes for each in (*first, second[0]) if not each.is_present)
        assert len(first) == most or together > most_bytes


@given(FILES)
def test_a_list_there_and_back(files: list[PlannedFile]) -> None:
    assert decode_batch(encode_batch(files), "list") == tuple(files)


def test_a_damaged_list() -> None:
    data = encode_batch([PlannedFile("a", "b", 1)] * 100)
    for broken in (b"", data[:-1], data[: len(data) // 2], data.replace(b"sync.batch", b"sync.brunch", 1)):
        with pytest.raises(CorruptError, match="the list"):
            decode_batch(broken, "the list")
