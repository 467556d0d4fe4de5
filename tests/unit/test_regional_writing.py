"""Writers of regions on a lake in a folder: data and manifests go to the region, documents stay with their tables."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.types import LongType, NestedField

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import UsageError
from headwater.kernel.randomness import system_randomness
from headwater.lake import Lake
from headwater.publish.model import WRITE_ENDED_AT
from headwater.regions.errors import NoRegistryError, UnknownRegionError
from headwater.regions.registry import parse_registry
from headwater.storage.file import FileStore
from headwater.storage.port import ObjectStore
from headwater.tables.create import new_table
from headwater.tables.files import Files
from headwater.tables.model import NewFile, OutsideLakeError
from headwater.tables.placing import Placing

SCHEMA = Schema(NestedField(1, "id", LongType()))


@pytest.fixture
def app() -> App:
    return App(settings.load(environ={}))


@pytest.fixture
def url(app: App, tmp_path: Path) -> str:
    """A lake in `us`, whose registry knows two regions."""
    url = str(tmp_path / "us")
    app.init_lake(url)
    rules = f"""
        version: 2
        regions:
          us-east: {{local_prefix: "file://{tmp_path}/us/"}}
          eu-central: {{local_prefix: "file://{tmp_path}/eu/"}}
        sources: ["file://{tmp_path}/us/", "file://{tmp_path}/eu/"]
    """
    app.open_publisher(url).publish(parse_registry(rules), actor="test")
    return url


def ids(lake: Lake) -> list[int]:
    found: list[int] = lake.query("SELECT id FROM t ORDER BY id")["id"].to_pylist()
    return found


def files(folder: Path) -> set[str]:
    return {
        str(each.relative_to(folder))
        for each in folder.rglob("*")
        if each.is_file() and "_headwater" not in each.parts and "__recovery" not in each.parts
    }


def test_everything_but_documents_goes_to_the_region(app: App, url: str, tmp_path: Path) -> None:
    us, eu = app.open_lake(url, region="us-east"), app.open_lake(url, region="eu-central")
    us.apply("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)", actor="us")
    us.load("t", pa.table({"id": [1, 2], "v": ["a", "b"]}), actor="us")
    before = files(tmp_path / "us")
    eu.load("t", pa.table({"id": [3], "v": ["c"]}), actor="eu")
    with eu.transaction(actor="eu") as transaction:
        transaction.sql("DELETE FROM t WHERE id = 1")
    new = files(tmp_path / "us") - before
    assert len(new) == 2
    assert all(each.endswith(".metadata.json") for each in new)
    kinds = {Path(each).suffix for each in files(tmp_path / "eu")}
    assert kinds == {".parquet", ".avro"}
    assert not any(each.endswith(".metadata.json") for each in files(tmp_path / "eu"))
    # Whoever has the lake open in no region finds the others' files by the registry, and other readers by their URIs.
    for lake in (us, eu, app.open_lake(url), app.open_lake(url, read_only=True)):
        assert ids(lake) == [2, 3]
    location = us.table("t").location
    assert location is not None
    theirs = StaticTable.from_metadata(location).scan().to_arrow()
    assert sorted(theirs["id"].to_pylist()) == [2, 3]


def test_optimize_branches_and_cleanup_go_on(app: App, url: str, tmp_path: Path) -> None:
    us, eu = app.open_lake(url), app.open_lake(url, region="eu-central")
    us.apply("CREATE TABLE t (id BIGINT PRIMARY KEY)", actor="us")
    for number in range(4):
        (us if number % 2 else eu).load("t", pa.table({"id": [number]}), actor="a")
    eu.create_branch("side")
    eu.load("t", pa.table({"id": [9]}), actor="a", branch="side")
    us.merge("side", actor="a")
    assert eu.optimize("t", actor="a", min_files=2).tables[0].files_after == 1
    assert ids(us) == [0, 1, 2, 3, 9]
    before = files(tmp_path / "eu")
    us.cleanup(older_than=timedelta(0))
    assert files(tmp_path / "eu") == before
    assert ids(app.open_lake(url)) == [0, 1, 2, 3, 9]


def test_views_go_to_the_region(app: App, url: str, tmp_path: Path) -> None:
    """They have no head, so that nothing of them must stay with the lake; whoever changes one, it stays one view."""
    us, eu = app.open_lake(url, region="us-east"), app.open_lake(url, region="eu-central")
    eu.apply("CREATE TABLE t (id BIGINT)", actor="eu")
    before = files(tmp_path / "us")
    eu.apply("CREATE VIEW v AS SELECT 1 AS n", actor="eu")
    assert files(tmp_path / "us") == before
    assert [Path(each).suffix for each in files(tmp_path / "eu")] == [".json"]
    us.apply("CREATE OR REPLACE VIEW v AS SELECT 2 AS n", actor="us")
    assert len(files(tmp_path / "us") - before) == 1
    for lake in (us, eu, app.open_lake(url, read_only=True)):
        assert lake.query("SELECT n FROM v")["n"].to_pylist() == [2]


def test_an_embedded_lake_tells_when_the_last_file_was_stored(app: App, url: str) -> None:
    lake, before = app.open_lake(url), app.clock.now()
    lake.apply("CREATE TABLE t (id BIGINT)", actor="a")
    commit = lake.load("t", pa.table({"id": [1]}), actor="a").commit
    assert commit is not None
    assert before <= datetime.fromisoformat(commit.properties[WRITE_ENDED_AT]) <= commit.committed_at


def test_other_places_are_looked_for_once_and_only_if_need_be(tmp_path: Path) -> None:
    asked: list[str] = []
    here, there = (FileStore(tmp_path / each, SystemClock(), system_randomness()) for each in ("a", "b"))

    def more() -> dict[str, ObjectStore]:
        asked.append("")
        return {"s3://there": there, "s3://here": there}

    files = Files({"s3://here": here}, more=more)
    files.write([NewFile("s3://here/x", b"1")])
    assert (files.read("s3://here/x"), asked) == (b"1", [])
    files.write([NewFile("s3://there/x", b"2")])
    assert (files.read("s3://there/x"), files.read("s3://here/x")) == (b"2", b"1")  # what was known stays
    for _ in range(2):
        with pytest.raises(OutsideLakeError):
            files.read("s3://elsewhere/x")
    assert asked == [""]


def test_the_region_of_the_settings(app: App, url: str, tmp_path: Path) -> None:
    here = App(settings.load(environ={"HEADWATER_REGION": "eu-central"}))
    lake = here.open_lake(url)
    lake.apply("CREATE TABLE t (id BIGINT)", actor="a")
    lake.load("t", pa.table({"id": [1]}), actor="a")
    assert any(each.endswith(".parquet") for each in files(tmp_path / "eu"))
    assert ids(app.open_lake(url)) == [1]


def test_what_is_no_region(app: App, url: str, tmp_path: Path) -> None:
    for read_only in (True, False):
        with pytest.raises(UnknownRegionError, match="mars"):
            app.open_lake(url, region="mars", read_only=read_only)
    assert list(app.open_lake(url, region="eu-central", read_only=True).tables()) == []
    other = str(tmp_path / "other")
    app.init_lake(other)
    with pytest.raises(NoRegistryError):
        app.open_lake(other, region="eu-central")
    assert issubclass(UnknownRegionError, UsageError)


@pytest.mark.parametrize(
    ("location", "placing", "folder"),
    [
        ("s3://us/lake/tables/t", Placing(), "s3://us/lake/tables/t"),
        ("s3://us/lake/tables/t/", Placing("s3://us/lake"), "s3://us/lake/tables/t"),
        ("s3://us/lake/tables/t", Placing("s3://us/lake/", "s3://eu/"), "s3://eu/tables/t"),
        ("s3a://us/lake/tables/t", Placing("s3://us/lake", "s3://eu/x"), "s3://eu/x/tables/t"),
        ("s3://eu/x/tables/t", Placing("s3://us/lake", "s3://eu/x/"), "s3://eu/x/tables/t"),
        ("s3://us/lakes/t", Placing("s3://us/lake", "s3://eu"), None),
        ("s3://other/t", Placing("s3://us/lake", "s3://eu"), None),
        ("s3://other/t", Placing(None, "s3://eu"), None),
    ],
)
def test_where_files_go(location: str, placing: Placing, folder: str | None) -> None:
    metadata = new_table(
        SCHEMA,
        location=location.rstrip("/"),
        incarnation="x",  # type: ignore[arg-type]
        operation="y",  # type: ignore[arg-type]
        clock=SystemClock(),
        randomness=system_randomness(),
    )
    metadata = metadata.model_copy(update={"location": location})
    assert placing.folder_of(metadata) == (folder or f"s3://eu/elsewhere/{metadata.table_uuid}")
    own = placing.data_folder_of(metadata, "s3://us/lake/data/")
    assert own == ("s3://us/lake/data" if placing.local_prefix is None else f"{placing.folder_of(metadata)}/data")
