"""Bringing a room's tables up to date.

Each room has a folder of Alembic revisions and a version table of its own, `<room>_version`, so that rooms
move independently. All of a room's revisions are applied in one transaction, under a lock that makes a second
process wait and then find nothing to do.
"""

from __future__ import annotations

import re
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command, context
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from headwater.database.engine import Database, Isolation
from headwater.kernel.errors import CorruptError, UsageError
from headwater.kernel.logs import Log

log = Log("database.migrations")

# Alembic reaches the running migration through module globals (`alembic.op`, `alembic.context`), so within
# a process only one may run. Between processes the database's own lock decides.
_one_at_a_time = threading.Lock()
_ADVISORY_LOCK = 0x68656164_77617465  # "headwate"
_ROOM = re.compile(r"[a-z][a-z_]*")


def migrate(database: Database, room: str, location: Path) -> str:
    """Apply what is missing of the revisions in folder `location`; returns the revision that stands then.

    Safe to repeat and to run from many processes at once. A database that a newer Headwater has already
    migrated is refused.
    """
    if not _ROOM.fullmatch(room):
        raise UsageError(f"{room!r} is not the name of a room", room=room)
    config = Config()
    config.set_main_option("path_separator", "os")
    config.attributes["version_table"] = f"{room}_version"
    with _one_at_a_time, _on_disk(location) as folder:
        # Alembic interpolates option values, so that a percent sign in a path needs its twin.
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        script = ScriptDirectory.from_config(config)
        head = script.get_current_head()
        assert head is not None, f"{location} has no revisions"
        with database.read() as connection:
            present = _present(connection, room, script, database)
        if present == head:
            return head
        with database.write(operation=f"migrate {room} to {head}", isolation=Isolation.OWN_LOCKS) as connection:
            if database.dialect == "postgresql":
                connection.exec_driver_sql("SET LOCAL lock_timeout=0")  # another's migration may take its time
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            present = _present(connection, room, script, database)
            if present != head:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                log.info("migrated", room=room, before=present, after=head)
    return head


def run_migrations() -> None:
    """The whole of a room's `env.py`: run inside the transaction that `migrate` opened."""
    attributes = context.config.attributes
    context.configure(connection=attributes["connection"], version_table=attributes["version_table"])
    with context.begin_transaction():
        context.run_migrations()


@contextmanager
def _on_disk(location: Path) -> Iterator[Path]:
    """The folder itself; on a cluster the package is a zip, which Alembic cannot look into, and so it is unpacked."""
    archive = next((each for each in location.parents if each.is_file()), None)
    if archive is None:
        yield location
        return
    inside = location.relative_to(archive).as_posix()
    with tempfile.TemporaryDirectory(prefix="headwater-migrations-") as folder, zipfile.ZipFile(archive) as packed:
        packed.extractall(folder, [name for name in packed.namelist() if name.startswith(f"{inside}/")])
        yield Path(folder) / inside


def _present(connection: Connection, room: str, script: ScriptDirectory, database: Database) -> str | None:
    current = MigrationContext.configure(connection, opts={"version_table": f"{room}_version"}).get_current_heads()
    known = {revision.revision for revision in script.walk_revisions()}
    for revision in current:
        if revision not in known:
            raise CorruptError(
                f"the {room} tables of {database!r} are at revision {revision}, which this version does not know",
                hint="a newer Headwater migrated them: use that one",
                room=room,
                revision=revision,
            )
    return current[0] if current else None
