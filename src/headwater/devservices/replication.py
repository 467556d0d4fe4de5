"""A region's copy of the catalog: one logical subscription to the tables of the write plane's Nessie.

Promise: when `ensure` returns, the region's database holds what the primary held when it was called, and follows it.
It may be called again at any time, also after it was killed in the middle, and after a server has moved its port.

- **One subscription for both tables (R4).** A ref and the objects that it leads to arrive in the order of the primary's
  commits. A second subscription would run at its own pace, and show a ref before its objects.
- **Every table in state `r` (R4).** Until then the first copies of the two tables stand at different moments.
- **The primary's row wins (R3).** A read Nessie inserts objects with fixed ids, which the primary may insert later.
  The subscription's own insert would then violate the key, stop, try again, and stop for ever. A trigger that fires
  for the subscription alone removes the region's row first. If the region inserts in the very moment between the
  two, the subscription fails once and finds the row at its next attempt.
- **The reader cannot move a ref**, nor change what a commit is made of. Its role selects from both tables and inserts
  into `objs2`. A client of Nessie's Iceberg REST catalog makes it write a little more: the snapshot of a table that
  it serves is an object with a version (`obj_vers`), which it replaces by delete and insert, and whatever it would
  insert and finds is marked as used (`obj_ref`). The role may do just that, to just those rows and that column.

What a kill leaves behind, step by step, and what the next call makes of it:

    the database, tables, role, trigger    each is made unless it is there, or made again
    a slot on the primary alone            nobody reads it: it is dropped before the subscription is made
    a subscription, tables not yet `r`     it goes on by itself: it is waited for
"""

from __future__ import annotations

from headwater.devservices import postgres
from headwater.devservices.model import Place, service_name
from headwater.kernel.errors import UnavailableError

DATABASE = "nessie"
READER = "nessie_reader"
TABLES = ("refs2", "objs2")
_PUBLICATION = "headwater_catalog"
_SUBSCRIPTION = "headwater_catalog"
_READY_SECONDS = 120.0
_POLL_SECONDS = 0.05

_TRIGGER = """
CREATE OR REPLACE FUNCTION headwater_primary_wins() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM public.objs2 WHERE repo = NEW.repo AND obj_id = NEW.obj_id;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER headwater_primary_wins BEFORE INSERT ON public.objs2
    FOR EACH ROW EXECUTE FUNCTION headwater_primary_wins();
ALTER TABLE public.objs2 ENABLE REPLICA TRIGGER headwater_primary_wins;
"""

# The subscription runs as the superuser, to whom policies do not apply.
_RIGHTS = f"""
REVOKE ALL ON public.refs2, public.objs2 FROM {READER};
GRANT SELECT ON public.refs2 TO {READER};
GRANT SELECT, INSERT, DELETE, UPDATE (obj_ref) ON public.objs2 TO {READER};
ALTER TABLE public.objs2 ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS reads ON public.objs2;
DROP POLICY IF EXISTS inserts ON public.objs2;
DROP POLICY IF EXISTS marks ON public.objs2;
DROP POLICY IF EXISTS replaces ON public.objs2;
CREATE POLICY reads ON public.objs2 FOR SELECT TO {READER} USING (true);
CREATE POLICY inserts ON public.objs2 FOR INSERT TO {READER} WITH CHECK (true);
CREATE POLICY marks ON public.objs2 FOR UPDATE TO {READER} USING (true);
CREATE POLICY replaces ON public.objs2 FOR DELETE TO {READER} USING (obj_vers IS NOT NULL);
"""


def ensure(place: Place, region: str) -> None:
    """Make the region's copy, or set it right, and wait until both tables are in step."""
    primary = place.running[postgres.SERVICE].port
    regional = place.running[service_name(postgres.SERVICE, region)].port
    postgres.ensure_database(place, regional, DATABASE)
    for table in TABLES:
        _on(place, regional, _shape_of(place, primary, table))
    _on(place, regional, _TRIGGER)
    _ensure_reader(place, regional)
    _ensure_publication(place, primary)
    _ensure_subscription(place, primary, regional, region)
    _await_ready(place, regional, region)


def forget(place: Place, primary: int, region: str) -> None:
    """Drop the slot of a region whose copy is gone: for nobody's sake the primary would keep every byte of its log."""
    of_slot = "FROM pg_replication_slots WHERE slot_name = %s"
    # The primary may not have noticed yet that the other end is gone.
    _on(place, primary, f"SELECT pg_terminate_backend(active_pid, 5000) {of_slot} AND active", slot_of(region))
    _on(place, primary, f"SELECT pg_drop_replication_slot(slot_name) {of_slot}", slot_of(region))


def slot_of(region: str) -> str:
    """The name of the region's slot on the primary."""
    return f"headwater_{region.replace('-', '_')}"


def _shape_of(place: Place, primary: int, table: str) -> str:
    """The statement that makes this table as Nessie has made it on the primary: logical replication copies no DDL."""
    columns = _on(
        place,
        primary,
        """SELECT quote_ident(attname), format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
           WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum""",
        f"public.{table}",
    )
    keys = _on(
        place,
        primary,
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'p'",
        f"public.{table}",
    )
    if not columns or not keys:
        raise UnavailableError(f"Nessie has not made its table {table} on the primary yet", table=table)
    lines = [f"{name} {kind}{' NOT NULL' if required else ''}" for name, kind, required in columns]
    return f"CREATE TABLE IF NOT EXISTS public.{table} ({', '.join([*lines, str(keys[0][0])])})"


def _ensure_reader(place: Place, regional: int) -> None:
    if not _on(place, regional, "SELECT 1 FROM pg_roles WHERE rolname = %s", READER):
        _on(place, regional, f"CREATE ROLE {READER} LOGIN PASSWORD '{postgres.password_of(place, READER)}'")
    _on(place, regional, _RIGHTS)


def _ensure_publication(place: Place, primary: int) -> None:
    if not _on(place, primary, "SELECT 1 FROM pg_publication WHERE pubname = %s", _PUBLICATION):
        _on(place, primary, f"CREATE PUBLICATION {_PUBLICATION} FOR TABLE public.refs2, public.objs2")


def _ensure_subscription(place: Place, primary: int, regional: int, region: str) -> None:
    password = postgres.password_of(place, postgres.USER)
    # Numbers, hexadecimal digits and our own constants: nothing in it needs quoting.
    to_primary = f"host=127.0.0.1 port={primary} dbname={DATABASE} user={postgres.USER} password={password}"
    known = _on(
        place, regional, "SELECT subconninfo, subenabled FROM pg_subscription WHERE subname = %s", _SUBSCRIPTION
    )
    if known:
        if known[0][0] != to_primary:
            _on(place, regional, f"ALTER SUBSCRIPTION {_SUBSCRIPTION} CONNECTION '{to_primary}'")
        if not known[0][1]:
            _on(place, regional, f"ALTER SUBSCRIPTION {_SUBSCRIPTION} ENABLE")
        return
    forget(place, primary, region)
    _on(
        place,
        regional,
        f"CREATE SUBSCRIPTION {_SUBSCRIPTION} CONNECTION '{to_primary}' PUBLICATION {_PUBLICATION} "
        f"WITH (slot_name = {slot_of(region)})",
    )


def _await_ready(place: Place, regional: int, region: str) -> None:
    deadline = place.clock.monotonic() + _READY_SECONDS
    while True:
        states = {str(table): str(state) for table, state in _on(place, regional, _STATES)}
        if is_in_step(states):
            return
        if place.clock.monotonic() > deadline:
            raise UnavailableError(
                f"region {region} has not caught up with the primary within {_READY_SECONDS:.0f} s: {states}",
                hint="see the logs of the primary and of the region's PostgreSQL",
                region=region,
            )
        place.clock.sleep(_POLL_SECONDS)


def is_in_step(states: dict[str, str]) -> bool:
    """Whether every table of the subscription is in state `r`; one that is not listed yet is not."""
    return all(states.get(table) == "r" for table in TABLES)


_STATES = "SELECT c.relname, r.srsubstate::text FROM pg_subscription_rel r JOIN pg_class c ON c.oid = r.srrelid"


def _on(place: Place, port: int, statement: str, *parameters: str) -> list[tuple[object, ...]]:
    return postgres.query(place, port, statement, parameters, database=DATABASE)
