"""Regions as folders for tests of localising: tables are written in some, and read in another with the rest away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata

from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import RefusedError, UnavailableError
from headwater.kernel.randomness import system_randomness
from headwater.regions.claims import ClaimRun, Claims
from headwater.regions.outputs import Output as ListedOutput
from headwater.regions.outputs import Outputs as OutputList
from headwater.storage.file import FileStore
from headwater.sync.localise.model import Localised, Output, Place
from headwater.sync.localise.protocol import localise
from headwater.sync.runs.model import History
from headwater.tables.files import Files, normalise
from headwater.tables.manifest_writing import EntryToWrite, ManifestTerms, write_manifest, write_manifest_list
from headwater.tables.manifests import read_manifest_list
from headwater.tables.model import LiveFile, NewFile, TableFile, TableVersion
from tests.fixtures.tables import TableWorld

REGIONS = ("us", "eu", "asia")
REGION = "eu"
RESERVED = "_headwater/localised"


class PrefixMapping:
    """All regions' files have their place in one region, under the name that they have."""

    def __init__(self, sources: Sequence[str], local: str, digest: str = "rules-1") -> None:
        self.digest = digest
        self._sources = [f"{each.rstrip('/')}/" for each in sources]
        self._local = f"{local.rstrip('/')}/"

    def destination(self, uri: str) -> str:
        uri = normalise(uri)
        for prefix in (self._local, *self._sources):
            if uri.startswith(prefix):
                return self._local + uri.removeprefix(prefix)
        raise RefusedError(f"no rule for {uri}", uri=uri)

    def folder(self, uri: str) -> str:
        return self.destination(f"{uri.rstrip('/')}/").rstrip("/")


class RecordedOutputs:
    """The list of outputs, in memory."""

    def __init__(self) -> None:
        self.recorded: list[Output] = []

    def record(self, outputs: Sequence[Output]) -> None:
        self.recorded.extend(outputs)


class ClaimedOutputs:
    """The lake's own list, and the claims of a run."""

    def __init__(self, listed: OutputList, claims: Claims, run: ClaimRun) -> None:
        self._listed = listed
        self._claims = claims
        self._run = run

    def record(self, outputs: Sequence[Output]) -> None:
        region = self._run.region
        self._listed.record(
            ListedOutput(region, each.location, str(each.kind), each.location.rpartition("/")[2], each.source, 1)
            for each in outputs
        )
        deleting = self._claims.claim(self._run, [each.location for each in outputs]).deleting
        if deleting:
            raise UnavailableError(f"{deleting[0]} is being deleted", path=deleting[0])


class Regions:
    """Three folders, tables in them, and the region `eu`, which reads all of it from its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in REGIONS:
            (folder / name).mkdir()
        stores = {name: FileStore(folder / name, SystemClock(), system_randomness(), durable=False) for name in REGIONS}
        self.files = Files({self.root(name): store for name, store in stores.items()})
        self.worlds = {name: TableWorld(self.root(name), store) for name, store in stores.items()}
        for world in self.worlds.values():
            world.files = self.files
        self.outputs = RecordedOutputs()

    def root(self, region: str) -> str:
        return f"file://{self.folder}/{region}"

    def place(self, *, history: History = History.FULL, digest: str = "rules-1", **options: Any) -> Place:
        mapping = PrefixMapping([self.root(name) for name in REGIONS], self.root(REGION), digest)
        made = Place(self.files, mapping, self.outputs, f"{self.root(REGION)}/{RESERVED}", history)
        return replace(made, **options)

    def copy(self) -> None:
        """What the steps before do: everything but metadata is copied into the region, under its own name."""
        for name in REGIONS:
            for path in (self.folder / name).rglob("*"):
                if name != REGION and path.is_file() and path.parent.name != "metadata":
                    target = self.folder / REGION / path.relative_to(self.folder / name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if not target.exists():
                        shutil.copy(path, target)

    def localise(self, table: TableVersion | str, **options: Any) -> Localised:
        """Copy and localise; `options` are those of `localise`, and of `place`."""
        own = {key: options.pop(key) for key in ("spread", "promoted") if key in options}
        self.copy()
        source = table if isinstance(table, str) else table.location
        assert source is not None
        return localise(self.place(**options), source, **own)

    @contextmanager
    def others_away(self) -> Iterator[None]:
        """While the other regions cannot be reached."""
        away = self.folder / "away"
        away.mkdir()
        for name in REGIONS:
            if name != REGION:
                (self.folder / name).rename(away / name)
        try:
            yield
        finally:
            for name in REGIONS:
                if name != REGION:
                    (away / name).rename(self.folder / name)
            away.rmdir()


def add_files(world: TableWorld, table: TableVersion, *files: TableFile) -> TableVersion:
    """The table with these files, data or deletes, added as they are by one more snapshot."""
    metadata, parent = table.metadata, table.metadata.current_snapshot()
    number = (parent.sequence_number or 0) + 1 if parent else 1
    terms = ManifestTerms(metadata, snapshot_id=1_000 + number, sequence_number=number)
    lines = list(read_manifest_list(world.files, parent)) if parent else []
    stem = f"{metadata.location}/metadata/by-hand-{number}"
    for content in ManifestContent:
        entries = [
            EntryToWrite(ManifestEntryStatus.ADDED, LiveFile(each, number, None, terms.snapshot_id))
            for each in files
            if (each.content.value == 0) is (content is ManifestContent.DATA)
        ]
        if entries:
            path = f"{stem}-{content.name}.avro"
            line, data = write_manifest(terms, path, content, metadata.specs()[files[0].spec_id], entries)
            world.files.write([NewFile(path, data)])
            lines.insert(0, line)
    list_path = f"{stem}-list.avro"
    parent_id = parent.snapshot_id if parent else None
    world.files.write([NewFile(list_path, write_manifest_list(terms, parent_id, lines, None))])
    snapshot = Snapshot(
        snapshot_id=terms.snapshot_id,
        parent_snapshot_id=parent_id,
        sequence_number=number,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=list_path,
        summary=Summary(Operation.DELETE),
        schema_id=metadata.current_schema_id,
    )
    changes = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(
            ref_name=MAIN_BRANCH,
            type="branch",
            snapshot_id=terms.snapshot_id,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        ),
    )
    return world.commit(update_table_metadata(metadata, changes))
