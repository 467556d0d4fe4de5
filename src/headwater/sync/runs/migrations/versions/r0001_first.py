"""The first tables of sync."""

import sqlalchemy as sa
from alembic import op

from headwater.database import UtcTimestamp

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sync_regions",
        sa.Column("region", sa.Text, primary_key=True),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("forward_asked_at", UtcTimestamp),
    )
    op.create_table(
        "sync_runs",
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
    op.create_table(
        "sync_batches",
        sa.Column("run", sa.String(26), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("files", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("list_uri", sa.Text, nullable=False),
        sa.Column("is_copied", sa.Boolean, nullable=False),
        sa.Column("is_verified", sa.Boolean, nullable=False),
    )
    op.create_table(
        "sync_localised",
        sa.Column("run", sa.String(26), primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("content", sa.Text),
    )
    op.create_table(
        "sync_routes",
        sa.Column("region", sa.Text, primary_key=True),
        sa.Column("way", sa.String(16), nullable=False),
        sa.Column("since", UtcTimestamp, nullable=False),
        sa.Column("well_since", UtcTimestamp),
    )
