"""The statements of claims, one each. They decide nothing; `protocol.py` orders them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.kernel.ids import Ulid
from headwater.regions import tables
from headwater.regions.claims.model import ClaimRun, Deletion

_place, _run, _claim, _deletion = tables.places.c, tables.runs.c, tables.claims.c, tables.deletions.c


def lock_place(connection: Connection, region: str) -> int:
    """Lock the region's row, which is made if need be; the highest fence seen there."""
    missing = tables.insert_missing(connection.dialect.name, tables.places)
    connection.execute(missing, {"region": region, "fence": 0})
    locked = sa.select(_place.fence).where(_place.region == region).with_for_update()
    return int(connection.execute(locked).scalar_one())


def highest_fence(connection: Connection, region: str) -> int:
    """The same without a lock; 0 where no run ever began."""
    return connection.execute(sa.select(_place.fence).where(_place.region == region)).scalar() or 0


def raise_fence(connection: Connection, region: str, fence: int) -> None:
    """A run of this fence has begun."""
    connection.execute(sa.update(tables.places).where(_place.region == region).values(fence=fence))


def lock_run(connection: Connection, run: Ulid) -> ClaimRun | None:
    """The run's row, locked."""
    row = connection.execute(sa.select(tables.runs).where(_run.run == run).with_for_update()).first()
    return None if row is None else _as_run(row)


def put_run(connection: Connection, run: ClaimRun, *, is_new: bool) -> None:
    """The run as it stands from now on."""
    values = {"region": run.region, "fence": run.fence, "expires_at": run.expires_at}
    if is_new:
        connection.execute(sa.insert(tables.runs).values(run=run.run, **values))
    else:
        connection.execute(sa.update(tables.runs).where(_run.run == run.run).values(**values))


def drop_run(connection: Connection, run: ClaimRun) -> None:
    """The run goes, with its claims, if it is still this attempt's."""
    connection.execute(sa.delete(tables.runs).where(_run.run == run.run, _run.fence == run.fence))


def clear_lapsed(connection: Connection, region: str, now: datetime, *, but: Ulid) -> None:
    """Runs of the region whose lease is over go, with their claims."""
    connection.execute(sa.delete(tables.runs).where(_run.region == region, _run.expires_at <= now, _run.run != but))


def add_claims(connection: Connection, run: Ulid, uris: Sequence[str]) -> None:
    """The run claims these; what it has claimed already stays so."""
    if uris:
        missing = tables.insert_missing(connection.dialect.name, tables.claims)
        connection.execute(missing, [{"uri": uri, "run": run} for uri in uris])


def drop_claims(connection: Connection, run: Ulid) -> None:
    """The run claims nothing any more."""
    connection.execute(sa.delete(tables.claims).where(_claim.run == run))


def claiming(connection: Connection, uris: Sequence[str], *, lock: bool = True) -> dict[str, list[ClaimRun]]:
    """The runs that have claimed each of these files, their rows locked in one order."""
    pairs = connection.execute(sa.select(_claim.uri, _claim.run).where(_claim.uri.in_(uris))).all()
    wanted = sa.select(tables.runs).where(_run.run.in_({each.run for each in pairs})).order_by(_run.run)
    found = connection.execute(wanted.with_for_update() if lock else wanted)
    runs = {each.run: _as_run(each) for each in found}
    by_uri: dict[str, list[ClaimRun]] = {}
    for uri, run in pairs:
        if run in runs:  # else it was released just now
            by_uri.setdefault(uri, []).append(runs[run])
    return by_uri


def overrun(connection: Connection, run: Ulid) -> str | None:
    """A file that the run has claimed and somebody is deleting, if there is one."""
    both = sa.select(_claim.uri).where(_claim.run == run, _deletion.uri == _claim.uri)
    return connection.scalar(both.limit(1))


def deletions(connection: Connection, uris: Sequence[str]) -> dict[str, Deletion]:
    """Which of these files are being deleted, and by whom."""
    rows = connection.execute(sa.select(tables.deletions).where(_deletion.uri.in_(uris)))
    return {each.uri: _as_deletion(each) for each in rows}


def marked(connection: Connection, region: str, after: str, limit: int) -> Iterator[tuple[str, Deletion]]:
    """The files of a region that are being deleted, in the order of their URIs."""
    wanted = sa.select(tables.deletions).where(_deletion.region == region, _deletion.uri > after)
    for each in connection.execute(wanted.order_by(_deletion.uri).limit(limit)):
        yield each.uri, _as_deletion(each)


def mark(connection: Connection, region: str, uris: Sequence[str], deletion: Deletion) -> None:
    """These are being deleted by this executor, whoever did so before."""
    if uris:
        connection.execute(sa.delete(tables.deletions).where(_deletion.uri.in_(uris)))
        values = {"region": region, "executor": deletion.executor, "lease_until": deletion.lease_until}
        connection.execute(sa.insert(tables.deletions), [{"uri": uri, **values} for uri in uris])


def unmark(connection: Connection, uris: Sequence[str], executor: Ulid) -> None:
    """These are not being deleted any more, if it was by this executor."""
    ours = sa.delete(tables.deletions).where(_deletion.executor == executor, _deletion.uri.in_(uris))
    connection.execute(ours)


def _as_run(row: Row[Any]) -> ClaimRun:
    return ClaimRun(Ulid(row.run), row.region, row.fence, row.expires_at)


def _as_deletion(row: Row[Any]) -> Deletion:
    return Deletion(Ulid(row.executor), row.lease_until)
