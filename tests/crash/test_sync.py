"""A sync that is killed at every step, and taken up by the next process: the replica is whole before and after."""

from __future__ import annotations

import os
import subprocess
import sys
from copy import copy
from pathlib import Path

import pytest

from headwater.app import App
from headwater.kernel.errors import ConflictError
from headwater.kernel.failpoints import Failpoint
from headwater.sync.runs.model import RunState
from tests.crash.nursery import ShiftedClock
from tests.unit.sync_world import Regions, ids

pytestmark = [pytest.mark.slow, pytest.mark.proves("sync crash")]

POINTS = (
    Failpoint.SYNC_AFTER_PLAN,
    Failpoint.COPY_AFTER_MOVE,
    Failpoint.COPY_AFTER_NOTE,
    Failpoint.SYNC_AFTER_LOCALISE,
    Failpoint.PROMOTE_AFTER_COMMIT,
    Failpoint.CATALOG_COMMIT_AFTER_OBJECTS,
    Failpoint.CATALOG_COMMIT_AFTER_MANIFEST,
    Failpoint.FILE_PUT_TEMPORARY_SYNCED,
    Failpoint.FILE_PUT_LINKED,
)
LEASE_SECONDS = 60
OWN = {"HEADWATER_SYNC_LEASE_SECONDS": str(LEASE_SECONDS), "HEADWATER_SYNC_VERIFY_SAMPLE_RATE": "1"}


def run_sync(regions: Regions, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "headwater", "sync", "run", regions.url, "--region", "eu", "--json"]
    return subprocess.run(
        argv, env={**os.environ, **OWN, **environ}, capture_output=True, text=True, timeout=120, check=False
    )


def go_on(regions: Regions) -> None:
    """The next process, which is this one: it finds the region taken, until by its clock the lease is over."""
    with pytest.raises(ConflictError):
        regions.sync()
    ahead = copy(regions)
    ahead.app = App(regions.app.settings, ShiftedClock(LEASE_SECONDS))
    ahead.sync()


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: Failpoint, tmp_path: Path) -> None:
    regions = Regions(tmp_path, **OWN)
    lake = regions.lake("us")
    lake.create_table("t", ids(0).schema, actor="ann")
    lake.create_table("u", ids(0).schema, actor="ann")
    regions.sync()
    with lake.transaction(actor="ann") as change:
        change.insert("t", ids(1, 2))
        change.insert("u", ids(1, 2))
    answer = run_sync(regions, HEADWATER_FAILPOINTS=f"{point}=kill")
    assert answer.returncode < 0, answer.stderr
    # Both tables or none, at any moment.
    assert regions.rows("default.t") == regions.rows("default.u")
    with regions.lake("asia").transaction(actor="bob") as change:
        change.insert("t", ids(3))
        change.insert("u", ids(3))
    go_on(regions)
    expected = [{"id": number} for number in (1, 2, 3)]
    assert regions.rows("default.t") == regions.rows("default.u") == expected
    status = regions.status()
    assert status.pending is None
    states = {each.state for each in status.runs}
    assert RunState.RUNNING not in states
    if point is Failpoint.PROMOTE_AFTER_COMMIT:  # its commit is found, and the run is what it was: promoted
        assert states == {RunState.DONE}
