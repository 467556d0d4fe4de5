"""From a lake, a registry and settings to the sync of one region."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from headwater.catalog.port import Catalog
from headwater.database import Database
from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import Ulid
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import Randomness
from headwater.kernel.settings import Settings
from headwater.regions import outputs as listed
from headwater.regions.claims import ClaimRun, Claims
from headwater.regions.registry import Region
from headwater.regions.rollout import Generation
from headwater.sync.catchup.model import Limits
from headwater.sync.copy.metrics import Meter
from headwater.sync.copy.opening import open_ports
from headwater.sync.copy.protocol import Copier
from headwater.sync.lease import RegionLease
from headwater.sync.localise.codec import digest_named
from headwater.sync.localise.mapping import RegistryMapping
from headwater.sync.localise.model import WRITER_VERSION, Output, Place
from headwater.sync.observe.heartbeat import Heartbeat
from headwater.sync.observe.protocol import Observer
from headwater.sync.plan.model import BatchLimits
from headwater.sync.plan.presence import HeadPresence
from headwater.sync.plan.protocol import BeingDeletedError, Planning, remove_lists
from headwater.sync.promote.protocol import Promoter
from headwater.sync.protocol import Goals, Syncing, Workshop
from headwater.sync.runs.model import History, Run, RunState, Shipped
from headwater.sync.runs.store import Runs
from headwater.sync.steps import Helpers, Parts, Steps
from headwater.sync.verify.protocol import Verifier
from headwater.tables.files import Files

_log = Log("sync")

# Opens the helpers of a run; None: there are none, and everything is done here.
OpenHelpers = Callable[[Run, ClaimRun], Helpers]


class Standing(Protocol):
    """What planning and localising stand on, here and in a task."""

    @property
    def region(self) -> str:
        """The region that is synced."""
        ...

    @property
    def generation(self) -> Generation:
        """The registry that the run began with."""
        ...

    @property
    def files(self) -> Files:
        """Files of all regions, those of the own one to be written."""
        ...

    @property
    def database(self) -> Database:
        """Where claims and outputs are kept."""
        ...

    @property
    def settings(self) -> Settings:
        """How much at a time."""
        ...


@dataclass(frozen=True)
class Footing:
    """Just that."""

    region: str
    generation: Generation
    files: Files
    database: Database
    settings: Settings


@dataclass(frozen=True)
class Ground:
    """What a sync stands on. `regional` is the catalog as the region sees it; `files` reaches all regions."""

    region: str
    generation: Generation
    catalog: Catalog
    regional: Catalog
    files: Files
    database: Database
    settings: Settings
    environ: Mapping[str, str]
    clock: Clock
    randomness: Randomness
    metrics: Metrics
    helpers: OpenHelpers | None = None

    @property
    def branch(self) -> str:
        """The replica branch."""
        return self.generation.registry.region(self.region).branch

    def goals(self, history: History) -> Goals:
        """What is wanted of the replica, by this registry."""
        return Goals(self.generation.number, made_with(self.generation, self.region, history), history)


def made_with(generation: Generation, region: str, history: History) -> str:
    """By what a replica's files were localised: whatever changes their names is in it."""
    return f"{WRITER_VERSION}:{history}:{RegistryMapping(generation.resolver(region)).digest}"


def open_syncing(ground: Ground, lease: RegionLease | None = None) -> Syncing:
    """The sync of the ground's region; without a lease it can only be looked at."""
    sync = ground.settings.sync
    return Syncing(
        ground.region,
        ground.branch,
        catalog=ground.catalog,
        runs=Runs(ground.database),
        promoter=_promoter(ground),
        workshop=_workshop(ground, lease),
        heartbeat=Heartbeat(
            ground.catalog,
            ground.regional,
            region=ground.region,
            clock=ground.clock,
            randomness=ground.randomness,
            metrics=ground.metrics,
        ),
        limits=Limits(
            sync.forward_commits,
            timedelta(seconds=sync.forward_after_seconds),
            timedelta(seconds=sync.alarm_after_seconds),
            sync.alarm_backlog_bytes,
        ),
        clock=ground.clock,
        randomness=ground.randomness,
        metrics=ground.metrics,
    )


def open_planning(ground: Standing, run: Run, claims: Claims, claimed: ClaimRun) -> Planning:
    """What the plan of a run is made with, here or in a task."""
    sync, region = ground.settings.sync, ground.generation.registry.region(ground.region)

    def claim(place: str, uris: Sequence[str]) -> Sequence[str]:
        return claims.claim(claimed, uris, region=place).deleting

    return Planning(
        ground.files,
        ground.generation.resolver(ground.region),
        HeadPresence(ground.files, workers=sync.verify_concurrency),
        claim,
        f"{_lists_folder(region)}{run.id}",
        BatchLimits(sync.batch_files, sync.batch_bytes),
        run.spec.shipped,
    )


def open_place(ground: Standing, run: Run, claims: Claims, claimed: ClaimRun) -> Place:
    """What a run localises with, here or in a task."""
    region = ground.generation.registry.region(ground.region)
    mapping = RegistryMapping(ground.generation.resolver(ground.region))
    recorded = _Recorded(listed.Outputs(ground.database), claims, claimed, ground.generation.number)
    return Place(ground.files, mapping, recorded, region.outputs_prefix, run.spec.history)


@dataclass(frozen=True)
class _Recorded:
    """Lists outputs and claims them, before they are looked for or written (G3, G4)."""

    listing: listed.Outputs
    claims: Claims
    claimed: ClaimRun
    generation: int

    def record(self, outputs: Sequence[Output]) -> None:
        """List and claim."""
        region, generation = self.claimed.region, self.generation
        self.listing.record(
            listed.Output(region, each.location, str(each.kind), digest_named(each.location), each.source, generation)
            for each in outputs
        )
        if deleting := self.claims.claim(self.claimed, [each.location for each in outputs]).deleting:
            raise BeingDeletedError(region, deleting)


def _promoter(ground: Ground) -> Promoter:
    sync = ground.settings.sync
    return Promoter(
        ground.catalog,
        ground.regional,
        clock=ground.clock,
        randomness=ground.randomness,
        metrics=ground.metrics,
        gate_patience=timedelta(seconds=sync.gate_seconds),
        poll=timedelta(seconds=sync.poll_seconds),
    )


def _workshop(ground: Ground, lease: RegionLease | None) -> Workshop:
    sync = ground.settings.sync

    @contextmanager
    def opened(run: Run, fence: int) -> Iterator[tuple[Steps, bool]]:
        assert lease is not None, "whoever runs a sync holds its region"
        claims, runs = Claims(ground.database), Runs(ground.database)
        entry = claims.open(run.id, ground.region, fence=fence, lease_seconds=sync.lease_seconds)
        claimed = entry.run
        ports = open_ports(ground.generation.registry, ground.files, ground.settings, ground.environ)
        helpers = ground.helpers
        parts = Parts(
            ground.catalog,
            runs,
            claims,
            claimed,
            open_planning(ground, run, claims, claimed),
            open_place(ground, run, claims, claimed),
            Copier(
                ports,
                Meter(ground.metrics, ground.region, ground.clock),
                ground.clock,
                processes=sync.copy_processes,
            ),
            Verifier(
                ports,
                rate=sync.verify_sample_rate,
                concurrency=sync.verify_concurrency,
                needs_proof=run.spec.shipped is Shipped.NO,
            ),
            _promoter(ground),
            _observer(ground),
            ground.clock,
            ground.branch,
            made_with(ground.generation, ground.region, run.spec.history),
            timedelta(seconds=sync.lease_seconds / 3),
            None if helpers is None else lambda: helpers(run, claimed),
        )
        with lease.renewing(lambda: _renew(claims, claimed, sync.lease_seconds)):
            yield Steps(parts, run, fence), entry.keeps_claims
        ended = runs.run(run.id)
        if ended is not None and ended.state is not RunState.RUNNING:
            claims.release(claimed)
            _remove_lists(ground, runs)

    return opened


def _lists_folder(region: Region) -> str:
    return f"{region.reserved_prefix}sync/"


def _remove_lists(ground: Ground, runs: Runs) -> None:
    """Of every run that has ended, so that what one left behind goes with the next; that it fails does no harm."""

    def is_ended(run: str) -> bool:
        found = runs.run(Ulid(run))
        return found is not None and found.state is not RunState.RUNNING

    try:
        remove_lists(ground.files, _lists_folder(ground.generation.registry.region(ground.region)), is_ended)
    except HeadwaterError as error:
        _log.warning("lists of what was copied stay for now", region=ground.region, error=str(error))


def _renew(claims: Claims, claimed: ClaimRun, lease_seconds: float) -> None:
    claims.renew(claimed, lease_seconds)


def _observer(ground: Ground) -> Observer:
    sync = ground.settings.sync
    return Observer(
        ground.catalog,
        ground.regional,
        region=ground.region,
        clock=ground.clock,
        metrics=ground.metrics,
        patience=timedelta(seconds=sync.observe_seconds),
        poll=timedelta(seconds=sync.poll_seconds),
    )
