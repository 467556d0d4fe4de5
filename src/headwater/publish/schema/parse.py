"""A script of DDL, read without looking at the lake: every statement as one typed wish, with its place.

CREATE TABLE [IF NOT EXISTS] t (columns and constraints) [USING iceberg] [PARTITIONED BY (…)] [COMMENT '…']
    [WITH | TBLPROPERTIES ('name' = 'value', …)]
DROP TABLE [IF EXISTS] t
ALTER TABLE [IF EXISTS] t RENAME TO u | changes: see alterations.py
CREATE | DROP NAMESPACE | SCHEMA, CREATE [OR REPLACE] VIEW v [(columns)] AS SELECT …, DROP VIEW
COMMENT ON TABLE | COLUMN … IS '…'
"""

from __future__ import annotations

from headwater.catalog.model import TableKey
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.publish.schema.alterations import read_change
from headwater.publish.schema.columns import COMMENT, read_columns, read_partition_field, read_properties
from headwater.publish.schema.places import placed
from headwater.publish.schema.wanted import (
    AlterTable,
    CreateNamespace,
    CreateTable,
    CreateView,
    DropNamespace,
    DropTable,
    DropView,
    RenameTable,
    SetTableProperties,
    Statement,
    TableChange,
    Wanted,
)
from headwater.publish.schema.words import Cursor, Word, words_of, wrong
from headwater.tables.columns import SetDoc
from headwater.tables.properties import FORMAT_VERSION

_DEFAULT_FORMAT_VERSION = 2


def parse(script: str) -> tuple[Statement, ...]:
    """Every statement of the script, in order."""
    found: list[Statement] = []
    words: list[Word] = []
    for word in words_of(script):
        if not (word.is_plain and word.text == ";"):
            words.append(word)
            continue
        found += _read(script, words)
        words = []
    return (*found, *_read(script, words))


def _read(script: str, words: list[Word]) -> tuple[Statement, ...]:
    if not words:
        return ()
    cursor = Cursor(script, words)
    at = cursor.place
    wanted = _wanted(cursor)
    if not cursor.is_over:
        raise cursor.error("the statement should end here", "statements are separated by ;")
    text = " ".join(script[words[0].start : words[-1].end].split())
    return (Statement(wanted, text, at),)


def _wanted(cursor: Cursor) -> Wanted:
    if cursor.takes("CREATE"):
        return _create(cursor)
    if cursor.takes("DROP"):
        return _drop(cursor)
    if cursor.takes("ALTER"):
        return _alter(cursor)
    if cursor.takes("COMMENT", "ON"):
        return _comment(cursor)
    raise cursor.error(
        "this does not change the schema",
        "a script takes CREATE, DROP, ALTER and COMMENT ON; rows change by `headwater mutate`",
    )


def _create(cursor: Cursor) -> Wanted:
    replace = cursor.takes("OR", "REPLACE")
    if cursor.takes("VIEW"):
        return _create_view(cursor, replace=replace)
    if replace:
        raise cursor.error("only a view can be replaced", "drop the table in one script, and create it in another")
    if cursor.takes("NAMESPACE") or cursor.takes("SCHEMA"):
        if_not_exists = cursor.takes("IF", "NOT", "EXISTS")
        key = cursor.namespace()
        properties: dict[str, str] = {}
        if cursor.takes("COMMENT"):
            properties[COMMENT] = cursor.string()
        if cursor.takes("WITH", "PROPERTIES") or cursor.takes("WITH", "DBPROPERTIES") or cursor.takes("WITH"):
            properties |= read_properties(cursor)
        return CreateNamespace(key, properties, if_not_exists)
    _expect_table(cursor, "CREATE TABLE, VIEW or NAMESPACE; indices are made by `headwater indices`")
    if_not_exists = cursor.takes("IF", "NOT", "EXISTS")
    return _create_table(cursor, cursor.key(), if_not_exists=if_not_exists)


def _create_table(cursor: Cursor, key: TableKey, *, if_not_exists: bool) -> CreateTable:
    at = cursor.place
    if not cursor.sees("("):
        raise cursor.error("the columns are missing", "rows come by INSERT … SELECT, once the table is there")
    with placed(at):
        schema, constraints = read_columns(cursor)
    partition_by = []
    properties: dict[str, str] = {}
    while not cursor.is_over:
        if cursor.takes("USING"):
            if not cursor.takes("ICEBERG"):
                raise cursor.error("every table here is an Iceberg table", "leave USING out")
        elif cursor.takes("PARTITIONED", "BY"):
            cursor.expect("(")
            partition_by.append(read_partition_field(cursor))
            while cursor.takes(","):
                partition_by.append(read_partition_field(cursor))
            cursor.expect(")")
        elif cursor.takes("COMMENT"):
            properties[COMMENT] = cursor.string()
        elif cursor.takes("WITH") or cursor.takes("TBLPROPERTIES"):
            properties |= read_properties(cursor)
        else:
            break
    version = properties.pop(FORMAT_VERSION, str(_DEFAULT_FORMAT_VERSION))
    if not version.isdecimal():
        raise wrong(f"{FORMAT_VERSION} is {version!r}, which is not a number", at, "2 or 3")
    return CreateTable(
        key, schema, constraints, tuple(partition_by), properties, int(version), if_not_exists=if_not_exists
    )


def _create_view(cursor: Cursor, *, replace: bool) -> CreateView:
    if_not_exists = cursor.takes("IF", "NOT", "EXISTS")
    if replace and if_not_exists:
        raise cursor.error("OR REPLACE and IF NOT EXISTS contradict each other")
    key = cursor.key()
    columns = cursor.names() if cursor.sees("(") else ()
    properties: dict[str, str] = {}
    while not cursor.sees("AS"):
        if cursor.takes("COMMENT"):
            properties[COMMENT] = cursor.string()
        elif cursor.takes("TBLPROPERTIES") or cursor.takes("WITH"):
            properties |= read_properties(cursor)
        else:
            break
    cursor.expect("AS")
    sql, _ = cursor.rest()
    return CreateView(key, sql, columns, properties, replace, if_not_exists)


def _drop(cursor: Cursor) -> Wanted:
    if cursor.takes("NAMESPACE") or cursor.takes("SCHEMA"):
        if_exists = cursor.takes("IF", "EXISTS")
        wanted: Wanted = DropNamespace(cursor.namespace(), if_exists)
    elif cursor.takes("VIEW"):
        if_exists = cursor.takes("IF", "EXISTS")
        wanted = DropView(cursor.key(), if_exists)
    else:
        _expect_table(cursor, "DROP TABLE, VIEW or NAMESPACE")
        if_exists = cursor.takes("IF", "EXISTS")
        wanted = DropTable(cursor.key(), if_exists)
    if cursor.sees("CASCADE"):
        raise cursor.error("nothing goes along with what is dropped", "drop everything by its name, in the same script")
    if cursor.sees("PURGE"):
        raise cursor.error("files are not purged", "old files are reclaimed by the lake itself")
    cursor.takes("RESTRICT")
    return wanted


def _expect_table(cursor: Cursor, hint: str) -> None:
    if not cursor.takes("TABLE"):
        raise cursor.error("this cannot be done here", hint)


def _alter(cursor: Cursor) -> Wanted:
    _expect_table(cursor, "only a TABLE is altered; a view is replaced by CREATE OR REPLACE VIEW")
    if_exists = cursor.takes("IF", "EXISTS")
    key = cursor.key()
    if cursor.takes("RENAME", "TO"):
        qualified = cursor.peek(1) is not None and cursor.peek(1).text == "."  # type: ignore[union-attr]
        to = cursor.key()
        # As in other engines, a name alone stays in the namespace that the table is in.
        return RenameTable(key, to if qualified else TableKey(key.namespace, to.name), if_exists)
    changes: list[TableChange] = list(read_change(cursor))
    while cursor.takes(","):
        changes += read_change(cursor)
    return AlterTable(key, tuple(changes), if_exists)


def _comment(cursor: Cursor) -> AlterTable:
    if cursor.takes("TABLE"):
        key = cursor.key()
        cursor.expect("IS")
        if cursor.takes("NULL"):
            return AlterTable(key, (SetTableProperties(removed=(COMMENT,)),))
        return AlterTable(key, (SetTableProperties({COMMENT: cursor.string()}),))
    cursor.expect("COLUMN")
    error = cursor.error("a column needs its table", "like orders.amount")
    *table, column = cursor.path()
    if not table:
        raise error
    *namespace, name = table
    key = TableKey(tuple(namespace) or (DEFAULT_NAMESPACE,), name)
    cursor.expect("IS")
    return AlterTable(key, (SetDoc(column, None if cursor.takes("NULL") else cursor.string()),))
