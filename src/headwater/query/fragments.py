"""Pieces of SQL about the columns of a table. Within DuckDB a column is called by its field id (`types.column`)."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.types import NestedField

from headwater.query.types import column, default_text, duck_type, name, value
from headwater.tables.read import EXTRA_COLUMNS


def own_column(each: NestedField, *, guarded: bool) -> str:
    """A column of the table; guarded, it is the same, but DuckDB does not compare the bounds of its row groups."""
    made, kind = column(each.field_id), duck_type(each.field_type)
    return f"CASE WHEN isnan(t.{made}) THEN 'nan'::{kind} ELSE t.{made} END AS {made}" if guarded else f"t.{made}"


def extra_column(extra: str) -> str:
    """A column that is not of the table, of a row in a file. A row keeps the id that its file carries for it."""
    made = column(EXTRA_COLUMNS[extra].field_id)
    match extra:
        case "_file":
            return f"f.location AS {made}"
        case "_pos":
            return f"t.file_row_number AS {made}"
        case "_row_id":
            return f"coalesce(t.{made}, f.first_row_id + t.file_row_number) AS {made}"
        case _:
            return f"coalesce(t.{made}, f.sequence) AS {made}"


def mapped(each: NestedField) -> str:
    """The column in the schema that a native scan is given."""
    kind = value(duck_type(each.field_type))
    made = value(column(each.field_id))
    return f"{each.field_id}: {{name: {made}, type: {kind}, default_value: {value(default_text(each))}::VARCHAR}}"


def declared(fields: Iterable[NestedField]) -> str:
    """The columns of a new table."""
    return ", ".join(f"{column(each.field_id)} {duck_type(each.field_type)}" for each in fields)


def casted(fields: Iterable[NestedField]) -> str:
    """The columns in their types."""
    return ", ".join(f"{column(each.field_id)}::{duck_type(each.field_type)}" for each in fields)


def nulls(fields: Iterable[NestedField]) -> str:
    """The columns with nothing in them."""
    return ", ".join(f"NULL::{duck_type(each.field_type)} AS {column(each.field_id)}" for each in fields)


def renamed(fields: Iterable[NestedField]) -> str:
    """The columns under the table's own names."""
    return ", ".join(f"{column(each.field_id)} AS {name(each.name)}" for each in fields)
