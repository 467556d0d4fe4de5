"""Copying and verifying, killed at every failpoint and run again, between folders and between buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.kernel.failpoints import Failpoint
from headwater.storage.port import Create, ObjectStore, Overwrite
from tests.crash.child import child
from tests.crash.copy_actor import BATCHES, FILES, content
from tests.crash.places import Place, both, place

__all__ = ["place"]  # the fixture
pytestmark = pytest.mark.slow
ACTOR = "tests.crash.copy_actor"
EVERYTHING = {f"b{batch}/f{number}": content(batch, number) for batch in range(BATCHES) for number in range(FILES)}


def written(place: Place) -> ObjectStore:
    store = place.app().open_store(place.url)
    for name, data in EVERYTHING.items():
        store.put(f"us/{name}", data, Create())
    return store


def held(store: ObjectStore) -> dict[str, bytes]:
    return {meta.path.removeprefix("eu/"): store.get(meta.path).data for meta in store.list("eu")}


@both
@pytest.mark.parametrize("point", [Failpoint.COPY_AFTER_MOVE, Failpoint.COPY_AFTER_NOTE])
def test_a_copy_that_was_killed_goes_on(place: Place, point: Failpoint, tmp_path: Path) -> None:
    store, notes = written(place), tmp_path / "notes"
    arguments = ("copy", place.url, str(notes))
    with child(ACTOR, *arguments, environ=place.environ, failpoints=f"{point}=kill@2") as actor:
        assert actor.killed() == []
    # Two batches are there, whole; what is noted is there.
    noted = notes.read_text().split()
    assert noted == (["0"] if point is Failpoint.COPY_AFTER_MOVE else ["0", "1"])
    there = held(store)
    assert {name: EVERYTHING[name] for name in there} == there
    assert {f"b{batch}/f{number}" for batch in noted for number in range(FILES)} <= there.keys()
    with child(ACTOR, *arguments, environ=place.environ) as actor:
        assert actor.finished() == [{"batches": BATCHES - len(noted)}]
    assert held(store) == EVERYTHING
    assert sorted(notes.read_text().split()) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("place", ["file"], indirect=True)
@pytest.mark.parametrize("point", [Failpoint.FILE_PUT_TEMPORARY_SYNCED, Failpoint.FILE_PUT_LINKED])
def test_a_copy_that_was_killed_within_a_file_leaves_no_half_of_it(
    place: Place, point: Failpoint, tmp_path: Path
) -> None:
    store, notes = written(place), tmp_path / "notes"
    arguments = ("copy", place.url, str(notes))
    with child(ACTOR, *arguments, environ=place.environ, failpoints=f"{point}=kill@7") as actor:
        actor.killed()
    there = held(store)
    assert there.items() <= EVERYTHING.items()
    with child(ACTOR, *arguments, environ=place.environ) as actor:
        actor.finished()
    assert held(store) == EVERYTHING


@both
def test_a_verification_that_was_killed_after_it_copied_again_goes_on(place: Place, tmp_path: Path) -> None:
    store, notes = written(place), tmp_path / "notes"
    with child(ACTOR, "copy", place.url, str(notes), environ=place.environ) as actor:
        actor.finished()
    for name in ("b0/f0", "b1/f1", "b2/f2"):
        store.put(f"eu/{name}", b"?" * len(EVERYTHING[name]), Overwrite())
    arguments = ("verify", place.url, str(notes))
    killed_at = f"{Failpoint.VERIFY_AFTER_RECOPY}=kill@1"
    with child(ACTOR, *arguments, environ=place.environ, failpoints=killed_at) as actor:
        actor.killed()
    with child(ACTOR, *arguments, environ=place.environ) as actor:
        [said] = actor.finished()
    assert said["recopied"] <= 2
    assert held(store) == EVERYTHING
