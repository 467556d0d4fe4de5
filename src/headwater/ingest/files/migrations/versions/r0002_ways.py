"""The ways that a file may go, held by the database as well: whoever writes past the code is refused, too."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

FORBIDDEN_UPDATE = (
    "NOT (NEW.type = OLD.type"
    " OR (OLD.type IN ('TEMPORARY_INGEST', 'TEMPORARY_GC') AND NEW.type = 'REGULAR')"
    " OR (OLD.type = 'REGULAR' AND NEW.type = 'RETIRED'))"
)
FORBIDDEN_DELETE = "OLD.type = 'REGULAR'"
SAID_OF_UPDATE = "ingest_files: a file does not go this way"
SAID_OF_DELETE = "ingest_files: a REGULAR file is retired before it is deleted"

# The code of a violated check, so that it is told apart from a server that fails.
POSTGRESQL = f"""
CREATE FUNCTION ingest_files_ways() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF {FORBIDDEN_DELETE} THEN RAISE EXCEPTION '{SAID_OF_DELETE}' USING ERRCODE = 'check_violation'; END IF;
        RETURN OLD;
    END IF;
    IF {FORBIDDEN_UPDATE} THEN RAISE EXCEPTION '{SAID_OF_UPDATE}' USING ERRCODE = 'check_violation'; END IF;
    RETURN NEW;
END $$
"""


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(POSTGRESQL)
        op.execute(
            "CREATE TRIGGER ingest_files_ways BEFORE UPDATE OR DELETE ON ingest_files"
            " FOR EACH ROW EXECUTE FUNCTION ingest_files_ways()"
        )
        return
    for name, when, rule, said in (
        ("ingest_files_ways", "UPDATE", FORBIDDEN_UPDATE, SAID_OF_UPDATE),
        ("ingest_files_deletes", "DELETE", FORBIDDEN_DELETE, SAID_OF_DELETE),
    ):
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {when} ON ingest_files WHEN {rule} BEGIN SELECT RAISE(ABORT, '{said}'); END"
        )
