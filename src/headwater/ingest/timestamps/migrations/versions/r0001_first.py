"""The first tables of the timestamp service."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger()
TOPOLOGY = sa.String(128)


def upgrade() -> None:
    op.create_table(
        "ingest_time_state",
        sa.Column("topology", TOPOLOGY, primary_key=True),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("high", NUMBER, nullable=False),
        sa.Column("low", NUMBER, nullable=False),
        sa.Column("newest", NUMBER, nullable=False),
        sa.Column("complete_below", NUMBER, nullable=False),
        sa.Column("last_transaction", NUMBER, nullable=False),
        sa.CheckConstraint("low < high AND high <= complete_below", name="ingest_time_order"),
    )
    op.create_table(
        "ingest_time_writes",
        sa.Column("topology", TOPOLOGY, sa.ForeignKey("ingest_time_state.topology"), primary_key=True),
        sa.Column("transaction_id", NUMBER, primary_key=True),
        sa.Column("timestamp", NUMBER, nullable=False),
        sa.Column("is_resend", sa.Boolean, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.CheckConstraint("outcome IN ('open', 'committed', 'rolled-back')", name="ingest_time_outcome"),
    )
