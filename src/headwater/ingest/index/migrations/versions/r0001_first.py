"""The first tables of the main index."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    counter = op.create_table(
        "row_id_counter",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("next_row_id", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="row_id_counter_one_row"),
    )
    op.bulk_insert(counter, [{"id": 1, "next_row_id": 1}])
    op.create_table(
        "row_id_ranges",
        sa.Column("first_row_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("file_id", sa.BigInteger, nullable=False, index=True),
        sa.Column("row_group", sa.BigInteger, nullable=False),
        sa.Column("first_offset", sa.BigInteger, nullable=False),
        sa.CheckConstraint("count > 0", name="row_id_ranges_not_empty"),
    )
    op.create_table(
        "row_id_range_flush_markers",
        sa.Column("file_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("range_count", sa.BigInteger, nullable=False),
        sa.Column("row_count", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
