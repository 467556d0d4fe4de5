"""The first tables of regions."""

import sqlalchemy as sa
from alembic import op

from headwater.database import UtcTimestamp

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ULID = sa.String(26)
REGION = sa.String(63)
URI = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "regions_places",
        sa.Column("region", REGION, primary_key=True),
        sa.Column("fence", NUMBER, nullable=False),
    )
    op.create_table(
        "regions_runs",
        sa.Column("run", ULID, primary_key=True),
        sa.Column("region", REGION, nullable=False, index=True),
        sa.Column("fence", NUMBER, nullable=False),
        sa.Column("expires_at", UtcTimestamp, nullable=False),
    )
    op.create_table(
        "regions_claims",
        sa.Column("uri", URI, primary_key=True),
        sa.Column("run", ULID, sa.ForeignKey("regions_runs.run", ondelete="CASCADE"), primary_key=True, index=True),
    )
    op.create_table(
        "regions_deletions",
        sa.Column("uri", URI, primary_key=True),
        sa.Column("region", REGION, nullable=False),
        sa.Column("executor", ULID, nullable=False),
        sa.Column("lease_until", UtcTimestamp, nullable=False),
    )
    op.create_table(
        "regions_outputs",
        sa.Column("region", REGION, primary_key=True),
        sa.Column("uri", URI, primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("source", URI, nullable=False),
        sa.Column("generation", NUMBER, nullable=False),
        sa.Column("recorded_at", UtcTimestamp, nullable=False),
    )
    op.create_index("regions_outputs_by_digest", "regions_outputs", ["region", "digest"])
