"""A replica that begins with files that were shipped on disks: believed by size and sample, and then gone on with."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyiceberg.table import StaticTable

from headwater.catalog.model import TableContent
from headwater.cli.bootstrap import bootstrap
from headwater.kernel.errors import RefusedError
from headwater.sync.model import origin_of
from headwater.sync.plan.model import NotLoadedError, OccupiedError
from headwater.sync.protocol import HandedOverError
from headwater.sync.runs.model import RunState
from headwater.sync.verify.model import VerifyFailedError
from tests.unit.sync_world import Regions, ids


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    made = Regions(tmp_path)
    lake = made.lake("us")
    lake.create_table("t", ids(1).schema, actor="ann")
    for number in range(3):
        lake.load("t", ids(number), actor="ann")
    return made


def ship(regions: Regions) -> list[Path]:
    """The data files of us are carried to eu, and loaded there; returns them."""
    loaded = []
    for file in sorted((regions.folder / "us").rglob("*.parquet")):
        target = regions.folder / "eu" / file.relative_to(regions.folder / "us")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
        loaded.append(target)
    return loaded


def lose_the_sources(regions: Regions) -> None:
    for file in (regions.folder / "us").rglob("*.parquet"):
        file.unlink()


def call(regions: Regions, *options: str) -> Result:
    arguments = [regions.url, "--region", "eu", "--from-loaded-data", *options]
    return CliRunner().invoke(bootstrap, arguments, obj=regions.app)


def begin(regions: Regions, *options: str) -> dict[str, object]:
    """A bootstrap that goes well; returns its run."""
    found = call(regions, "--json", *options)
    assert found.exit_code == 0, found.exception
    (run,) = json.loads(found.stdout)["runs"]
    answer: dict[str, object] = run
    return answer


def refused(regions: Regions, *options: str) -> BaseException:
    found = call(regions, *options)
    assert found.exception is not None
    return found.exception


def test_what_was_loaded_is_not_copied_and_sync_goes_on(regions: Regions) -> None:
    loaded = ship(regions)
    before = {file: file.stat().st_ino for file in loaded}
    run = begin(regions, "--no-copy")
    assert (run["state"], run["shipped"], run["shown"]) == ("done", "all", None)
    assert {file: file.stat().st_ino for file in loaded} == before
    assert regions.rows("default.t") == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert regions.sync() == []
    regions.lake("us").load("t", ids(3), actor="ann")
    (done,) = regions.sync()
    assert done.spec.shown is not None
    assert done.spec.shown.hash == run["target"]
    assert regions.rows("default.t") == [{"id": number} for number in range(4)]


def test_what_is_missing_is_copied(regions: Regions) -> None:
    missing, *_ = ship(regions)
    missing.unlink()
    assert begin(regions)["shipped"] == "some"
    assert missing.exists()
    assert len(regions.rows("default.t")) == 3


def test_without_copies_all_that_is_missing_is_named(regions: Regions) -> None:
    first, second, _ = ship(regions)
    first.unlink()
    second.unlink()
    error = refused(regions, "--no-copy")
    assert isinstance(error, NotLoadedError)
    assert sorted(error.fields["files"]) == sorted([f"file://{first}", f"file://{second}"])  # type: ignore[call-overload]
    assert regions.status().replica.origin is None
    (failed,) = regions.status().runs
    assert failed.state is RunState.FAILED
    ship(regions)
    assert begin(regions, "--no-copy")["state"] == "done"


def test_a_file_that_was_cut_short_stops_it(regions: Regions) -> None:
    cut, *_ = ship(regions)
    cut.write_bytes(cut.read_bytes()[:-1])
    assert isinstance(refused(regions), OccupiedError)
    assert regions.status().replica.origin is None


def test_the_sample_finds_other_bytes(regions: Regions) -> None:
    damaged, *_ = ship(regions)
    data = bytearray(damaged.read_bytes())
    data[10] ^= 1
    damaged.write_bytes(data)
    error = refused(regions)
    assert isinstance(error, VerifyFailedError)
    assert error.fields["files"] == [f"file://{damaged}"]
    damaged.unlink()
    assert begin(regions)["state"] == "done"


def test_a_sample_whose_source_is_gone_is_believed_by_its_size(regions: Regions) -> None:
    ship(regions)
    lose_the_sources(regions)
    assert begin(regions, "--no-copy")["state"] == "done"
    assert len(regions.rows("default.t")) == 3


def test_a_plain_sync_reads_what_it_did_not_copy_itself(regions: Regions) -> None:
    """What a bootstrap believes by its size, a run that was told nothing of shipped files does not."""
    ship(regions)
    lose_the_sources(regions)
    with pytest.raises(VerifyFailedError, match="cannot be compared"):
        regions.sync()


def test_it_begins_once(regions: Regions) -> None:
    ship(regions)
    begin(regions)
    head = regions.status().replica.head
    assert isinstance(refused(regions), HandedOverError)
    assert isinstance(refused(regions, "--history", "current"), HandedOverError)
    assert regions.status().replica.head == head


def test_at_the_commit_that_was_shipped_with_writes_since(regions: Regions) -> None:
    lake = regions.lake("us")
    shipped = lake.create_tag("shipped-eu").hash
    ship(regions)
    lake.load("t", ids(10), actor="ann")
    assert isinstance(refused(regions, "--no-copy"), NotLoadedError)  # the newest was not shipped
    assert begin(regions, "--no-copy", "--at", "shipped-eu")["target"] == shipped
    assert len(regions.rows("default.t")) == 3
    regions.sync()
    assert len(regions.rows("default.t")) == 4


def test_a_cutover_that_is_not_part_of_main_is_refused(regions: Regions) -> None:
    lake = regions.lake("us")
    lake.create_branch("other")
    with lake.transaction(actor="ann", branch="other") as change:
        change.sql("insert into t values (7)")
    error = refused(regions, "--at", lake.resolve(branch="other"))
    assert isinstance(error, RefusedError)
    assert "is not part of main" in str(error)


def test_a_plain_sync_goes_on_with_a_bootstrap_that_was_cut_off(
    regions: Regions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it began: what is believed stays believed."""
    from headwater.sync.steps import Steps

    ship(regions)
    lose_the_sources(regions)

    def cut_off(_: Steps) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Steps, "localise", cut_off)
        call(regions, "--no-copy")
    (running,) = regions.status().runs
    assert running.state is RunState.RUNNING
    (done,) = regions.sync()
    assert (done.id, done.state, str(done.spec.shipped)) == (running.id, RunState.DONE, "all")


def test_who_says_nothing_of_loaded_data_is_told(regions: Regions) -> None:
    found = CliRunner().invoke(bootstrap, [regions.url, "--region", "eu"], obj=regions.app)
    assert "--from-loaded-data" in str(getattr(found.exception, "hint", ""))


def rows_at(regions: Regions, commit: str) -> dict[str, list[int]]:
    """What PyIceberg reads of every table at a commit of any branch."""
    catalog = regions.app.open_lake(regions.url, read_only=True).catalog
    contents = {str(key): each for key, each in catalog.contents(commit) if isinstance(each, TableContent)}
    return {
        name: sorted(StaticTable.from_metadata(each.metadata_location).scan().to_arrow()["id"].to_pylist())
        for name, each in contents.items()
    }


def writing(regions: Regions, over: threading.Event, failed: list[BaseException]) -> Callable[[], None]:
    """Writes until it is told to stop, but no more than the test has time for."""

    def write() -> None:
        lake, number = regions.lake("asia"), 100
        try:
            while not over.is_set() and number < 110:
                with lake.transaction(actor="bob") as change:  # two tables, always together
                    change.sql(f"insert into t values ({number})")
                    change.sql(f"insert into u values ({number})")
                number += 1
        except BaseException as error:
            failed.append(error)

    return write


@pytest.mark.hazard("G10")
def test_g10_with_writes_throughout_nothing_is_skipped_or_applied_twice(regions: Regions) -> None:
    regions.lake("us").create_table("u", ids(1).schema, actor="ann")
    ship(regions)
    over, failed = threading.Event(), list[BaseException]()
    writer = threading.Thread(target=writing(regions, over, failed))
    writer.start()
    try:
        run = begin(regions)
        regions.sync()
    finally:
        over.set()
        writer.join()
    assert failed == []
    regions.sync()
    catalog = regions.app.open_lake(regions.url, read_only=True).catalog
    promoted = [each for each in catalog.log(catalog.ref("main_replica_eu").hash) if origin_of(each.properties)]
    origins = [origin.hash for each in promoted if (origin := origin_of(each.properties)) is not None]
    assert origins[-1] == run["target"]
    assert len(origins) == len(set(origins)) >= 2
    for each, shown in zip(promoted, origins, strict=True):
        found = rows_at(regions, each.hash)
        assert found == rows_at(regions, shown)
        assert found["default.u"] == [number for number in found["default.t"] if number >= 100]
    assert origins[0] == catalog.ref("main").hash
