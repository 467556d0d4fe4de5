"""The bank in three regions: tellers in two of them, a replica in each, and a sync that is killed half way.

Every region has a folder of its own. Tellers write into theirs and commit to `main`; a process for each region brings
its replica after it. An auditor reads the replicas all the while. In the end each region is read alone, with the
folders of the others and the lake itself moved away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
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
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.failpoints import Failpoint
from headwater.lake import Lake
from headwater.regions.registry import Region, Registry
from headwater.sync.check.protocol import Checker
from headwater.sync.lease import leased
from headwater.sync.opening import open_syncing
from headwater.sync.runs.model import STEPS, History, Run, RunState
from headwater.sync.runs.store import Runs

REGIONS = ("us-east", "eu-central", "asia-south")
_TELLERS = {"Uma": "us-east", "Emil": "eu-central"}
# Killed while it copies: a file is there, and nobody has noted that it is.
_KILLED, _KILL = "asia-south", f"{Failpoint.COPY_AFTER_MOVE}=kill@2"
# All processes are of one machine, so a dead one may be taken for dead soon.
_QUICK = {
    "HEADWATER_FAILPOINTS": "",
    "HEADWATER_SYNC_LEASE_SECONDS": "2",
    "HEADWATER_SYNC_VERIFY_SAMPLE_RATE": "1",
    "HEADWATER_SYNC_WATCH_SECONDS": "0.2",
}
_PATIENCE_SECONDS = 60.0


@dataclass
class RegionsPlay:
    """How the story went: audits by region, the median seconds from a commit of `main` to the end of each step."""

    tellers: list[dict[str, Any]] = field(default_factory=list)
    audits: dict[str, int] = field(default_factory=dict)
    wrong_audits: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    lag_seconds: dict[str, dict[str, float]] = field(default_factory=dict)
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


def play_regions(app: App, stage: Path, console: Console, transfers: int) -> RegionsPlay:
    """Play it on folders below `stage`."""
    console.print("\n[cyan]the bank in three regions[/cyan]")
    play = RegionsPlay()
    lake = _founded(app, stage)
    url = str(stage / "lake")

    def say(line: str) -> None:
        console.print(f"  {line}", soft_wrap=True)

    with ExitStack() as stack, console.status("tellers in two regions, a sync in each, an auditor beside them"):
        syncs = {each: stack.enter_context(_sync(url, each)) for each in REGIONS if each != _KILLED}
        doomed = stack.enter_context(_sync(url, _KILLED, HEADWATER_FAILPOINTS=_KILL))
        tellers = [stack.enter_context(_teller(url, name, transfers)) for name in _TELLERS]
        say(", ".join(f"{name} writes in {region}" for name, region in _TELLERS.items()))
        _audit_while(lambda: doomed.is_at_work, app, lake, play)
        left = _runs(app, url, _KILLED)[0]
        say(f"the sync of {_KILLED} (process {doomed.pid}) {doomed.end} after its step {left.done}")
        syncs[_KILLED] = stack.enter_context(_sync(url, _KILLED))
        _audit_while(lambda: any(each.is_at_work for each in tellers), app, lake, play)
        play.tellers = [each.answer for each in tellers]
        _audit_while(lambda: _is_behind(app, url, syncs), app, lake, play)
    [taken_up] = [each for each in _runs(app, url, _KILLED) if each.id == left.id]
    play.killed = {"region": _KILLED, "run": left.id, "after": left.done, "state": taken_up.state}
    say(f"the next process took the same run up: it is {taken_up.state}")
    _look_back(app, url, play)
    _read_alone(lake, stage, play)
    wrong, audits = sum(play.wrong_audits.values()), sum(play.audits.values())
    colour = "red" if wrong else "green"
    say(f"[{colour}]of {audits} audits in {len(REGIONS)} regions, {wrong} found books that do not add up[/{colour}]")
    return play


def print_regions(console: Console, play: RegionsPlay) -> None:
    """The replicas in a table: what each region read, and how long after `main` each step ended."""
    console.print()
    steps = [str(step) for step in STEPS]
    title = "seconds from a commit on main to the end of each step (median)"
    lags = Table("region", "commits", *steps, title=title, title_justify="left")
    for region in REGIONS:
        lags.add_row(region, str(play.runs[region]), *(f"{play.lag_seconds[region][step]:.2f}" for step in steps))
    console.print(lags)
    books = Table("region", "audits", "wrong", "files", "balances", "entries", title="read alone", title_justify="left")
    for region in REGIONS:
        alone = play.alone[region]
        counts = (play.audits[region], play.wrong_audits[region], play.files[region])
        books.add_row(region, *(str(each) for each in (*counts, alone["balances"], alone["entries"])))
    console.print(books)


def _founded(app: App, stage: Path) -> Lake:
    """The lake, its regions, the bank, and a first replica in each."""
    url = str(stage / "lake")
    app.init_lake(url)
    prefixes = {region: f"{(stage / region).resolve().as_uri()}/" for region in REGIONS}
    for region in REGIONS:
        (stage / region).mkdir()
    home = f"{(stage / 'lake').resolve().as_uri()}/"
    regions = tuple(Region(name, prefix, branch_of(name)) for name, prefix in prefixes.items())
    app.open_publisher(url).publish(Registry(regions, (home, *prefixes.values())), actor="founder")
    lake = app.open_lake(url, region=REGIONS[0])
    found(lake)
    for region in REGIONS:
        with (
            app.open_sync(url, region) as ground,
            closing(app.open_coordination(url)) as coordination,
            leased(coordination, region, "the founder", app.settings.sync.lease_seconds) as lease,
        ):
            open_syncing(ground, lease).catch_up(ground.goals(History.FULL), lease, told=lambda *_: None)
    return lake


def _sync(url: str, region: str, **variables: str) -> Child:
    return Child("sync", "run", url, "--region", region, "--watch", variables={**_QUICK, **variables})


def _teller(url: str, name: str, transfers: int) -> Child:
    words = ("demo-teller", url, "--name", name, "--transfers", str(transfers))
    return Child(*words, variables={**_QUICK, "HEADWATER_REGION": _TELLERS[name]})


def _audit_while(goes_on: Any, app: App, lake: Lake, play: RegionsPlay) -> None:
    """Look at the books of every region while it goes on, and once after."""
    give_up_at = app.clock.monotonic() + _PATIENCE_SECONDS
    is_last = False
    while not is_last:
        is_last = not goes_on()
        for region in REGIONS:
            play.note(region, audit(lake, branch=branch_of(region)))
        if app.clock.monotonic() > give_up_at:
            raise HeadwaterError("the demo does not get on", hint="is the machine very busy? try again")


def _is_behind(app: App, url: str, syncs: Mapping[str, Child]) -> bool:
    """Whether a region lacks a commit; whoever should bring it must be alive."""
    for region, child in syncs.items():
        with app.open_sync(url, region) as ground:
            if open_syncing(ground).status().pending is not None:
                if not child.is_at_work:
                    raise HeadwaterError(f"the sync of {region} {child.end}")
                return True
    return False


def _runs(app: App, url: str, region: str) -> Sequence[Run]:
    """Every run of the region, the newest first."""
    with app.open_database(url) as database:
        return Runs(database).last(region, limit=1000)


def _look_back(app: App, url: str, play: RegionsPlay) -> None:
    """How long the steps took, and whether the replicas are what they should be."""
    for region in REGIONS:
        done = [each for each in _runs(app, url, region) if each.state is RunState.DONE]
        play.runs[region] = len(done)
        play.lag_seconds[region] = {
            str(step): median((each.ended[step] - each.spec.target.created_at).total_seconds() for each in done)
            for step in STEPS
        }
        with app.open_sync(url, region) as ground:
            checker = Checker(ground.catalog, ground.files, ground.generation.registry, region)
            checked = checker.check(open_syncing(ground).status().replica)
        play.files[region] = checked.files
        play.findings += len(checked.findings)


def _read_alone(lake: Lake, stage: Path, play: RegionsPlay) -> None:
    """The sums of each region, by PyIceberg, which knows nothing of us, while nothing else is there."""
    sums = {"balances": ("accounts", "balance"), "entries": ("entries", "amount")}
    for region in REGIONS:
        shown = lake.catalog.content(lake.resolve(branch=branch_of(region)), [TableKey.parse(t) for t, _ in sums.values()])
        places = {key.name: each.metadata_location for key, each in shown.items() if isinstance(each, TableContent)}
        with _away(stage / name for name in ("lake", *REGIONS) if name != region):
            play.alone[region] = {
                name: int(sum(StaticTable.from_metadata(places[table]).scan().to_arrow()[column].to_pylist()))
                for name, (table, column) in sums.items()
            }


@contextmanager
def _away(folders: Iterator[Path]) -> Iterator[None]:
    """While the block lasts, these folders are elsewhere."""
    moved = [(folder, folder.with_name(f"{folder.name}.away")) for folder in folders]
    for folder, elsewhere in moved:
        folder.rename(elsewhere)
    try:
        yield
    finally:
        for folder, elsewhere in moved:
            elsewhere.rename(folder)
