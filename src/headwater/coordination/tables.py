"""The rows of a coordinator. Migrations make them; this says what they are today."""

from __future__ import annotations

import sqlalchemy as sa

from headwater.database import UtcTimestamp

metadata = sa.MetaData()

# Compared by bytes on both databases, so that a prefix is a range.
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger()

state = sa.Table(
    "coordination_state",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("revision", _NUMBER, nullable=False),
    sa.Column("compacted_revision", _NUMBER, nullable=False),
    sa.Column("last_lease", _NUMBER, nullable=False),
    sa.CheckConstraint("id = 1", name="coordination_state_one_row"),
)
"""One row. Whoever changes anything locks it first: that is what puts all changes in one order."""

leases = sa.Table(
    "coordination_leases",
    metadata,
    sa.Column("id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("ttl_seconds", sa.Float, nullable=False),
    sa.Column("expires_at", UtcTimestamp, nullable=False, index=True),
)

entries = sa.Table(
    "coordination_entries",
    metadata,
    sa.Column("key", _KEY, primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
    sa.Column("create_revision", _NUMBER, nullable=False),
    sa.Column("mod_revision", _NUMBER, nullable=False),
    sa.Column("version", _NUMBER, nullable=False),
    sa.Column("lease", _NUMBER, sa.ForeignKey("coordination_leases.id"), index=True),
)

events = sa.Table(
    "coordination_events",
    metadata,
    sa.Column("revision", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("key", _KEY, primary_key=True),
    sa.Column("value", sa.LargeBinary),
    sa.Column("create_revision", _NUMBER),
    sa.Column("version", _NUMBER),
    sa.Column("lease", _NUMBER),
)
"""What happened, for watchers; no value means deleted. Old revisions are forgotten."""

operations = sa.Table(
    "coordination_operations",
    metadata,
    sa.Column("operation", sa.String(26), primary_key=True),
    sa.Column("revision", _NUMBER),
    sa.Column("recorded_at", UtcTimestamp, nullable=False, index=True),
)
"""Transactions that were recorded; no revision means that it was settled as never to happen."""
