"""What a query may not do, and what it says when something is wrong: with the SQL, with a file, with its means."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from headwater.catalog.model import TableKey
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.query import OpenView, Pending, QueryOptions, protocol, run, stream
from headwater.query.model import QueryMemoryError, QueryRefusedError, QueryTimeoutError, QueryUsageError
from headwater.tables.files import Files
from headwater.tables.model import OutsideLakeError, TableCorruptError, TableVersion, UnsupportedTableError
from tests.unit.query_world import QueryWorld, folder_world

NAMES = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
SLOW = "SELECT count(*) FROM range(100000) a, range(100000) b WHERE (a.range * b.range) % 7 = 3"


@pytest.fixture
def world(tmp_path: Path) -> QueryWorld:
    world = folder_world(tmp_path / "lake")
    world.table("t", NAMES, names(*range(100)))
    return world


def names(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": [f"n{each}" for each in numbers]})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "  /* c */ select 1 -- x",
        "(SELECT 1)",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "FROM t",
        "VALUES (1)",
        "TABLE t",
        "DESCRIBE t",
        "SUMMARIZE t",
        "EXPLAIN SELECT * FROM t",
        "EXPLAIN ANALYZE SELECT * FROM t WHERE id = 3",
        "EXPLAIN (FORMAT json) SELECT * FROM t",
        "PIVOT t ON name IN ('n1') USING sum(id)",
        "SELECT * FROM t;",
        "SELECT * FROM range(3)",
        "SELECT unnest([1, 2])",
        "SELECT * FROM information_schema.schemata",
    ],
)
def test_a_question_is_answered(world: QueryWorld, sql: str) -> None:
    assert world.run(sql).num_rows > 0


@pytest.mark.parametrize(
    "sql",
    [
        "COPY t TO '/tmp/x'",
        "COPY (SELECT 1) TO '/tmp/x'",
        "ATTACH '/tmp/x'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA version",
        "PRAGMA database_list",
        "SET threads = 1",
        "SET GLOBAL enable_external_access = true",
        "RESET threads",
        "USE main",
        "CALL pragma_version()",
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO t VALUES (1, 'x')",
        "UPDATE t SET id = 1",
        "DELETE FROM t",
        "DROP TABLE t",
        "EXPORT DATABASE '/tmp/x'",
        "BEGIN",
        "CHECKPOINT",
        "VACUUM",
        "PREPARE p AS SELECT 1",
        "SHOW TABLES",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '/tmp/x'",
        "EXPLAIN PRAGMA version",
        "EXPLAIN CREATE TABLE x AS SELECT 1",
        "EXPLAIN ANALYZE INSERT INTO t VALUES (1, 'x')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM parquet_scan('/x')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM query('SELECT 1')",
        "SELECT (SELECT count(*) FROM read_blob('/etc/passwd'))",
        "WITH x AS (SELECT * FROM read_csv('/etc/passwd')) SELECT 1",
        "SELECT current_setting('temp_directory')",
        "SELECT pg_catalog.current_setting('temp_directory')",
        "SELECT ('temp_directory').current_setting()",
        "SELECT getvariable('x')",
        "SELECT write_log('x')",
        "SELECT id FROM t ORDER BY json_serialize_plan('SELECT * FROM read_csv(''/etc/passwd'')')",
    ],
)
def test_anything_else_is_refused(world: QueryWorld, sql: str) -> None:
    with pytest.raises(QueryRefusedError):
        world.run(sql)


@pytest.mark.parametrize(
    "sql", ["", " ; ", "-- nothing", "SELECT 1; SELECT 2", "SELECT 1; DROP TABLE t", "PIVOT t ON name"]
)
def test_one_statement_exactly(world: QueryWorld, sql: str) -> None:
    with pytest.raises(QueryUsageError):
        world.run(sql)


@pytest.mark.parametrize("sql", ["SELECT * FROM read_csv('/etc/passwd')", "COPY t TO '/tmp/x'", "SELECT 1; SELECT 2"])
def test_a_view_may_do_no_more_than_a_query(world: QueryWorld, sql: str) -> None:
    world.views[TableKey.parse("v")] = OpenView(sql, "duckdb", ("default",))
    with pytest.raises(HeadwaterError) as error:
        world.run("SELECT * FROM v")
    assert isinstance(error.value, QueryRefusedError | QueryUsageError)
    assert error.value.fields["table"] == "default.v"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM pg_catalog.csv",
        "SELECT * FROM pg_catalog.csv WHERE n = 1",
        "SELECT * FROM information_schema.json",
        'SELECT * FROM pg_catalog."/../secret.csv"',
        "SELECT * FROM pg_catalog.pg_settings",
        "SELECT * FROM pg_catalog.duckdb_settings",
        "SELECT * FROM system.information_schema.tables",
        "SELECT * FROM main.duckdb_settings",
        'SELECT * FROM (WITH "secret.csv" AS (SELECT 1) FROM "secret.csv") AS x, "secret.csv"',
        "SELECT * FROM (WITH duckdb_settings AS (SELECT 1) FROM duckdb_settings) AS x, duckdb_settings",
        'WITH "É.csv" AS (SELECT 1) SELECT * FROM "é.csv"',
        'WITH "secret.csv" AS (FROM "secret.csv") SELECT * FROM "secret.csv"',
        'WITH RECURSIVE "secret.csv" AS (FROM "secret.csv") SELECT * FROM "secret.csv"',
        "DESCRIBE",
        "FROM (SHOW ALL TABLES)",
    ],
)
@pytest.mark.parametrize("in_view", [False, True])
def test_no_name_leads_to_a_file_or_to_duckdb_itself(
    world: QueryWorld, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_view: bool
) -> None:
    """Not even before the lock: each of these files would be found under the very name."""
    monkeypatch.chdir(tmp_path)
    for name in ("pg_catalog.csv", "secret.csv", "é.csv"):
        Path(name).write_text("word,n\nhidden,1\n")
    Path("information_schema.json").write_text('{"word": "hidden"}')
    if in_view:
        world.views[TableKey.parse("v")] = OpenView(sql, "duckdb", ("default",))
    with pytest.raises(QueryUsageError, match=r"there is no table|does not say which table|DESCRIBE") as error:
        world.run("SELECT * FROM v" if in_view else sql)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("sql", ["EXPLAIN SELECT 1", "SUMMARIZE t", "DESCRIBE t"])
def test_a_view_is_a_query(world: QueryWorld, sql: str) -> None:
    world.views[TableKey.parse("v")] = OpenView(sql, "duckdb", ("default",))
    with pytest.raises(QueryUsageError, match=f"a view is a query, and this one begins with {sql.split()[0]}"):
        world.run("SELECT * FROM v")


def test_sql_that_is_nested_too_deeply(world: QueryWorld) -> None:
    with pytest.raises(QueryUsageError, match="nested too deeply"):
        world.run(f"SELECT {' + '.join(['1'] * 900)} AS x FROM t")


@pytest.mark.parametrize(
    "name", ["'/etc/passwd'", "'/tmp/x.csv'", "'s3://bucket/x.parquet'", '"/etc/passwd"', "world", "sql", "names"]
)
def test_names_are_tables_of_the_lake_and_nothing_else(world: QueryWorld, name: str) -> None:
    """Neither files nor variables of the program."""
    with pytest.raises(QueryUsageError, match="there is no table"):
        world.run(f"SELECT * FROM {name}")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('{lake}/t/metadata/00000000000000000001.metadata.json')",
        "SELECT * FROM glob('{lake}/*')",
        "COPY (SELECT 1) TO '{lake}/x.csv'",
        "ATTACH '{lake}/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET allowed_paths = ['/etc/passwd']",
        "SET memory_limit = '100GB'",
        "EXPORT DATABASE '{lake}/x'",
    ],
)
def test_duckdb_itself_is_shut_in(world: QueryWorld, sql: str) -> None:
    """The second barrier holds without the first."""
    folder = Path(world.root.removeprefix("file://"))
    before = sorted(folder.rglob("*"))
    options, pending = QueryOptions(), Pending()
    with protocol._answering("SELECT count(*) FROM t", world, world.files, options, pending) as query:
        assert query.table().to_pydict() == {"count_star()": [100]}
        with pytest.raises(duckdb.Error):
            query._engine.fetch(sql.format(lake=folder))
    assert sorted(folder.rglob("*")) == before


def test_a_data_file_cannot_be_overwritten(world: QueryWorld) -> None:
    """DuckDB may open the files of the plan; it must not get to write them."""
    (path,) = world.paths(TableKey.parse("t"))
    file = Path(path.removeprefix("file://"))
    before = file.read_bytes()
    with pytest.raises(QueryRefusedError):
        world.run(f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}'")
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("sql", "message", "fields"),
    [
        ("SELECT\n  nope FROM t", 'column "nope" not found', {"line": 2, "column": 3}),
        ("SELEC 1", "syntax error", {"line": 1, "column": 1}),
        ("SELECT 1 +", "syntax error", {}),
        ("SELECT nope(1)", "nope", {"line": 1, "column": 8}),
        ("SELECT name::INTEGER FROM t", "Could not convert", {"line": 1, "column": 12}),
        ("SELECT * FROM t AT (VERSION => 1)", "AT", {}),
        ("SELECT * FROM tt", "there is no table tt", {"table": "default.tt"}),
        ("SELECT * FROM db.t", "there is no table db.t", {"table": "db.t"}),
    ],
)
def test_wrong_sql_is_the_users_and_says_where(
    world: QueryWorld, sql: str, message: str, fields: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match=message) as error:
        world.run(sql)
    assert {name: value for name, value in error.value.fields.items() if name != "statements"} == fields
    assert "LINE" not in str(error.value)


def test_a_place_in_sql_that_was_changed_is_told_by_its_line_alone(world: QueryWorld) -> None:
    """Columns of the text that DuckDB was given are not those of the text that was written."""
    world.table("a.b.t", NAMES, names(1))
    with pytest.raises(QueryUsageError) as error:
        world.run("SELECT id\nFROM a.b.t WHERE nope = 1")
    assert error.value.fields == {"line": 2}


def test_an_unknown_table_names_its_neighbours(world: QueryWorld) -> None:
    world.table("db.orders", NAMES)
    with pytest.raises(QueryUsageError) as error:
        world.run("SELECT * FROM orders")
    assert error.value.hint == "did you mean db.orders?"


def test_a_view_that_uses_itself(world: QueryWorld) -> None:
    world.views[TableKey.parse("v")] = OpenView("SELECT * FROM w", "duckdb", ("default",))
    world.views[TableKey.parse("w")] = OpenView("SELECT * FROM v", "duckdb", ("default",))
    with pytest.raises(QueryUsageError, match="uses itself"):
        world.run("SELECT * FROM v")


def test_names_that_differ_in_capitals_alone(world: QueryWorld) -> None:
    world.table("T", NAMES)
    with pytest.raises(QueryUsageError, match="capitals"):
        world.run('SELECT * FROM t, "T"')


def test_columns_that_differ_in_capitals_alone(world: QueryWorld) -> None:
    """No table of ours has them, but those of other engines may."""
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "A", LongType()))
    key = world.table("u", NAMES)
    metadata = world.tables[key].metadata.model_copy(update={"schemas": [schema]})
    world.tables[key] = TableVersion(metadata)
    with pytest.raises(UnsupportedTableError, match=r"'a' and 'A'"):
        world.run("SELECT * FROM u")


def damage(world: QueryWorld, change: Callable[[Path], object]) -> str:
    """Break the second file of a table; returns its location."""
    key = world.table("u", NAMES, names(*range(2000)), names(*range(2000, 4000)))
    path = world.paths(key)[1]
    change(Path(path.removeprefix("file://")))
    return path


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4:400] = bytes(255 - byte for byte in data[4:400])
    file.write_bytes(data)


def _make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-10]),
    "not Parquet": lambda file: file.write_bytes(b"x" * file.stat().st_size),
    "flipped bytes": _flip,
    "a folder": _make_folder,
}


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("sql", ["SELECT * FROM u, t", "SELECT sum(id) FROM u WHERE id > 5"])
def test_a_broken_file_is_named_with_its_table(world: QueryWorld, kind: str, sql: str) -> None:
    path = damage(world, DAMAGES[kind])
    with pytest.raises(TableCorruptError) as error:
        world.run(sql)
    assert error.value.fields == {"path": path, "table": "default.u"}
    assert path in error.value.message
    assert "default.u" in error.value.message


@pytest.mark.parametrize("rows", [1999, 2001])
def test_a_file_that_has_not_the_rows_of_its_manifest(world: QueryWorld, rows: int) -> None:
    """A sound file, but not the one that was committed."""
    other = world.table("other", NAMES, names(*range(2000, 2000 + rows)))
    (source,) = world.paths(other)

    def replace(file: Path) -> None:
        file.write_bytes(Path(source.removeprefix("file://")).read_bytes())

    path = damage(world, replace)
    with pytest.raises(TableCorruptError, match=f"has {rows} rows, and its manifest says 2000") as error:
        world.run("SELECT id FROM u")
    assert error.value.fields == {"path": path, "table": "default.u"}


def test_a_broken_file_is_named_while_streaming(world: QueryWorld) -> None:
    path = damage(world, _flip)
    with pytest.raises(TableCorruptError, match=path), stream("SELECT * FROM u", world, world.files) as reader:
        reader.read_all()


def test_a_broken_vector_is_named(world: QueryWorld) -> None:
    key = TableKey.parse("t")
    world.delete(key, {0: [1]})
    vector = world.plan(key).tasks[0].vector
    assert vector is not None
    file = Path(vector.file_path.removeprefix("file://"))
    data = bytearray(file.read_bytes())
    assert vector.content_offset is not None
    data[vector.content_offset + 10] ^= 1
    file.write_bytes(data)
    with pytest.raises(TableCorruptError, match=r"table default\.t: ") as error:
        world.run("SELECT * FROM t")
    assert error.value.fields["path"] == vector.file_path


def test_a_location_outside_of_the_lake_is_refused(world: QueryWorld, tmp_path: Path) -> None:
    elsewhere = folder_world(tmp_path / "elsewhere")
    key = elsewhere.table("t", NAMES, names(1))
    # Its manifests may be read; its data lies where nothing may be read.
    path = elsewhere.paths(key)[0]
    folder = elsewhere.root + "/t/metadata"
    files = Files({folder: folder_world(tmp_path / "elsewhere" / "t" / "metadata").store})
    with pytest.raises(OutsideLakeError, match=r"table default\.t: ") as error:
        run("SELECT * FROM t", elsewhere, files)
    assert error.value.fields["path"] == path


def test_a_query_that_takes_too_long_is_stopped(world: QueryWorld) -> None:
    with pytest.raises(QueryTimeoutError) as error:
        world.run(SLOW, timeout_seconds=0.3)
    assert error.value.exit_code == 5
    assert error.value.fields == {"timeout_seconds": 0.3}
    assert not [each for each in threading.enumerate() if isinstance(each, threading.Timer)]


def test_a_stream_that_takes_too_long_is_stopped(world: QueryWorld) -> None:
    options = QueryOptions(timeout_seconds=0.3)
    with pytest.raises(QueryTimeoutError), stream(SLOW, world, world.files, options=options) as reader:
        reader.read_all()


def test_larger_than_memory(world: QueryWorld, tmp_path: Path) -> None:
    """A sort of more than the limit goes to disk, into a folder that is gone at the end."""
    key = world.table("big", Schema(NestedField(1, "id", LongType()), NestedField(2, "v", DoubleType())))
    rows = 2_000_000
    world.append(key, pa.table({"id": pa.array(range(rows)), "v": pa.array([each * 0.5 for each in range(rows)])}))
    world.delete(key, {0: [0, 1]})
    spill = tmp_path / "spill"
    spill.mkdir()
    options = QueryOptions(memory_limit_bytes=60 << 20, threads=2, temp_directory=spill)
    sql = "SELECT id, v, row_number() OVER (ORDER BY v DESC, id) AS n FROM big ORDER BY id % 1000, v"
    seen, spilled = 0, 0
    with stream(sql, world, world.files, options=options) as reader:
        for batch in reader:
            seen += batch.num_rows
            spilled = max(spilled, sum(each.stat().st_size for each in spill.rglob("*") if each.is_file()))
    assert seen == rows - 2
    assert spilled > 10 << 20
    assert list(spill.iterdir()) == []


def test_more_than_it_may_use(world: QueryWorld) -> None:
    with pytest.raises(QueryMemoryError) as error:
        world.run("SELECT list(a.range) FROM range(30000000) a", memory_limit_bytes=30 << 20)
    assert error.value.exit_code == 5


def test_nothing_is_left_behind(world: QueryWorld, tmp_path: Path) -> None:
    for sql in ("SELECT * FROM t", "SELECT nope FROM t", "COPY t TO 'x'"):
        try:
            world.run(sql, temp_directory=tmp_path)
        except HeadwaterError:
            continue
    assert [each.name for each in tmp_path.iterdir()] == ["lake"]
    assert not list(Path(tempfile.gettempdir()).glob("headwater-query-*"))


def test_no_place_for_temporary_files(world: QueryWorld, tmp_path: Path) -> None:
    with pytest.raises(QueryUsageError, match="nowhere cannot hold temporary files"):
        world.run("SELECT 1", temp_directory=tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["memory_limit_bytes", "threads", "timeout_seconds", "batch_rows"])
def test_options_that_make_no_sense(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        QueryOptions(**{name: 0})  # type: ignore[arg-type]


def test_times_are_in_utc(world: QueryWorld) -> None:
    assert world.fetch("SELECT TIMESTAMPTZ '2020-01-01 01:00:00+01'::VARCHAR") == [("2020-01-01 00:00:00+00",)]
