"""A check finds what is wrong with a replica, and nothing where nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from headwater.sync.check.model import Checked, Fault, Rows
from headwater.sync.check.protocol import Checker, CountRows
from headwater.tables.relocate_deletes import relocate_position_deletes
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


@pytest.fixture
def others(tmp_path: Path) -> Regions:
    made = Regions(tmp_path)
    lake = made.lake("us")
    lake.create_table("t", ids(1).schema, actor="ann")
    lake.load("t", ids(1, 2), actor="ann")
    lake.apply("create view v as select id from t", actor="ann")
    return made


def damaged(regions: Regions, name: str, old: str, new: str) -> Checked:
    """A check while the replica's document of that name says something else."""
    file = Path(regions.tables("main_replica_eu")[name].metadata_location.removeprefix("file://"))
    before = file.read_text()
    assert old in before
    file.write_text(before.replace(old, new))
    try:
        return checked(regions)
    finally:
        file.write_text(before)


def test_folders_of_another_region(others: Regions) -> None:
    """A document names places as well as files, and those of views and of writers count."""
    others.sync()
    assert checked(others).is_sound
    eu, us = ((others.folder / each).as_uri() for each in ("eu", "us"))
    for name in ("default.t", "default.v"):
        (finding,) = damaged(others, name, f'"location":"{eu}/', f'"location":"{us}/').findings
        assert (finding.table, finding.fault) == (name, Fault.FOREIGN_PATH)
        assert us in finding.detail
    said = damaged(others, "default.t", '"properties":{', f'"properties":{{"write.data.path":"{us}/x",').findings
    assert [each.fault for each in said] == [Fault.FOREIGN_PATH]


def test_a_view_that_is_gone(others: Regions) -> None:
    others.sync()
    Path(others.tables("main_replica_eu")["default.v"].metadata_location.removeprefix("file://")).unlink()
    (finding,) = checked(others).findings
    assert (finding.table, finding.fault) == ("default.v", Fault.UNREADABLE)


@pytest.mark.hazard("R9")
@pytest.mark.parametrize("version", [2, 3])
def test_r9_deletes_that_speak_of_another_region(others: Regions, version: int) -> None:
    """Every file is there and local, and yet its deletes would hold for nothing."""
    lake = others.lake("us")
    lake.create_table("d", ids(1).schema, actor="ann", format_version=version)
    lake.load("d", ids(*range(9)), actor="ann")
    with lake.transaction(actor="ann") as change:
        change.sql("delete from d where id < 3")
    others.sync()
    assert checked(others).is_sound
    made = (each for each in others.paths("default.d") if "/localised/" in each)
    (path,) = (each for each in made if each.endswith(("parquet", "puffin")))
    file = Path(path.removeprefix("file://"))
    eu, us = (str(others.folder / each).encode() for each in ("eu", "us"))
    data = file.read_bytes()
    if version == 3:
        file.write_bytes(data.replace(b"file://" + eu, b"file:/" + us + b"/"))  # as long as it was
    else:
        moved = relocate_position_deletes(data, path, "PARQUET", lambda each: each.replace("/eu/", "/us/"))
        file.write_bytes(moved.data)
    found = [each for each in checked(others).findings if each.fault is not Fault.SIZE]
    assert [(each.fault, each.path) for each in found] == [(Fault.FOREIGN_PATH, path)]


def test_without_an_origin_no_rows_are_proven(others: Regions) -> None:
    others.sync(tables=("t",))
    found = checked(others, by_pyiceberg)
    assert [each.fault for each in found.findings] == [Fault.OTHER_ROWS]


def test_what_a_subset_brought_further_is_told_and_not_compared(others: Regions) -> None:
    others.sync()
    others.lake("us").load("t", ids(3), actor="ann")
    others.sync(tables=("t",))
    found = checked(others, by_pyiceberg)
    assert found.is_sound
    assert "default.t" in found.ahead
    others.sync()
    assert checked(others, by_pyiceberg).rows == {"default.t": 3}
