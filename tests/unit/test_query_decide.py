"""Which files are read natively, which under a mask, which are copied; and how names in SQL are understood."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
)

from headwater.query.decide import MOST_PLACES, copies_table, lay_out, may_hold_nan
from headwater.query.model import QueryUsageError
from headwater.query.references import Names, Reference, respelled
from headwater.query.statement import Statement, read_statement
from headwater.query.types import default_text, duck_type
from headwater.tables.model import FileTask, ScanPlan, TableFile, UnsupportedTableError
from headwater.tables.properties import NAME_MAPPING
from tests.unit.query_world import QueryWorld, folder_world

ID = NestedField(1, "id", LongType())
SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
TRUNCATED = PartitionSpec(PartitionField(1, 1000, TruncateTransform(3), "id_trunc"))


def file(path: str = "/x", **more: Any) -> TableFile:
    values = {
        "content": DataFileContent.DATA,
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": 10,
        "file_size_in_bytes": 10,
        "column_sizes": {1: 5},
        **more,
    }
    made = TableFile.from_args(_table_format_version=3, **values)
    made.spec_id = 0
    assert isinstance(made, TableFile)
    return made


@pytest.fixture
def world(tmp_path: Path) -> QueryWorld:
    return folder_world(tmp_path / "lake")


def plan(
    world: QueryWorld,
    *tasks: FileTask,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    properties: dict[str, str] | None = None,
) -> ScanPlan:
    key = world.table("t", Schema(ID), properties=properties, spec=spec)
    metadata = world.tables[key].metadata
    return ScanPlan(metadata, metadata.schema(), None, tasks)


VECTOR = file("/v", content=DataFileContent.POSITION_DELETES, content_offset=4)
POSITIONS = file("/p", content=DataFileContent.POSITION_DELETES)
EQUALITY = file("/e", content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])


@pytest.mark.parametrize(
    ("task", "way"),
    [
        (FileTask(file(), 1), "plain"),
        (FileTask(file(), 1, vector=VECTOR), "masked"),
        (FileTask(file(), 1, positions=(POSITIONS,)), "masked"),
        (FileTask(file("/also"), 1), "masked"),
        (FileTask(file(), 1, equality=(EQUALITY,)), "copied"),
        (FileTask(file(), 1, vector=VECTOR, equality=(EQUALITY,)), "copied"),
        (FileTask(file("/no ids"), 1), "copied"),
        (FileTask(file(record_count=MOST_PLACES), 1), "plain"),
        (FileTask(file(record_count=MOST_PLACES + 1), 1), "copied"),
    ],
)
def test_how_a_file_is_read(world: QueryWorld, task: FileTask, way: str) -> None:
    layout = lay_out(plan(world, task), {"/also"}, {"/no ids"})
    assert {name: getattr(layout, name) for name in ("plain", "masked", "copied") if getattr(layout, name)} == {
        way: (task,)
    }


@pytest.mark.parametrize(
    ("spec", "counted", "way"),
    [
        (SPEC, {"column_sizes": {1: 5}}, "plain"),
        (SPEC, {"column_sizes": None, "value_counts": {1: 5}}, "plain"),
        (SPEC, {"column_sizes": {2: 5}}, "copied"),
        (SPEC, {"column_sizes": None}, "plain"),
        (TRUNCATED, {"column_sizes": {2: 5}}, "plain"),
    ],
)
def test_a_file_that_lacks_what_its_partition_knows(
    world: QueryWorld, spec: PartitionSpec, counted: dict[str, Any], way: str
) -> None:
    layout = lay_out(plan(world, FileTask(file(**counted), 1), spec=spec))
    assert len(getattr(layout, way)) == 1


def test_a_name_mapping_copies_the_table(world: QueryWorld) -> None:
    found = plan(world, FileTask(file(), 1), properties={NAME_MAPPING: "[]"})
    assert len(lay_out(found).copied) == 1


@pytest.mark.parametrize("kind", [FileFormat.ORC, FileFormat.AVRO])
def test_only_parquet(world: QueryWorld, kind: FileFormat) -> None:
    with pytest.raises(UnsupportedTableError, match="/x"):
        lay_out(plan(world, FileTask(file(file_format=kind), 1)))


STRUCT = StructType(NestedField(3, "a", IntegerType()))
WIDER = StructType(NestedField(3, "a", LongType()))
RENAMED = StructType(NestedField(3, "b", IntegerType()))


@pytest.mark.parametrize(
    ("now", "before", "copied"),
    [
        (IntegerType(), IntegerType(), False),
        (LongType(), IntegerType(), False),
        (STRUCT, STRUCT, False),
        (WIDER, STRUCT, True),
        (RENAMED, STRUCT, True),
        (ListType(4, STRUCT), ListType(4, STRUCT), False),
        (ListType(4, RENAMED), ListType(4, STRUCT), True),
        (TimestampNanoType(), TimestampNanoType(), False),
        (TimestamptzNanoType(), TimestamptzNanoType(), True),
        (ListType(4, TimestamptzNanoType()), ListType(4, TimestamptzNanoType()), True),
    ],
)
def test_changes_of_nested_columns(world: QueryWorld, now: Any, before: Any, *, copied: bool) -> None:
    metadata = plan(world).metadata
    schemas = [Schema(NestedField(2, "c", before), schema_id=0), Schema(NestedField(2, "c", now), schema_id=1)]
    changed = metadata.model_copy(update={"schemas": schemas})
    assert (copies_table(changed, schemas[1]) is not None) == copied


@pytest.mark.parametrize(
    ("kind", "counts", "expected"),
    [
        (DoubleType(), {1: 0}, False),
        (DoubleType(), {1: 2}, True),
        (DoubleType(), None, True),
        (DoubleType(), {2: 0}, True),
        (LongType(), None, False),
    ],
)
def test_where_nan_may_be(kind: Any, counts: dict[int, int] | None, *, expected: bool) -> None:
    task = FileTask(file(nan_value_counts=counts), 1)
    clean = replace(task, file=file(nan_value_counts={1: 0}))
    assert may_hold_nan([clean, task], NestedField(1, "c", kind)) == expected


def read(sql: str) -> Statement:
    connection = duckdb.connect()
    return read_statement(lambda text, given: connection.execute(text, given).fetchall(), sql)


@pytest.mark.parametrize(
    ("sql", "references", "may_filter"),
    [
        ("SELECT * FROM t", {"t"}, False),
        ('SELECT * FROM a.b.t, "x.y".z WHERE 1 = 1', {"a.b.t", "x.y.z"}, True),
        ("SELECT (SELECT max(i) FROM u) FROM t ORDER BY (SELECT 1 FROM w)", {"t", "u", "w"}, False),
        ("WITH x AS (SELECT * FROM t) SELECT * FROM x", {"t"}, False),
        ("SELECT i FROM t GROUP BY i HAVING i > 3", {"t"}, True),
        ("SELECT * FROM t JOIN u USING (i)", {"t", "u"}, True),
        ("SELECT * FROM t QUALIFY row_number() OVER () = 1", {"t"}, True),
        ("FROM t UNION ALL FROM u", {"t", "u"}, False),
        ("SELECT * FROM information_schema.tables", set(), False),
    ],
)
def test_which_tables_a_statement_names(sql: str, references: set[str], *, may_filter: bool) -> None:
    found = read(sql)
    assert {str(each) for each in found.references} == references
    assert found.may_filter == may_filter


def test_parts_of_a_name_are_kept_apart() -> None:
    assert read('SELECT * FROM "a.b"."c.d"').references == (Reference(("a.b", "c.d"), 14),)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM a.b.t", 'SELECT * FROM "memory"."a.b"."t"'),
        ('SELECT a.b.t.x FROM A."b".t', 'SELECT "a.b"."t".x FROM "memory"."a.b"."t"'),
        ("SELECT 'a.b.t' FROM a.b.t -- a.b.t", 'SELECT \'a.b.t\' FROM "memory"."a.b"."t" -- a.b.t'),
        ("SELECT 'é' FROM a . b /* c */ . t", 'SELECT \'é\' FROM "memory"."a.b"."t"'),
        ("SELECT x.a.b.t FROM a.b.tt", "SELECT x.a.b.t FROM a.b.tt"),
        ("SELECT a.b.t.x FROM w AS a, a.b.t", 'SELECT a.b.t.x FROM w AS a, "memory"."a.b"."t"'),
        ("SELECT a.b.t FROM a.b.t, 'a'", 'SELECT a.b.t FROM "memory"."a.b"."t", \'a\''),
        ("DESCRIBE a.b.t", 'DESCRIBE "memory"."a.b"."t"'),
        ("SELECT * FROM a.b.t, a.b.t AS z", 'SELECT * FROM "memory"."a.b"."t", "memory"."a.b"."t" AS z'),
    ],
)
def test_names_are_respelled_where_they_mean_the_table_and_nothing_else(sql: str, expected: str) -> None:
    found = read(sql)
    chosen = [each for each in found.references if str(each).lower() == "a.b.t"]
    assert respelled(sql, found.names, dict.fromkeys(chosen, "a.b")) == expected


KEYED = """WITH RECURSIVE k(a, b) USING KEY (a) AS (
    SELECT 1, 2 UNION SELECT k.a, k.b + 1 FROM k JOIN recurring.k AS r ON true WHERE k.b < 4) FROM k"""


def test_a_name_that_is_not_where_the_parser_says_is_an_error() -> None:
    """Anything else would change the SQL in a wrong place."""
    reference = Reference(("t",), 14)
    with pytest.raises(QueryUsageError, match="the name t cannot be read"):
        respelled("SELECT * FROM u", Names((reference,), (), frozenset()), {reference: "a"})


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("FROM (WITH x AS (SELECT 1 AS v) FROM x) AS p, x", 1),
        ("WITH x AS (FROM x) FROM x", 1),
        ("WITH a AS (FROM x), x AS (SELECT 1 AS v) FROM a, x", 1),
        ("WITH x AS (SELECT 1 AS v), a AS (FROM x) FROM a", 0),
        ("WITH X AS (SELECT 1 AS v) FROM x", 0),
        ("WITH É AS (SELECT 1 AS v) FROM é, x", 2),
        ("WITH RECURSIVE x AS (SELECT v FROM x UNION ALL SELECT v FROM x WHERE false) FROM x", 1),
        ("WITH RECURSIVE x AS (FROM x) FROM x", 1),
        ("(WITH x AS (SELECT 1 AS v) FROM x) UNION ALL FROM x", 1),
        ("WITH x AS (SELECT 1 AS v) FROM x UNION ALL FROM x", 0),
        ("WITH x AS (SELECT 1 AS v) SELECT (SELECT max(v) FROM x) FROM x ORDER BY (SELECT min(v) FROM x)", 0),
        ("WITH x AS (SELECT 1 AS v) FROM main.x", 1),
        (KEYED, 0),
    ],
)
def test_a_name_is_a_common_table_expression_where_duckdb_says_so(sql: str, tables: int) -> None:
    """DuckDB itself tells: the SQL binds if, and only if, there are tables for what we take for one."""
    assert len(read(sql).references) == tables
    connection = duckdb.connect()
    if tables:
        with pytest.raises(duckdb.Error):
            connection.execute(sql)
    connection.execute("CREATE TABLE x AS SELECT 5 AS v; CREATE TABLE é AS SELECT 5 AS w")
    connection.execute(sql)


@pytest.mark.parametrize(
    ("kind", "default", "text"),
    [
        (LongType(), 5, "5"),
        (StringType(), "it's", "it's"),
        (DoubleType(), None, None),
    ],
)
def test_defaults(kind: Any, default: Any, text: str | None) -> None:
    assert default_text(NestedField(1, "c", kind, initial_default=default)) == text


def test_struct_fields_are_quoted() -> None:
    assert duck_type(StructType(NestedField(1, 'a"b', LongType()))) == 'STRUCT("a""b" BIGINT)'
