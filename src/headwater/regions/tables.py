"""The rows of regions. Migrations make them; this says what they are today."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Insert
from sqlalchemy.dialects import postgresql, sqlite

from headwater.database import UtcTimestamp

metadata = sa.MetaData()

_ULID = sa.String(26)
_REGION = sa.String(63)
# Compared by bytes on both databases: URIs are no language.
_URI = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger()

places = sa.Table(
    "regions_places",
    metadata,
    sa.Column("region", _REGION, primary_key=True),
    sa.Column("fence", _NUMBER, nullable=False),
)
"""One row for each region, with the highest fence that began a run in it.

Whoever claims a file in the region, or begins to delete one, locks this row first: that is what puts them in one order.
"""

runs = sa.Table(
    "regions_runs",
    metadata,
    sa.Column("run", _ULID, primary_key=True),
    sa.Column("region", _REGION, nullable=False, index=True),
    sa.Column("fence", _NUMBER, nullable=False),
    sa.Column("expires_at", UtcTimestamp, nullable=False),
)
"""Runs that hold claims. One row is the lease of all claims of a run: renewing it does not cost more for more files."""

claims = sa.Table(
    "regions_claims",
    metadata,
    sa.Column("uri", _URI, primary_key=True),
    sa.Column("run", _ULID, sa.ForeignKey("regions_runs.run", ondelete="CASCADE"), primary_key=True, index=True),
)
"""Files that a run relies on, wherever they lie. A claim is as good as its run."""

deletions = sa.Table(
    "regions_deletions",
    metadata,
    sa.Column("uri", _URI, primary_key=True),
    sa.Column("region", _REGION, nullable=False),
    sa.Column("executor", _ULID, nullable=False),
    sa.Column("lease_until", UtcTimestamp, nullable=False),
)
"""Files that are being deleted. A row stays until its executor, or one that takes over, says that it is done."""

outputs = sa.Table(
    "regions_outputs",
    metadata,
    sa.Column("region", _REGION, primary_key=True),
    sa.Column("uri", _URI, primary_key=True),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("source", _URI, nullable=False),
    sa.Column("generation", _NUMBER, nullable=False),
    sa.Column("recorded_at", UtcTimestamp, nullable=False),
    sa.Index("regions_outputs_by_digest", "region", "digest"),
)
"""Files that sync wrote in a region and that exist nowhere else (hazard G4), listed before they are written."""


def insert_missing(dialect: str, table: sa.Table) -> Insert:
    """An insert that leaves rows alone whose key is there already."""
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()
