"""The rows of the file table. Migrations make them; this says what they are today."""

from __future__ import annotations

import sqlalchemy as sa

from headwater.database import UtcTimestamp

metadata = sa.MetaData()

_NUMBER = sa.BigInteger()
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

paths = sa.Table(
    "ingest_paths",
    metadata,
    sa.Column("path_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("table_id", _NUMBER, nullable=False),
    sa.Column("uri", _TEXT, nullable=False),
)
"""Folders in which a table has its files."""

files = sa.Table(
    "ingest_files",
    metadata,
    sa.Column("file_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("name", _TEXT, nullable=False),
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("num_row_group", sa.Integer, nullable=False),
    sa.Column("path_id", _NUMBER, sa.ForeignKey("ingest_paths.path_id"), nullable=False),
    sa.Column("min_row_id", _NUMBER),
    sa.Column("max_row_id", _NUMBER),
    sa.Column("cleanup_at", UtcTimestamp),
    sa.Index("ingest_files_by_type", "path_id", "type"),
)
"""A node's files. Constraints say: four types, `cleanup_at` on RETIRED alone, a hull once it is published."""

state = sa.Table(
    "ingest_files_state",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("last_file_id", _NUMBER, nullable=False),
    sa.Column("last_path_id", _NUMBER, nullable=False),
)
"""One row: the last ids that were given. An id is never given twice, whatever was deleted since."""
