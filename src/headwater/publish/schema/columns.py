"""What CREATE TABLE says within its parentheses, and about partitions and properties.

column        name type [NOT NULL] [NULL] [PRIMARY KEY] [DEFAULT value] [COMMENT '…']
              [[CONSTRAINT n] CHECK (…)] [[CONSTRAINT n] REFERENCES t [(c)] [ON DELETE CASCADE | RESTRICT]]
constraint    [CONSTRAINT n] PRIMARY KEY (…) | CHECK (…) | FOREIGN KEY (…) REFERENCES t [(…)] [ON DELETE …]
partition     [transform(]column[, n)] [AS name]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField

from headwater.publish.constraints.model import Constraint, ForeignKey, OnDelete
from headwater.publish.schema.expressions import read_check
from headwater.publish.schema.types import key_objection, read_literal, read_type
from headwater.publish.schema.wanted import SetPrimaryKey
from headwater.publish.schema.words import Cursor, wrong
from headwater.tables.columns import ColumnPath
from headwater.tables.partitions import AddPartitionField
from headwater.tables.rules import check_all_names, default_json

COMMENT = "comment"

_TRANSFORMS = {
    "IDENTITY": "identity",
    **{f"{each}{plural}".upper(): each for each in ("year", "month", "day", "hour") for plural in ("", "s")},
}
_WITH_NUMBER = {"BUCKET": "bucket", "TRUNCATE": "truncate"}


@dataclass
class Column:
    """A column as a script defines it."""

    path: tuple[str, ...]
    type: IcebergType
    required: bool = False
    default: Any = None
    doc: str | None = None
    is_key: bool = False
    constraints: list[Constraint] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its own name."""
        return self.path[-1]


def read_columns(cursor: Cursor) -> tuple[Schema, tuple[Constraint, ...]]:
    """The columns and constraints of a new table, in parentheses."""
    columns: list[Column] = []
    constraints: list[Constraint] = []
    key: tuple[str, ...] = ()
    at = cursor.place
    cursor.expect("(")
    while True:
        if is_constraint(cursor):
            found = read_constraint(cursor)
            if isinstance(found, SetPrimaryKey):
                if key:
                    raise cursor.error("the primary key was said before")
                key = found.columns
            else:
                constraints.append(found)
        else:
            columns.append(read_column(cursor))
        if not cursor.takes(","):
            break
    cursor.expect(")")
    of_columns = tuple(each.name for each in columns if each.is_key)
    if len(of_columns) > 1 or (of_columns and key):
        raise wrong("the primary key was said twice", at, "of several columns: PRIMARY KEY (a, b)")
    fields = [_field(cursor, each, key or of_columns) for each in columns]
    check_all_names(tuple(fields))
    by_name = {each.name.lower(): each for each in fields}
    for name in key or of_columns:
        if name.lower() not in by_name:
            raise wrong(f"the primary key has {name}, which is no column", at)
        if objection := key_objection(by_name[name.lower()].field_type):
            raise wrong(f"column {name} cannot be in the primary key: {objection}", at)
    try:
        schema = Schema(*fields, identifier_field_ids=[by_name[name.lower()].field_id for name in key or of_columns])
    except ValueError as error:  # a column "a.b" beside a column a that has a b within it
        raise wrong(f"these cannot be the columns of one table: {error}", at, "rename one of them") from error
    return schema, tuple(constraint for each in columns for constraint in each.constraints) + tuple(constraints)


def _field(cursor: Cursor, column: Column, key: tuple[str, ...]) -> NestedField:
    required = column.required or column.name.lower() in {each.lower() for each in key}
    value = default_json(column.type, column.default, column.name)
    return NestedField(next(cursor.ids), column.name, column.type, required, column.doc, value, value)


def is_constraint(cursor: Cursor) -> bool:
    """Whether a constraint of the table comes next, and no column."""
    return any(
        cursor.sees(*words)
        for words in (("CONSTRAINT",), ("PRIMARY", "KEY"), ("FOREIGN", "KEY"), ("CHECK", "("), ("UNIQUE", "("))
    )


def read_constraint(cursor: Cursor) -> Constraint | SetPrimaryKey:
    """The constraint that comes next."""
    name = cursor.name("the name of the constraint") if cursor.takes("CONSTRAINT") else ""
    if cursor.takes("PRIMARY", "KEY"):
        return SetPrimaryKey(cursor.names())
    if cursor.takes("CHECK"):
        return read_check(name, *cursor.in_parentheses())
    if cursor.takes("FOREIGN", "KEY"):
        columns = cursor.names()
        cursor.expect("REFERENCES")
        return _read_reference(cursor, name, columns)
    if cursor.takes("UNIQUE"):
        at_most = "CHECK (count(*) OVER (PARTITION BY a, b) <= 1)"
        raise cursor.error("UNIQUE is not supported", f"PRIMARY KEY, or {at_most}")
    raise cursor.error("a constraint is missing", "PRIMARY KEY, CHECK or FOREIGN KEY")


def _read_reference(cursor: Cursor, name: str, columns: tuple[str, ...]) -> ForeignKey:
    parent = cursor.key()
    parent_columns = cursor.names() if cursor.sees("(") else ()
    on_delete = OnDelete.RESTRICT
    while cursor.takes("ON"):
        if cursor.takes("UPDATE"):
            if not cursor.takes("RESTRICT") and not cursor.takes("NO", "ACTION"):
                raise cursor.error("a key that others refer to does not change", "leave ON UPDATE out")
            continue
        cursor.expect("DELETE")
        if cursor.takes("CASCADE"):
            on_delete = OnDelete.CASCADE
        elif not cursor.takes("RESTRICT") and not cursor.takes("NO", "ACTION"):
            raise cursor.error("this cannot be done on delete", "CASCADE or RESTRICT")
    return ForeignKey(name, columns, parent, parent_columns, on_delete)


def read_column(cursor: Cursor, *, nested: bool = False) -> Column:
    """The column that comes next; `nested`: it may lie within another."""
    path = cursor.path() if nested else (cursor.name("the name of a column"),)
    column = Column(path, read_type(cursor))
    while True:
        name = cursor.name("the name of the constraint") if cursor.takes("CONSTRAINT") else ""
        if cursor.takes("CHECK"):
            column.constraints.append(read_check(name, *cursor.in_parentheses()))
        elif cursor.takes("REFERENCES"):
            column.constraints.append(_read_reference(cursor, name, (column.name,)))
        elif name:
            raise cursor.error("CHECK or REFERENCES is missing")
        elif cursor.takes("NOT", "NULL"):
            column.required = True
        elif cursor.takes("NULL"):
            column.required = False
        elif cursor.takes("PRIMARY", "KEY"):
            column.is_key = True
        elif cursor.takes("DEFAULT"):
            column.default = read_literal(cursor)
        elif cursor.takes("COMMENT"):
            column.doc = cursor.string()
        elif any(cursor.sees(word) for word in ("UNIQUE", "GENERATED", "COLLATE", "AUTO_INCREMENT")):
            raise cursor.error("this is not supported", "a column that tells rows apart is the PRIMARY KEY")
        else:
            return column


def read_properties(cursor: Cursor) -> dict[str, str]:
    """Properties in parentheses; a name is quoted, or words with dots and hyphens."""
    cursor.expect("(")
    found: dict[str, str] = {}
    while True:
        name = read_property_name(cursor)
        if name in found:
            raise cursor.error(f"property {name} was said before")
        if not cursor.takes("="):
            raise cursor.error("= is missing")
        if cursor.sees("NULL"):
            raise cursor.error(f"property {name} has no value", "UNSET TBLPROPERTIES takes it away")
        value = read_literal(cursor)
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
        if not cursor.takes(","):
            break
    cursor.expect(")")
    return found


def read_property_name(cursor: Cursor) -> str:
    """The name of a property: quoted, or words with dots and hyphens."""
    word = cursor.peek()
    if word is not None and word.is_string:
        return cursor.string()
    name = cursor.name("the name of a property")
    while cursor.sees(".") or cursor.sees("-"):
        name += cursor.next().text + cursor.name("the name of a property")
    return name


def read_partition_field(cursor: Cursor) -> AddPartitionField:
    """What to partition by, with a name for it if one is given."""
    source, transform = read_transformed(cursor)
    return AddPartitionField(source, transform, cursor.name() if cursor.takes("AS") else None)


def read_transformed(cursor: Cursor) -> tuple[ColumnPath, str]:
    """A column, and the transform of it that is meant."""
    word, follows = cursor.peek(), cursor.peek(1)
    if word is None or follows is None or not (follows.is_plain and follows.text == "("):
        return cursor.path(), "identity"
    function = word.text.upper()
    if function in _TRANSFORMS:
        cursor.next()
        cursor.expect("(")
        source = cursor.path()
        cursor.expect(")")
        return source, _TRANSFORMS[function]
    if function not in _WITH_NUMBER:
        raise cursor.error("there is no such transform", "bucket(n, c), truncate(n, c), year, month, day or hour")
    cursor.next()
    cursor.expect("(")
    first = cursor.peek()
    if first is not None and first.text.isdecimal():
        number = cursor.number()
        cursor.expect(",")
        source = cursor.path()
    else:
        source = cursor.path()
        cursor.expect(",")
        number = cursor.number()
    cursor.expect(")")
    return source, f"{_WITH_NUMBER[function]}[{number}]"
