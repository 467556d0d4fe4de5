"""A lake in one folder, written by three regions in three others, and replicas of it: the whole way of the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable

from headwater.app import App
from headwater.catalog.model import NamespaceContent, TableContent, TableKey
from headwater.kernel import settings
from headwater.kernel.clock import Clock
from headwater.lake import Lake
from headwater.regions.registry import Region, Registry
from headwater.sync.lease import leased
from headwater.sync.opening import Ground, open_syncing
from headwater.sync.protocol import Status, Syncing
from headwater.sync.runs.model import History, Run, Step

REGIONS = ("us", "eu", "asia")


class Regions:
    """Three regions on one machine."""

    def __init__(self, folder: Path, clock: Clock | None = None, /, **environ: str) -> None:
        self.folder = folder
        self.url = str(folder / "lake")
        loaded = settings.load(environ={"HEADWATER_SYNC_VERIFY_SAMPLE_RATE": "1", **environ})
        self.app = App(loaded) if clock is None else App(loaded, clock)
        self.app.init_lake(self.url)
        for name in REGIONS:
            (folder / name).mkdir()
        prefixes = {name: f"{(folder / name).as_uri()}/" for name in REGIONS}
        lake = f"{(folder / 'lake').as_uri()}/"
        self.registry = Registry(
            tuple(Region(name, prefix, f"main_replica_{name}") for name, prefix in prefixes.items()),
            (lake, *prefixes.values()),
        )
        self.app.open_publisher(self.url).publish(self.registry, actor="ann")

    def lake(self, region: str = "us") -> Lake:
        """The lake, as a writer of the region opens it."""
        return self.app.open_lake(self.url, region=region)

    @contextmanager
    def syncing(self, region: str = "eu") -> Iterator[tuple[Syncing, Ground]]:
        with self.app.open_sync(self.url, region) as ground:
            yield open_syncing(ground), ground

    def sync(self, region: str = "eu", *, history: History = History.FULL, tables: tuple[str, ...] = ()) -> list[Run]:
        """One process that syncs the region until it has caught up."""
        with (
            self.app.open_sync(self.url, region) as ground,
            closing(self.app.open_coordination(self.url)) as coordination,
        ):
            seconds = ground.settings.sync.lease_seconds
            with leased(coordination, region, "a test", seconds) as lease:
                goals = ground.goals(history)
                if tables:
                    goals = type(goals)(
                        goals.generation, goals.made_with, goals.history, tuple(TableKey.parse(each) for each in tables)
                    )
                return list(open_syncing(ground, lease).catch_up(goals, lease, told=self._told))

    def _told(self, run: Run, step: Step) -> None:
        pass

    def status(self, region: str = "eu") -> Status:
        with self.syncing(region) as (syncing, _):
            return syncing.status()

    def tables(self, branch: str) -> dict[str, TableContent]:
        catalog = self.app.open_lake(self.url, read_only=True).catalog
        contents = catalog.contents(catalog.ref(branch).hash)
        return {str(key): each for key, each in contents if not isinstance(each, NamespaceContent)}  # type: ignore[misc]

    def rows(self, table: str, region: str = "eu") -> list[dict[str, Any]]:
        """What PyIceberg reads of a replica's table."""
        location = self.tables(f"main_replica_{region}")[table].metadata_location
        return sorted(StaticTable.from_metadata(location).scan().to_arrow().to_pylist(), key=str)

    def paths(self, table: str, region: str = "eu") -> set[str]:
        """Every path that the replica's table leads to, by PyIceberg."""
        location = self.tables(f"main_replica_{region}")[table].metadata_location
        found = StaticTable.from_metadata(location)
        inspect = found.inspect
        files = set(inspect.all_files()["file_path"].to_pylist())
        manifests = set(inspect.all_manifests()["path"].to_pylist())
        lists = {each.manifest_list for each in found.snapshots()}
        return {location, found.location(), *files, *manifests, *lists}


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})
