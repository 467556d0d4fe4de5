"""A real process, killed at every failpoint of the indexes; then another one opens them and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.kernel.failpoints import Failpoint
from tests.crash.child import child
from tests.crash.ingest_index_actor import NAMES, ROUNDS
from tests.unit.ingest_index_world import FILE, TABLE, World, named

POINTS = [
    *((Failpoint.PRIMARY_BEFORE_COMMIT, count) for count in (1, 2, 4)),
    (Failpoint.MAIN_AFTER_RESERVE, 1),
    *((Failpoint.MAIN_FLUSH_AFTER_SNAPSHOT, count) for count in (1, 3)),
    *((Failpoint.MAIN_FLUSH_AFTER_COMMIT, count) for count in (1, 3)),
]


@pytest.mark.parametrize(("point", "count"), POINTS, ids=lambda value: str(value))
@pytest.mark.proves("ingest/index")
def test_what_was_said_is_there_and_batches_are_whole(tmp_path: Path, point: Failpoint, count: int) -> None:
    arguments = ("tests.crash.ingest_index_actor", str(tmp_path))
    with child(*arguments, environ={}, failpoints=f"{point}=kill@{count}") as victim:
        said = victim.killed()
    put = [(line["timestamp"], line["first"]) for line in said if "first" in line]
    flushed = max([line["flushed"] for line in said if "flushed" in line], default=0)
    world = World.open(tmp_path)

    chains = {tuple(timestamp for timestamp, _ in world.versions(name)) for name in NAMES}
    assert chains == {tuple(reversed([timestamp for timestamp, _ in put]))}
    for place, name in enumerate(NAMES[:3]):
        assert world.versions(name) == [(timestamp, first + place) for timestamp, first in reversed(put)]

    marker = world.main.check_marker(FILE)
    durable = marker.row_count if marker else 0
    assert durable == flushed or (point is Failpoint.MAIN_FLUSH_AFTER_COMMIT and durable == flushed + len(NAMES))
    newest = world.resolve(NAMES)
    assert newest.is_found.all() == (durable == len(put) * len(NAMES) > 0)

    # Whoever begins anew goes on from there, and no row id comes twice.
    taken = {first + place for _, first in put for place in range(len(NAMES))}
    rows = world.put(NAMES, ROUNDS + 1)
    assert taken.isdisjoint(rows.tolist())
    assert world.main.flush_index_entries_of_file(FILE).row_count == durable + len(NAMES)
    assert world.resolve(NAMES).row_ids.tolist() == rows.tolist()
    found = world.primary.versions_of(TABLE, named(NAMES))
    assert len(found.places) == (len(put) + 1) * len(NAMES)
    world.close()
