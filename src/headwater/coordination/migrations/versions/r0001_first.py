"""The first tables of coordination."""

import sqlalchemy as sa
from alembic import op

from headwater.database import UtcTimestamp

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    state = op.create_table(
        "coordination_state",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("compacted_revision", sa.BigInteger, nullable=False),
        sa.Column("last_lease", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="coordination_state_one_row"),
    )
    first = {"id": 1, "revision": 0, "compacted_revision": 0, "last_lease": 0}
    op.bulk_insert(state, [first])
    op.create_table(
        "coordination_leases",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ttl_seconds", sa.Float, nullable=False),
        sa.Column("expires_at", UtcTimestamp, nullable=False, index=True),
    )
    op.create_table(
        "coordination_entries",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.Column("create_revision", sa.BigInteger, nullable=False),
        sa.Column("mod_revision", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("lease", sa.BigInteger, sa.ForeignKey("coordination_leases.id"), index=True),
    )
    op.create_table(
        "coordination_events",
        sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", KEY, primary_key=True),
        sa.Column("value", sa.LargeBinary),
        sa.Column("create_revision", sa.BigInteger),
        sa.Column("version", sa.BigInteger),
        sa.Column("lease", sa.BigInteger),
    )
    op.create_table(
        "coordination_operations",
        sa.Column("operation", sa.String(26), primary_key=True),
        sa.Column("revision", sa.BigInteger),
        sa.Column("recorded_at", UtcTimestamp, nullable=False, index=True),
    )
