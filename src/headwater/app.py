"""The composition root: the only place that constructs backends from settings and URLs.

Rooms that bring large libraries (Arrow, DuckDB, SQLAlchemy) are imported by what opens them: a command that does not
need them does not wait for them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headwater.catalog.nessie.urls import NessieUrl, is_nessie_url, parse_nessie_url
from headwater.kernel.clock import Clock, SystemClock
from headwater.kernel.errors import RefusedError, UsageError
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import Randomness, system_randomness
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.kernel.settings import Settings, environment, home_folder
from headwater.sequence.history import History
from headwater.sequence.model import ID_DIGITS, Namespace
from headwater.sequence.protocol import WRITING, Sequencer
from headwater.storage.cloud import open_gcs, open_s3
from headwater.storage.confined import ConfinedStore, ReadOnlyStore
from headwater.storage.errors import ForbiddenError
from headwater.storage.file import FileStore
from headwater.storage.metered import MeteredStore
from headwater.storage.paths import join
from headwater.storage.port import Capability, ObjectStore, require
from headwater.storage.probe import probe
from headwater.storage.retrying import RetryingStore
from headwater.storage.urls import StoreUrl, parse_url

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata

    from headwater.catalog.nessie.open import NessieOptions
    from headwater.catalog.port import Catalog
    from headwater.coordination import Coordination
    from headwater.database import Database
    from headwater.ingest.config import NodeConfig
    from headwater.ingest.fresh import LaidOver
    from headwater.ingest.opening import Opened
    from headwater.lake import Lake
    from headwater.publish.direct.recovery import NoSidecars
    from headwater.publish.sidecars import Sidecars
    from headwater.regions.claims import ClaimRun
    from headwater.regions.registry import Registry
    from headwater.regions.rollout import Generation, Published, Publisher, RegistryClient
    from headwater.spark.session import SparkSession
    from headwater.sync.check.protocol import CountRows
    from headwater.sync.localise.model import Place
    from headwater.sync.opening import Footing, Ground, OpenHelpers
    from headwater.sync.plan.protocol import Planning
    from headwater.sync.route.protocol import Router
    from headwater.sync.runs.model import Run
    from headwater.sync.steps import Helpers
    from headwater.tables.files import Files

# A folder or prefix that holds this object is a lake.
LAKE_MARKER = "_headwater/lake.json"
# What lies beneath this belongs to no table.
OWN_FOLDER = "_headwater"
# Where a folder lake keeps its state database.
STATE_FILE = "_headwater/state.db"

# How many files of one change are stored side by side.
FILE_WRITERS = 8
# How many objects that are there already are looked at before a lake is made around them.
_LOOKED_AT = 100_000

H = TypeVar("H", bound=History)

_OBJECT_NAME = re.compile(rf"[0-9]{{{ID_DIGITS}}}((?:\.[A-Za-z0-9_-]+)+)")


@dataclass(frozen=True)
class App:
    """One process's settings, clock, randomness and metrics, and what is opened with them."""

    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    randomness: Randomness = field(default_factory=system_randomness)
    metrics: Metrics = field(default_factory=Metrics)
    _sequencers: dict[tuple[str, str], Sequencer] = field(default_factory=dict, repr=False)
    _registries: dict[str, RegistryClient] = field(default_factory=dict, repr=False)

    def retry(self) -> Retry:
        """The retry that the storage settings describe."""
        storage = self.settings.storage
        policy = RetryPolicy(attempts=storage.retry_attempts, budget_seconds=storage.retry_budget_seconds)
        return Retry(policy, self.clock, self.randomness)

    def open_store(
        self, url: str, *, writable: bool = True, needed: frozenset[Capability] = frozenset()
    ) -> ObjectStore:
        """The store that `url` names, metered and retried; refused when it lacks something that is needed.

        What is to be written shows at open that it really compares: a bucket's server, a folder's file system.
        """
        parsed = parse_url(url)
        store = self._open_container(parsed, writable=writable and bool(needed))
        if parsed.prefix:
            store = ConfinedStore(store, parsed.prefix)
        if not writable:
            store = ReadOnlyStore(store)
        require(store, needed, by="this use of it")
        if writable and needed and parsed.scheme != "file":
            shown = probe(store, self.clock, self.randomness)
            require(_Shown(store.name, shown), needed, by="this use of it")
        return store

    def open_history(self, url: str, name: str, *, suffix: str | None = None) -> History:
        """The namespace `name` under `url`, to be read; its suffix is read off its objects unless it is given."""
        return self._open_namespace(History, url, name, suffix)

    def open_sequencer(self, url: str, name: str, *, suffix: str | None = None) -> Sequencer:
        """The same, to be written.

        The process has one for each namespace: when its boundary is lost, nobody in the process writes on.
        """
        key = (str(parse_url(url)), name)
        if key not in self._sequencers:
            self._sequencers[key] = self._open_namespace(Sequencer, url, name, suffix)
        return self._sequencers[key]

    def _open_namespace(self, kind: type[H], url: str, name: str, suffix: str | None) -> H:
        Namespace("", name, suffix or ".x")  # a bad name is refused before anything is opened
        store = self.open_store(url, writable=kind is not History, needed=kind.needed)
        return kind(
            store,
            Namespace("", name, suffix or self._suffix(store, name)),
            clock=self.clock,
            randomness=self.randomness,
            metrics=self.metrics,
            policy=self.retry().policy,
        )

    def init_lake(self, url: str) -> Lake:
        """Make the folder or prefix a lake, or the Nessie repository, unless it is one, and open it."""
        if is_nessie_url(url):
            return self._init_on_nessie(parse_nessie_url(url))
        from headwater.catalog.embedded.open import init_embedded

        self._refuse_nested(url)
        store = self.open_store(url, needed=WRITING)
        catalog = init_embedded(
            store, clock=self.clock, randomness=self.randomness, metrics=self.metrics, policy=self.retry().policy
        )
        return self._lake(url, catalog, store, url)

    def open_lake(self, url: str, *, read_only: bool = False, sweep: bool = True, region: str | None = None) -> Lake:
        """The lake at this URL; what is no lake yet is refused, not made one.

        Whoever opens it to write first recovers what dead writers left behind, unless it is told not to. A writer of a
        region, that of the settings if none is named, puts its files there.
        """
        if region is None and not read_only:
            region = self.settings.region
        # Who only reads is told of a name that is none, too.
        local_prefix = None if region is None else self._local_prefix(url, region)
        store_url = parse_nessie_url(url).warehouse if is_nessie_url(url) else url
        store = self.open_store(store_url, writable=not read_only, needed=History.needed if read_only else WRITING)
        catalog = self._open_catalog(url, store, read_only=read_only)
        lake = self._lake(url, catalog, store, store_url, read_only=read_only, local_prefix=local_prefix)
        if sweep and not read_only:
            lake.writing.recovery.sweep()
        return lake

    def _open_catalog(self, url: str, store: ObjectStore, *, read_only: bool) -> Catalog:
        if is_nessie_url(url):
            from headwater.catalog.nessie.open import open_nessie

            return open_nessie(parse_nessie_url(url), **self._nessie(), read_only=read_only)
        from headwater.catalog.embedded.open import open_embedded

        return open_embedded(
            store,
            clock=self.clock,
            randomness=self.randomness,
            metrics=self.metrics,
            policy=self.retry().policy,
            read_only=read_only,
        )

    def _init_on_nessie(self, url: NessieUrl) -> Lake:
        from headwater.catalog.nessie.open import init_nessie

        if (around := self.lake_around(url.warehouse)) is not None:
            raise RefusedError(
                f"the warehouse {url.warehouse} lies within the lake {around}", hint="take another prefix", lake=around
            )
        store = self.open_store(url.warehouse, needed=WRITING)
        return self._lake(str(url), init_nessie(url, **self._nessie()), store, url.warehouse)

    def _nessie(self) -> NessieOptions:
        nessie = self.settings.nessie
        return {
            "clock": self.clock,
            "randomness": self.randomness,
            "policy": self.retry().policy,
            "answer_seconds": nessie.answer_seconds,
            "token": None if nessie.token is None else nessie.token.get_secret_value(),
            "metrics": self.metrics,
        }

    def open_sidecars(self, url: str) -> Sidecars | NoSidecars:
        """The notes of changes that are on their way, to be looked at: no right to write is needed."""
        if is_nessie_url(url):
            from headwater.publish.direct.recovery import NoSidecars

            return NoSidecars()
        from headwater.publish.sidecars import Sidecars

        self.open_lake(url, read_only=True)  # what is no lake has none
        return Sidecars(self.open_store(url, writable=False))

    def _lake(
        self,
        url: str,
        catalog: Catalog,
        store: ObjectStore,
        store_url: str,
        *,
        read_only: bool = False,
        local_prefix: str | None = None,
    ) -> Lake:
        from headwater.lake import Lake
        from headwater.publish.load.model import LoadOptions
        from headwater.publish.service import AnyWriting, open_direct_writing, open_writing
        from headwater.query import QueryOptions
        from headwater.tables.files import Files

        others = self.settings.storage.allowed_prefixes
        stores = {location_of(prefix): self.open_store(prefix, writable=False) for prefix in others}
        if local_prefix is not None and not read_only:
            stores[location_of(local_prefix)] = self.open_store(local_prefix)
        query = self.settings.query
        options = QueryOptions(
            memory_limit_bytes=query.memory_limit_bytes,
            threads=query.threads,
            temp_directory=Path(query.temp_directory) if query.temp_directory else None,
            timeout_seconds=query.timeout_seconds,
        )
        location = location_of(store_url)
        files = Files({**stores, location: store}, workers=FILE_WRITERS, more=lambda: self._regional_stores(url))
        writing: AnyWriting | None = None
        if not read_only and Capability.CREATE in store.capabilities:
            with_heads = partial(open_writing, lease=timedelta(seconds=self.settings.publish.lease_seconds))
            writing = (open_direct_writing if catalog.heads is None else with_heads)(
                catalog,
                files,
                store,
                location=location,
                clock=self.clock,
                randomness=self.randomness,
                skew=timedelta(seconds=self.settings.sequence.clock_skew_seconds),
                local_prefix=local_prefix,
            )
        loading = LoadOptions(concurrency=self.settings.load.concurrency)
        return Lake(catalog, files, location=location, options=options, loading=loading, writing=writing)

    def _local_prefix(self, url: str, region: str) -> str:
        """Where a writer of this region puts its files, as the lake's registry says."""
        return self.open_registry(url).in_force(self.clock.now()).registry.region(region).local_prefix.rstrip("/")

    def _regional_stores(self, url: str) -> dict[str, ObjectStore]:
        """Where else files of the lake's tables may be: the regions of its registry, if it has one; to be read."""
        from headwater.regions.errors import NoRegistryError

        try:
            regions = self.open_registry(url).in_force(self.clock.now()).registry.regions
        except NoRegistryError:
            return {}
        prefixes = [each.local_prefix.rstrip("/") for each in regions]
        return {location_of(prefix): self.open_store(prefix, writable=False) for prefix in prefixes}

    def _refuse_nested(self, url: str) -> None:
        """A lake owns everything beneath it, so none lies within another."""
        lake = self.lake_around(url)
        if lake is not None and location_of(lake) == location_of(url):
            return
        if lake is not None:
            raise RefusedError(f"{url} lies within the lake {lake}", hint="make a lake beside it, not in it", lake=lake)
        for seen, meta in enumerate(self.open_store(url, writable=False).list()):
            if meta.path.endswith("/" + LAKE_MARKER):
                inner = meta.path.removesuffix("/" + LAKE_MARKER)
                raise RefusedError(f"{url} has a lake in it: {inner}", hint="make a lake beside it, not around it")
            if seen == _LOOKED_AT:
                raise RefusedError(
                    f"{url} holds more than {_LOOKED_AT} objects, and one of them may be a lake",
                    hint="make the lake in a folder or prefix of its own",
                )

    def open_database(self, lake: str | None = None) -> Database:
        """The state database: the one that the settings name, or a SQLite file in the folder lake, or under home."""
        from headwater.database import open_database

        if self.settings.database is not None:
            return open_database(self.settings.database, clock=self.clock)
        return open_database(self._state_file(lake), clock=self.clock)

    def open_coordination(self, lake: str | None = None) -> Coordination:
        """etcd, if the settings name one; otherwise the state database."""
        from headwater.coordination import open_coordination

        target = self.settings.coordination or self.settings.database or self._state_file(lake)
        return open_coordination(target, clock=self.clock)

    def _state_file(self, lake: str | None) -> Path:
        if lake is None:
            return home_folder() / "state.db"
        if is_nessie_url(lake):
            return home_folder() / f"{hashlib.sha256(lake.encode()).hexdigest()[:16]}.db"
        parsed = parse_url(lake)
        if parsed.scheme == "file":
            return Path(parsed.container) / STATE_FILE
        return home_folder() / f"{hashlib.sha256(str(parsed).encode()).hexdigest()[:16]}.db"

    def open_registry(self, lake: str | None = None) -> Published:
        """The published storage registry of a lake, to be read."""
        from headwater.regions.rollout import FOLLOWING, Published

        return Published(self.open_store(self._registry_url(lake), writable=False, needed=FOLLOWING))

    def open_publisher(self, lake: str | None = None) -> Publisher:
        """The same, to be published to."""
        from headwater.regions.rollout import WRITING, Publisher

        store = self.open_store(self._registry_url(lake), needed=WRITING)
        return Publisher(store, clock=self.clock, randomness=self.randomness, policy=self.retry().policy)

    def follow_registry(self, lake: str | None = None) -> RegistryClient:
        """The same, to be followed by a process that lasts: it polls as often as the settings say.

        The process has one for each registry: it remembers what it has seen, and never goes back behind it.
        """
        from headwater.regions.rollout import FOLLOWING, RegistryClient

        url = self._registry_url(lake)
        if url not in self._registries:
            store = self.open_store(url, writable=False, needed=FOLLOWING)
            poll_seconds = self.settings.registry_poll_seconds
            client = RegistryClient(store, clock=self.clock, metrics=self.metrics, poll_seconds=poll_seconds)
            self._registries[url] = client
        return self._registries[url]

    def _registry_url(self, lake: str | None) -> str:
        """The prefix that the settings name, or the part of the lake, or of its warehouse, that is ours."""
        if self.settings.registry is not None:
            return self.settings.registry
        if lake is None:
            raise UsageError("no lake is named, and no registry", hint="set `registry` or `lake` in headwater.toml")
        if is_nessie_url(lake):
            return f"{parse_nessie_url(lake).warehouse.rstrip('/')}/{OWN_FOLDER}"
        around = self.lake_around(lake)
        if around is None or location_of(around) != location_of(lake):
            raise UsageError(f"{lake} is no lake", hint="`headwater init` makes one; or set `registry`", lake=lake)
        return f"{lake.rstrip('/')}/{OWN_FOLDER}"

    @contextmanager
    def open_sync(self, lake: str, region: str) -> Iterator[Ground]:
        """What the sync of a region stands on: the lake, its registry, and files of all regions, its own to write."""
        from headwater.sync.opening import Ground

        generation = self.follow_registry(lake).refresh()
        catalog = self._open_catalog(lake, self.open_store(self._store_url(lake), needed=WRITING), read_only=False)
        regional = self.settings.sync.catalog
        with self.open_database(lake) as database:
            yield Ground(
                region,
                generation,
                catalog,
                catalog if regional is None else self.open_lake(regional, read_only=True).catalog,
                self._files_of_regions(lake, generation.registry, region),
                database,
                self.settings,
                environment(),
                self.clock,
                self.randomness,
                self.metrics,
                self._helpers(lake, region, generation) if find_spec("pyspark") else None,
            )

    @contextmanager
    def open_router(self, lake: str, region: str) -> Iterator[Router]:
        """What sends the readers of a region on their way; catalogs are opened when they are asked."""
        from headwater.sync.route.model import RouteLimits
        from headwater.sync.route.protocol import Endpoint, Memory, Router
        from headwater.sync.route.store import Routes
        from headwater.sync.runs.store import Runs

        branch = self.open_registry(lake).in_force(self.clock.now()).registry.region(region).branch
        sync = self.settings.sync

        def endpoint(url: str) -> Endpoint:
            address = parse_nessie_url(url).api if is_nessie_url(url) else location_of(url)
            return Endpoint(address, lambda: self.open_lake(url, read_only=True).catalog)

        with self.open_database(lake) as database:
            yield Router(
                region,
                branch,
                primary=endpoint(lake),
                regional=endpoint(sync.catalog or lake),
                memory=lambda: Memory(Routes(database), Runs(database)),
                limits=RouteLimits(
                    timedelta(seconds=sync.stale_after_seconds), timedelta(seconds=sync.well_for_seconds)
                ),
                clock=self.clock,
            )

    def _files_of_regions(self, lake: str, registry: Registry, region: str) -> Files:
        """Files wherever the registry says that there are some, and the lake's; those of the region to be written."""
        from headwater.tables.files import Files

        own, store_url = registry.region(region).local_prefix, self._store_url(lake)
        others = [each for each in (*registry.sources, *_prefixes(registry)) if each != own]
        stores = {
            **{location_of(prefix): self.open_store(prefix, writable=False) for prefix in others},
            location_of(store_url): self.open_store(store_url, writable=False),
            location_of(own): self.open_store(own),
        }
        return Files(stores, workers=FILE_WRITERS)

    def _helpers(self, lake: str, region: str, generation: Generation) -> OpenHelpers:
        from headwater.sync.frames import SparkHelpers

        def opened(run: Run, claimed: ClaimRun) -> Helpers:
            sent = SentSync(self.settings, lake, region, generation, run, claimed)
            return SparkHelpers(lambda: self.open_spark("headwater sync"), sent, tasks=self.settings.sync.tasks)

        return opened

    @contextmanager
    def open_node(self, config: NodeConfig) -> Iterator[Opened]:
        """An ingest node as its file describes it; nothing of it runs yet."""
        from headwater.ingest.opening import Surroundings, open_node
        from headwater.tables.files import normalise
        from headwater.tables.span_file import open_span_file

        lake = self.open_lake(config.lake, read_only=True)
        store = self.open_store(self._store_url(config.lake), needed=frozenset({Capability.CREATE}))
        root = lake.location.rstrip("/") + "/"

        @lru_cache(maxsize=4096)  # a file of a node never changes, and is opened for each row group
        def size_bytes(name: str) -> int:
            return store.head(name).size_bytes

        def open_file(name: str) -> pa.NativeFile:
            return open_span_file(lake.files, root + name, size_bytes(name))

        def folder_of(metadata: TableMetadata) -> str:
            location = normalise(metadata.location)
            if not location.startswith(root):
                raise RefusedError(f"{location} is outside of the lake {lake.name}", hint="a node writes into its lake")
            return f"{location.removeprefix(root)}/data/ingest"

        with (
            closing(self.open_database(config.lake)) as database,
            closing(self.open_coordination(config.lake)) as coordination,
        ):
            surroundings = Surroundings(
                database,
                coordination,
                f"lake {hashlib.sha256(lake.location.encode()).hexdigest()[:32]}",
                store,
                open_file,
                lambda name: lake.table(name).metadata,
                folder_of,
                self.clock,
                self.randomness,
            )
            with open_node(config, surroundings) as opened:
                yield opened

    @contextmanager
    def open_fresh(self, topology: Path | None = None) -> Iterator[LaidOver]:
        """What the nodes of a topology hold at one timestamp, to be laid over a lake for as long as the block lasts."""
        from headwater.ingest.fresh import fresh_reads
        from headwater.ingest.topology import Topology

        named = topology or (None if self.settings.topology is None else Path(self.settings.topology))
        if named is None:
            raise UsageError(
                "no topology is named, so no node can be asked",
                hint="give --topology FILE, or set `topology` in headwater.toml or HEADWATER_TOPOLOGY",
            )
        with fresh_reads(Topology.load(named), clock=self.clock) as laid_over:
            yield laid_over

    def count_rows(self, registry: Registry) -> CountRows:
        """Counts the rows of a table by its metadata.json, on Spark, wherever the registry says that files are."""
        from headwater.spark import s3_properties
        from headwater.sync.check.frames import rows_of

        is_on_s3 = any(each.startswith("s3") for each in (*registry.sources, *_prefixes(registry)))
        spark = self.open_spark("headwater sync check", s3=is_on_s3)
        s3 = s3_properties(self.settings.storage.s3) if is_on_s3 else None
        return lambda location: rows_of(spark, location, s3)

    def open_spark(self, name: str, *, s3: bool = False) -> SparkSession:
        """The process's Spark, with Iceberg in it, and with what it needs to read S3 if that is asked for."""
        from headwater.kernel.settings import cache_folder
        from headwater.spark import iceberg_jars, spark_session

        jars = iceberg_jars(cache_folder(), s3=s3 or self.settings.storage.s3.endpoint is not None)
        return spark_session(self.settings.spark, app_name=name, jars=jars)

    def _store_url(self, lake: str) -> str:
        return parse_nessie_url(lake).warehouse if is_nessie_url(lake) else lake

    def lake_around(self, url: str) -> str | None:
        """The lake that `url` is, or lies in, if any."""
        parsed = parse_url(url)
        if parsed.scheme == "file":
            given = Path(parsed.container)
            real = given.resolve()
            # A link must not lead around the guard, and neither must a folder that we may not look into.
            return next((str(each) for each in (given, *given.parents, real, *real.parents) if _is_lake(each)), None)
        store = self._open_container(parsed, writable=False)
        segments = parsed.prefix.split("/") if parsed.prefix else []
        for length in range(len(segments), -1, -1):
            prefix = "/".join(segments[:length])
            if store.exists(join(prefix, LAKE_MARKER)):
                return f"{parsed.scheme}://{parsed.container}/{prefix}".rstrip("/")
        return None

    def _open_container(self, url: StoreUrl, *, writable: bool) -> ObjectStore:
        storage = self.settings.storage
        backend: ObjectStore
        region = "local"
        match url.scheme:
            case "s3":
                backend = open_s3(url.container, storage.s3, timeout_seconds=storage.request_timeout_seconds)
                region = storage.s3.region
            case "gs":
                backend = open_gcs(url.container, timeout_seconds=storage.request_timeout_seconds)
                region = "gcs"
            case _:
                folder = FileStore(Path(url.container), self.clock, self.randomness)
                if writable:
                    folder.check_file_system()
                backend = folder
        return RetryingStore(MeteredStore(backend, self.metrics, region), self.retry())

    def _suffix(self, store: ObjectStore, name: str) -> str:
        """The ending that most objects have; a few of another kind are then reported, not taken for the rule."""
        names = (meta.path.removeprefix(f"{name}/") for meta in islice(store.list(name), 1000))
        endings = Counter(found[1] for each in names if (found := _OBJECT_NAME.fullmatch(each)))
        return endings.most_common(1)[0][0] if endings else f".{name}"


@dataclass(frozen=True)
class SentSync:
    """What a task of a sync needs to open the same things again where it runs; it can be pickled."""

    settings: Settings
    lake: str
    region: str
    generation: Generation
    run: Run
    claimed: ClaimRun

    def planning(self) -> Planning:
        """What plans are made with."""
        from headwater.regions.claims import Claims
        from headwater.sync.opening import open_planning

        ground = self._ground()
        return open_planning(ground, self.run, Claims(ground.database), self.claimed)

    def place(self) -> Place:
        """What manifests are localised with."""
        from headwater.regions.claims import Claims
        from headwater.sync.opening import open_place

        ground = self._ground()
        return open_place(ground, self.run, Claims(ground.database), self.claimed)

    def _ground(self) -> Footing:
        from headwater.sync.opening import Footing

        app = App(self.settings)
        files = app._files_of_regions(self.lake, self.generation.registry, self.region)
        return Footing(self.region, self.generation, files, app.open_database(self.lake), self.settings)


def _prefixes(registry: Registry) -> tuple[str, ...]:
    return tuple(each.local_prefix for each in registry.regions)


def location_of(url: str) -> str:
    """The URL as table metadata spells it: not percent-encoded, and one name for a folder, whatever links to it."""
    parsed = parse_url(url)
    if parsed.scheme == "file":
        return f"file://{Path(parsed.container).resolve()}"
    return f"{parsed.scheme}://{parsed.container}" + (f"/{parsed.prefix}" if parsed.prefix else "")


def _is_lake(folder: Path) -> bool:
    try:
        return (folder / LAKE_MARKER).stat() is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ForbiddenError(folder.as_uri(), LAKE_MARKER, error.strerror or "") from error


@dataclass(frozen=True)
class _Shown:
    """A store's name with the capabilities that it has shown, for `require`."""

    name: str
    capabilities: frozenset[Capability]
