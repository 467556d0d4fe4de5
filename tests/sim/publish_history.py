"""A checker of what publishing promises that shares no code with the product.

It reads the bytes that were put, in their order: lake manifests and commits as JSON, metadata.json as JSON, and rows by
PyIceberg. Every commit says in its own properties what it read and what it did to which table. The log is the serial
order: each commit must have read what the one before it left, and leave what a plain model says.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.table import StaticTable

from tests.sim.history import BrokenPromiseError, Record, Report

OBJECTS = "_headwater/catalog/objects/"
MANIFESTS = "_headwater/catalog/manifest/"
PROPERTY = "sim"


@dataclass
class PublishTruth:
    """What the bytes tell."""

    landed: Counter[str] = field(default_factory=Counter)
    landed_at: dict[str, int] = field(default_factory=dict)
    recovered: Counter[str] = field(default_factory=Counter)
    rows: dict[str, set[int]] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    deleted: int = 0


class _Log:
    """Walks the manifests in their order, and the commits that each adds to `main`."""

    def __init__(self, record: Record, prefix: str) -> None:
        self.truth = PublishTruth()
        self._prefix = prefix
        self._ever: dict[str, bytes] = {}
        self._present: set[str] = set()
        self._head = ""
        for change in record.changes:
            if change.kind == "delete":
                self._delete(change.path)
                continue
            self._ever.setdefault(change.path, change.data)
            self._present.add(change.path)
            if change.path.startswith(MANIFESTS):
                manifest = json.loads(change.data.partition(b"\n")[2])
                self._advance(manifest["refs"]["main"]["hash"], change.moment)

    def _delete(self, path: str) -> None:
        self._present.discard(path)
        self.truth.deleted += 1
        if f"{self._prefix}{path}" in self.truth.pins.values():
            raise BrokenPromiseError("what a branch pins was deleted", path)

    def _object(self, digest: str) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self._ever[f"{OBJECTS}{digest[:2]}/{digest[2:]}"])
        return values

    def _advance(self, head: str, moment: int) -> None:
        new, at = [], head
        while at and at != self._head:
            new.append(at)
            parents = self._object(at)["parents"]
            at = parents[0]["hash"] if parents else ""
        for digest in reversed(new):
            self._commit(digest, moment)
        self._head = head

    def _commit(self, digest: str, moment: int) -> None:
        commit = self._object(digest)
        operation = commit["properties"].get("headwater.operation", "")
        before, after = self.truth.pins, self._pins(commit)
        self.truth.landed[operation] += 1
        self.truth.landed_at.setdefault(operation, moment)
        if kind := commit["properties"].get("headwater.recovery.kind"):
            self.truth.recovered[kind] += 1
        done = json.loads(commit["properties"].get(PROPERTY, "{}"))
        for table, version in done.get("reads", {}).items():
            if before.get(table) != version:
                raise BrokenPromiseError("a read was stale", f"{table} is {before.get(table)}, not {version}")
        writes = done.get("writes", {})
        for table, (sign, number) in writes.items():
            rows = self.truth.rows.setdefault(table, set())
            rows.add(number) if sign == "+" else rows.remove(number)
        changed = {table for table in after if before.get(table) != after[table]}
        if writes and changed != writes.keys():
            raise BrokenPromiseError("half a commit", f"{operation} changed {changed}, and says {sorted(writes)}")
        for table in changed:
            self._compare(table, after[table], operation)
        self.truth.pins = after

    def _pins(self, commit: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for digest in commit["tree"].values():
            for name, content in self._object(digest)["contents"].items():
                if content["type"] == "table":
                    found[name] = content["metadata_location"]
        return found

    def _compare(self, table: str, location: str, operation: str) -> None:
        """The number of rows that the table's own metadata claims; which rows they are is looked at in the end."""
        path = location.removeprefix(self._prefix)
        if path not in self._present:
            raise BrokenPromiseError("a pin leads nowhere", f"{table} at {path} by {operation}")
        metadata = json.loads(self._ever[path])
        current = metadata.get("current-snapshot-id")
        snapshot = next((each for each in metadata["snapshots"] if each["snapshot-id"] == current), None)
        claimed = int(snapshot["summary"]["total-records"]) if snapshot else 0
        deleted = int(snapshot["summary"].get("total-position-deletes", 0)) if snapshot else 0
        expected = self.truth.rows.get(table, set())
        if claimed - deleted != len(expected):
            raise BrokenPromiseError("rows are lost or doubled", f"{table}: {claimed} - {deleted}, not {expected}")


def check(record: Record, prefix: str, files: dict[str, bytes]) -> PublishTruth:
    """Every promise, against what happened to the bytes; `files` are those that are left."""
    truth = _Log(record, prefix).truth
    for operation, count in truth.landed.items():
        if operation and count != 1:
            raise BrokenPromiseError("committed twice", operation)
    for report in record.reports:
        _check_report(report, truth)
    for table, location in truth.pins.items():
        seen = _rows(location, prefix, files)
        if sorted(seen) != sorted(truth.rows.get(table, set())):
            raise BrokenPromiseError("a table is not what was committed", f"{table}: {seen}, not {truth.rows[table]}")
    _check_heads(truth, prefix, files)
    return truth


def _check_report(report: Report, truth: PublishTruth) -> None:
    match report.kind:
        case "committed" if truth.landed_at.get(report.writer, report.ended + 1) > report.ended:
            raise BrokenPromiseError("success not in the log", str(report))
        case "conflict" if report.writer in truth.landed:
            raise BrokenPromiseError("conflict in the log", str(report))


def _check_heads(truth: PublishTruth, prefix: str, files: dict[str, bytes]) -> None:
    """In the end nothing is pending, and the newest version of each table is the one that is pinned."""
    if pending := [path for path in files if path.startswith("__recovery/")]:
        raise BrokenPromiseError("a sidecar is left", str(pending))
    for table, location in truth.pins.items():
        folder = location.removeprefix(prefix).rpartition("/")[0]
        newest = max(path for path in files if path.rpartition("/")[0] == folder and path.endswith(".metadata.json"))
        if prefix + newest != location:
            raise BrokenPromiseError("head and pin differ", f"{table}: {newest} and {location}")


def _rows(location: str, prefix: str, files: dict[str, bytes]) -> list[int]:
    MemoryIO.lake = (prefix, files)  # PyIceberg makes the object itself, from the name of its class
    table = StaticTable.from_metadata(location, {"py-io-impl": "tests.sim.publish_history.MemoryIO"})
    return [int(number) for number in table.scan().to_arrow()["id"].to_pylist()]


class MemoryIO(FileIO):
    """PyIceberg's view of the bytes that are left."""

    lake: tuple[str, dict[str, bytes]] = ("", {})

    def new_input(self, location: str) -> InputFile:
        prefix, files = self.lake
        path = location.removeprefix(prefix)
        if path not in files:
            raise BrokenPromiseError("what a table needs was deleted", path)
        return _Bytes(location, files[path])

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError(location)


class _Bytes(InputFile):
    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._data)
