"""What a reader asks for."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from headwater.ingest.model import Timestamp

Literal: TypeAlias = "bool | int | float | str | bytes"


class Comparison(enum.StrEnum):
    """How a column is compared."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"


@dataclass(frozen=True, slots=True)
class Predicate:
    """One comparison; a scan takes rows for which all of its predicates are true."""

    column: str
    comparison: Comparison
    literal: Literal | None = None


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A table at a timestamp."""

    table: str
    timestamp: Timestamp
    columns: tuple[str, ...] | None = None
    predicates: tuple[Predicate, ...] = ()
    virtual_nodes: frozenset[int] | None = None
