"""Publishing on a catalog without heads: one commit, nothing to recover. On a model of Nessie, through the lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from uuid import UUID

import pyarrow as pa
import pytest

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import Content, Difference, NamespaceContent, TableContent, TableKey, ViewContent
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import ConflictError, RefusedError, UnavailableError
from headwater.kernel.failpoints import Action, Failpoint, FailpointError, arm
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import seeded
from headwater.lake import Lake
from headwater.publish.branches.identities import aligned
from headwater.publish.direct.decide import document_location
from headwater.publish.direct.recovery import SETTLE_SECONDS
from headwater.publish.errors import PublishOutcomeUnknownError, TooLateError
from headwater.publish.model import WRITE_ENDED_AT, Attempt
from headwater.publish.service import open_direct_writing
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Create, PutMode
from headwater.tables.files import Files
from headwater.tables.head import INCARNATION
from headwater.tables.metadata import decode_metadata, encode_metadata
from headwater.tables.naming import operation_of
from tests.unit.nessie_world import COMMIT, World

LAKE, EU = "s3://us/lake", "s3://eu/lake"
COMMIT_PATH = "/history/commit"


class DirectWorld(World):
    """A lake on Nessie, with a store for each of two regions; its clock stands still unless a test moves it."""

    def __init__(self) -> None:
        self.manual = ManualClock()
        super().__init__(clock=self.manual)
        self.server.clock = self.manual.now
        self.us, self.eu = MemoryStore(self.manual), MemoryStore(self.manual)

    def lake(self, local_prefix: str | None = None) -> Lake:
        catalog = self.open()
        files = Files({LAKE: self.us, EU: self.eu})
        writing = open_direct_writing(
            catalog,
            files,
            self.us,
            location=LAKE,
            clock=self.manual,
            randomness=seeded(2),
            local_prefix=local_prefix,
        )
        return Lake(catalog, files, location=LAKE, writing=writing)


@pytest.fixture
def world() -> DirectWorld:
    return DirectWorld()


@pytest.fixture
def lake(world: DirectWorld) -> Lake:
    made = world.lake()
    made.apply("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR); CREATE TABLE u (id BIGINT PRIMARY KEY)", actor="a")
    made.load("t", pa.table({"id": [1, 2], "v": ["a", "b"]}), actor="a")
    return made


def rows(lake: Lake, sql: str = "SELECT id FROM t ORDER BY id", **at: str) -> list[object]:
    return [row for (row,) in (tuple(each.values()) for each in lake.query(sql, **at).to_pylist())]


class TestOneCommit:
    def test_a_change_of_several_tables(self, lake: Lake) -> None:
        before = len(list(lake.catalog.log(lake.resolve())))
        with lake.transaction(actor="ann", message="both") as transaction:
            transaction.sql("INSERT INTO t VALUES (3, 'c')")
            transaction.sql("DELETE FROM t WHERE id = 1")
            transaction.sql("INSERT INTO u VALUES (7)")
        log = list(lake.catalog.log(lake.resolve()))
        assert len(log) == before + 1
        assert (log[0].actor, log[0].message) == ("ann", "both")
        assert rows(lake) == [2, 3]
        assert rows(lake, "SELECT id FROM u") == [7]

    def test_a_table_keeps_the_identity_that_nessie_gave_it(self, world: DirectWorld) -> None:
        lake, key = world.lake(), TableKey.parse("t")
        lake.apply("CREATE TABLE t (id BIGINT)", actor="a")
        made = lake.catalog.content(lake.resolve(), [key])[key]
        assert made.content_id != lake.table("t").metadata.properties[INCARNATION]
        lake.load("t", pa.table({"id": [1]}), actor="a")
        assert lake.catalog.content(lake.resolve(), [key])[key].content_id == made.content_id

    def test_the_log_tells_when_the_last_file_was_stored(self, world: DirectWorld, lake: Lake) -> None:
        """What replicas measure their lag from; who knows better says so."""
        with _slow_files(world, timedelta(seconds=2)), lake.transaction(actor="a") as transaction:
            began = world.manual.now()
            transaction.sql("INSERT INTO t VALUES (3, 'c')")
        assert transaction.commit is not None
        told = datetime.fromisoformat(transaction.commit.properties[WRITE_ENDED_AT])
        assert told == world.manual.now() > began
        attempt = Attempt(new_ulid(world.manual, seeded(5)), properties={WRITE_ENDED_AT: "2026-01-01T00:00:00Z"})
        with lake.transaction(actor="a", attempt=attempt) as transaction:
            transaction.sql("INSERT INTO t VALUES (4, 'd')")
        assert transaction.commit is not None
        assert transaction.commit.properties[WRITE_ENDED_AT] == "2026-01-01T00:00:00Z"

    def test_there_is_no_sidecar_and_no_sequence(self, lake: Lake, world: DirectWorld) -> None:
        paths = [each.path for each in world.us.list()]
        assert not any(path.startswith("__recovery/") for path in paths)
        documents = [path for path in paths if path.endswith(".metadata.json")]
        assert len(documents) == 3
        assert all(operation_of(path) is not None for path in documents)

    def test_what_nobody_knows_in_a_document_is_kept(self, lake: Lake, world: DirectWorld) -> None:
        """As the embedded lake does it: another engine's fields are carried over."""
        key = TableKey.parse("t")
        content = lake.catalog.content(lake.resolve(), [key])[key]
        assert isinstance(content, TableContent)
        location = content.metadata_location
        document = world.us.get(location.removeprefix(f"{LAKE}/")).data.replace(b"{", b'{"x-engine": 1, ', 1)
        elsewhere = location.replace(".metadata.json", "-x.metadata.json")
        world.us.put(elsewhere.removeprefix(f"{LAKE}/"), document, Create())
        world.foreign({key: TableContent("", elsewhere, content.snapshot_id, 0, 0, 0)})
        lake.load("t", pa.table({"id": [9], "v": ["z"]}), actor="a")
        after = lake.catalog.content(lake.resolve(), [key])[key]
        assert isinstance(after, TableContent)
        assert b'"x-engine"' in world.us.get(after.metadata_location.removeprefix(f"{LAKE}/")).data

    def test_renames_drops_and_views(self, lake: Lake) -> None:
        lake.apply("CREATE VIEW w AS SELECT count(*) AS n FROM t", actor="a")
        before = lake.catalog.content(lake.resolve(), [TableKey.parse("u")])[TableKey.parse("u")]
        lake.apply("ALTER TABLE u RENAME TO uu", actor="a")
        after = lake.catalog.content(lake.resolve(), [TableKey.parse("uu")])[TableKey.parse("uu")]
        assert after.content_id == before.content_id
        lake.apply("CREATE OR REPLACE VIEW w AS SELECT 5 AS n; DROP TABLE uu", actor="a")
        assert rows(lake, "SELECT n FROM w") == [5]
        assert [str(each.key) for each in lake.tables()] == ["default.t", "default.w"]

    def test_a_table_of_an_engine(self, lake: Lake, world: DirectWorld) -> None:
        """They know nothing of our properties, and are changed all the same."""
        key, theirs = TableKey.parse("t"), TableKey.parse("theirs")
        content = lake.catalog.content(lake.resolve(), [key])[key]
        assert isinstance(content, TableContent)
        metadata = decode_metadata(lake.files.read(content.metadata_location), content.metadata_location)
        own = {name: value for name, value in metadata.properties.items() if not name.startswith("headwater.")}
        made = metadata.model_copy(update={"properties": own, "table_uuid": UUID(int=7)})
        world.us.put("theirs/metadata/00003-x.metadata.json", encode_metadata(made), Create())
        location = f"{LAKE}/theirs/metadata/00003-x.metadata.json"
        world.foreign({theirs: TableContent("", location, content.snapshot_id, 0, 0, 0)})
        lake.load("theirs", pa.table({"id": [5], "v": ["e"]}), actor="a")
        after = lake.catalog.content(lake.resolve(), [theirs])[theirs]
        assert isinstance(after, TableContent)
        assert INCARNATION not in lake.table("theirs").metadata.properties
        assert "/metadata/00004-" in after.metadata_location
        assert rows(lake, "SELECT id FROM theirs ORDER BY id") == [1, 2, 5]

    def test_optimize_and_indices(self, lake: Lake) -> None:
        for number in range(3, 9):
            lake.load("t", pa.table({"id": [number], "v": ["x"]}), actor="a")
        assert lake.optimize("t", actor="a").tables[0].files_after == 1
        assert rows(lake) == list(range(1, 9))

    def test_what_cannot_be_done_here_is_refused(self, lake: Lake) -> None:
        with pytest.raises(RefusedError, match="nothing to repair"):
            lake.repair()
        with pytest.raises(RefusedError, match="not ours alone"):
            lake.cleanup()
        assert lake.refresh() == ()


class TestConflicts:
    @pytest.mark.hazard("P8")
    def test_p8_write_skew_with_an_engine(self, lake: Lake, world: DirectWorld) -> None:
        """What was read is compared by the commit itself: nobody gets in between."""
        lake.apply("CREATE TABLE c (id BIGINT, t BIGINT REFERENCES t (id))", actor="a")
        key = TableKey.parse("t")
        content = lake.catalog.content(lake.resolve(), [key])[key]
        assert isinstance(content, TableContent)

        def work() -> None:
            with lake.transaction(actor="a") as transaction:
                transaction.sql("INSERT INTO c VALUES (1, 1)")
                world.once_before("POST", COMMIT_PATH, lambda: world.foreign({key: _other_version(content)}))

        with pytest.raises(ExpectedVersionMismatchError) as caught:
            work()
        assert caught.value.table == key
        assert rows(lake, "SELECT id FROM c") == []

    def test_a_lost_race_is_found_before_anything_is_written(self, lake: Lake, world: DirectWorld) -> None:
        other, before = world.lake(), 0

        def work() -> None:
            nonlocal before
            with lake.transaction(actor="a") as transaction:
                transaction.sql("DELETE FROM t WHERE id = 1")
                other.load("t", pa.table({"id": [3], "v": ["c"]}), actor="b")
                before = len(list(world.us.list()))

        with pytest.raises(ExpectedVersionMismatchError):
            work()
        assert len(list(world.us.list())) == before
        assert rows(lake) == [1, 2, 3]

    def test_two_that_do_not_meet_both_win(self, lake: Lake, world: DirectWorld) -> None:
        other = world.lake()
        with lake.transaction(actor="a") as transaction:
            transaction.sql("INSERT INTO t VALUES (3, 'c')")
            other.load("u", pa.table({"id": [1]}), actor="b")
        assert rows(lake) == [1, 2, 3]
        assert rows(lake, "SELECT id FROM u") == [1]

    def test_it_is_tried_again_while_only_the_server_is_busy(self, lake: Lake, world: DirectWorld) -> None:
        for _ in range(5):  # more than the catalog's own patience
            world.server.lose("POST", COMMIT, is_done=False, status=409)
        lake.load("t", pa.table({"id": [3], "v": ["c"]}), actor="a")
        assert rows(lake) == [1, 2, 3]


class TestUnknownOutcomes:
    @pytest.mark.hazard("P3")
    @pytest.mark.parametrize("is_done", [True, False])
    def test_p3_an_unknown_outcome_is_told_with_its_operation(
        self, lake: Lake, world: DirectWorld, *, is_done: bool
    ) -> None:
        world.server.lose("POST", COMMIT, is_done=is_done)
        world.once_before("POST", COMMIT_PATH, lambda: world.once_before("GET", "/history", lambda: _down(world)))
        with pytest.raises(PublishOutcomeUnknownError) as caught:
            lake.load("t", pa.table({"id": [3], "v": ["c"]}), actor="a")
        world.server.is_down = False
        began = world.manual.monotonic()
        settled = lake.writing.recovery.settle(caught.value.operation)  # type: ignore[arg-type]
        assert (settled is not None) == is_done
        assert (world.manual.monotonic() - began >= SETTLE_SECONDS) != is_done
        assert rows(lake) == ([1, 2, 3] if is_done else [1, 2])

    @pytest.mark.hazard("P3")
    def test_p3_one_that_lands_late_is_waited_for(self, lake: Lake, world: DirectWorld) -> None:
        """Its writer has given up; the server has not."""
        operation = new_ulid(world.manual, seeded(9))
        looked: list[float] = []

        def land_late(method: str, path: str) -> None:
            if method == "GET" and path.endswith("/history"):
                looked.append(world.manual.monotonic())
                if len(looked) == 4:
                    world.server.before = lambda _method, _path: None
                    with world.lake().transaction(actor="late", attempt=Attempt(operation)) as transaction:
                        transaction.sql("INSERT INTO t VALUES (3, 'late')")

        world.server.before = land_late
        settled = lake.writing.recovery.settle(operation)
        assert settled is not None
        assert settled.operation == operation

    def test_a_server_that_is_down_changed_nothing(self, lake: Lake, world: DirectWorld) -> None:
        world.once_before("POST", COMMIT_PATH, lambda: _down(world))
        with pytest.raises(UnavailableError):
            lake.load("t", pa.table({"id": [3], "v": ["c"]}), actor="a")
        world.server.is_down = False
        assert rows(lake) == [1, 2]

    def test_a_crash_leaves_files_and_nobody_in_the_way(self, lake: Lake, world: DirectWorld) -> None:
        with arm(Failpoint.PUBLISH_AFTER_FILES, Action.ERROR), pytest.raises(FailpointError):
            lake.load("t", pa.table({"id": [3], "v": ["c"]}), actor="a")
        world.lake().load("t", pa.table({"id": [4], "v": ["d"]}), actor="b")
        assert rows(lake) == [1, 2, 4]

    def test_after_its_deadline_nothing_is_committed(self, lake: Lake, world: DirectWorld) -> None:
        attempt = Attempt(new_ulid(world.manual, seeded(5)), world.manual.now() + timedelta(seconds=10))
        with (
            pytest.raises(TooLateError),
            _slow_files(world, timedelta(seconds=11)),
            lake.transaction(actor="a", attempt=attempt) as transaction,
        ):
            transaction.sql("INSERT INTO t VALUES (3, 'c')")
        assert lake.catalog.outcome("main", attempt.operation) is None


class TestBranches:
    def test_a_table_that_was_made_on_a_branch_can_be_merged_again_and_again(self, lake: Lake) -> None:
        """Nessie gives the merged table another id; the merge knows it by the UUID in its document."""
        lake.create_branch("side")
        lake.apply("CREATE TABLE s (id BIGINT PRIMARY KEY); CREATE VIEW w AS SELECT 1 AS n", actor="a", branch="side")
        assert {str(each) for each in lake.merge("side", actor="a").tables} == {"default.s", "default.w"}
        for number in (1, 2):
            lake.load("s", pa.table({"id": [number]}), actor="a", branch="side")
            lake.apply(f"CREATE OR REPLACE VIEW w AS SELECT {number} AS n", actor="a", branch="side")
            merged = lake.merge("side", actor="a")
            assert merged.commit is not None
            assert len(merged.commit.parents) == 2
        lake.load("s", pa.table({"id": [3]}), actor="a")
        lake.apply("ALTER TABLE s RENAME TO ss", actor="a")
        lake.merge("main", "side", actor="a")
        assert rows(lake, "SELECT id FROM ss ORDER BY id", branch="side") == [1, 2, 3]
        assert rows(lake, "SELECT n FROM w", branch="side") == [2]

    def test_both_sides_change_rows(self, lake: Lake) -> None:
        lake.create_branch("side")
        lake.load("t", pa.table({"id": [10], "v": ["side"]}), actor="a", branch="side")
        lake.load("t", pa.table({"id": [11], "v": ["main"]}), actor="a")
        lake.merge("side", actor="a")
        assert rows(lake) == [1, 2, 10, 11]

    def test_a_branch_that_was_made_again(self, lake: Lake) -> None:
        lake.create_branch("side")

        def work() -> None:
            with lake.transaction(actor="a", branch="side") as transaction:
                transaction.sql("INSERT INTO t VALUES (3, 'c')")
                lake.delete_branch("side")
                lake.create_branch("side")

        with pytest.raises(ConflictError):
            work()

    def test_aligned_by_uuid(self) -> None:
        key, other, space = TableKey.parse("t"), TableKey.parse("o"), TableKey.of_namespace(("n",))
        source, target = TableContent("x", "s3://1", 1, 0, 0, 0), TableContent("y", "s3://2", 1, 0, 0, 0)
        stranger, seen = TableContent("z", "s3://3", 1, 0, 0, 0), ViewContent("v", "s3://4", 1, 0)
        uuids = {"s3://1": UUID(int=1), "s3://2": UUID(int=1), "s3://3": UUID(int=3), "s3://4": UUID(int=4)}
        changes = (
            Difference(key, None, source),
            Difference(other, stranger, None),
            Difference(space, None, NamespaceContent("n")),
            Difference(TableKey.parse("v"), ViewContent("w", "s3://4", 1, 0), seen),
        )
        present: dict[TableKey, Content] = {key: target, TableKey.parse("v"): seen}
        told = aligned(changes, present, lambda content: uuids[content.metadata_location])
        assert told[0].after is not None
        assert [each.key for each in told] == [key, other, space]  # of the view, only the id differed
        assert (told[0].after.content_id, told[1].before) == ("y", stranger)


class TestRegions:
    def test_a_writer_of_a_region_puts_everything_there(self, lake: Lake, world: DirectWorld) -> None:
        before = {each.path for each in world.us.list()}
        regional = world.lake(EU)
        regional.load("t", pa.table({"id": [3], "v": ["eu"]}), actor="eu")
        with regional.transaction(actor="eu") as transaction:
            transaction.sql("DELETE FROM t WHERE id = 1")
        regional.ensure_indices("t", actor="eu")
        regional.apply("CREATE TABLE x (id BIGINT); CREATE VIEW v AS SELECT count(*) AS n FROM t", actor="eu")
        regional.apply("CREATE OR REPLACE VIEW v AS SELECT 7 AS n", actor="eu")
        regional.create_branch("side")
        regional.load("t", pa.table({"id": [5], "v": ["side"]}), actor="eu", branch="side")
        regional.load("u", pa.table({"id": [5]}), actor="eu")
        regional.merge("side", actor="eu")
        assert {each.path for each in world.us.list()} == before
        kinds = {each.path.rpartition("/")[0].rsplit("/", 1)[-1] for each in world.eu.list()}
        assert kinds == {"data", "metadata"}
        assert rows(world.lake()) == [2, 3, 5]
        assert rows(world.lake(), "SELECT n FROM v") == [7]
        version = lake.table("t")
        assert version.location is not None
        assert version.location.startswith(f"{EU}/tables/default/t-")

    def test_a_table_of_three_places(self, lake: Lake, world: DirectWorld) -> None:
        world.lake(EU).load("t", pa.table({"id": [3], "v": ["eu"]}), actor="eu")
        lake.load("t", pa.table({"id": [4], "v": ["us"]}), actor="us")
        assert rows(lake) == [1, 2, 3, 4]
        assert lake.optimize("t", actor="us", min_files=2).tables[0].files_after == 1
        assert rows(world.lake(EU)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("pinned", "expected"),
    [
        (None, "f/metadata/00000-tok.metadata.json"),
        ("s3://b/t/metadata/00007-abc.metadata.json", "f/metadata/00008-tok.metadata.json"),
        ("s3://b/t/metadata/v3.metadata.json", "f/metadata/00000-tok.metadata.json"),
    ],
)
def test_where_documents_go(pinned: str | None, expected: str) -> None:
    content = None if pinned is None else TableContent("x", pinned, 1, 0, 0, 0)
    assert document_location("f", content, "tok") == expected


def _other_version(content: TableContent) -> TableContent:
    return TableContent("", f"{content.metadata_location}.other", content.snapshot_id, 0, 0, 0)


def _down(world: World) -> None:
    world.server.is_down = True


@contextmanager
def _slow_files(world: DirectWorld, took: timedelta) -> Iterator[None]:
    """Within the block, storing a file takes this long."""
    put = world.us.put

    def slowly(path: str, data: bytes, mode: PutMode, **_: object) -> str:
        world.manual.advance(took)
        return put(path, data, mode)

    world.us.put = slowly  # type: ignore[method-assign]
    try:
        yield
    finally:
        world.us.put = put  # type: ignore[method-assign]
