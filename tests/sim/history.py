"""A plain record of what happened to the bytes, and a checker of it that shares no code with the product.

The recorder sits directly on the in-memory store, below all faults: it sees each change at the moment it takes
effect. The checker reads names and bytes by itself and knows only the promise: one contiguous history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.storage.port import ObjectStore, PutMode
from headwater.storage.wrapper import StoreWrapper


@dataclass
class Change:
    moment: int
    kind: str  # "put" or "delete"
    path: str
    data: bytes


@dataclass
class Report:
    """What an actor was told about one of its operations, and between which moments."""

    kind: str  # committed, conflict, unknown, latest, pinned
    begun: int
    ended: int
    id: int = 0
    writer: str = ""
    payload: bytes = b""


@dataclass
class Record:
    """Moments are counted by changes and reports alike, so that everything has one order."""

    changes: list[Change] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    moment: int = 0

    def tick(self) -> int:
        self.moment += 1
        return self.moment


class RecordingStore(StoreWrapper):
    def __init__(self, inner: ObjectStore, record: Record) -> None:
        super().__init__(inner)
        self._record = record

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        etag = self._inner.put(path, data, mode, tags=tags)
        self._record.changes.append(Change(self._record.tick(), "put", path, data))
        return etag

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        self._inner.delete(path, if_match=if_match)
        self._record.changes.append(Change(self._record.tick(), "delete", path, b""))


@dataclass
class BrokenPromiseError(AssertionError):
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


@dataclass
class Truth:
    """The history as the bytes tell it: (moment, writer, payload) for each id, from 1."""

    history: list[tuple[int, str, bytes]] = field(default_factory=list)
    deleted: list[tuple[int, int, str]] = field(default_factory=list)
    boundary: int = 0


class _Replay:
    """Walks the changes; object `i` extends the history if it is next in line and ahead of the boundary."""

    def __init__(self, folder: str) -> None:
        self.truth = Truth()
        self._folder = folder + "/"
        self._objects: dict[int, str] = {}

    def step(self, change: Change) -> None:
        if change.path.endswith(".boundary"):
            self._boundary(change)
        elif change.path.startswith(self._folder):
            number = int(change.path[len(self._folder) :][:20])
            if change.kind == "delete":
                self._delete(change, number)
            else:
                self._create(change, number)

    def _boundary(self, change: Change) -> None:
        if change.kind == "delete":
            raise BrokenPromiseError("boundary deleted", change.path)
        value = int(change.data.decode("ascii"))
        if value <= self.truth.boundary:
            raise BrokenPromiseError("boundary not raised", f"{self.truth.boundary} to {value}")
        if value >= len(self.truth.history):
            raise BrokenPromiseError("boundary covers the latest", f"{value} of {len(self.truth.history)}")
        self.truth.boundary = value

    def _delete(self, change: Change, number: int) -> None:
        if number > self.truth.boundary:
            raise BrokenPromiseError("deleted ahead of the boundary", f"{number} > {self.truth.boundary}")
        if number == len(self.truth.history):
            raise BrokenPromiseError("latest deleted", str(number))
        if number in self._objects:
            self.truth.deleted.append((change.moment, number, self._objects.pop(number)))

    def _create(self, change: Change, number: int) -> None:
        header, _, payload = change.data.partition(b"\n")
        writer = header.split(b" ")[2].decode()
        if number in self._objects:
            raise BrokenPromiseError("object overwritten", change.path)
        self._objects[number] = writer
        if number > self.truth.boundary:
            if number != len(self.truth.history) + 1:
                raise BrokenPromiseError("history has a gap", f"{number} after {len(self.truth.history)}")
            self.truth.history.append((change.moment, writer, payload))


def check(record: Record, folder: str) -> Truth:
    """Every promise of the protocol, against what happened to the bytes."""
    replay = _Replay(folder)
    for change in record.changes:
        replay.step(change)
    truth = replay.truth
    by_writer = {writer: number for number, (_, writer, _) in enumerate(truth.history, start=1)}
    if len(by_writer) != len(truth.history):
        raise BrokenPromiseError("committed twice", "one writer's object is in the history under two ids")
    payloads = [payload for _, _, payload in truth.history]
    if len(set(payloads)) != len(payloads):
        raise BrokenPromiseError("work done twice", "one payload is in the history under two ids")
    for report in record.reports:
        match report.kind:
            case "committed":
                _check_committed(report, truth)
            case "conflict":
                if report.writer in by_writer:
                    raise BrokenPromiseError("conflict in history", f"{report} is id {by_writer[report.writer]}")
            case "latest":
                _check_latest(report, truth)
            case "pinned":
                _check_pinned(report, truth)
    return truth


def _check_committed(report: Report, truth: Truth) -> None:
    held = truth.history[report.id - 1] if report.id <= len(truth.history) else None
    if held is None or held[1:] != (report.writer, report.payload):
        raise BrokenPromiseError("success not in history", f"{report} but history holds {held}")
    if held[0] > report.ended:
        raise BrokenPromiseError("success reported before it happened", str(report))


def _check_pinned(report: Report, truth: Truth) -> None:
    for moment, number, writer in truth.deleted:
        if number == report.id and writer == report.writer and moment < report.ended:
            raise BrokenPromiseError("pinned object deleted", f"{report} at {moment}")


def _check_latest(report: Report, truth: Truth) -> None:
    """The entry was the newest at some moment between the call and its return."""
    if report.id == 0:
        became, replaced = 0, truth.history[0][0] if truth.history else None
    else:
        if report.id > len(truth.history) or truth.history[report.id - 1][1] != report.writer:
            raise BrokenPromiseError("latest not in history", str(report))
        became = truth.history[report.id - 1][0]
        replaced = truth.history[report.id][0] if report.id < len(truth.history) else None
    if became > report.ended or (replaced is not None and replaced < report.begun):
        raise BrokenPromiseError("latest was stale", f"{report}: newest from {became} to {replaced}")
