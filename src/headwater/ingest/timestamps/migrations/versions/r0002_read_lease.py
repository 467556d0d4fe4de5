"""For how long readers were told that they may go on: the next holder, with another setting, waits so long."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ingest_time_state", sa.Column("read_lease_seconds", sa.Double(), nullable=False, server_default="0"))
