"""Names of outputs, and what has to be done by whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.regions.registry import Region, Registry
from headwater.regions.resolve import Resolver
from headwater.sync.localise import codec
from headwater.sync.localise.codec import digest_in, digest_of, location_of
from headwater.sync.localise.decide import (
    SPREAD_FROM,
    SnapshotToKeep,
    in_tasks,
    is_worth_spreading,
    snapshots_to_keep,
    weight_of,
    work_of,
)
from headwater.sync.localise.mapping import RegistryMapping
from headwater.sync.localise.model import ManifestWork, OutputKind, Place
from headwater.sync.runs.model import History
from headwater.tables.files import Files
from headwater.tables.relocate_lists import ListLine
from tests.unit.localise_world import PrefixMapping, RecordedOutputs

PLACE = Place(
    Files({}),
    PrefixMapping(["s3://us"], "s3://eu", "rules-1"),
    RecordedOutputs(),
    "s3://eu/_headwater/localised/",
)
SOURCE = "s3://us/t/metadata/m.avro"


@pytest.mark.hazard("R5")
def test_r5_a_name_holds_everything_that_the_bytes_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    other_rules = replace(PLACE, mapping=PrefixMapping(["s3://us"], "s3://eu", "rules-2"))
    names = [
        digest_of(PLACE, OutputKind.MANIFEST, SOURCE, "1"),
        digest_of(PLACE, OutputKind.MANIFEST_LIST, SOURCE, "1"),
        digest_of(PLACE, OutputKind.MANIFEST, SOURCE + "x", "1"),
        digest_of(PLACE, OutputKind.MANIFEST, SOURCE, "2"),
        digest_of(PLACE, OutputKind.MANIFEST, SOURCE + "1", ""),
        digest_of(replace(PLACE, history=History.CURRENT), OutputKind.MANIFEST, SOURCE, "1"),
        digest_of(other_rules, OutputKind.MANIFEST, SOURCE, "1"),
    ]
    monkeypatch.setattr(codec, "WRITER_VERSION", 99)
    names.append(digest_of(PLACE, OutputKind.MANIFEST, SOURCE, "1"))
    assert len(set(names)) == len(names)
    monkeypatch.undo()
    # Where the outputs are does not matter to what is in them.
    assert digest_of(replace(PLACE, prefix="s3://eu/x"), OutputKind.MANIFEST, SOURCE, "1") == names[0]


def test_names_are_durable() -> None:
    """Another spelling would make every output anew, in every region."""
    digest = digest_of(PLACE, OutputKind.MANIFEST, SOURCE, "1")
    assert digest == "ad96732563b9a3b969adf1ffad22671d0d76d60b"
    root = f"s3://eu/_headwater/localised/{digest[:2]}"
    assert location_of(PLACE, OutputKind.MANIFEST, digest) == f"{root}/{digest}.manifest.avro"
    assert (
        location_of(PLACE, OutputKind.MANIFEST_LIST, digest, content=b"x")
        == f"{root}/{digest}-2d711642b726b044.list.avro"
    )
    assert location_of(PLACE, OutputKind.METADATA, digest, content=b"x").endswith(".metadata.json")
    assert location_of(PLACE, OutputKind.POSITION_DELETES, digest, file_format="ORC") == f"{root}/{digest}.orc"
    assert location_of(PLACE, OutputKind.VECTORS, digest, file_format="PUFFIN") == f"{root}/{digest}.puffin"


@pytest.mark.parametrize("kind", list(OutputKind))
@pytest.mark.parametrize("content", [None, b"x"])
def test_the_digest_is_found_in_a_name(kind: OutputKind, content: bytes | None) -> None:
    digest = digest_of(PLACE, kind, SOURCE, "1")
    location = location_of(PLACE, kind, digest, content=content, file_format="AVRO")
    assert digest_in(PLACE, location) == digest
    assert digest_in(replace(PLACE, prefix="s3://asia/_headwater/localised"), location) is None
    assert digest_in(PLACE, SOURCE) is None
    assert digest_in(PLACE, f"{PLACE.prefix}ab/cd.avro") is None


DOCUMENT: dict[str, Any] = {
    "current-snapshot-id": 2,
    "snapshots": [
        {"snapshot-id": 1, "manifest-list": "a", "timestamp-ms": 10},
        {"snapshot-id": 2, "manifest-list": "b", "timestamp-ms": 20, "sequence-number": 5},
    ],
}


def test_snapshots_to_keep() -> None:
    first, second = SnapshotToKeep(1, "a", "1:0:10"), SnapshotToKeep(2, "b", "2:5:20")
    assert snapshots_to_keep(DOCUMENT, History.FULL) == (first, second)
    assert snapshots_to_keep(DOCUMENT, History.CURRENT) == (second,)
    for none in ({}, {"snapshots": None}, {"snapshots": [], "current-snapshot-id": -1}):
        assert snapshots_to_keep(none, History.FULL) == snapshots_to_keep(none, History.CURRENT) == ()


def test_work_of_a_line() -> None:
    line = ListLine(SOURCE, 1000, True, 7, 3, 6)
    assert work_of(line) == ManifestWork(SOURCE, "1000:7:3", True, 1000, 6)
    # Lists of v1 tables say less.
    assert work_of(ListLine(SOURCE, 1000, added_snapshot_id=7)) == ManifestWork(SOURCE, "1000:7:0", False, 1000)


@pytest.mark.parametrize(
    ("work", "weight"),
    [
        (ManifestWork("a", "", False, 1000, 50), 51),
        (ManifestWork("a", "", True, 1000, 50), 50_001),
        (ManifestWork("a", "", False, 1000), 11),
        (ManifestWork("a", "", True, 1000), 10_001),
    ],
)
def test_weights(work: ManifestWork, weight: int) -> None:
    assert weight_of(work) == weight


def test_few_are_done_here() -> None:
    small = [ManifestWork(str(n), "", False, 1, SPREAD_FROM // 10) for n in range(9)]
    assert not is_worth_spreading(small)
    assert is_worth_spreading([*small, ManifestWork("x", "", False, 1, SPREAD_FROM // 10)])
    assert not is_worth_spreading([])


@given(st.lists(st.integers(0, 10_000), max_size=40), st.integers(1, 6))
def test_tasks_share_the_work(entries: list[int], most: int) -> None:
    works = [ManifestWork(f"m{n}", "", False, 0, each) for n, each in enumerate(entries)]
    tasks = in_tasks(works, most)
    assert sorted((each for task in tasks for each in task), key=lambda each: each.source) == sorted(
        works, key=lambda each: each.source
    )
    assert len(tasks) == min(most, len(works))
    loads = [sum(weight_of(each) for each in task) for task in tasks]
    heaviest = max((weight_of(each) for each in works), default=0)
    assert max(loads, default=0) - min(loads, default=0) <= heaviest


class TestRegistryMapping:
    def mapping(self, region: str = "eu", *more: str) -> RegistryMapping:
        regions = tuple(Region(name, f"s3://prod-{name}/", f"main_replica_{name}") for name in ("us", "eu"))
        sources = tuple(each.local_prefix for each in regions)
        return RegistryMapping(Resolver(Registry(regions, (*sources, *more)), region))

    def test_it_says_what_the_registry_says(self) -> None:
        """Also for the second file of a folder, and for one with a name that must be looked at."""
        mapping, resolver = self.mapping(), self.mapping()._resolver
        for uri in (
            "s3://prod-us/t/data/a.parquet",
            "s3://prod-us/t/data/b.parquet",
            "s3a://prod-us/t/data/c.parquet",
            "s3://prod-us/t/data/d e%2F.parquet",
            "s3://prod-eu/t/data/a.parquet",
            f"s3://prod-us/t/data/{'x' * 300}",
            "s3://prod-us/top",
        ):
            assert mapping.destination(uri) == mapping.destination(uri) == resolver.destination(uri)
        assert mapping.folder("s3://prod-us/t/") == "s3://prod-eu/t"

    @pytest.mark.parametrize("name", [".hw-x", "..", "", "a?b"])
    def test_a_bad_name_is_refused_in_a_folder_that_is_known(self, name: str) -> None:
        mapping = self.mapping()
        mapping.destination("s3://prod-us/t/a.parquet")
        with pytest.raises(Exception, match="prod-us/t"):
            mapping.destination(f"s3://prod-us/t/{name}")

    def test_other_rules_have_other_digests(self) -> None:
        digests = {self.mapping().digest, self.mapping("us").digest, self.mapping("eu", "s3://old/").digest}
        assert len(digests) == 3
        assert self.mapping().digest in digests

    def test_what_does_not_move_a_file_leaves_the_digest(self) -> None:
        """Otherwise every replica would be localised anew when a region gets a remote, or another region comes."""
        registry = self.mapping()._resolver.registry
        us, eu = registry.region("us"), registry.region("eu")
        changed = (replace(us, rclone_remote="us-prod"), replace(eu, branch="eu"), Region("asia", "s3://prod-as/", "a"))
        other = RegistryMapping(Resolver(replace(registry, regions=changed), "eu"))
        assert other.digest == self.mapping().digest

    def test_it_does_not_remember_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from headwater.sync.localise import mapping as room

        monkeypatch.setattr(room, "_MOST_FOLDERS", 3)
        mapping = self.mapping()
        for number in range(10):
            assert mapping.destination(f"s3://prod-us/{number}/a") == f"s3://prod-eu/{number}/a"
            assert len(mapping._folders) <= 3
