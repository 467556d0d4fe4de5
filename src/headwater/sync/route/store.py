"""Where the readers of each region are sent, in the database: commands that ask one after the other agree."""

from __future__ import annotations

import sqlalchemy as sa

from headwater.database import Database, Isolation, migrate
from headwater.regions.tables import insert_missing
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
        """Where the region's readers are sent from now on; decided and kept in one transaction.

        Readers who ask at the same time wait for each other at the region's row: none of them is refused.
        """
        with self._database.write(isolation=Isolation.OWN_LOCKS) as connection:
            begun = {"region": region, **_values(first(self._database.now(connection)))}
            connection.execute(insert_missing(self._database.dialect, tables.routes), begun)
            row = connection.execute(sa.select(tables.routes).where(_row.region == region).with_for_update()).one()
            state = RouteState(Way(row.way), row.since, row.well_since)
            routed = step(state, health, self._database.now(connection), limits)
            if routed.state != state:
                changed = sa.update(tables.routes).where(_row.region == region)
                connection.execute(changed.values(**_values(routed.state)))
        return routed


def _values(state: RouteState) -> dict[str, object]:
    return {"way": str(state.way), "since": state.since, "well_since": state.well_since}
