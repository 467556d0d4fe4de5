"""The first tables of access."""

import sqlalchemy as sa
from alembic import op

from headwater.database import UtcTimestamp

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "access_tokens",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", UtcTimestamp, nullable=False),
        sa.Column("revoked_at", UtcTimestamp),
    )
    op.create_table(
        "access_requests",
        sa.Column("caller", sa.String(26), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("branch", sa.Text, nullable=False),
        sa.Column("operation", sa.String(26), nullable=False),
        sa.Column("lease_until", UtcTimestamp, nullable=False),
        sa.Column("created_at", UtcTimestamp, nullable=False, index=True),
        sa.Column("answer", sa.Text),
    )
