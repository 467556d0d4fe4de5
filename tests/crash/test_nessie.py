"""Real processes on a real Nessie: promoters that race, engines that commit without us, and death at every failpoint.

What is true is what the server says by plain HTTP; no product code reads it.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import headwater
from headwater.catalog.model import NamespaceContent, RefKind
from headwater.catalog.nessie.model import NO_ANCESTOR
from headwater.catalog.nessie.open import NessieUrl, init_nessie
from headwater.kernel.failpoints import Failpoint
from headwater.kernel.ids import Ulid
from tests.conformance.catalogs import fresh, put, space
from tests.crash.child import child
from tests.crash.nessie_actor import CLAIMED, CLOCK, RANDOMNESS, REPLICA, RESTED, SHARED, connect, request
from tests.fixtures.nessie import reset

ACTOR = "tests.crash.nessie_actor"

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.proves("catalog/nessie")]


@pytest.fixture
def api(nessie_url: str) -> str:
    """The API of a server whose repository is a fresh lake, with an empty replica branch."""
    reset(nessie_url)
    url = f"{nessie_url}/api/v2"
    catalog = init_nessie(NessieUrl(url, "s3://lake"), clock=CLOCK, randomness=RANDOMNESS)
    catalog.create_ref(RefKind.BRANCH, REPLICA, NO_ANCESTOR)
    return url


class Truth:
    """The log of a branch, newest first, and what tables are there, by plain HTTP."""

    def __init__(self, api: str, branch: str) -> None:
        self._client = httpx.Client(
            base_url=f"{api}/", timeout=30, headers={"Nessie-Client-Spec": "2"}, trust_env=False
        )
        with self._client:
            entries = self._client.get(f"trees/{branch}/history", params={"max-records": "1000"}).json()["logEntries"]
            self.commits = [each["commitMeta"] for each in entries]
            references = self._client.get("trees").json()["references"]
            self.refs = [each["name"] for each in references]
            self.rested = {
                each["hash"]: self._shared(each["parentCommitHashes"][0])
                for each in self.commits
                if _property(each, RESTED) is not None
            }
        self.operations = [_property(each, "headwater.operation") for each in self.commits]

    def _shared(self, at: str) -> str:
        asked = {"requestedKeys": [{"elements": list(SHARED.elements)}]}
        held = self._client.post(f"trees/@{at}/contents", json=asked).json()["contents"]
        return held[0]["content"]["metadataLocation"] if held else ""

    def judge(self, said: list[dict[str, Any]]) -> None:
        """Each success is in the log once, no conflict is; each commit stands on what it says it stands on."""
        for report in said:
            count = self.operations.count(report["operation"])
            assert count == (1 if report["outcome"] == "committed" else 0) or report["outcome"] == "trying", report
        for commit in self.commits:
            claimed = _property(commit, CLAIMED)
            if claimed is not None:
                assert commit["parentCommitHashes"] == [claimed]
            if _property(commit, RESTED) is not None:
                assert self.rested[commit["hash"]] == _property(commit, RESTED)


def _property(commit: dict[str, Any], name: str) -> str | None:
    values = commit.get("allProperties", {}).get(name)
    return values[0] if values else None


@pytest.mark.hazard("R1")
def test_r1_promoters_of_several_processes_never_land_on_another_head(api: str) -> None:
    put(connect(api), {space("default"): NamespaceContent(fresh())}, REPLICA)
    with ExitStack() as stack:
        actors = [stack.enter_context(child(ACTOR, api, "promoter", f"p{each}", "5", environ={})) for each in range(3)]
        said = [line for actor in actors for line in actor.finished()]
    truth = Truth(api, REPLICA)
    truth.judge(said)
    assert sum(each["outcome"] == "committed" for each in said) == 15
    assert any(each["outcome"] == "conflict" for each in said), "nobody raced"


@pytest.mark.hazard("R1", "P8")
def test_r1_p8_beside_an_engine_that_knows_nothing_of_us(api: str) -> None:
    with ExitStack() as stack:
        actors = [
            stack.enter_context(child(ACTOR, api, kind, f"{kind}{each}", count, environ={}))
            for kind, each, count in (
                ("engine", 0, "24"),
                ("strict", 0, "4"),
                ("reader", 0, "6"),
                ("reader", 1, "6"),
            )
        ]
        said = [line for actor in actors for line in actor.finished()]
    truth = Truth(api, "main")
    truth.judge(said)
    assert sum(each["outcome"] == "committed" for each in said) == 16
    assert len(truth.rested) == 12
    assert sum(each["message"] == "an engine" for each in truth.commits) == 24
    assert any(each["outcome"] == "conflict" for each in said), "nobody raced"
    assert not any(name.startswith("headwater/commit/") for name in truth.refs)


@pytest.mark.parametrize(
    ("point", "kind", "is_landed", "is_left"),
    [
        (Failpoint.NESSIE_COMMIT_AFTER_TEMPORARY, "strict", False, True),
        (Failpoint.NESSIE_COMMIT_AFTER_STAGED, "strict", False, True),
        (Failpoint.NESSIE_COMMIT_AFTER_COMMIT, "strict", True, False),
        (Failpoint.NESSIE_COMMIT_AFTER_COMMIT, "reader", True, False),
    ],
)
def test_killed_while_it_commits(api: str, point: Failpoint, kind: str, *, is_landed: bool, is_left: bool) -> None:
    with child(ACTOR, api, kind, "dead", "3", environ={}, failpoints=f"{point}=kill@2") as actor:
        said = actor.killed()
    truth = Truth(api, "main")
    truth.judge(said)
    last = [each["operation"] for each in said if each["outcome"] == "trying"][-1]
    assert (last in truth.operations) == is_landed
    assert any(name.startswith("headwater/commit/") for name in truth.refs) == is_left
    catalog = connect(api)
    assert (catalog.outcome("main", Ulid(last)) is not None) == is_landed
    catalog.commit(request(catalog, kind, "dead", fresh()))  # nobody is in the way
    Truth(api, "main").judge([])


@pytest.mark.parametrize(
    ("point", "is_landed"), [(Failpoint.PUBLISH_AFTER_FILES, False), (Failpoint.PUBLISH_AFTER_COMMIT, True)]
)
def test_killed_while_it_publishes(api: str, tmp_path: Path, point: Failpoint, *, is_landed: bool) -> None:
    """Nothing is left to recover: the next writer just writes."""
    lake = headwater.open(f"nessie+{api}?warehouse=file://{tmp_path}")
    lake.apply("CREATE TABLE t (id BIGINT PRIMARY KEY)", actor="a")
    with child(ACTOR, api, "lake", str(tmp_path), "3", environ={}, failpoints=f"{point}=kill@2") as actor:
        said = actor.killed()
    last = said[-1]["operation"]
    truth = Truth(api, "main")
    truth.judge(said)
    assert (last in truth.operations) == is_landed
    assert (lake.catalog.outcome("main", Ulid(last)) is not None) == is_landed
    lake.load("t", pa.table({"id": [7]}), actor="a")
    found = lake.query("SELECT id FROM t ORDER BY id")["id"].to_pylist()
    assert found == ([0, 1, 7] if is_landed else [0, 7])


@pytest.mark.parametrize("point", [Failpoint.NESSIE_REF_AFTER_CREATE, Failpoint.NESSIE_REF_AFTER_FORGET])
def test_killed_while_it_makes_or_deletes_a_branch(api: str, point: Failpoint) -> None:
    with child(ACTOR, api, "branches", "side", "3", environ={}, failpoints=f"{point}=kill@2") as actor:
        actor.killed()
    catalog = connect(api)
    half = catalog.ref("side")
    catalog.delete_ref("side", half.hash, incarnation=half.incarnation)
    again = catalog.create_ref(RefKind.BRANCH, "side", half.hash)
    assert again.incarnation != half.incarnation
