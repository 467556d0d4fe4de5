"""Servers are killed at every failpoint that a keyed POST passes; another is asked again, and it is carried out once.

Both servers have the lake and its database. What the second says of a request that the first has carried out is what
the first would have said.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.app import App
from headwater.kernel.clock import SystemClock
from headwater.kernel.failpoints import Action, Failpoint, arm
from headwater.kernel.settings import load
from headwater.lake import Lake
from headwater.server.uploads import PREFIX
from tests.unit.server_world import served_lake
from tests.unit.test_server_process import PATIENCE_SECONDS, again

pytestmark = [pytest.mark.slow, pytest.mark.proves("server/once")]

# What a keyed POST passes on a folder; a point that comes by twice is tried at both, head and manifest.
POINTS = {
    Failpoint.FILE_PUT_TEMPORARY_SYNCED: (1, 3),
    Failpoint.FILE_PUT_LINKED: (1, 3),
    Failpoint.FILE_UPDATE_LOCKED: (1,),
    Failpoint.FILE_UPDATE_RENAMED: (1,),
    Failpoint.WRITE_BEFORE_CREATE: (1, 2),
    Failpoint.WRITE_AFTER_CREATE: (1, 2),
    Failpoint.WRITE_AFTER_CHECK: (1, 2),
    Failpoint.PIN_AFTER_ASK: (1,),
    Failpoint.PIN_AFTER_CHECK: (1,),
    Failpoint.CATALOG_COMMIT_AFTER_OBJECTS: (1,),
    Failpoint.CATALOG_COMMIT_AFTER_MANIFEST: (1,),
    Failpoint.PUBLISH_AFTER_SIDECAR: (1,),
    Failpoint.PUBLISH_AFTER_HEAD: (1,),
    Failpoint.PUBLISH_AFTER_COMMIT: (1,),
}
# The server that stays alive has time, however busy the machine is.
PATIENT = {"HEADWATER_SERVER_WRITE_SECONDS": "60", "HEADWATER_PUBLISH_LEASE_SECONDS": "30"}
LANDED = {Failpoint.CATALOG_COMMIT_AFTER_MANIFEST, Failpoint.PUBLISH_AFTER_COMMIT}


@dataclass(frozen=True)
class Case:
    """One request to one server, which dies of it."""

    point: Failpoint
    hit: int
    kind: str

    @property
    def table(self) -> str:
        return f"{self.kind}_{list(Failpoint).index(self.point)}_{self.hit}"

    @property
    def request(self) -> dict[str, Any]:
        key = {"idempotency-key": self.table}
        if self.kind == "mutate":
            sql = [f"insert into {self.table} values (1), (2)", f"delete from {self.table} where id = 2"]
            return {"url": "/v1/main/mutate", "json": {"sql": sql}, "headers": key}
        return {
            "url": f"/v1/main/load?table={self.table}",
            "content": b'{"id": 1}\n',
            "headers": {**key, "content-type": "application/x-ndjson"},
        }

    @property
    def told(self) -> dict[str, Any]:
        return {"rows": [2, 1]} if self.kind == "mutate" else {"rows": 1, "updated": 0, "files": 1}


CASES = [Case(point, hit, kind) for point, hits in POINTS.items() for hit in hits for kind in ("mutate", "load")]


@contextmanager
def victims(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.crash.lake_api_victims"]
    environ = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE_SECONDS)
        assert process.stdout is not None
        process.stdout.close()


def kill_one(process: subprocess.Popen[str], lake: Path, case: Case) -> None:
    """Start a server, let it die of the request, and see that it did."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"lake": str(lake), "failpoints": f"{case.point}=kill@{case.hit}"}) + "\n")
    process.stdin.flush()
    started = json.loads(process.stdout.readline())
    try:
        with pytest.raises(httpx.TransportError), httpx.Client(base_url=started["address"], timeout=60) as client:
            client.request("POST", **case.request)
    except BaseException:
        os.kill(started["pid"], signal.SIGKILL)
        raise
    finally:
        ended = json.loads(process.stdout.readline())
    assert ended == {"signal": signal.SIGKILL}


def answered(client: httpx.Client, case: Case) -> httpx.Response:
    """The same request, sent until it is answered."""
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while (answer := client.request("POST", **case.request)).status_code in (409, 429, 503):
        assert clock.monotonic() < deadline, answer.text
        if answer.json()["code"] == "in_progress":
            assert int(answer.headers["retry-after"]) > 0
        clock.sleep(0.1)
    assert answer.status_code == 200, answer.text
    return answer


def test_these_are_the_points_that_a_keyed_request_passes(tmp_path: Path) -> None:
    with served_lake(tmp_path / "lake") as world, ExitStack() as stack:
        armed = [stack.enter_context(arm(each, Action.DELAY, arg="0")) for each in Failpoint]
        for kind in ("mutate", "load"):
            before = {each.point: each.hits for each in armed}
            body = Case(Failpoint.PUBLISH_AFTER_HEAD, 1, kind).request
            if kind == "mutate":
                body["json"] = {"sql": "insert into t values (1, 'a')"}
            else:
                body |= {"url": "/v1/main/load?table=t", "content": b'{"id": 2}\n'}
            assert world.client.request("POST", **body).status_code == 200
            passed = {each.point: hits for each in armed if (hits := each.hits - before[each.point])}
            assert passed.keys() == POINTS.keys()
            assert all(passed[point] >= max(hits) for point, hits in POINTS.items()), passed


def test_a_server_is_killed_at_each_of_them_and_another_is_asked_again(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    lake = App(load(environ={})).init_lake(str(folder))
    lake.apply("; ".join(f"create table {case.table} (id bigint)" for case in CASES), actor="setup")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    landed = set()
    with again(folder, **PATIENT) as client:
        with victims(temporary) as process:
            for case in CASES:
                kill_one(process, folder, case)
                if lake.query(f"select id from {case.table}").num_rows:
                    landed.add(case)
                # Nobody knows yet that its server is dead: it is answered from the log, or told to wait.
                at_once = client.request("POST", **case.request)
                assert at_once.status_code in (200, 409, 503), at_once.text
        for case in CASES:
            check(lake, client, case, was_there=case in landed)
        clear_away(lake, client)
    # A server that heals what others left may die of that, before its own request is there.
    assert {case.point for case in landed} & LANDED
    assert list(temporary.glob(f"{PREFIX}*"))
    # What the dead had taken in goes when the next server starts.
    with again(folder, HEADWATER_QUERY_TEMP_DIRECTORY=str(temporary)):
        assert list(temporary.glob(f"{PREFIX}*")) == []


def clear_away(lake: Lake, client: httpx.Client) -> None:
    """Notes of what was published are there until the leases of the dead are over; then one recovery takes them all."""
    notes = lake.writing.sidecars.pending()
    clock = SystemClock()
    left = max(((each.lease_until - clock.now()).total_seconds() for each in notes), default=0.0)
    clock.sleep(max(0.0, left) + 0.5)  # and the skew that is allowed between clocks
    assert client.post("/v1/recover").status_code == 200
    assert not lake.writing.sidecars.pending()


def check(lake: Lake, client: httpx.Client, case: Case, *, was_there: bool) -> None:
    answer = answered(client, case)
    operation, commit = answer.json()["operation"], answer.json()["commit"]
    assert answer.json() == {"operation": operation, "commit": commit, **case.told}
    assert answered(client, case).json() == answer.json()
    [row] = lake.query(f"select id from {case.table}").to_pylist()
    assert row == {"id": 1}
    if was_there:
        assert answer.headers["idempotent-replayed"] == "true"
    assert lake.catalog.commit_at(commit).operation == operation
    settled = client.get(f"/v1/operations/{operation}").json()
    assert (settled["state"], settled["commit"]["hash"]) == ("committed", commit)
