"""An Iceberg client whose server is killed in the midst of its commits: nothing is lost, nothing is half there.

The client is PyIceberg as it is published. It deletes the files of a commit that it takes for failed, so whatever a
commit refers to must still be there afterwards (P5).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from requests import RequestException

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.lake import Lake
from tests.unit.test_server_process import SHORT, serving

pytestmark = [pytest.mark.slow, pytest.mark.proves("server/iceberg crash")]

POINTS = (
    "storage.file.put.temporary-synced",
    "storage.file.put.linked",
    "sequence.write.before-create",
    "sequence.write.after-create",
    "sequence.write.after-check",
    "catalog.commit.after-objects",
    "catalog.commit.after-manifest",
    "publish.after-sidecar",
    "publish.after-head",
    "publish.after-commit",
)
SCHEMA = pa.schema([("id", pa.int64())])


def recovered(folder: Path) -> Lake:
    """The lake, opened once the lease of whoever died has passed."""
    clock = SystemClock()
    environ = {key: SHORT[key] for key in SHORT if "SERVER" not in key}
    for _ in range(100):
        lake = App(settings.load(environ=environ)).open_lake(str(folder))
        if not lake.writing.sidecars.pending():
            return lake
        clock.sleep(0.2)
    raise AssertionError("the sidecar of the dead server stays")


@pytest.mark.parametrize("point", POINTS)
def test_the_server_is_killed_at(point: str, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    made = App(settings.load(environ={})).init_lake(str(folder))
    made.create_table("t", SCHEMA, actor="ann")
    made.load("t", ids(0), actor="ann")
    said = [0]
    # The first write that comes by is the commit of an append: where it dies is where the point is.
    with serving(folder, **SHORT, HEADWATER_FAILPOINTS=f"{point}=kill@2") as server:
        catalog = RestCatalog("hw", uri=f"{server.address}/iceberg")
        try:
            for number in range(1, 50):
                catalog.load_table("default.t").append(ids(number))
                said.append(number)
        except RequestException:
            assert server.process.wait(60) < 0
        else:
            pytest.fail("the server was not killed")
    lake = recovered(folder)
    held = lake.query("SELECT id FROM t ORDER BY id")["id"].to_pylist()
    # What was confirmed is there, and of what was on its way all or nothing: its files are there if it is.
    assert held in (said, [*said, len(said)])
    lake.load("t", ids(100), actor="ann")  # and the table is held up by nothing
    assert lake.query("SELECT count(*) AS n FROM t")["n"].to_pylist() == [len(held) + 1]


def ids(number: int) -> pa.Table:
    return pa.table({"id": [number]}, schema=SCHEMA)
