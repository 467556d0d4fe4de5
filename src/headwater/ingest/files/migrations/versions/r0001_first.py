"""The first tables of the file table."""

import sqlalchemy as sa
from alembic import op

from headwater.database import UtcTimestamp

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger()
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TYPES = "type IN ('TEMPORARY_INGEST', 'TEMPORARY_GC', 'REGULAR', 'RETIRED')"
CLEANUP = "(type = 'RETIRED') = (cleanup_at IS NOT NULL)"
HULL = (
    "(min_row_id IS NULL AND max_row_id IS NULL AND num_row_group = 0 AND type NOT IN ('REGULAR', 'RETIRED'))"
    " OR (min_row_id IS NOT NULL AND max_row_id IS NOT NULL AND num_row_group > 0"
    " AND min_row_id >= 0 AND min_row_id <= max_row_id)"
)


def upgrade() -> None:
    op.create_table(
        "ingest_paths",
        sa.Column("path_id", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("table_id", NUMBER, nullable=False),
        sa.Column("uri", TEXT, nullable=False),
        sa.UniqueConstraint("table_id", "uri", name="ingest_paths_once"),
    )
    op.create_table(
        "ingest_files",
        sa.Column("file_id", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("num_row_group", sa.Integer, nullable=False),
        sa.Column("path_id", NUMBER, sa.ForeignKey("ingest_paths.path_id"), nullable=False),
        sa.Column("min_row_id", NUMBER),
        sa.Column("max_row_id", NUMBER),
        sa.Column("cleanup_at", UtcTimestamp),
        sa.UniqueConstraint("path_id", "name", name="ingest_files_name"),
        sa.CheckConstraint(TYPES, name="ingest_files_type"),
        sa.CheckConstraint(CLEANUP, name="ingest_files_cleanup"),
        sa.CheckConstraint(HULL, name="ingest_files_hull"),
    )
    op.create_index("ingest_files_by_type", "ingest_files", ["path_id", "type"])
    state = op.create_table(
        "ingest_files_state",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("last_file_id", NUMBER, nullable=False),
        sa.Column("last_path_id", NUMBER, nullable=False),
        sa.CheckConstraint("id = 1", name="ingest_files_state_one_row"),
    )
    op.bulk_insert(state, [{"id": 1, "last_file_id": 0, "last_path_id": 0}])
