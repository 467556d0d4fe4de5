"""The bank in three regions: tellers in two of them, a replica in each, and a sync that is killed half way.

Every region has a folder of its own. Tellers write into theirs and commit to `main`; a process for each region brings
its replica after it. An auditor reads the replicas all the while. In the end each region is read alone, with the
folders of the others and the lake itself moved away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from pyiceberg.table import StaticTable
from rich.console import Console
from rich.table import Table

from headwater.app import App
from headwater.catalog.model import TableContent, TableKey
from headwater.cli.bank import OPENING, OWNERS, Audit, audit, found
from headwater.cli.children import Child
from headwater.cli.sync import leased_ground
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.failpoints import Failpoint
from headwater.kernel.settings import load
from headwater.lake import Lake
from headwater.regions.registry import Region, Registry
from headwater.sync.check.protocol import Checker
from headwater.sync.opening import open_syncing
from headwater.sync.runs.model import STEPS, History, Run, RunState, Step
from headwater.sync.runs.store import Runs

REGIONS = ("us-east", "eu-central", "asia-south")
_TELLERS = {"Uma": "us-east", "Emil": "eu-central"}
# Killed while it copies: a file is there, and nobody has noted that it is.
_KILLED, _KILL = "asia-south", f"{Failpoint.COPY_AFTER_MOVE}=kill@2"
# All processes are of one machine, so a dead one may be taken for dead soon.
_QUICK = {
    "HEADWATER_FAILPOINTS": "",
    "HEADWATER_SYNC_LEASE_SECONDS": "4",
    "HEADWATER_SYNC_VERIFY_SAMPLE_RATE": "1",
    "HEADWATER_SYNC_WATCH_SECONDS": "0.2",
}
# Long enough for a machine that does much else; short enough that a demo that is stuck says so.
_PATIENCE_SECONDS = 180.0
_BREATH_SECONDS = 0.25


@dataclass(frozen=True)
class Site:
    """Where the regions are: their prefixes, and what processes, and readers of one region alone, are told.

    `folders` are moved away, all but the region's own, while a region is read alone; services shut them out otherwise.
    """

    app: App
    url: str
    prefixes: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    regional: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    doors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)

    def child(self, *words: str, region: str, **more: str) -> Child:
        """A process of a region."""
        return Child(*words, variables={**self.variables, **self.regional.get(region, {}), **_QUICK, **more})

    def app_of(self, region: str) -> App:
        """What this process opens in a region."""
        told = {**self.variables, **self.regional.get(region, {})}
        return replace(self.app, settings=load(environ=told)) if told else self.app


def folder_site(app: App, stage: Path) -> Site:
    """Regions that are folders below `stage`."""
    folders = {name: stage / name for name in ("lake", *REGIONS)}
    for region in REGIONS:
        folders[region].mkdir(parents=True)
    prefixes = {region: f"{folders[region].resolve().as_uri()}/" for region in REGIONS}
    return Site(app, str(folders["lake"]), prefixes, folders=folders)


@dataclass
class RegionsPlay:
    """How the story went: audits by region, the median seconds from a commit of `main` to the end of each step."""

    tellers: list[dict[str, Any]] = field(default_factory=list)
    audits: dict[str, int] = field(default_factory=dict)
    wrong_audits: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    lag_seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    slowest_seconds: dict[str, float] = field(default_factory=dict)
    killed: dict[str, Any] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    findings: int = 0
    alone: dict[str, dict[str, int]] = field(default_factory=dict)

    def note(self, region: str, seen: Audit) -> None:
        """Count one look at the books of a region."""
        self.audits[region] = self.audits.get(region, 0) + 1
        self.wrong_audits[region] = self.wrong_audits.get(region, 0) + (not seen.adds_up)

    @property
    def is_kept(self) -> bool:
        """Whether the promise was kept in every region, at every moment, and the killed run was taken up."""
        return (
            set(self.audits) == set(REGIONS)
            and not any(self.wrong_audits.values())
            and not self.findings
            and self.killed.get("state") == RunState.DONE
            and all(each == {"balances": OPENING * len(OWNERS), "entries": 0} for each in self.alone.values())
        )


def branch_of(region: str) -> str:
    """The replica of a region."""
    return f"main_replica_{region}"


def play_regions(site: Site, console: Console, transfers: int) -> RegionsPlay:
    """Play it there."""
    console.print("\n[cyan]3. The bank in three regions[/cyan]")
    play = RegionsPlay()
    lake = _founded(site)

    def say(line: str) -> None:
        console.print(f"   {line}", soft_wrap=True)

    with ExitStack() as stack, console.status("tellers in two regions, a sync in each, an auditor beside them"):
        syncs = {each: stack.enter_context(_sync(site, each)) for each in REGIONS if each != _KILLED}
        doomed = stack.enter_context(_sync(site, _KILLED, HEADWATER_FAILPOINTS=_KILL))
        tellers = [stack.enter_context(_teller(site, name, transfers)) for name in _TELLERS]
        say(", ".join(f"{name} writes in {region}" for name, region in _TELLERS.items()))
        say("in each region a process brings the region's replica after main: one commit of main, one of the replica")
        _audit_while(lambda: doomed.is_at_work, site, lake, play)
        killed_at = site.app.clock.now()
        left, to_copy = _left(site)
        say(f"the sync of {_KILLED} (process {doomed.pid}) {doomed.end} in its step {left.next_step}")
        say(f"its run {left.id} stays in the database, with {to_copy} files planned that nobody has noted as copied")
        syncs[_KILLED] = stack.enter_context(_sync(site, _KILLED))
        _audit_while(lambda: any(each.is_at_work for each in tellers), site, lake, play)
        play.tellers = [each.answer for each in tellers]
        _audit_while(lambda: _is_behind(site, syncs), site, lake, play)
    [taken_up] = [each for each in _runs(site, _KILLED) if each.id == left.id]
    ended = max(taken_up.ended.values())
    play.killed = {
        "region": _KILLED,
        "run": left.id,
        "after": left.done,
        "state": taken_up.state,
        "recovery_seconds": (ended - killed_at).total_seconds(),
    }
    say(
        f"the next process waited for the dead one's lease, took the same run up after its step {left.done}, "
        f"and it is {taken_up.state}, {play.killed['recovery_seconds']:.1f} s after the kill"
    )
    _look_back(site, play)
    _read_alone(lake, site, play)
    wrong, audits = sum(play.wrong_audits.values()), sum(play.audits.values())
    colour = "red" if wrong else "green"
    say(f"[{colour}]of {audits} audits in {len(REGIONS)} regions, {wrong} found books that do not add up[/{colour}]")
    return play


def print_regions(console: Console, play: RegionsPlay) -> None:
    """The replicas in a table: what each region read, and how long after `main` each step ended."""
    console.print()
    console.print("Seconds from a commit of main to the end of each step (median):")
    lags = Table("step", *REGIONS)
    for step in STEPS:
        lags.add_row(str(step), *(f"{play.lag_seconds[region][str(step)]:.2f}" for region in REGIONS))
    lags.add_row("the slowest commit", *(f"{play.slowest_seconds[region]:.2f}" for region in REGIONS))
    lags.add_row("commits", *(str(play.runs[region]) for region in REGIONS))
    console.print(lags)
    console.print("Each region read alone, with all others out of reach:")
    books = Table("region", "audits", "wrong", "files", "balances", "entries")
    for region in REGIONS:
        alone = play.alone[region]
        counts = (play.audits[region], play.wrong_audits[region], play.files[region])
        books.add_row(region, *(str(each) for each in (*counts, alone["balances"], alone["entries"])))
    console.print(books)


def _founded(site: Site) -> Lake:
    """The lake, its regions, the bank, and a first replica in each."""
    made = site.app.init_lake(site.url)
    regions = tuple(Region(name, prefix, branch_of(name)) for name, prefix in site.prefixes.items())
    sources = (f"{made.location.rstrip('/')}/", *site.prefixes.values())
    site.app.open_publisher(site.url).publish(Registry(regions, sources), actor="founder")
    lake = site.app.open_lake(site.url, region=REGIONS[0])
    found(lake)
    for region in REGIONS:
        with leased_ground(site.app_of(region), site.url, region) as (ground, lease):
            open_syncing(ground, lease).catch_up(ground.goals(History.FULL), lease, told=lambda *_: None)
    return lake


def _sync(site: Site, region: str, **variables: str) -> Child:
    return site.child("sync", "run", site.url, "--region", region, "--watch", region=region, **variables)


def _teller(site: Site, name: str, transfers: int) -> Child:
    words = ("demo-teller", site.url, "--name", name, "--transfers", str(transfers))
    return site.child(*words, region=_TELLERS[name], HEADWATER_REGION=_TELLERS[name])


def _audit_while(goes_on: Callable[[], bool], site: Site, lake: Lake, play: RegionsPlay) -> None:
    """Look at the books of every region while it goes on, and once after."""
    clock = site.app.clock
    give_up_at = clock.monotonic() + _PATIENCE_SECONDS
    is_last = False
    while not is_last:
        is_last = not goes_on()
        for region in REGIONS:
            play.note(region, audit(lake, branch=branch_of(region)))
        clock.sleep(_BREATH_SECONDS)
        if clock.monotonic() > give_up_at:
            raise HeadwaterError("the demo does not get on", hint="is the machine very busy? try again")


def _is_behind(site: Site, syncs: Mapping[str, Child]) -> bool:
    """Whether a region lacks a commit; whoever should bring it must be alive."""
    for region, child in syncs.items():
        with site.app_of(region).open_sync(site.url, region) as ground:
            if open_syncing(ground).status().pending is not None:
                if not child.is_at_work:
                    raise HeadwaterError(f"the sync of {region} {child.end}")
                return True
    return False


def _runs(site: Site, region: str) -> Sequence[Run]:
    """Every run of the region, the newest first."""
    with site.app.open_database(site.url) as database:
        return Runs(database).last(region, limit=1000)


def _left(site: Site) -> tuple[Run, int]:
    """What the killed sync left: its run, and how many of its files nobody has noted as copied."""
    with site.app.open_database(site.url) as database:
        runs = Runs(database)
        return runs.last(_KILLED, limit=1)[0], runs.backlog(_KILLED).files


def _look_back(site: Site, play: RegionsPlay) -> None:
    """How long the steps took, and whether the replicas are what they should be."""
    for region in REGIONS:
        done = [each for each in _runs(site, region) if each.state is RunState.DONE]
        play.runs[region] = len(done)
        lags = {
            str(step): [(each.ended[step] - each.spec.target.created_at).total_seconds() for each in done]
            for step in STEPS
        }
        play.lag_seconds[region] = {step: median(each) for step, each in lags.items()}
        play.slowest_seconds[region] = max(lags[Step.OBSERVE])
        with site.app_of(region).open_sync(site.url, region) as ground:
            checker = Checker(ground.catalog, ground.files, ground.generation.registry, region)
            checked = checker.check(open_syncing(ground).status().replica)
        play.files[region] = checked.files
        play.findings += len(checked.findings)


def _read_alone(lake: Lake, site: Site, play: RegionsPlay) -> None:
    """The sums of each region, by PyIceberg, which knows nothing of us, while nothing else is there."""
    sums = {"balances": ("accounts", "balance"), "entries": ("entries", "amount")}
    for region in REGIONS:
        keys = [TableKey.parse(table) for table, _ in sums.values()]
        shown = lake.catalog.content(lake.resolve(branch=branch_of(region)), keys)
        places = {key.name: each.metadata_location for key, each in shown.items() if isinstance(each, TableContent)}
        door = dict(site.doors.get(region, {}))
        with _away(folder for name, folder in site.folders.items() if name != region):
            play.alone[region] = {
                name: int(sum(StaticTable.from_metadata(places[table], door).scan().to_arrow()[column].to_pylist()))
                for name, (table, column) in sums.items()
            }


@contextmanager
def _away(folders: Iterable[Path]) -> Iterator[None]:
    """While the block lasts, these folders are elsewhere."""
    moved = [(folder, folder.with_name(f"{folder.name}.away")) for folder in folders]
    for folder, elsewhere in moved:
        folder.rename(elsewhere)
    try:
        yield
    finally:
        for folder, elsewhere in moved:
            elsewhere.rename(folder)
