"""Localising, killed while it writes and run again: the same outputs, all of them whole and listed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions.parser import parse
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from headwater.database import open_database
from headwater.kernel.failpoints import Failpoint
from headwater.regions.outputs import Outputs
from headwater.tables.model import TableVersion
from headwater.tables.operations import append, delete
from tests.crash.child import child
from tests.fixtures.engines import by_duckdb, by_pyiceberg
from tests.unit.localise_world import REGION, RESERVED, Regions

pytestmark = [pytest.mark.slow, pytest.mark.hazard("R5", "G4")]
ACTOR = "tests.crash.localise_actor"
SCHEMA = Schema(NestedField(1, "id", LongType()))


def some_table(regions: Regions) -> TableVersion:
    world = regions.worlds["us"]
    table = world.create(SCHEMA)
    for start in (0, 10):
        table = world.commit(append(world.staging(), table, pa.table({"id": pa.array(range(start, start + 10))})))
    return world.commit(delete(world.staging(), table, parse("id in (3, 14)")))


def there(regions: Regions) -> dict[str, bytes]:
    folder = regions.folder / REGION / RESERVED
    return {
        f"file://{path}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".hw-")
    }


# Nine outputs: two manifests of data, two delete files, their manifest, three lists, metadata.json.
@pytest.mark.parametrize(
    ("point", "hit"),
    [
        (Failpoint.FILE_PUT_LINKED, 1),
        (Failpoint.FILE_PUT_TEMPORARY_SYNCED, 4),
        (Failpoint.FILE_PUT_LINKED, 8),
    ],
)
def test_localising_that_was_killed_goes_on(tmp_path: Path, point: Failpoint, hit: int) -> None:
    regions = Regions(tmp_path)
    table = some_table(regions)
    assert table.location is not None
    regions.copy()
    with child(ACTOR, str(tmp_path), table.location, environ={}, failpoints=f"{point}=kill@{hit}") as actor:
        assert actor.killed() == []
    before = there(regions)
    # Up to eight are written at a time, and die together: linked, or with a temporary that nobody linked.
    fewest = hit if point is Failpoint.FILE_PUT_LINKED else hit - 8
    assert fewest <= len(before) <= hit + 7
    with open_database(tmp_path / "state.db") as database:
        assert before.keys() <= {each.uri for each in Outputs(database).list(REGION)}
    with child(ACTOR, str(tmp_path), table.location, environ={}) as actor:
        [said] = actor.finished()
    after = there(regions)
    assert before.items() <= after.items()
    assert len(after) == 9
    with open_database(tmp_path / "state.db") as database:
        assert after.keys() == {each.uri for each in Outputs(database).list(REGION)}
    with regions.others_away():
        rows = by_pyiceberg(said["location"])
        assert by_duckdb(said["location"]) == rows
    assert [row[0] for row in rows] == [n for n in sorted(range(20), key=str) if n not in (3, 14)]
