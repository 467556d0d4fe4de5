"""In which order a publish makes things visible and durable in a folder, watched from below, and what it leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from headwater.catalog.embedded.model import ROOT
from headwater.catalog.model import TableContent
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import ConflictError
from headwater.kernel.randomness import seeded
from headwater.storage import folders
from headwater.storage.errors import StorageError
from headwater.storage.file import FileStore
from headwater.storage.paths import RESERVED_PREFIX
from headwater.storage.port import Overwrite
from tests.unit.publish_world import LAKE, LEASE, Process, PublishWorld

NAMES = ("t1", "t2", "t3")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def world(folder: Path) -> PublishWorld:
    folder.mkdir()
    world = PublishWorld(FileStore(folder, ManualClock(), seeded(7), durable=False))
    world.process().create(*NAMES)
    return world


def watch(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[tuple[str, str]]:
    """From now on: every name that appears, and every folder whose names are made durable, by what lies there."""
    seen: list[tuple[str, str]] = []
    link, sync = os.link, folders.Folders.sync

    def kind(path: Path) -> str:
        parts = path.relative_to(root / ROOT if path.is_relative_to(root / ROOT) else root).parts
        return parts[1].split("-")[0] if parts[0] == "tables" else parts[0]

    def linked(source: Path, target: Path) -> None:
        link(source, target)
        seen.append(("appears", kind(target)))

    def synced(self: folders.Folders, folder: Path) -> None:
        sync(self, folder)
        seen.append(("is durable", kind(folder)))

    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(folders.Folders, "sync", synced)
    return seen


def residue(root: Path) -> list[Path]:
    return [each for each in root.rglob("*") if each.name.startswith(RESERVED_PREFIX)]


@pytest.mark.hazard("P20")
def test_the_note_then_the_heads_then_the_commit_each_durable_before_the_next(
    world: PublishWorld, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.process()
    wish = process.wish({"t3": 1, "t1": 1, "t2": 1})
    process.files.write([file for each in wish.tables if each.staged for file in each.staged.files])
    monkeypatch.setattr(process.files, "write", lambda _: None)  # stored already
    seen = watch(monkeypatch, folder)
    process.writing.publisher.publish(wish)
    seen = [each for each in seen if each[1] != "objects"]  # those are what nothing refers to yet
    assert seen[:5] == [("appears", "__recovery"), ("is durable", "__recovery"), *(("appears", each) for each in NAMES)]
    assert sorted(seen[5:8]) == [("is durable", each) for each in NAMES]
    assert seen[8:] == [("appears", "manifest"), ("is durable", "manifest")]
    assert not residue(folder)


def test_documents_that_cannot_be_stored_change_nothing(
    world: PublishWorld, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of three finds no room: no note, no head, and no temporary file is left."""
    process, before = world.process(), sorted(each for each in folder.rglob("*.metadata.json"))
    real: Callable[..., Path] = folders.Folders.write_temporary
    tried: list[Path] = []

    def full(self: folders.Folders, place: Path, data: bytes) -> Path:
        if place.name == "metadata" and data.startswith(b"{"):
            tried.append(place)
            if len(tried) == 2:
                raise OSError(28, "No space left on device")
        return real(self, place, data)

    monkeypatch.setattr(folders.Folders, "write_temporary", full)
    with pytest.raises(StorageError, match="No space left"):
        process.append(dict.fromkeys(NAMES, 1))
    monkeypatch.undo()
    assert sorted(folder.rglob("*.metadata.json")) == before
    assert not residue(folder)
    assert process.writing.sidecars.pending() == ()
    process.append(dict.fromkeys(NAMES, 2))
    assert process.ids("t3") == [0, 2]


def test_who_loses_on_the_way_leaves_no_prepared_documents(world: PublishWorld, folder: Path) -> None:
    one, other = world.process(), world.process()
    late = one.wish(dict.fromkeys(NAMES, 1))
    publisher = one.writing.publisher
    write = one.writing.sidecars.write

    def overtaken(sidecar: object) -> None:
        write(sidecar)  # type: ignore[arg-type]
        other.append({"t2": 2})

    one.writing.sidecars.write = overtaken  # type: ignore[method-assign]
    with pytest.raises(ConflictError):
        publisher.publish(late)
    assert not residue(folder)
    assert [one.ids(name) for name in NAMES] == [[0], [0, 2], [0]]


def test_the_lease_begins_when_everything_is_stored(world: PublishWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk is no reason to be taken for dead."""
    real: Callable[..., Path] = folders.Folders.write_temporary

    def slow(self: folders.Folders, place: Path, data: bytes) -> Path:
        if place.name == "metadata":
            world.clock.advance(LEASE)
        return real(self, place, data)

    monkeypatch.setattr(folders.Folders, "write_temporary", slow)
    process = world.process()
    process.append(dict.fromkeys(NAMES, 1))
    assert [process.ids(name) for name in NAMES] == [[0, 1]] * 3


def documents(process: Process, name: str) -> tuple[object, object]:
    """What the publisher remembers of a table, and what PyIceberg reads from its file."""
    content = process.pinned(name)
    assert isinstance(content, TableContent)
    known = process.writing.publisher.documents.table(content).metadata
    return known, TableMetadataUtil.parse_raw(process.files.read(content.metadata_location).decode())


def test_what_is_remembered_is_what_lies_there(world: PublishWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    process = world.process()
    process.create("t4")
    for number in range(1, 4):
        process.append(dict.fromkeys((*NAMES, "t4"), number))
    with monkeypatch.context() as patched:
        patched.setattr(process.writing.publisher.documents, "files", None)  # nothing is read
        known = {name: process.writing.publisher.documents.table(process.pinned(name)).metadata for name in NAMES}  # type: ignore[arg-type]
    for name in NAMES:
        assert (known[name], known[name]) == documents(process, name)


def test_what_we_do_not_know_is_kept_change_after_change(world: PublishWorld) -> None:
    """A document that we made from one with more in it has more in it, too."""
    path = str(world.process().pinned("t1").metadata_location).removeprefix(f"{LAKE}/")  # type: ignore[union-attr]
    found = json.loads(world.store.get(path).data)
    world.store.put(path, json.dumps({**found, "encryption-keys": [{"key-id": "k"}]}).encode(), Overwrite())
    process = world.process()
    for number in range(1, 4):
        process.append({"t1": number, "t2": number})
        kept = [json.loads(process.files.read(process.pinned(name).metadata_location)) for name in ("t1", "t2")]  # type: ignore[union-attr]
        assert [each.get("encryption-keys") for each in kept] == [[{"key-id": "k"}], None]
