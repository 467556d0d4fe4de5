"""What ALTER TABLE says.

change        ADD [COLUMN] column [FIRST | AFTER c], ADD COLUMNS (…), DROP COLUMN c, RENAME COLUMN c TO d
              ALTER COLUMN c [SET DATA] TYPE t | SET NOT NULL | DROP NOT NULL | SET DEFAULT v | DROP DEFAULT
                  | COMMENT '…' | FIRST | AFTER d
              ADD constraint, DROP CONSTRAINT n, DROP PRIMARY KEY
              ADD | DROP | REPLACE … WITH PARTITION FIELD, WRITE ORDERED BY …, WRITE UNORDERED
              SET | UNSET TBLPROPERTIES (…)
"""

from __future__ import annotations

from headwater.publish.schema.columns import (
    is_constraint,
    read_column,
    read_constraint,
    read_partition_field,
    read_properties,
    read_property_name,
    read_transformed,
)
from headwater.publish.schema.places import SchemaError
from headwater.publish.schema.types import read_literal, read_type
from headwater.publish.schema.wanted import (
    AddColumnIfAbsent,
    AddConstraint,
    DropColumnIfPresent,
    DropConstraint,
    DropPartitionField,
    ReplacePartitionField,
    SetPrimaryKey,
    SetSortOrder,
    SetTableProperties,
    TableChange,
)
from headwater.publish.schema.words import Cursor
from headwater.tables.columns import (
    AddColumn,
    DropColumn,
    MakeOptional,
    MakeRequired,
    MoveColumn,
    RenameColumn,
    SetDefault,
    SetDoc,
    WidenColumn,
)
from headwater.tables.partitions import AddPartitionField, SortBy


def _read_field_to_go(cursor: Cursor) -> str | AddPartitionField:
    follows = cursor.peek(1)
    if follows is not None and follows.text == "(":
        return AddPartitionField(*read_transformed(cursor))
    return cursor.name("a partition field")


def _read_order(cursor: Cursor) -> SetSortOrder:
    fields = []
    while True:
        source, transform = read_transformed(cursor)
        descending = cursor.takes("DESC")
        if not descending:
            cursor.takes("ASC")
        nulls_first = None
        if cursor.takes("NULLS"):
            nulls_first = cursor.takes("FIRST")
            if not nulls_first:
                cursor.expect("LAST")
        fields.append(SortBy(source, transform, descending, nulls_first))
        if not cursor.takes(","):
            return SetSortOrder(tuple(fields))


def read_change(cursor: Cursor) -> tuple[TableChange, ...]:
    """One change of ALTER TABLE, which may stand for several."""
    if cursor.takes("ADD"):
        return _read_add(cursor)
    if cursor.takes("DROP"):
        return (_read_drop(cursor),)
    if cursor.takes("RENAME"):
        cursor.takes("COLUMN")
        path = cursor.path()
        cursor.expect("TO")
        return (RenameColumn(path, cursor.name()),)
    if cursor.takes("ALTER"):
        cursor.takes("COLUMN")
        return (_read_alter_column(cursor, cursor.path()),)
    if cursor.takes("REPLACE", "PARTITION", "FIELD"):
        gone = _read_field_to_go(cursor)
        cursor.expect("WITH")
        return (ReplacePartitionField(gone, read_partition_field(cursor)),)
    if cursor.takes("SET", "TBLPROPERTIES"):
        return (SetTableProperties(read_properties(cursor)),)
    if cursor.takes("UNSET", "TBLPROPERTIES"):
        cursor.takes("IF", "EXISTS")
        return (SetTableProperties(removed=_read_property_names(cursor)),)
    if cursor.takes("WRITE", "UNORDERED"):
        return (SetSortOrder(()),)
    if cursor.takes("WRITE", "ORDERED", "BY"):
        return (_read_order(cursor),)
    raise cursor.error("there is no such change", "see `headwater schema apply --help`")


def _read_property_names(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("(")
    found = [read_property_name(cursor)]
    while cursor.takes(","):
        found.append(read_property_name(cursor))
    cursor.expect(")")
    return tuple(found)


def _read_add(cursor: Cursor) -> tuple[TableChange, ...]:
    if cursor.takes("PARTITION", "FIELD"):
        return (read_partition_field(cursor),)
    if is_constraint(cursor):
        found = read_constraint(cursor)
        return (found if isinstance(found, SetPrimaryKey) else AddConstraint(found),)
    if cursor.takes("COLUMNS") or (cursor.takes("COLUMN") and cursor.sees("(")) or cursor.sees("("):
        cursor.expect("(")
        changes = _read_added(cursor)
        while cursor.takes(","):
            changes += _read_added(cursor)
        cursor.expect(")")
        return changes
    return _read_added(cursor)


def _read_added(cursor: Cursor) -> tuple[TableChange, ...]:
    if_absent = cursor.takes("IF", "NOT", "EXISTS")
    column = read_column(cursor, nested=True)
    if column.is_key:
        raise cursor.error("a primary key is added by itself", "ADD PRIMARY KEY (…)")
    first = cursor.takes("FIRST")
    after = cursor.name() if not first and cursor.takes("AFTER") else None
    added = AddColumn(column.path, column.type, column.required, column.doc, column.default, after, first)
    if if_absent:
        if column.constraints:
            raise cursor.error("IF NOT EXISTS goes with no constraint", "add the constraint by itself")
        return (AddColumnIfAbsent(added),)
    return (added, *(AddConstraint(each) for each in column.constraints))


def _read_drop(cursor: Cursor) -> TableChange:
    if cursor.takes("PARTITION", "FIELD"):
        return DropPartitionField(_read_field_to_go(cursor))
    if cursor.takes("PRIMARY", "KEY"):
        return SetPrimaryKey(())
    if cursor.takes("CONSTRAINT"):
        if_exists = cursor.takes("IF", "EXISTS")
        return DropConstraint(cursor.name("the name of the constraint"), if_exists)
    cursor.takes("COLUMN")
    if cursor.takes("IF", "EXISTS"):
        return DropColumnIfPresent(cursor.path())
    return DropColumn(cursor.path())


def _read_alter_column(cursor: Cursor, path: tuple[str, ...]) -> TableChange:
    if cursor.takes("SET", "DATA", "TYPE") or cursor.takes("TYPE"):
        return WidenColumn(path, read_type(cursor))
    if cursor.takes("SET", "NOT", "NULL"):
        return MakeRequired(path)
    if cursor.takes("DROP", "NOT", "NULL"):
        return MakeOptional(path)
    if cursor.takes("SET", "DEFAULT"):
        return SetDefault(path, read_literal(cursor))
    if cursor.takes("DROP", "DEFAULT"):
        return SetDefault(path, None)
    if cursor.takes("COMMENT"):
        return SetDoc(path, None if cursor.takes("NULL") else cursor.string())
    if cursor.takes("FIRST"):
        return MoveColumn(path, first=True)
    if cursor.takes("AFTER"):
        return MoveColumn(path, after=cursor.name())
    raise _no_such_alteration(cursor)


def _no_such_alteration(cursor: Cursor) -> SchemaError:
    return cursor.error(
        "there is no such change of a column", "TYPE, SET or DROP NOT NULL, SET or DROP DEFAULT, COMMENT, FIRST, AFTER"
    )
