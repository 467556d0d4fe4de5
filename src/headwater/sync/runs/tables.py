"""The rows of sync. Migrations make them; this says what they are today."""

from __future__ import annotations

import sqlalchemy as sa

from headwater.database import UtcTimestamp

metadata = sa.MetaData()

regions = sa.Table(
    "sync_regions",
    metadata,
    sa.Column("region", sa.Text, primary_key=True),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("forward_asked_at", UtcTimestamp),
)
"""Who syncs a region: the highest fence that was ever shown. Nobody with a lower one changes anything."""

runs = sa.Table(
    "sync_runs",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("region", sa.Text, nullable=False, index=True),
    sa.Column("target_hash", sa.Text, nullable=False),
    sa.Column("target_created_at", UtcTimestamp, nullable=False),
    sa.Column("shown_hash", sa.Text),
    sa.Column("shown_created_at", UtcTimestamp),
    sa.Column("replica_head", sa.Text, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("history", sa.String(16), nullable=False),
    sa.Column("tables", sa.Text),
    sa.Column("is_forward", sa.Boolean, nullable=False),
    sa.Column("shipped", sa.String(16), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("done", sa.String(16)),
    sa.Column("began_at", UtcTimestamp, nullable=False),
    sa.Column("ended", sa.Text, nullable=False),
    sa.Column("promoted", sa.Text),
    sa.Column("error", sa.Text),
)
"""One row for each run; `ended` is JSON, step to moment."""

batches = sa.Table(
    "sync_batches",
    metadata,
    sa.Column("run", sa.String(26), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("files", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("list_uri", sa.Text, nullable=False),
    sa.Column("is_copied", sa.Boolean, nullable=False),
    sa.Column("is_verified", sa.Boolean, nullable=False),
)
"""The plan of a run, and how far it is carried out."""

localised = sa.Table(
    "sync_localised",
    metadata,
    sa.Column("run", sa.String(26), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("content", sa.Text),
)
"""What a run has localised, by JSON of the name; without content it is gone from `main`."""

routes = sa.Table(
    "sync_routes",
    metadata,
    sa.Column("region", sa.Text, primary_key=True),
    sa.Column("way", sa.String(16), nullable=False),
    sa.Column("since", UtcTimestamp, nullable=False),
    sa.Column("well_since", UtcTimestamp),
)
"""Where the readers of a region are sent."""
