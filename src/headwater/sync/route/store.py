"""Where the readers of each region are sent, in the database: commands that ask one after the other agree."""

from __future__ import annotations

import sqlalchemy as sa

from headwater.database import Database, migrate
from headwater.sync.route.decide import first, step
from headwater.sync.route.model import Health, Routed, RouteLimits, RouteState, Way
from headwater.sync.runs import tables
from headwater.sync.runs.store import MIGRATIONS

_row = tables.routes.c


class Routes:
    """The ways of all regions. Safe to share among threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        migrate(database, "sync", MIGRATIONS)

    def route(self, region: str, health: Health, limits: RouteLimits) -> Routed:
        """Where the region's readers are sent from now on; decided and kept in one transaction."""
        with self._database.write() as connection:
            now = self._database.now(connection)
            row = connection.execute(sa.select(tables.routes).where(_row.region == region)).one_or_none()
            state = first(now) if row is None else RouteState(Way(row.way), row.since, row.well_since)
            routed = step(state, health, now, limits)
            values = {
                "way": str(routed.state.way),
                "since": routed.state.since,
                "well_since": routed.state.well_since,
            }
            if row is None:
                connection.execute(sa.insert(tables.routes).values(region=region, **values))
            elif routed.state != state:
                connection.execute(sa.update(tables.routes).where(_row.region == region).values(**values))
        return routed
