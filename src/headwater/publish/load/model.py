"""What loading talks about: the rows that are given, how they meet those of the table, and what came of it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from headwater.catalog.model import Commit
from headwater.publish.model import Wish
from headwater.tables.layout import MEGABYTE


class Mode(enum.StrEnum):
    """How rows meet those of the table: beside them, in the place of those with the same key, or of all of them."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"


class Format(enum.StrEnum):
    """What a file of rows is."""

    PARQUET = "parquet"
    CSV = "csv"
    NDJSON = "ndjson"
    ARROW = "arrow"


FileName: TypeAlias = str | Path
Source: TypeAlias = (
    FileName | Sequence[FileName] | pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]
)
"""Rows to load: a file, several, or a pattern such as `orders-*.parquet`; or rows in memory."""


@dataclass(frozen=True)
class Piece:
    """Some rows as they were given: where from, and behind how many others.

    `is_text`: values are spelled as text. `is_sparse`: rows need not have the columns that others of the source have.
    """

    origin: str
    rows_before: int
    batch: pa.RecordBatch
    is_text: bool = False
    is_sparse: bool = False


@dataclass(frozen=True)
class Fitted:
    """The same rows as the table holds them, and which of its columns were given."""

    origin: str
    batch: pa.RecordBatch
    given: frozenset[str]
    is_sparse: bool = False


@dataclass(frozen=True)
class LoadOptions:
    """How data files are written: how many at a time, and from how many rows in memory. Nothing else heeds it."""

    concurrency: int = 2
    buffer_bytes: int = 512 * MEGABYTE


@dataclass(frozen=True)
class Prepared:
    """A load that has moved nothing: what is to be published, None when nothing changes, and what it comes to."""

    wish: Wish | None
    rows: int = 0
    updated: int = 0
    files: int = 0


@dataclass(frozen=True)
class Loaded:
    """What a load did: rows written, those of them in the place of others, data files; no commit: nothing changed."""

    rows: int
    files: int
    commit: Commit | None
    updated: int = 0
