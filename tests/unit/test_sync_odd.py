"""Tables that are not as tables usually are, and what happens to them between two syncs."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions.parser import parse
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import StaticTable

from headwater.catalog.model import CommitRequest, NamespaceContent, Put, TableKey
from headwater.cli.sync import leased_ground
from headwater.kernel.errors import CorruptError, HeadwaterError, RefusedError, UsageError
from headwater.kernel.ids import new_ulid
from headwater.storage.file import FileStore
from headwater.sync.copy.model import CopyFailedError
from headwater.sync.opening import _remove_lists, open_syncing
from headwater.sync.plan.model import OccupiedError
from headwater.sync.runs.model import History, RunState, Step
from headwater.sync.runs.store import Runs
from headwater.sync.verify.model import VerifyFailedError
from headwater.tables.manifest_writing import ManifestTerms, write_manifest, write_manifest_list
from headwater.tables.manifests import MANIFEST_LIST_SEAL, read_manifest_list
from headwater.tables.metadata import encode_metadata
from headwater.tables.model import NewFile, TableVersion
from headwater.tables.operations import append, delete
from tests.cli.test_cli import Run, run
from tests.unit.localise_world import add_files
from tests.unit.sync_world import Regions, ids
from tests.unit.test_sync_beyond import SCHEMA, Beyond, data_file, parquet, rows

__all__ = ["run"]  # the fixture


@pytest.fixture
def regions(tmp_path: Path) -> Beyond:
    return Beyond(tmp_path)


Change = Callable[[dict[str, Any]], None]


def rewritten(regions: Beyond, table: TableVersion, change: Change, name: str) -> TableVersion:
    """The table with another metadata.json, written by an engine of its own."""
    document = json.loads(encode_metadata(table.metadata))
    change(document)
    location = f"{regions.engine.root}/t/metadata/{name}.metadata.json"
    data = json.dumps(document).encode()
    regions.engine.files.write([NewFile(location, gzip.compress(data) if name.endswith(".gz") else data)])
    return regions.engine.load(location)


def state_of(folder: Path) -> dict[str, str]:
    """Every file by its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class TestSubsets:
    @pytest.mark.hazard("R15")
    def test_what_a_subset_brought_and_main_dropped_goes(self, tmp_path: Path) -> None:
        regions = Beyond(tmp_path, HEADWATER_SYNC_FORWARD_COMMITS="1")
        lake = regions.lake("us")
        lake.create_table("t", ids(1).schema, actor="ann")
        regions.sync()
        lake.create_table("u", ids(1).schema, actor="ann")
        regions.sync(tables=("u",))
        lake.apply("drop table u", actor="ann")
        regions.sync()
        regions.is_the_same("default.t")

    @pytest.mark.hazard("R2")
    def test_r2_after_a_subset_no_table_is_seen_to_go_back(self, regions: Beyond) -> None:
        """Its table is ahead of the others: commit by commit, its readers would see what it was before."""
        lake = regions.lake("us")
        for name in ("t", "u"):
            lake.create_table(name, ids(1).schema, actor="ann")
        regions.sync()
        for number in range(3):
            lake.load("t", ids(number), actor="ann")
        regions.sync(tables=("t",))
        (done,) = regions.sync()
        assert done.spec.target.hash == lake.resolve()
        regions.is_the_same("default.t", "default.u")

    def test_main_that_was_moved_back_takes_a_subset_with_it(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        lake.create_table("t", ids(1).schema, actor="ann")
        regions.sync()
        before = lake.resolve()
        lake.load("t", ids(1), actor="ann")
        regions.sync(tables=("t",))
        lake.catalog.assign_ref("main", before, lake.resolve())
        (done,) = regions.sync()
        assert done.state is RunState.DONE
        assert regions.rows("default.t") == []
        regions.is_the_same("default.t")
        assert regions.sync() == []

    def test_a_subset_of_another_history_keeps_the_origin(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        for name in ("t", "u"):
            lake.create_table(name, ids(1).schema, actor="ann")
        regions.sync()
        origin = regions.status().replica.origin
        lake.load("t", ids(1), actor="ann")
        regions.sync(tables=("t",), history=History.CURRENT)
        assert regions.status().replica.origin == origin
        regions.sync()
        regions.is_the_same("default.t", "default.u")

    def test_the_tables_of_a_subset_move_together_or_not_at_all(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        for name in ("t", "u", "w"):
            lake.create_table(name, ids(1).schema, actor="ann")
        regions.sync()
        before = set((regions.folder / "us").rglob("*.parquet"))
        with lake.transaction(actor="ann") as change:
            for name in ("t", "u", "w"):
                change.insert(name, ids(1))
        lost, *_ = sorted(set((regions.folder / "us").rglob("*.parquet")) - before)
        data = lost.read_bytes()
        lost.unlink()
        with regions.stays(), pytest.raises(CopyFailedError):
            regions.sync(tables=("t", "u", "w"))
        assert [regions.rows(f"default.{name}") for name in ("t", "u", "w")] == [[], [], []]
        lost.write_bytes(data)
        (done,) = regions.sync(tables=("t", "u"))
        assert done.promoted is not None
        moved = lake.catalog.diff(done.spec.replica_head, done.promoted)
        assert [each.key.name for each in moved] == ["t", "u"]
        assert regions.rows("default.w") == []

    def test_a_table_that_nobody_knows(self, regions: Beyond) -> None:
        regions.lake("us").create_table("t", ids(1).schema, actor="ann")
        with pytest.raises(UsageError, match="nope"):
            regions.sync(tables=("nope",))


class TestPlain:
    def test_no_snapshot(self, regions: Beyond) -> None:
        regions.show("t", regions.engine.create(SCHEMA))
        for history in History:
            regions.sync(history=history)
            assert regions.rows("default.t") == []
            regions.is_the_same("default.t")

    def test_renamed_between(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        lake.create_table("t", ids(1).schema, actor="ann")
        lake.load("t", ids(1), actor="ann")
        regions.sync()
        lake.apply("alter table t rename to u", actor="ann")
        regions.sync()
        assert set(regions.tables("main_replica_eu")) == {"default.u"}
        regions.is_the_same("default.u")

    def test_moved_location_and_paths(self, regions: Beyond) -> None:
        table = regions.engine.commit(append(regions.engine.staging(), regions.engine.create(SCHEMA), rows(1)))
        regions.show("t", table)
        regions.sync()

        def move(document: dict[str, Any]) -> None:
            document["location"] = f"{regions.engine.root}/elsewhere/t"
            document["properties"]["write.data.path"] = f"{regions.engine.root}/data of t/"
            document["properties"]["write.metadata.path"] = f"{regions.engine.root}/meta"
            document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": f"{regions.engine.root}/gone.json"}]

        regions.show("t", rewritten(regions, table, move, "moved.gz"))
        regions.sync()
        regions.is_the_same("default.t")
        found = StaticTable.from_metadata(regions.tables("main_replica_eu")["default.t"].metadata_location).metadata
        eu = (regions.folder / "eu").as_uri()
        assert found.location == f"{eu}/elsewhere/t"
        assert found.properties["write.data.path"] == f"{eu}/data of t"
        assert found.properties["write.metadata.path"] == f"{eu}/meta"
        assert found.metadata_log == []

    @pytest.mark.hazard("R16")
    def test_refs(self, regions: Beyond) -> None:
        engine = regions.engine
        first = engine.commit(append(engine.staging(), engine.create(SCHEMA), rows(1)))
        second = engine.commit(append(engine.staging(), first, rows(2)))

        def tag(document: dict[str, Any]) -> None:
            document["refs"]["old"] = {"snapshot-id": first.metadata.current_snapshot_id, "type": "tag"}
            document["refs"]["work"] = {"snapshot-id": first.metadata.current_snapshot_id, "type": "branch"}

        regions.show("t", rewritten(regions, second, tag, "tagged"))
        regions.sync()
        regions.is_the_same("default.t")
        found = StaticTable.from_metadata(regions.tables("main_replica_eu")["default.t"].metadata_location)
        assert set(found.metadata.refs) == {"main", "old", "work"}
        assert found.scan(snapshot_id=first.metadata.current_snapshot_id).to_arrow().num_rows == 1
        regions.sync(history=History.CURRENT)
        found = StaticTable.from_metadata(regions.tables("main_replica_eu")["default.t"].metadata_location)
        assert set(found.metadata.refs) == {"main"}
        regions.is_the_same("default.t")
        regions.sync()  # and the whole history again
        found = StaticTable.from_metadata(regions.tables("main_replica_eu")["default.t"].metadata_location)
        assert set(found.metadata.refs) == {"main", "old", "work"}
        regions.is_the_same("default.t")

    def test_odd_names(self, regions: Beyond) -> None:
        engine = regions.engine
        table = engine.create(SCHEMA)
        names = ["a b", "p=50%25", "p=50%", "ü-日本", "a+b", "a&b=c", "quo'te", "(x)", "x#y", "semi;colon", " lead"]
        data = parquet(1)
        files = []
        for number, name in enumerate(names):
            location = f"{table.metadata.location}/data/{name}/{name}.parquet"
            data = parquet(number)
            engine.files.write([NewFile(location, data)])
            files.append(data_file(location, data, 1))
        table = add_files(engine, table, *files)
        table = engine.commit(delete(engine.staging(), table, parse("id in (1, 3, 8)")))
        regions.show("t", table)
        regions.sync()
        regions.is_the_same("default.t")
        assert len(regions.rows("default.t")) == len(names) - 3
        regions.sync("asia")

    def test_empty_files_and_double_entries(self, regions: Beyond) -> None:
        """A statistics file, and a data file that no reader opens, of no bytes; one file named twice."""
        engine = regions.engine
        table = engine.create(SCHEMA)
        for name, data in (("none", b""), ("twice", parquet(7))):
            engine.files.write([NewFile(f"{table.metadata.location}/data/{name}.parquet", data)])
        none = data_file(f"{table.metadata.location}/data/none.parquet", b"", 0)
        twice = data_file(f"{table.metadata.location}/data/twice.parquet", parquet(7), 1)
        regions.show("t", add_files(engine, add_files(engine, table, none, twice), twice))
        regions.sync()
        (copied,) = (regions.folder / "eu").rglob("none.parquet")
        assert copied.read_bytes() == b""
        assert len(list((regions.folder / "eu").rglob("twice.parquet"))) == 1

    def test_one_file_of_two_tables(self, regions: Beyond) -> None:
        engine = regions.engine
        first, second = engine.create(SCHEMA), engine.create(SCHEMA, name="u")
        location, data = f"{first.metadata.location}/data/both.parquet", parquet(5)
        engine.files.write([NewFile(location, data)])
        for name, table in (("t", first), ("u", second)):
            regions.show(name, add_files(engine, table, data_file(location, data, 1)))
        regions.sync()
        regions.is_the_same("default.t", "default.u")
        assert regions.rows("default.u") == [{"id": 5, "v": None}]

    def test_two_spellings(self, regions: Beyond) -> None:
        engine = regions.engine
        table = engine.create(SCHEMA)
        location, data = f"{table.metadata.location}/data/x.parquet", parquet(5)
        engine.files.write([NewFile(location, data)])
        other = location.replace("file:///", "file:/")
        table = add_files(engine, table, data_file(location, data, 1))
        regions.show("t", add_files(engine, table, data_file(other, data, 1)))
        regions.sync()
        assert len(regions.rows("default.t")) == 2
        assert regions.status().runs[0].state is RunState.DONE

    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize("history", list(History))
    def test_every_version_and_a_manifest_without_entries(
        self, regions: Beyond, version: int, history: History
    ) -> None:
        engine = regions.engine
        table = engine.create(SCHEMA, format_version=version)
        table = engine.commit(append(engine.staging(), table, rows(1, 2)))
        terms = ManifestTerms(table.metadata, snapshot_id=1_000, sequence_number=1)
        path = f"{table.metadata.location}/metadata/empty.avro"
        line, data = write_manifest(terms, path, ManifestContent.DATA, table.metadata.spec(), [])
        engine.files.write([NewFile(path, data)])
        snapshot = table.metadata.current_snapshot()
        assert snapshot is not None
        lines = [line, *read_manifest_list(engine.files, snapshot)]
        listed = f"{table.metadata.location}/metadata/with-empty.avro"
        engine.files.write([NewFile(listed, write_manifest_list(terms, None, lines, None))])

        def with_empty(document: dict[str, Any]) -> None:
            (found,) = document["snapshots"]
            found["manifest-list"] = listed
            found["summary"].pop(MANIFEST_LIST_SEAL, None)

        regions.show("t", rewritten(regions, table, with_empty, "empty"))
        regions.sync(history=history)
        regions.is_the_same("default.t")
        assert len(regions.rows("default.t")) == 2
        location = regions.tables("main_replica_eu")["default.t"].metadata_location
        assert StaticTable.from_metadata(location).metadata.format_version == version
        assert len(StaticTable.from_metadata(location).inspect.manifests()) == len(lines)

    def test_the_first_version_by_somebody_else(self, regions: Beyond) -> None:
        catalog = SqlCatalog("c", uri=f"sqlite:///{regions.folder}/c.db", warehouse=regions.engine.root)
        catalog.create_namespace("db")
        made = catalog.create_table("db.t", SCHEMA, properties={"format-version": "1"})
        assert made.metadata.format_version == 1
        for number in range(3):
            made.append(rows(number).cast(made.schema().as_arrow()))
            regions.show("t", regions.engine.load(made.metadata_location))
            regions.sync()
            regions.is_the_same("default.t")
        made.delete("id = 1")
        catalog.engine.dispose()
        regions.show("t", regions.engine.load(made.metadata_location))
        (done,) = regions.sync(history=History.CURRENT)
        assert done.state is RunState.DONE
        regions.is_the_same("default.t")
        assert [each["id"] for each in regions.rows("default.t")] == [0, 2]

    def test_properties_of_a_namespace_alone(self, regions: Beyond) -> None:
        regions.lake("us").create_table("t", ids(1).schema, actor="ann")
        regions.sync()
        key = TableKey.of_namespace(("default",))
        catalog = regions.lake("us").catalog

        def held(branch: str) -> NamespaceContent:
            found = catalog.content(catalog.ref(branch).hash, [key])[key]
            assert isinstance(found, NamespaceContent)
            return found

        before = held("main")
        catalog.commit(
            CommitRequest(
                branch="main",
                head=catalog.ref("main").hash,
                changes={key: Put(replace(before, properties={"owner": "ann", "ü": "%20"}))},
                expected={key: before},
                actor="ann",
                message="who owns it",
                operation=new_ulid(regions.app.clock, regions.app.randomness),
            )
        )
        (done,) = regions.sync()
        assert done.state is RunState.DONE
        assert held("main_replica_eu").properties == {"owner": "ann", "ü": "%20"}
        regions.is_the_same("default.t")

    def test_views_and_namespaces_alone(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        lake.create_table("t", ids(1).schema, actor="ann")
        lake.apply("create view v as select id from t", actor="ann")
        regions.sync()
        before = regions.tables("main_replica_eu")["default.v"].metadata_location
        lake.apply("create or replace view v as select id + 1 as id from t", actor="ann")
        (done,) = regions.sync()
        assert done.state is RunState.DONE
        assert regions.tables("main_replica_eu")["default.v"].metadata_location != before


class TestHistory:
    def test_statistics_of_a_snapshot_that_comes_back(self, regions: Beyond) -> None:
        """With the current history the replica never had them, though the document of before names them."""
        engine = regions.engine
        first = engine.commit(append(engine.staging(), engine.create(SCHEMA), rows(1)))
        location = f"{first.metadata.location}/metadata/stats.puffin"
        engine.files.write([NewFile(location, b"PFA1-not-really")])

        def with_statistics(document: dict[str, Any]) -> None:
            document["statistics"] = [
                {
                    "snapshot-id": first.metadata.current_snapshot_id,
                    "statistics-path": location,
                    "file-size-in-bytes": 15,
                    "file-footer-size-in-bytes": 4,
                    "blob-metadata": [],
                }
            ]

        second = engine.commit(append(engine.staging(), first, rows(2)))
        regions.show("t", rewritten(regions, second, with_statistics, "second"))
        regions.sync(history=History.CURRENT)

        def back(document: dict[str, Any]) -> None:
            with_statistics(document)
            document["current-snapshot-id"] = first.metadata.current_snapshot_id
            document["refs"]["main"]["snapshot-id"] = first.metadata.current_snapshot_id
            document["snapshot-log"].append(
                {"timestamp-ms": document["last-updated-ms"], "snapshot-id": first.metadata.current_snapshot_id}
            )

        regions.show("t", rewritten(regions, second, back, "back"))
        regions.sync(history=History.CURRENT)
        regions.is_the_same("default.t")
        document = json.loads(
            Path(regions.tables("main_replica_eu")["default.t"].metadata_location.removeprefix("file://")).read_bytes()
        )
        assert [each["snapshot-id"] for each in document["snapshots"]] == [first.metadata.current_snapshot_id]
        # Between the two another one was current, which is gone: what came before it is not told as if it were not.
        assert len(document["snapshot-log"]) == 1


class TestNothingChanges:
    def test_dry_run_plan_and_status(self, tmp_path: Path, run: Run) -> None:
        regions = Regions(tmp_path)
        lake = regions.lake("us")
        lake.create_table("t", ids(1).schema, actor="ann")
        lake.load("t", ids(1), actor="ann")
        regions.sync("asia")  # so that the lake has a database
        for _ in range(2):
            before = state_of(tmp_path)
            for name, *options in (["run", "--dry-run"], ["plan"], ["status"], ["check"]):
                made = run("sync", name, regions.url, "--region", "eu", "--json", *options)
                assert made.code == 0 or name == "check", made.err  # of nothing there is no proof
                assert state_of(tmp_path) == before
            regions.sync()
            lake.load("t", ids(2), actor="ann")

    def test_a_plan_says_what_the_run_then_does(self, tmp_path: Path, run: Run) -> None:
        regions = Regions(tmp_path)
        lake = regions.lake("us")
        for name in ("t", "u"):
            lake.create_table(name, ids(1).schema, actor="ann")
            lake.load(name, ids(1, 2), actor="ann")
        lake.apply("create view v as select id from t", actor="ann")

        def planned(*options: str) -> dict[str, Any]:
            found: dict[str, Any] = run("sync", "plan", regions.url, "--region", "eu", "--json", *options).json()[
                "next"
            ]
            return found and found["plan"]

        first = planned()
        assert first["tables"] == ["default.t", "default.u"]
        assert "default.v" in first["others"]
        assert (first["files"], first["copied_files"]) == (2, 2)
        assert planned("--table", "t")["tables"] == ["default.t"]
        assert "2 of them to copy" in run("sync", "run", regions.url, "--region", "eu", "--dry-run").out
        regions.sync()
        copied = [each for each in (tmp_path / "eu").rglob("*.parquet") if "_headwater" not in each.parts]
        assert (len(copied), sum(each.stat().st_size for each in copied)) == (2, first["copied_bytes"])
        assert planned() is None
        lake.load("t", ids(3), actor="ann")
        (file,) = set((tmp_path / "us").rglob("*.parquet")) - {
            tmp_path / "us" / each.relative_to(tmp_path / "eu") for each in copied
        }
        assert planned() == {
            "tables": ["default.t"],
            "others": [],
            "files": 1,
            "copied_files": 1,
            "copied_bytes": file.stat().st_size,
        }
        twin = tmp_path / "eu" / file.relative_to(tmp_path / "us")
        twin.write_bytes(b"in the way")
        refused = run("sync", "plan", regions.url, "--region", "eu")
        assert refused.code == RefusedError.exit_code
        assert str(twin) in refused.err


class TestMoves:
    def test_a_region_that_moves_to_another_prefix(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        lake.create_table("t", ids(1).schema, actor="ann")
        lake.load("t", ids(1), actor="ann")
        regions.sync()
        (regions.folder / "eu2").mkdir()
        prefix = f"{(regions.folder / 'eu2').as_uri()}/"
        old, before = f"{(regions.folder / 'eu').as_uri()}/", regions.registry
        moved = tuple(replace(each, local_prefix=prefix) if each.name == "eu" else each for each in before.regions)
        sources = tuple(prefix if each == old else each for each in before.sources)
        after = replace(before, regions=moved, sources=sources)
        regions.app.open_publisher(regions.url).publish(after, actor="ann")
        regions.sync()
        assert regions.rows("default.t") == [{"id": 1}]
        assert all(path.startswith(prefix) for path in regions.paths("default.t"))

    def test_a_table_that_is_dropped_on_the_way(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        for name in ("t", "u"):
            lake.create_table(name, ids(1).schema, actor="ann")
            lake.load(name, ids(1), actor="ann")
        with leased_ground(regions.app, regions.url, "eu") as (ground, lease):
            syncing, goals = open_syncing(ground, lease), ground.goals(History.FULL)
            syncing.advance(goals, lease, Step.DIFF, told=lambda *_: None)
            lake.apply("drop table u", actor="ann")
            run = syncing.advance(goals, lease, Step.OBSERVE, told=lambda *_: None)
        assert run is not None
        assert run.state is RunState.DONE
        assert set(regions.tables("main_replica_eu")) == {"default.t", "default.u"}  # main, as it was at the target
        regions.sync()
        regions.is_the_same("default.t")


class TestLists:
    def lists(self, regions: Regions) -> list[Path]:
        return sorted((regions.folder / "eu" / "_headwater" / "sync").rglob("*.parquet"))

    def a_table(self, regions: Regions) -> None:
        lake = regions.lake("us")
        lake.create_table("t", ids(1).schema, actor="ann")
        lake.load("t", ids(1), actor="ann")

    def test_they_stay_while_a_run_needs_them_and_go_with_it(self, regions: Beyond) -> None:
        self.a_table(regions)
        with leased_ground(regions.app, regions.url, "eu") as (ground, lease):
            syncing, goals = open_syncing(ground, lease), ground.goals(History.FULL)
            for step in (Step.PLAN, Step.VERIFY, Step.PROMOTE):
                syncing.advance(goals, lease, step, told=lambda *_: None)
                assert self.lists(regions)
        regions.sync()
        assert self.lists(regions) == []

    def test_the_lists_of_a_run_that_is_running_stay(self, regions: Beyond) -> None:
        self.a_table(regions)
        with leased_ground(regions.app, regions.url, "eu") as (ground, lease):
            syncing, goals = open_syncing(ground, lease), ground.goals(History.FULL)
            syncing.advance(goals, lease, Step.PLAN, told=lambda *_: None)
            before = self.lists(regions)
            _remove_lists(ground, Runs(ground.database))
            assert self.lists(regions) == before != []
            syncing.advance(goals, lease, Step.OBSERVE, told=lambda *_: None)
        assert self.lists(regions) == []

    def test_what_a_failed_run_left_goes_with_the_next_and_what_is_not_known_stays(self, regions: Beyond) -> None:
        self.a_table(regions)
        (lost,) = (regions.folder / "us").rglob("*.parquet")
        data = lost.read_bytes()
        lost.unlink()
        with pytest.raises(HeadwaterError):
            regions.sync()
        assert self.lists(regions)
        foreign = regions.folder / "eu" / "_headwater" / "sync" / "01K00000000000000000000000" / "x.parquet"
        foreign.parent.mkdir()
        foreign.write_bytes(b"of another lake")
        lost.write_bytes(data)
        regions.sync()
        assert self.lists(regions) == [foreign]


class TestFaults:
    @pytest.fixture(autouse=True)
    def _begun(self, regions: Beyond) -> None:
        regions.sync()

    def test_a_full_disk(self, regions: Beyond, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = regions.engine
        regions.show("t", engine.commit(append(engine.staging(), engine.create(SCHEMA), rows(1))))
        put = FileStore.put

        def full(store: FileStore, path: str, *rest: Any, **more: Any) -> Any:
            if store.root.name == "eu" and path.endswith(".parquet") and "_headwater" not in path:
                with store._translated(path, writing=True):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return put(store, path, *rest, **more)

        with monkeypatch.context() as patched, regions.stays():
            patched.setattr(FileStore, "put", full)
            with pytest.raises(CopyFailedError, match=r"us/t/.*\.parquet could not be copied.*No space left"):
                regions.sync()
        regions.sync()
        regions.is_the_same("default.t")

    def test_a_file_written_anew_under_its_name(self, regions: Beyond) -> None:
        """Its length is not what the manifest says: nothing is copied, and when the right one is back it goes on."""
        engine = regions.engine
        regions.show("t", engine.commit(append(engine.staging(), engine.create(SCHEMA), rows(1))))
        (file,) = (regions.folder / "us").rglob("*.parquet")
        data = file.read_bytes()
        file.write_bytes(data + b"!")
        with regions.stays(), pytest.raises(CopyFailedError, match="by its metadata"):
            regions.sync()
        file.write_bytes(data)
        regions.sync()
        regions.is_the_same("default.t")

    def test_nothing_is_written_over_what_is_there(self, regions: Beyond) -> None:
        engine = regions.engine
        regions.show("t", engine.commit(append(engine.staging(), engine.create(SCHEMA), rows(1))))
        (file,) = (regions.folder / "us").rglob("*.parquet")
        other = regions.folder / "eu" / file.relative_to(regions.folder / "us")
        other.parent.mkdir(parents=True)
        for data, kind in ((b"mine", OccupiedError), (b"x" * file.stat().st_size, VerifyFailedError)):
            other.write_bytes(data)
            with regions.stays(), pytest.raises(kind, match=file.name):
                regions.sync()
            assert other.read_bytes() == data
        other.unlink()
        regions.sync()
        regions.is_the_same("default.t")

    def test_a_puffin_file_that_is_none(self, regions: Beyond) -> None:
        engine = regions.engine
        table = engine.create(SCHEMA, format_version=3)
        table = engine.commit(append(engine.staging(), table, rows(*range(5))))
        regions.show("t", engine.commit(delete(engine.staging(), table, parse("id = 1"))))
        (file,) = (regions.folder / "us").rglob("*.puffin")
        data = file.read_bytes()
        file.write_bytes(data[:-4] + b"nope")
        with regions.stays(), pytest.raises(CorruptError, match=file.name):
            regions.sync()
        file.write_bytes(data)
        regions.sync()
        regions.is_the_same("default.t")

    @pytest.mark.parametrize("ending", [".puffin", ".avro"])
    def test_metadata_that_vanished_after_the_diff_is_named(self, regions: Beyond, ending: str) -> None:
        """Nobody who asks us deletes it: the target is held. Somebody who does not ask may."""
        engine = regions.engine
        table = engine.create(SCHEMA, format_version=3)
        table = engine.commit(append(engine.staging(), table, rows(*range(5))))
        regions.show("t", engine.commit(delete(engine.staging(), table, parse("id = 1"))))
        with leased_ground(regions.app, regions.url, "eu") as (ground, lease):
            syncing, goals = open_syncing(ground, lease), ground.goals(History.FULL)
            syncing.advance(goals, lease, Step.VERIFY, told=lambda *_: None)
            gone = {each: each.read_bytes() for each in (regions.folder / "us").rglob(f"*{ending}")}
            for each in gone:
                each.unlink()
            with pytest.raises(CorruptError) as caught:
                syncing.advance(goals, lease, Step.OBSERVE, told=lambda *_: None)
        assert any(each.name in str(caught.value) for each in gone)
        for each, data in gone.items():
            each.write_bytes(data)
        regions.sync()
        regions.is_the_same("default.t")
