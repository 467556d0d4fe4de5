"""The list of localised outputs (hazard G4): what sync wrote in a region and no commit of `main` ever named.

Promise: every output that exists was listed before it was written, so that reclaim finds all of them by the list alone.

Invariants:

    1  An output is listed first and written second. What is listed may not exist; what exists is listed.
    2  A name stands for one recipe, for ever. To list it again changes nothing; with another recipe it is refused.
    3  A row goes only after the bytes are gone.

Commit point: the transaction of `record`. What a crash after each step leaves behind:

    record       a row without bytes, which reclaim finds missing, or a later run makes good
    write        an output that is listed, and reused by the next run that needs it
    forget       nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.database import Database, Isolation, migrate
from headwater.kernel.errors import OutcomeUnknownError, RefusedError, UnavailableError
from headwater.regions import tables
from headwater.regions.claims.protocol import BATCH, MIGRATIONS
from headwater.regions.outputs.model import Output, differs
from headwater.regions.uris import canonical

_row = tables.outputs.c


class Outputs:
    """The outputs of a lake in all of its regions. Safe to share among threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        migrate(database, "regions", MIGRATIONS)

    def record(self, outputs: Iterable[Output]) -> None:
        """List them, before they are written; again and again changes nothing."""
        rest = (replace(each, uri=canonical(each.uri), source=canonical(each.source)) for each in outputs)
        while batch := list(islice(rest, BATCH)):
            with self._writing() as connection:
                now = self._database.now(connection)
                # In one order: tasks that list the same outputs at once would wait for each other in a circle.
                rows = [{**asdict(each), "recorded_at": now} for each in sorted(batch, key=lambda each: each.uri)]
                connection.execute(tables.insert_missing(self._database.dialect, tables.outputs), rows)
                self._refuse_others(connection, batch)

    def find(self, region: str, digests: Sequence[str]) -> dict[str, tuple[Output, ...]]:
        """Outputs of a region by their digest; whether their bytes exist, only the store knows."""
        found: dict[str, tuple[Output, ...]] = {}
        for start in range(0, len(digests), BATCH):
            some = _row.digest.in_(digests[start : start + BATCH])
            with self._database.read() as connection:
                for each in connection.execute(_ordered().where(_row.region == region, some)):
                    found[each.digest] = (*found.get(each.digest, ()), _as_output(each))
        return found

    def list(self, region: str, *, after: str = "", limit: int = 1_000) -> tuple[Output, ...]:
        """A page of a region's outputs by URI, behind `after`."""
        with self._database.read() as connection:
            page = connection.execute(_ordered().where(_row.region == region, _row.uri > after).limit(limit))
            return tuple(_as_output(each) for each in page)

    def forget(self, region: str, uris: Sequence[str]) -> int:
        """Drop the rows of outputs whose bytes are gone; returns how many they were."""
        count = 0
        for start in range(0, len(uris), BATCH):
            some = _row.uri.in_([canonical(uri) for uri in uris[start : start + BATCH]])
            with self._writing() as connection:
                count += connection.execute(sa.delete(tables.outputs).where(_row.region == region, some)).rowcount
        return count

    def _refuse_others(self, connection: Connection, wanted: Sequence[Output]) -> None:
        """What is listed under these names must be these outputs; otherwise nothing of the batch is listed."""
        regions, uris = {each.region for each in wanted}, {each.uri for each in wanted}
        rows = connection.execute(_ordered().where(_row.region.in_(regions), _row.uri.in_(uris)))
        listed = {(each.region, each.uri): _as_output(each) for each in rows}
        for each in wanted:
            found = listed[each.region, each.uri]
            if differs(found, each):
                raise RefusedError(
                    f"{each.uri} is listed as made from {found.source}, and now from {each.source}",
                    hint="the name of an output is the digest of what it is made from: two recipes have one name here",
                    uri=each.uri,
                    region=each.region,
                    expected=found.digest,
                    actual=each.digest,
                )

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that may be repeated: to list or forget twice is the same as once."""
        try:
            with self._database.write(isolation=Isolation.OWN_LOCKS) as connection:
                yield connection
        except OutcomeUnknownError as error:
            raise UnavailableError(error.message, hint="try again: doing it twice does no harm") from error


def _ordered() -> sa.Select[Any]:
    return sa.select(tables.outputs).order_by(_row.region, _row.uri)


def _as_output(row: Row[Any]) -> Output:
    return Output(row.region, row.uri, row.kind, row.digest, row.source, row.generation)
