"""Plans that are made on real files: what is claimed, looked for and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.kernel.clock import ManualClock
from headwater.kernel.randomness import seeded
from headwater.regions.errors import CollisionError, NoRuleError
from headwater.regions.registry import Region, Registry
from headwater.regions.resolve import Resolver
from headwater.storage.file import FileStore
from headwater.sync.diff.model import Needed
from headwater.sync.plan.model import BatchLimits, Found, OccupiedError, PlannedFile, SizesDifferError
from headwater.sync.plan.presence import HeadPresence
from headwater.sync.plan.protocol import BeingDeletedError, Planning, plan, read_batch
from headwater.sync.runs.model import PlannedBatch
from headwater.tables.files import Files
from headwater.tables.reach import ReachKind


class Stage:
    """Three regions in three folders; what is claimed is remembered, with what was looked for by then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefixes = {name: f"{(folder / name).as_uri()}/" for name in ("us", "eu", "asia")}
        regions = tuple(Region(name, prefix, f"main_replica_{name}") for name, prefix in self.prefixes.items())
        self.registry = Registry(regions, tuple(self.prefixes.values()))
        self.claimed: list[str] = []
        self.deleting: set[str] = set()
        for name in self.prefixes:
            (folder / name).mkdir()
        stores = {prefix: FileStore(folder / name, ManualClock(), seeded(1)) for name, prefix in self.prefixes.items()}
        self.files = Files(stores)

    def put(self, region: str, name: str, data: bytes) -> Needed:
        target = self.folder / region / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return Needed(ReachKind.DATA, f"{self.prefixes[region]}{name}", len(data))

    def claim(self, region: str, uris: Sequence[str]) -> Sequence[str]:
        assert region == "eu"
        self.claimed += uris
        return sorted(self.deleting.intersection(uris))

    def planning(self, limits: BatchLimits = BatchLimits(100, 10**9)) -> Planning:  # noqa: B008
        presence = HeadPresence(self.files, workers=4)
        lists = f"{self.prefixes['eu']}_headwater/sync/run"
        return Planning(self.files, Resolver(self.registry, "eu"), presence, self.claim, lists, limits)

    def planned(self, needed: Sequence[Needed], limits: BatchLimits = BatchLimits(100, 10**9)) -> list[PlannedBatch]:  # noqa: B008
        return list(plan(self.planning(limits), needed))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_what_is_copied_and_what_is_there(stage: Stage) -> None:
    far, near, done = stage.put("us", "t/a", b"12345"), stage.put("eu", "t/b", b"123"), stage.put("us", "t/c", b"12")
    stage.put("eu", "t/c", b"xy")
    batches = stage.planned([far, near, done, far])
    eu = stage.prefixes["eu"]
    assert [(each.number, each.files, each.size_bytes) for each in batches] == [(1, 3, 5)]
    assert read_batch(stage.files, batches[0]) == (
        PlannedFile(far.uri, f"{eu}t/a", 5),
        PlannedFile(near.uri, near.uri, 3, is_present=True),
        PlannedFile(done.uri, f"{eu}t/c", 2, is_present=True, must_read=True),
    )
    assert stage.claimed == [f"{eu}t/a", f"{eu}t/b", f"{eu}t/c"]
    assert batches == stage.planned([far, near, done])  # the same plan has the same list, which is there


@pytest.mark.hazard("G3")
def test_a_file_is_claimed_before_it_is_looked_for(stage: Stage) -> None:
    needed = stage.put("us", "a", b"1")
    stage.deleting = {f"{stage.prefixes['eu']}a"}
    with pytest.raises(BeingDeletedError, match="eu/a is being deleted"):
        stage.planned([needed])
    order: list[str] = []

    def claim(*_: object) -> Sequence[str]:
        order.append("claim")
        return ()

    class Watched:
        def look(self, _: Sequence[str]) -> dict[str, Found]:
            order.append("look")
            return {}

    list(plan(replace(stage.planning(), claim=claim, presence=Watched()), [needed]))
    assert order == ["claim", "look"]


@pytest.mark.hazard("R6")
def test_two_files_of_one_destination_are_refused(stage: Stage) -> None:
    with pytest.raises(CollisionError):
        stage.planned([stage.put("us", "x", b"1"), stage.put("eu", "x", b"1")])
    with pytest.raises(CollisionError):
        stage.planned([stage.put("us", "x", b"1"), stage.put("asia", "x", b"1")])


def test_nothing_is_planned_over_what_is_there(stage: Stage) -> None:
    needed = stage.put("us", "x", b"123")
    stage.put("eu", "x", b"1")
    with pytest.raises(OccupiedError, match="has 1 bytes"):
        stage.planned([needed])


def test_a_file_that_no_rule_covers_is_named(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(NoRuleError, match="elsewhere"):
        stage.planned([Needed(ReachKind.DATA, (tmp_path / "elsewhere" / "x").as_uri(), 1)])


def test_batches_are_of_a_size(stage: Stage) -> None:
    needed = [stage.put("us", f"f{number}", b"x" * 10) for number in range(25)]
    by_count = stage.planned(needed, BatchLimits(10, 10**9))
    assert [(each.number, each.files, each.size_bytes) for each in by_count] == [(1, 10, 100), (2, 10, 100), (3, 5, 50)]
    by_bytes = stage.planned(needed, BatchLimits(100, 45))
    assert [each.files for each in by_bytes] == [4] * 6 + [1]


def test_two_spellings_of_one_file_are_one(stage: Stage) -> None:
    needed = stage.put("us", "t/a", b"12345")
    other = replace(needed, uri=needed.uri.replace("file:///", "file:/"))
    (batch,) = stage.planned([needed, other])
    assert (batch.files, batch.size_bytes) == (1, 5)
    with pytest.raises(SizesDifferError):
        stage.planned([needed, replace(other, size_bytes=6)])


@pytest.mark.hazard("G3")
def test_g3_a_local_file_of_deletes_is_claimed_and_a_remote_one_is_not_copied(stage: Stage) -> None:
    """The region may show the one as it is, and never the other."""
    near, far = (replace(stage.put(each, f"t/{each}", b"1"), kind=ReachKind.POSITION_DELETES) for each in ("eu", "us"))
    wrong = replace(near, size_bytes=7)  # engines are known to write such
    assert stage.planned([wrong, far]) == []
    assert stage.claimed == [near.uri]
    stage.deleting = {near.uri}
    with pytest.raises(BeingDeletedError):
        stage.planned([near])
