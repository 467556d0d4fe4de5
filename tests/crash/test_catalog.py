"""Real processes that commit to one lake at once, killed and stopped at every failpoint of a commit.

What is true is the raw JSON of manifests and objects, replayed against a dictionary; no product code reads it.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from headwater.catalog.embedded.open import init_embedded
from headwater.catalog.embedded.protocol import EmbeddedCatalog
from headwater.kernel.clock import SystemClock
from headwater.kernel.failpoints import Failpoint
from headwater.kernel.ids import new_ulid
from headwater.sequence.collect import Collector
from headwater.sequence.model import Namespace, Retention
from headwater.sequence.protocol import WRITING, Sequencer
from headwater.storage.port import ObjectStore
from tests.crash.catalog_actor import open_lake, request
from tests.crash.child import child
from tests.crash.places import Place, both, place

COMMIT = [Failpoint.CATALOG_COMMIT_AFTER_OBJECTS, Failpoint.CATALOG_COMMIT_AFTER_MANIFEST]
BELOW = [Failpoint.WRITE_BEFORE_CREATE, Failpoint.WRITE_AFTER_CREATE, Failpoint.WRITE_AFTER_CHECK]
LANDED = {Failpoint.CATALOG_COMMIT_AFTER_MANIFEST, Failpoint.WRITE_AFTER_CREATE, Failpoint.WRITE_AFTER_CHECK}
ACTOR = "tests.crash.catalog_actor"
__all__ = ["place"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.proves("catalog/crash")]


def made(place: Place) -> tuple[EmbeddedCatalog, ObjectStore]:
    """A new lake: its catalog, and its bytes."""
    app, store = place.app(), place.app().open_store(place.url, needed=WRITING)
    init_embedded(store, clock=app.clock, randomness=app.randomness)
    return open_lake(app, place.url), store


class Truth:
    """The log of main and what each commit holds, from the bytes alone."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        paths = [meta.path for meta in store.list("_headwater/catalog/manifest")]
        manifest = json.loads(store.get(paths[-1]).data.partition(b"\n")[2])
        self.commits: list[dict[str, Any]] = []
        digest: str | None = manifest["refs"]["main"]["hash"]
        while digest:
            commit = self._object(digest)
            self.commits.insert(0, commit)
            digest = commit["parents"][0]["hash"] if commit["parents"] else None
        self.operations = [commit["properties"].get("headwater.operation") for commit in self.commits]

    def tables(self, commit: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for digest in commit["tree"].values():
            for name, content in self._object(digest)["contents"].items():
                if content["type"] == "table":
                    found[name] = content["metadata_location"]
        return found

    def _object(self, digest: str) -> dict[str, Any]:
        data = self._store.get(f"_headwater/catalog/objects/{digest[:2]}/{digest[2:]}").data
        assert hashlib.sha256(data).hexdigest() == digest
        values: dict[str, Any] = json.loads(data)
        return values

    def judge(self, said: list[dict[str, Any]]) -> None:
        """Each success is in the log once, no conflict is; each commit is its parent and its own change."""
        for report in said:
            count = self.operations.count(report["operation"])
            if report["outcome"] == "committed":
                assert count == 1, report
            elif report["outcome"] == "conflict":
                assert count == 0, report
        model: dict[str, str] = {}
        for number, commit in enumerate(self.commits):
            if number:
                model["default.shared"] = str(number)
                model[f"default.{commit['actor']}"] = commit["properties"]["headwater.operation"]
                assert commit["committed_at"] >= self.commits[number - 1]["committed_at"]
            assert self.tables(commit) == model, commit


@both
@pytest.mark.parametrize("point", [*COMMIT, *BELOW], ids=str)
def test_a_writer_killed_among_others(place: Place, point: Failpoint) -> None:
    catalog, store = made(place)
    with ExitStack() as stack:
        others = [
            stack.enter_context(child(ACTOR, place.url, name, "6", environ=place.environ)) for name in ("ann", "bob")
        ]
        victim = stack.enter_context(
            child(ACTOR, place.url, "eve", "50", environ=place.environ, failpoints=f"{point}=kill@4")
        )
        last = victim.killed()
        said = [report for other in others for report in other.finished()]
    truth = Truth(store)
    truth.judge([*said, *last])
    assert sum(report["outcome"] == "committed" for report in said) == 12
    assert last[-1]["outcome"] == "trying"
    landed = truth.operations.count(last[-1]["operation"])
    if point in COMMIT:
        assert landed == (point in LANDED)
    else:  # the id may have been somebody else's
        assert landed <= (point in LANDED)
    outcome = catalog.outcome("main", last[-1]["operation"])
    assert (outcome is not None) == bool(landed)
    with child(ACTOR, place.url, "eve", "1", environ=place.environ) as successor:
        said = successor.finished()
    Truth(store).judge(said)


@both
def test_a_writer_stopped_while_its_objects_are_swept(place: Place) -> None:
    """It stalls between its objects and its manifest; nothing but the staging horizon is written meanwhile."""
    catalog, store = made(place)
    known = {meta.path for meta in store.list("_headwater/catalog/objects")}
    point = Failpoint.CATALOG_COMMIT_AFTER_OBJECTS
    with child(ACTOR, place.url, "eve", "1", environ=place.environ, failpoints=f"{point}=stop@1") as actor:
        actor.wait_stopped()
        swept = {meta.path for meta in store.list("_headwater/catalog/objects")} - known
        assert len(swept) == 3
        SystemClock().sleep(0.002)  # a horizon is a moment that has passed, and behind the puts
        catalog.publish_staging_horizon(SystemClock().now())
        for path in swept:
            store.delete(path)
        said = actor.resumed()
    assert [report["outcome"] for report in said] == ["trying", "committed"]
    Truth(store).judge(said)


@both
@pytest.mark.parametrize("point", [*COMMIT, *BELOW], ids=str)
def test_a_writer_stopped_while_history_moves_on_and_is_collected(place: Place, point: Failpoint) -> None:
    catalog, store = made(place)
    app = place.app()
    with child(ACTOR, place.url, "eve", "1", environ=place.environ, failpoints=f"{point}=stop@1") as actor:
        actor.wait_stopped()
        for _ in range(3):
            catalog.commit(request(catalog, "ann", new_ulid(app.clock, app.randomness)))
        sequencer = Sequencer(
            store,
            Namespace("_headwater/catalog", "manifest", ".manifest"),
            clock=app.clock,
            randomness=app.randomness,
        )
        Collector(sequencer, Retention(timedelta(0), timedelta(0))).collect()
        said = actor.resumed()
    truth = Truth(store)
    truth.judge(said)
    assert said[-1]["outcome"] == "committed"
    # What was stopped in front of the create comes too late, and tries again; the others had committed.
    assert len([report for report in said if report["outcome"] == "trying"]) == (1 if point in LANDED else 2)


def test_every_failpoint_of_the_catalog_is_exercised() -> None:
    assert {each for each in Failpoint if each.startswith("catalog.")} == set(COMMIT)


def test_every_failpoint_is_exercised() -> None:
    """Each of these is armed above, and each test asserts that its process died of it."""
    assert {point for point in Failpoint if point.startswith("catalog.")} == set(COMMIT)
