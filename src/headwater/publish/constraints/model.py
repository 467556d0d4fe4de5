"""What the rows of a table must satisfy.

A primary key and columns that are not null are said by the Iceberg schema itself, as identifier fields and required
fields: every engine sees them. The others live in the property `headwater.constraints` of the table; a table that
others refer to lists them in `headwater.referenced-by`, so that who deletes from it knows whom to ask. Both are part of
the metadata that a publish pins: a constraint cannot change unseen under a transaction that obeyed it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headwater.catalog.model import TableKey


class OnDelete(enum.StrEnum):
    """What becomes of rows that refer to a row that is deleted."""

    RESTRICT = "restrict"
    CASCADE = "cascade"


@dataclass(frozen=True)
class Check:
    """An SQL condition on the columns of one row, which must not be false; NULL is not false."""

    name: str
    expression: str


@dataclass(frozen=True)
class ForeignKey:
    """The columns hold the key of a row of the parent, unless one of them is null."""

    name: str
    columns: tuple[str, ...]
    parent: TableKey
    parent_columns: tuple[str, ...]
    on_delete: OnDelete = OnDelete.RESTRICT


@dataclass(frozen=True)
class Cardinality:
    """How many rows may share the same values of these columns; rows with a null among them are not counted.

    `at_least` counts for each row of the parent that the columns are a foreign key to.
    """

    name: str
    columns: tuple[str, ...]
    at_least: int = 0
    at_most: int | None = None


Constraint = Check | ForeignKey | Cardinality


@dataclass(frozen=True)
class Constraints:
    """Everything that the rows of one table must satisfy, and the tables whose rows refer to them."""

    primary_key: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    declared: tuple[Constraint, ...] = ()
    referenced_by: tuple[TableKey, ...] = ()
