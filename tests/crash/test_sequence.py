"""Real processes, killed and stopped at every failpoint of write, advance, collect and pin, on a folder and on S3.

What a stopped process missed is played by this one: it writes on and collects, so that the sleeper wakes up
behind the boundary. What is true is what this process itself saw become history.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headwater.kernel.failpoints import Failpoint
from headwater.sequence.collect import Collector
from headwater.sequence.model import Retention
from headwater.sequence.pins import Pins
from headwater.sequence.protocol import Sequencer
from headwater.storage import folders
from headwater.storage.errors import TransientError
from headwater.storage.port import Create, Overwrite
from tests.crash.child import child
from tests.crash.places import Place, both, place

WRITE = [Failpoint.WRITE_BEFORE_CREATE, Failpoint.WRITE_AFTER_CREATE, Failpoint.WRITE_AFTER_CHECK]
COLLECT = [
    Failpoint.ADVANCE_AFTER_READ,
    Failpoint.ADVANCE_AFTER_PUT,
    Failpoint.COLLECT_AFTER_LIST,
    Failpoint.COLLECT_AFTER_ADVANCE,
    Failpoint.COLLECT_AFTER_PINS,
    Failpoint.COLLECT_AFTER_DELETE,
]
PIN = [Failpoint.PIN_AFTER_ASK, Failpoint.PIN_AFTER_CHECK]
FILE = [
    Failpoint.FILE_PUT_TEMPORARY_SYNCED,
    Failpoint.FILE_PUT_LINKED,
    Failpoint.FILE_UPDATE_LOCKED,
    Failpoint.FILE_UPDATE_RENAMED,
]
NO_AGE = Retention(timedelta(0), timedelta(0))

__all__ = ["place"]  # the fixture
pytestmark = pytest.mark.slow


def opened(place: Place) -> Sequencer:
    return place.app().open_sequencer(place.url, "manifest", suffix=".manifest")


class Model:
    """The history as this process saw it grow: id to writer."""

    def __init__(self, place: Place) -> None:
        self.sequencer = opened(place)
        self.history: dict[int, str] = {}

    def append(self, count: int) -> None:
        for _ in range(count):
            latest = self.sequencer.latest()
            if latest is not None:
                assert self.history.setdefault(latest.id, latest.writer) == latest.writer
            entry = self.sequencer.write(b"parent", after=latest)
            self.history[entry.id] = entry.writer

    def collect(self) -> None:
        Collector(self.sequencer, NO_AGE).collect()

    def judge(self, said: list[dict[str, Any]]) -> None:
        """Every success is in the history, and no conflict is."""
        self.append(1)
        for report in said:
            if report["outcome"] == "committed":
                assert self.history.setdefault(report["id"], report["writer"]) == report["writer"]
            elif report["outcome"] == "conflict":
                assert report["writer"] not in self.history.values()
        latest = self.sequencer.latest()
        assert latest is not None
        assert latest.id == max(self.history)
        live = [each.id for each in self.sequencer.listing(start_after=self.sequencer.boundary.read())]
        assert live == list(range(live[0], latest.id + 1))


@both
@pytest.mark.parametrize("point", WRITE, ids=str)
@pytest.mark.proves("sequence/crash")
def test_a_writer_killed_in_the_middle(place: Place, point: Failpoint) -> None:
    model = Model(place)
    model.append(2)
    with child("tests.crash.actor", "write", place.url, environ=place.environ, failpoints=f"{point}=kill@2") as actor:
        said = actor.killed()
    assert [report["outcome"] for report in said] == ["committed"]
    before = len(list(model.sequencer.listing()))
    assert before == (3 if point is Failpoint.WRITE_BEFORE_CREATE else 4)
    model.judge(said)


@both
@pytest.mark.parametrize("point", WRITE, ids=str)
@pytest.mark.hazard("S2")
@pytest.mark.proves("sequence/crash")
def test_a_writer_stopped_while_history_moves_on_and_is_collected(place: Place, point: Failpoint) -> None:
    model = Model(place)
    model.append(2)
    with child("tests.crash.actor", "write", place.url, environ=place.environ, failpoints=f"{point}=stop@1") as actor:
        actor.wait_stopped()
        model.append(4)
        model.collect()
        said = actor.resumed()
    expected = {
        Failpoint.WRITE_BEFORE_CREATE: "unknown",  # it landed behind the boundary, and what could tell is gone
        Failpoint.WRITE_AFTER_CREATE: "unknown",
        Failpoint.WRITE_AFTER_CHECK: "committed",
    }
    assert [report["outcome"] for report in said] == [expected[point], "committed", "committed"]
    model.judge(said)


@both
@pytest.mark.parametrize("point", COLLECT, ids=str)
@pytest.mark.proves("sequence/crash")
def test_a_collector_killed_in_the_middle(place: Place, point: Failpoint) -> None:
    model = Model(place)
    model.append(5)
    with child("tests.crash.actor", "collect", place.url, environ=place.environ, failpoints=f"{point}=kill") as actor:
        assert actor.killed() == []
    boundary = model.sequencer.boundary.read()
    present = [each.id for each in model.sequencer.listing()]
    assert set(range(1, 6)) - set(present) <= set(range(1, boundary + 1))
    assert 5 in present
    model.collect()
    assert [each.id for each in model.sequencer.listing()] == [5]
    model.judge([])


@both
@pytest.mark.parametrize("point", COLLECT, ids=str)
@pytest.mark.hazard("S4")
@pytest.mark.proves("sequence/crash")
def test_a_collector_stopped_while_others_pin_and_collect(place: Place, point: Failpoint) -> None:
    model = Model(place)
    model.append(5)
    with child("tests.crash.actor", "collect", place.url, environ=place.environ, failpoints=f"{point}=stop@1") as actor:
        actor.wait_stopped()
        latest = model.sequencer.latest()
        assert latest is not None
        pin = Pins(model.sequencer).pin(latest, ttl=timedelta(minutes=10), holder="parent")
        model.append(3)
        model.collect()
        model.append(2)
        actor.resumed()
    assert model.sequencer.read(pin.id) == latest
    model.judge([])
    assert model.sequencer.boundary.read() == 7


@both
@pytest.mark.parametrize("point", PIN, ids=str)
def test_a_pin_killed_in_the_middle_leaves_only_excess(place: Place, point: Failpoint) -> None:
    model = Model(place)
    model.append(2)
    with child("tests.crash.actor", "pin", place.url, environ=place.environ, failpoints=f"{point}=kill") as actor:
        assert actor.killed() == []
    [record] = Pins(model.sequencer).records()
    assert [pin.granted for pin in record.pins] == [False]
    model.append(1)
    model.collect()
    assert [each.id for each in model.sequencer.listing()] == [2, 3]
    model.judge([])


@both
@pytest.mark.parametrize("point", PIN, ids=str)
@pytest.mark.hazard("S4")
def test_a_pin_stopped_while_its_object_is_collected(place: Place, point: Failpoint) -> None:
    """Asked before the boundary passed it: the collector keeps it, whether or not the pin is granted after all."""
    model = Model(place)
    model.append(2)
    with child("tests.crash.actor", "pin", place.url, environ=place.environ, failpoints=f"{point}=stop@1") as actor:
        actor.wait_stopped()
        model.append(3)
        model.collect()
        [said] = actor.resumed()
    assert [each.id for each in model.sequencer.listing()] == [2, 5]
    assert said["outcome"] == ("refused" if point is Failpoint.PIN_AFTER_ASK else "granted")


@pytest.mark.parametrize("place", ["file"], indirect=True)
@pytest.mark.parametrize("point", FILE, ids=str)
@pytest.mark.hazard("S6")
@pytest.mark.proves("storage/file")
def test_s6_a_put_killed_in_the_middle_is_whole_or_absent(place: Place, point: Failpoint) -> None:
    with child("tests.crash.actor", "put", place.url, environ=place.environ, failpoints=f"{point}=kill") as actor:
        actor.killed()
    store = opened(place).store
    expected = {
        Failpoint.FILE_PUT_TEMPORARY_SYNCED: [],
        Failpoint.FILE_PUT_LINKED: [("plain", b"created")],
        Failpoint.FILE_UPDATE_LOCKED: [("plain", b"created")],
        Failpoint.FILE_UPDATE_RENAMED: [("plain", b"replaced")],
    }
    assert [(meta.path, store.get(meta.path).data) for meta in store.list()] == expected[point]
    store.put("plain", b"again", Overwrite())
    store.delete("plain")
    store.put("plain", b"new", Create())
    assert store.get("plain").data == b"new"


@pytest.mark.parametrize("place", ["file"], indirect=True)
@pytest.mark.hazard("S6")
def test_s6_a_stopped_holder_of_the_lock_hangs_nobody(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LOCK_TIMEOUT_SECONDS", 0.2)
    environ = {**place.environ, "HEADWATER_STORAGE_RETRY_ATTEMPTS": "1"}
    store = opened(Place(place.url, environ)).store
    point = Failpoint.FILE_UPDATE_LOCKED
    with child("tests.crash.actor", "put", place.url, environ=place.environ, failpoints=f"{point}=stop") as actor:
        actor.wait_stopped()
        with pytest.raises(TransientError, match="another process holds its lock"):
            store.put("plain", b"mine", Overwrite())
        store.put("other", b"creates need no lock", Create())
        assert [report["outcome"] for report in actor.resumed()] == ["created", "replaced"]
    store.put("plain", b"mine", Overwrite())


def test_every_failpoint_is_exercised() -> None:
    """Each of these is armed above, and each test asserts that its process died or stopped of it."""
    below = {point for point in Failpoint if point.startswith(("storage.", "sequence."))}
    assert below == {*WRITE, *COLLECT, *PIN, *FILE}
