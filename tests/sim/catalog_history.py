"""A checker of the catalog's promise that shares no code with the product: raw manifests and objects, replayed.

The recorder sits directly on the in-memory store, below all faults. At every moment each ref must lead to objects that
are there; each move of a branch is one commit on top of the head before it, and what it says it read was there.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.sim.history import BrokenPromiseError, Change, Record, Report, _Replay

OBJECTS = "_headwater/catalog/objects/"
MANIFESTS = "_headwater/catalog/manifest"


@dataclass
class CatalogTruth:
    """What the bytes tell: which operations landed, when, and which refs there ever were."""

    landed: Counter[str] = field(default_factory=Counter)
    landed_at: dict[str, int] = field(default_factory=dict)
    refs: dict[str, int] = field(default_factory=dict)
    swept: int = 0
    merged: int = 0
    carried: int = 0
    manifest: dict[str, Any] = field(default_factory=dict)


class _World:
    def __init__(self, held: list[Report]) -> None:
        self.truth = CatalogTruth()
        self._sequence = _Replay(MANIFESTS)
        self._present: set[str] = set()
        self._ever: dict[str, dict[str, Any]] = {}
        self._held = held

    def step(self, change: Change) -> None:
        if change.path.startswith(OBJECTS):
            digest = change.path.removeprefix(OBJECTS).replace("/", "")
            if change.kind == "put":
                self._present.add(digest)
                self._ever[digest] = json.loads(change.data)
            else:
                self._delete(digest, change.moment)
            return
        before = len(self._sequence.truth.history)
        self._sequence.step(change)
        if len(self._sequence.truth.history) > before:
            self._manifest(json.loads(self._sequence.truth.history[-1][2]), change.moment)

    def _closure(self, commit: str) -> set[str]:
        return {commit, *self._ever[commit]["tree"].values()} if commit in self._ever else {commit}

    def _delete(self, digest: str, moment: int) -> None:
        if digest not in self._present:
            return
        self._present.remove(digest)
        self.truth.swept += 1
        for name, ref in self.truth.manifest.get("refs", {}).items():
            if digest in self._closure(ref["hash"]):
                raise BrokenPromiseError("what a ref leads to was deleted", f"{digest} of {name} at {moment}")
        for report in self._held:
            if moment < report.ended and digest in self._closure(report.writer):  # nor may it be gone when it is held
                raise BrokenPromiseError("what was held was deleted", f"{report} at {moment}")

    def _manifest(self, new: dict[str, Any], moment: int) -> None:
        old = self.truth.manifest
        self.truth.manifest = new
        for name, ref in new["refs"].items():
            missing = self._closure(ref["hash"]) - self._present
            if missing:
                raise BrokenPromiseError("a ref leads nowhere", f"{name} lacks {missing} at {moment}")
            self.truth.refs.setdefault(name, moment)
            before = old.get("refs", {}).get(name)
            if before and before["incarnation"] == ref["incarnation"] and before["hash"] != ref["hash"]:
                self._commits(before["hash"], ref["hash"], moment)
        for name, value in old.get("horizons", {}).items():
            if value and (new["horizons"][name] or "") < value:
                raise BrokenPromiseError("a horizon fell", f"{name} from {value}")

    def _commits(self, old: str, new: str, moment: int) -> None:
        """One manifest may carry several commits: each stands on the one before it, and the first on the old head."""
        chain = [new]
        while (parents := self._ever[chain[-1]]["parents"]) and parents[0]["hash"] != old:
            chain.append(parents[0]["hash"])
        if not parents:
            raise BrokenPromiseError("a commit is not on the head", f"{new} does not lead to {old}")
        self.truth.carried += len(chain) - 1
        for parent, digest in zip([old, *reversed(chain)], reversed(chain), strict=False):
            if self._closure(digest) - self._present:
                raise BrokenPromiseError("a commit of the log is not whole", f"{digest} at {moment}")
            self._commit(parent, digest, moment)

    def _commit(self, parent: str, digest: str, moment: int) -> None:
        commit = self._ever[digest]
        if commit["committed_at"] < self._ever[parent]["committed_at"]:
            raise BrokenPromiseError("time went backwards", f"{digest} on {parent}")
        for merged in commit["parents"][1:]:
            self.truth.merged += 1
            missing = self._closure(merged["hash"]) - self._present
            if missing:
                raise BrokenPromiseError("what was merged is gone", f"{digest} lacks {missing} at {moment}")
        operation = commit["properties"]["headwater.operation"]
        self.truth.landed[operation] += 1
        self.truth.landed_at.setdefault(operation, moment)
        before, after = self._tables(parent), self._tables(digest)
        table, read = commit["properties"]["touches"], commit["properties"]["read"]
        if {**before, table: operation_version(before.get(table), operation)} != after:
            raise BrokenPromiseError("versions are no chain", f"{before} to {after} by {operation}")
        if before.get(read, "") != commit["properties"]["read-version"]:
            raise BrokenPromiseError("a read was stale", f"{read} is {before.get(read)}: {commit['properties']}")

    def _tables(self, commit: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for digest in self._ever[commit]["tree"].values():
            for name, content in self._ever[digest]["contents"].items():
                if content["type"] == "table":
                    found[name] = content["metadata_location"]
        return found


def operation_version(before: str | None, operation: str) -> str:
    """Versions are numbered, so that a lost one shows."""
    return f"{int(before.partition(' ')[0]) + 1 if before else 1} {operation}"


def check(record: Record) -> CatalogTruth:
    """Every promise, against what happened to the bytes."""
    world = _World([report for report in record.reports if report.kind == "held"])
    for change in record.changes:
        world.step(change)
    truth = world.truth
    for operation, count in truth.landed.items():
        if count != 1:
            raise BrokenPromiseError("committed twice", operation)
    for report in record.reports:
        _check_report(report, truth)
    return truth


def _check_report(report: Report, truth: CatalogTruth) -> None:
    never = report.ended + 1
    match report.kind:
        case "committed" if truth.landed_at.get(report.writer, never) > report.ended:
            raise BrokenPromiseError("success not in the log", str(report))
        case "conflict" if report.writer in truth.landed:
            raise BrokenPromiseError("conflict in the log", str(report))
        case "created" if truth.refs.get(report.writer, never) > report.ended:
            raise BrokenPromiseError("a ref that was created never was", str(report))
        case "not created" if report.writer in truth.refs:
            raise BrokenPromiseError("a ref that was refused is there", str(report))
