"""A check finds what is wrong with a replica, and nothing where nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from headwater.sync.check.model import Checked, Fault, Rows
from headwater.sync.check.protocol import Checker, CountRows
from tests.unit.sync_world import Regions, ids


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Regions:
    made = Regions(tmp_path_factory.mktemp("regions"))
    lake = made.lake("us")
    lake.create_table("t", ids(1).schema, actor="ann")
    lake.load("t", ids(1, 2), actor="ann")
    made.sync()
    return made


def checked(regions: Regions, count_rows: CountRows | None = None) -> Checked:
    with regions.syncing() as (syncing, ground):
        checker = Checker(ground.catalog, ground.files, ground.generation.registry, "eu")
        return checker.check(syncing.status().replica, count_rows)


def by_pyiceberg(location: str) -> Rows:
    rows = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
    return Rows(len(rows), str(sorted(map(str, rows))))


def test_a_replica_that_is_sound(regions: Regions) -> None:
    found = checked(regions, by_pyiceberg)
    assert found.is_sound
    assert found.tables == 1
    assert found.files >= 4  # metadata, list, manifest, data
    assert found.rows == {"default.t": 2}


def a_data_file(regions: Regions) -> Path:
    (path,) = (each for each in regions.paths("default.t") if each.endswith(".parquet"))
    return Path(path.removeprefix("file://"))


@pytest.mark.parametrize(("fault", "damage"), [(Fault.MISSING, None), (Fault.SIZE, b"x")])
def test_a_file_that_is_gone_or_cut(regions: Regions, fault: Fault, damage: bytes | None) -> None:
    file = a_data_file(regions)
    before = file.read_bytes()
    try:
        file.unlink()
        if damage is not None:
            file.write_bytes(damage)
        found = checked(regions)
        assert [(each.fault, each.path) for each in found.findings] == [(fault, f"file://{file}")]
    finally:
        file.write_bytes(before)


def test_metadata_that_cannot_be_read(regions: Regions) -> None:
    (path,) = (each for each in regions.paths("default.t") if each.endswith(".manifest.avro"))
    file = Path(path.removeprefix("file://"))
    before = file.read_bytes()
    try:
        file.write_bytes(before[: len(before) // 2])
        faults = {each.fault for each in checked(regions).findings}
        assert Fault.UNREADABLE in faults
    finally:
        file.write_bytes(before)


def test_other_rows(regions: Regions) -> None:
    def wrong(location: str) -> Rows:
        found = by_pyiceberg(location)
        return found if "/eu/" in location else Rows(found.count, "another")

    (finding,) = checked(regions, wrong).findings
    assert finding.fault is Fault.OTHER_ROWS


def test_a_path_of_another_region(regions: Regions) -> None:
    with regions.syncing() as (syncing, ground):
        checker = Checker(ground.catalog, ground.files, ground.generation.registry, "us")
        found = checker.check(syncing.status().replica)
    assert {each.fault for each in found.findings} == {Fault.FOREIGN_PATH}
