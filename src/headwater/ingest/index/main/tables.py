"""The rows of the main index. Migrations make them; this says what they are today."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

counter = sa.Table(
    "row_id_counter",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("next_row_id", sa.BigInteger, nullable=False),
)
"""One row: the first row id that nobody has reserved yet."""

ranges = sa.Table(
    "row_id_ranges",
    metadata,
    sa.Column("first_row_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("file_id", sa.BigInteger, nullable=False, index=True),
    sa.Column("row_group", sa.BigInteger, nullable=False),
    sa.Column("first_offset", sa.BigInteger, nullable=False),
)

markers = sa.Table(
    "row_id_range_flush_markers",
    metadata,
    sa.Column("file_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("range_count", sa.BigInteger, nullable=False),
    sa.Column("row_count", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)
"""What a flush of a file's ranges made durable: they are whole when their count and hash are these."""
