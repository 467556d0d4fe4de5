"""The file table means the same on both databases. What is true is the raw rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from headwater.database import Database, open_database
from headwater.ingest.files import FileRow, FileTable, FileTableError, FileType, Hull, NewFile, Replacement, tables
from headwater.kernel.errors import ConflictError, CorruptError, HeadwaterError, UsageError

BACKENDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.services)]
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
INGEST, GC, REGULAR, RETIRED = FileType
ALL = frozenset(FileType)
HULL = Hull(2, 10, 19)


@pytest.fixture(params=BACKENDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    is_server = request.param == "postgresql"
    target = str(request.getfixturevalue("postgres_database")) if is_server else str(tmp_path / "state.db")
    with open_database(target) as opened:
        yield opened


@pytest.fixture
def table(database: Database) -> FileTable:
    made = FileTable(database)
    assert made.add_path(7, "file:///lake/seven").path_id == 1
    return made


def name(file_id: int, at: str = "20261115110000") -> str:
    return f"7_0_{at}_{file_id}_{file_id}.parquet"


def add(table: FileTable, *file_ids: int, type_: FileType = INGEST) -> None:
    table.add_files([NewFile(each, name(each), 1, type_) for each in file_ids])


def regular(table: FileTable, *file_ids: int) -> None:
    add(table, *file_ids)
    for each in file_ids:
        table.publish_regular(each, 2, 10, 19)


def types(database: Database) -> dict[int, str]:
    """The truth, past our own code."""
    with database.read() as connection:
        rows = connection.exec_driver_sql("SELECT file_id, type FROM ingest_files ORDER BY file_id")
        return {row[0]: row[1] for row in rows}


def test_the_tables_are_what_the_migrations_make(database: Database, table: FileTable) -> None:
    with database.read() as connection:
        inspector = sa.inspect(connection)
        for each in tables.metadata.sorted_tables:
            made = {column["name"]: column["nullable"] for column in inspector.get_columns(each.name)}
            assert made == {column.name: bool(column.nullable) for column in each.columns}
            keys = inspector.get_pk_constraint(each.name)["constrained_columns"]
            assert keys == [column.name for column in each.primary_key.columns]
        columns = [column["name"] for column in inspector.get_columns("ingest_files")]
    assert columns == ["file_id", "name", "type", "num_row_group", "path_id", "min_row_id", "max_row_id", "cleanup_at"]


def test_a_path_is_made_once(table: FileTable) -> None:
    first, second = table.add_path(7, "file:///lake/seven"), table.add_path(7, "file:///lake/other")
    assert (first.path_id, second.path_id) == (1, 2)
    assert table.add_path(8, "file:///lake/seven").path_id == 3
    assert table.paths_of(7) == (first, second)
    assert table.path(2) == second
    with pytest.raises(FileTableError, match="there is no path 9"):
        table.path(9)
    with pytest.raises(UsageError):
        table.add_path(7, "")


def test_an_id_is_given_once_whatever_was_deleted(table: FileTable) -> None:
    assert (table.reserve_ids(2), table.reserve_ids(1)) == (range(1, 3), range(3, 4))
    add(table, 1, 2, 3)
    table.delete_files([1, 2, 3])
    assert table.reserve_ids(1) == range(4, 5)
    add(table, 9)
    assert table.reserve_ids(1) == range(10, 11), "above the ids that others brought"
    with pytest.raises(UsageError):
        table.reserve_ids(0)


@pytest.mark.proves("ingest/files")
def test_the_life_of_a_file(database: Database, table: FileTable) -> None:
    add(table, 1)
    assert table.get_regular_files(1) == ()
    assert table.get_files_by_type(1, [INGEST]) == (FileRow(1, name(1), INGEST, 0, 1),)
    table.publish_regular(1, 2, 10, 19)
    published = FileRow(1, name(1), REGULAR, 2, 1, 10, 19)
    assert table.get_regular_files(1) == (published,)
    assert published.hull == HULL
    table.retire([1], LATER)
    assert table.get_regular_files(1) == ()
    assert table.get_files_by_type(1, ALL) == (FileRow(1, name(1), RETIRED, 2, 1, 10, 19, LATER),)
    assert table.list_retired_files_due(NOW) == ()
    assert [each.file_id for each in table.list_retired_files_due(LATER)] == [1]
    table.delete_files([1])
    assert types(database) == {}


def test_numbers_may_come_from_columns(table: FileTable) -> None:
    add(table, 1)
    table.publish_regular(1, np.int64(2), np.int64(10), np.int64(19))  # type: ignore[arg-type]
    table.publish_regular(1, 2, 10, 19)
    assert [each.hull for each in table.get_regular_files(1)] == [HULL]


def test_to_repeat_what_was_done_changes_nothing(database: Database, table: FileTable) -> None:
    regular(table, 1, 2)
    add(table, 3, type_=GC)
    table.publish_regular(1, 2, 10, 19)
    table.atomic_swap_files(Replacement(3, HULL), [1], LATER)
    table.atomic_swap_files(Replacement(3, HULL), [1], LATER)
    table.retire([2], LATER)
    table.retire([2], LATER)
    add(table, 4)
    add(table, 4)
    assert types(database) == {1: "RETIRED", 2: "RETIRED", 3: "REGULAR", 4: "TEMPORARY_INGEST"}


def test_what_is_not_exactly_as_asked_changes_nothing(database: Database, table: FileTable) -> None:
    regular(table, 1, 2)
    add(table, 3)
    add(table, 4, type_=GC)
    before = table.get_files_by_type(None, ALL)
    attempts: list[Callable[[], None]] = [
        lambda: table.publish_regular(1, 2, 10, 20),
        lambda: table.publish_regular(4, 2, 10, 19),
        lambda: table.publish_regular(9, 2, 10, 19),
        lambda: table.retire([1, 3], LATER),
        lambda: table.retire([1, 9], LATER),
        lambda: table.atomic_swap_files(Replacement(4, HULL), [1, 3], LATER),
        lambda: table.atomic_swap_files(Replacement(4, HULL), [1, 9], LATER),
        lambda: table.atomic_swap_files(Replacement(3, HULL), [1], LATER),
        lambda: table.atomic_swap_files(Replacement(9, HULL), [1], LATER),
        lambda: table.delete_files([3, 1]),
        lambda: table.delete_files([3, 9]),
        lambda: table.add_files([NewFile(5, name(5), 1), NewFile(1, name(1), 1)]),
        lambda: table.add_files([NewFile(5, name(5), 8)]),
        lambda: table.add_files([NewFile(5, name(5), 1, REGULAR)]),
    ]
    for attempt in attempts:
        with pytest.raises(FileTableError) as refused:
            attempt()
        assert refused.value.hint
        assert refused.value.fields
    mistakes: list[Callable[[], None]] = [
        lambda: table.retire([], LATER),
        lambda: table.retire([1, 1], LATER),
        lambda: table.retire([1], LATER.replace(tzinfo=None)),
        lambda: table.atomic_swap_files(Replacement(4, HULL), [], LATER),
        lambda: table.atomic_swap_files(Replacement(4, HULL), [4], LATER),
        lambda: table.publish_regular(3, 0, 10, 19),
    ]
    for mistake in mistakes:
        with pytest.raises(UsageError):
            mistake()
    with pytest.raises(ConflictError):
        table.add_files([NewFile(5, name(5), 1), NewFile(6, name(1), 1)])
    assert table.get_files_by_type(None, ALL) == before


def test_a_swap_is_seen_whole(database: Database, table: FileTable) -> None:
    regular(table, 1, 2, 3)
    add(table, 4, type_=GC)
    with pytest.raises(FileTableError):
        table.atomic_swap_files(Replacement(4, HULL), [1, 2, 9], LATER)
    assert [each.file_id for each in table.get_regular_files(1)] == [1, 2, 3]
    table.atomic_swap_files(Replacement(4, HULL), [2, 1], LATER)
    assert [each.file_id for each in table.get_regular_files(1)] == [3, 4]
    assert [each.file_id for each in table.list_retired_files_due(LATER)] == [1, 2]


def test_files_are_listed_by_path_and_type(table: FileTable) -> None:
    table.add_path(8, "file:///lake/eight")
    regular(table, 1)
    table.add_files([NewFile(2, name(2), 2), NewFile(3, name(3), 2, GC)])
    assert [each.file_id for each in table.get_files_by_type(1, ALL)] == [1]
    assert [each.file_id for each in table.get_files_by_type(2, [INGEST, GC])] == [2, 3]
    assert [each.file_id for each in table.get_files_by_type(None, [GC, REGULAR])] == [1, 3]
    assert table.get_files_by_type(2, [REGULAR]) == table.get_files_by_type(None, []) == ()
    with pytest.raises(UsageError, match="TEMPORARY"):
        table.get_files_by_type(1, ["TEMPORARY"])  # type: ignore[list-item]


def test_temporary_files_are_due_by_their_names(table: FileTable, caplog: pytest.LogCaptureFixture) -> None:
    regular(table, 1)
    made = [(2, name(2)), (3, name(3, "20261115115959")), (4, "who-knows.parquet"), (5, name(5))]
    table.add_files([NewFile(file_id, each, 1, GC if file_id == 5 else INGEST) for file_id, each in made])
    with caplog.at_level(logging.WARNING, "headwater"):
        assert [each.file_id for each in table.list_temporary_files_due(60, NOW)] == [2, 5]
    [warned] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warned.__dict__["fields"] == {"file_id": 4, "name": "who-knows.parquet"}


@pytest.mark.parametrize(
    ("state", "cleanup", "hull"),
    [
        ("REGULAR", "'2026-11-15T12:00:00.000000Z'", "1, 10, 19"),
        ("TEMPORARY_INGEST", "'2026-11-15T12:00:00.000000Z'", "0, NULL, NULL"),
        ("TEMPORARY_GC", "'2026-11-15T12:00:00.000000Z'", "0, NULL, NULL"),
        ("RETIRED", "NULL", "1, 10, 19"),
        ("TEMPORARY", "NULL", "0, NULL, NULL"),
        ("REGULAR", "NULL", "0, NULL, NULL"),
        ("REGULAR", "NULL", "1, 19, 10"),
    ],
    ids=[
        "cleanup-of-regular",
        "cleanup-of-ingest",
        "cleanup-of-gc",
        "no-cleanup-of-retired",
        "legacy-state",
        "regular-without-hull",
        "hull-upside-down",
    ],
)
def test_the_database_itself_refuses(database: Database, table: FileTable, state: str, cleanup: str, hull: str) -> None:
    columns = "file_id, name, path_id, type, cleanup_at, num_row_group, min_row_id, max_row_id"
    with pytest.raises(HeadwaterError), database.write() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO ingest_files ({columns}) VALUES (1, 'f', 1, '{state}', {cleanup}, {hull})"
        )
    assert types(database) == {}


def in_state(table: FileTable, file_id: int, state: FileType) -> None:
    """A file that went its way to a state."""
    add(table, file_id, type_=GC if state is GC else INGEST)
    if state in (REGULAR, RETIRED):
        table.publish_regular(file_id, 2, 10, 19)
    if state is RETIRED:
        table.retire([file_id], LATER)


def test_the_database_itself_knows_the_ways(database: Database, table: FileTable) -> None:
    """Past our own code: every pair of states, with a hull and `cleanup_at` that would be right."""
    allowed = {(INGEST, REGULAR), (GC, REGULAR), (REGULAR, RETIRED)} | {(each, each) for each in FileType}
    for file_id, (before, after) in enumerate(product(FileType, FileType), 1):
        in_state(table, file_id, before)
        hull = ", num_row_group = 2, min_row_id = 10, max_row_id = 19" if after in (REGULAR, RETIRED) else ""
        cleanup = "'2026-11-15T13:00:00.000000Z'" if after is RETIRED else "NULL"
        is_allowed = (before, after) in allowed
        with nullcontext() if is_allowed else pytest.raises(HeadwaterError), database.write() as connection:
            connection.exec_driver_sql(
                f"UPDATE ingest_files SET type = '{after}', cleanup_at = {cleanup}{hull} WHERE file_id = {file_id}"
            )
        assert types(database)[file_id] == str(after if is_allowed else before)


def test_the_database_itself_keeps_regular_files(database: Database, table: FileTable) -> None:
    for file_id, state in enumerate(FileType, 1):
        in_state(table, file_id, state)
        with pytest.raises(HeadwaterError) if state is REGULAR else nullcontext(), database.write() as connection:
            connection.exec_driver_sql(f"DELETE FROM ingest_files WHERE file_id = {file_id}")
    assert list(types(database).values()) == ["REGULAR"]


def test_a_swap_stays_within_a_table(database: Database, table: FileTable) -> None:
    other, more = table.add_path(8, "file:///lake/eight"), table.add_path(7, "file:///lake/more")
    regular(table, 1, 2)
    table.add_files([NewFile(3, name(3), other.path_id, GC), NewFile(4, name(4), more.path_id, GC)])
    for olds in ([1], [1, 2]):
        with pytest.raises(FileTableError, match=r"different tables: \[7, 8\]"):
            table.atomic_swap_files(Replacement(3, HULL), olds, LATER)
    assert [each.file_id for each in table.get_regular_files(1)] == [1, 2]
    table.atomic_swap_files(Replacement(4, HULL), [1, 2], LATER)
    assert [each.file_id for each in table.get_regular_files(more.path_id)] == [4], "a table may have several folders"


def test_a_legacy_state_is_an_error_and_no_absence(database: Database, table: FileTable) -> None:
    regular(table, 1)
    add(table, 2)
    legacy = "UPDATE ingest_files SET type = 'TEMPORARY' WHERE file_id = 2"
    with database.write() as connection:
        if database.dialect == "sqlite":
            connection.exec_driver_sql("PRAGMA ignore_check_constraints=ON")
            connection.exec_driver_sql("DROP TRIGGER ingest_files_ways")
        else:
            connection.exec_driver_sql("DROP TRIGGER ingest_files_ways ON ingest_files")
            connection.exec_driver_sql("ALTER TABLE ingest_files DROP CONSTRAINT ingest_files_type")
        connection.exec_driver_sql(legacy)
    for listing in (
        lambda: table.get_regular_files(1),
        lambda: table.list_temporary_files_due(0, NOW),
        lambda: table.list_retired_files_due(NOW),
        lambda: table.publish_regular(2, 2, 10, 19),
        lambda: table.delete_files([2]),
    ):
        with pytest.raises(CorruptError, match="file 2 is in the state 'TEMPORARY'"):
            listing()


def test_of_two_that_change_the_same_file_one_comes_first(database: Database, table: FileTable) -> None:
    regular(table, 1, 2)
    add(table, 3, 4, type_=GC)
    start = Barrier(2)

    def swap(new: int) -> str:
        start.wait()
        try:
            table.atomic_swap_files(Replacement(new, HULL), [1, 2] if new == 3 else [2, 1], LATER)
        except FileTableError:
            return "refused"
        return "swapped"

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(swap, (3, 4)))
    assert sorted(outcomes) == ["refused", "swapped"]
    assert sorted(types(database).values()) == ["REGULAR", "RETIRED", "RETIRED", "TEMPORARY_GC"]


class Life(RuleBasedStateMachine):
    """Files against a dictionary of their states."""

    database: Database
    table: FileTable

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[int, FileType] = {}
        with self.database.write() as connection:
            regular = sa.update(tables.files).where(tables.files.c.type == "REGULAR")
            connection.execute(regular.values(type="RETIRED", cleanup_at=LATER))
            connection.execute(sa.delete(tables.files))

    def attempt(self, allowed: bool, change: Mapping[int, FileType | None], call: Callable[[], None]) -> None:
        if not allowed:
            with pytest.raises(FileTableError):
                call()
            return
        call()
        for file_id, state in change.items():
            if state is None:
                del self.states[file_id]
            else:
                self.states[file_id] = state

    IDS = st.integers(1, 4)

    @rule(file_id=IDS, type_=st.sampled_from([INGEST, GC]))
    def add(self, file_id: int, type_: FileType) -> None:
        allowed = self.states.get(file_id, type_) is type_
        self.attempt(allowed, {file_id: type_}, lambda: add(self.table, file_id, type_=type_))

    @rule(file_id=IDS)
    def publish(self, file_id: int) -> None:
        allowed = self.states.get(file_id) in (INGEST, REGULAR)
        self.attempt(allowed, {file_id: REGULAR}, lambda: self.table.publish_regular(file_id, 2, 10, 19))

    @rule(file_ids=st.lists(IDS, min_size=1, max_size=3, unique=True))
    def retire(self, file_ids: list[int]) -> None:
        states = {self.states.get(each) for each in file_ids}
        allowed = states in ({REGULAR}, {RETIRED})
        self.attempt(allowed, dict.fromkeys(file_ids, RETIRED), lambda: self.table.retire(file_ids, LATER))

    @rule(files=st.lists(IDS, min_size=2, max_size=3, unique=True))
    def swap(self, files: list[int]) -> None:
        new, *olds = files
        states = self.states.get(new), {self.states.get(each) for each in olds}
        allowed = states in ((GC, {REGULAR}), (REGULAR, {RETIRED}))
        change = {new: REGULAR, **dict.fromkeys(olds, RETIRED)}
        self.attempt(allowed, change, lambda: self.table.atomic_swap_files(Replacement(new, HULL), olds, LATER))

    @rule(file_ids=st.lists(IDS, min_size=1, max_size=2, unique=True))
    def delete(self, file_ids: list[int]) -> None:
        allowed = all(self.states.get(each) in (INGEST, GC, RETIRED) for each in file_ids)
        self.attempt(allowed, dict.fromkeys(file_ids), lambda: self.table.delete_files(file_ids))

    @invariant()
    def the_rows_are_as_expected(self) -> None:
        assert types(self.database) == {each: str(self.states[each]) for each in sorted(self.states)}
        expected = [each for each in sorted(self.states) if self.states[each] is REGULAR]
        assert [each.file_id for each in self.table.get_regular_files(1)] == expected


@pytest.mark.proves("ingest/files")
def test_the_life_of_many_files(tmp_path: Path) -> None:
    with open_database(tmp_path / "state.db") as database:
        table = FileTable(database)
        table.add_path(7, "file:///lake/seven")

        class Here(Life):
            pass

        Here.database, Here.table = database, table
        run_state_machine_as_test(Here, settings=settings(max_examples=15, stateful_step_count=25))
