"""`headwater demo`: a bank whose transfers touch three tables, and a teller that is killed in the middle of one.

It is played twice on folders, by the same tellers (real processes) with the same wishes: once with one transaction for
a transfer, once table by table, as the control. All the while an auditor reads, and counts how often the books do not
add up. What the control gets wrong is counted, not arranged. Then the bank is played in three regions
(demo_regions.py).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from headwater.app import App
from headwater.catalog.model import Commit
from headwater.cli.bank import OPENING, OWNERS, Audit, audit, found
from headwater.cli.children import Child
from headwater.cli.demo_regions import RegionsPlay, folder_site, play_regions, print_regions
from headwater.cli.output import json_option, print_json
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.failpoints import Failpoint
from headwater.kernel.settings import cache_folder
from headwater.lake import Lake
from headwater.publish.model import RECOVERY_ACTOR
from headwater.publish.requests import FOR_ACTOR, FOR_OPERATION, KIND, OUTCOMES

_TABLES = ("accounts", "transfers", "entries")
_TELLERS = ("Tom", "Tina")
# Killed between heads and publish: when nothing is retried, two of the three heads of its third transfer have moved.
_DOOMED, _KILL = "Ted", f"{Failpoint.PUBLISH_AFTER_HEAD}=kill@8"
# All processes are of one machine, so a dead teller may be taken for dead soon.
_LEASE_SECONDS, _SKEW_SECONDS = 2.0, 0.5
# Between two looks at the books, so that the auditor leaves the machine to the tellers.
_BREATH_SECONDS = 0.1
# Spark lives for two short questions: what its compiler would win later, it would take from them now.
_SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@dataclass
class Play:
    """How one playing of the story went."""

    is_control: bool
    tellers: list[dict[str, Any]] = field(default_factory=list)
    audits: int = 0
    wrong_audits: int = 0
    first_wrong: Audit | None = None
    at_the_end: Audit | None = None
    recoveries: list[dict[str, Any]] = field(default_factory=list)

    def note(self, seen: Audit) -> None:
        """Count one look at the books."""
        self.audits += 1
        self.at_the_end = seen
        if not seen.adds_up:
            self.wrong_audits += 1
            self.first_wrong = self.first_wrong or seen


@click.command()
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Where to play; a temporary folder by default.")
@click.option("--transfers", type=click.IntRange(3), default=4, show_default=True, help="Transfers of each teller.")
@click.option("--master", help="Spark master; the settings' by default.")
@click.option(
    "--profile",
    type=click.Choice(["embedded", "services"]),
    default="embedded",
    show_default=True,
    help="Whether the regions are folders, or S3, PostgreSQL and Nessie on loopback.",
)
@json_option
@click.pass_obj
def demo(app: App, folder: Path | None, transfers: int, master: str | None, profile: str, as_json: bool) -> None:
    """Play the bank, one transaction for a transfer and table by table, kill a teller, and audit all the while."""
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as temporary:
        stage = folder or Path(temporary)
        console = Console(stderr=as_json, highlight=False)
        console.print(
            f"[bold]A bank: {len(OWNERS)} accounts with {OPENING} each. "
            "A transfer touches three tables; tellers, each a process, make many at once.[/bold]",
            soft_wrap=True,
        )
        ours, control = (
            _play(app, app.init_lake(str(stage / name)), stage / name, console, transfers, is_control)
            for name, is_control in (("bank", False), ("control", True))
        )
        _print_books(console, ours, control)
        # Fewer: every commit is brought to three regions.
        regions = _play_regions(app, stage / "regions", console, max(2, transfers - 1), profile == "services")
        print_regions(console, regions)
        with console.status("Spark reads the bank"):
            by_spark = _read_with_spark(app, app.open_lake(str(stage / "bank"), read_only=True), master)
        _print_ending(console, ours, control, regions, by_spark)
        if as_json:
            told = {"bank": asdict(ours), "control": asdict(control), "regions": asdict(regions), "spark": by_spark}
            print_json(told)
        _require(ours, by_spark, regions)


def _require(ours: Play, by_spark: dict[str, int], regions: RegionsPlay) -> None:
    """The promise. Of the control nothing is required: what it shows is what happened."""
    end = ours.at_the_end
    kept = ours.wrong_audits == 0 and end is not None and end.adds_up and bool(ours.recoveries)
    if not (kept and regions.is_kept) or by_spark != {"balances": OPENING * len(OWNERS), "entries": 0}:
        raise HeadwaterError("the story did not end as it should", hint="please report this with the output above")


def _play(app: App, lake: Lake, folder: Path, console: Console, transfers: int, is_control: bool) -> Play:
    title = "2. The control: the same tellers, table by table" if is_control else "1. One transaction for a transfer"
    console.print(f"\n[cyan]{title}[/cyan]")
    play = Play(is_control)
    found(lake)

    def say(line: str) -> None:
        console.print(f"   {line}", soft_wrap=True)

    def watch(tellers: Sequence[_Teller]) -> None:
        while any(teller.is_at_work for teller in tellers):
            play.note(audit(lake))
            app.clock.sleep(_BREATH_SECONDS)
        play.note(audit(lake))

    with ExitStack() as stack, console.status("tellers at work, an auditor beside them"):
        at_work = [stack.enter_context(_Teller(folder, each, transfers, is_control)) for each in _TELLERS]
        doomed = stack.enter_context(_Teller(folder, _DOOMED, transfers, is_control, failpoints=_KILL))
        watch([doomed])
        say(f"{', '.join(_TELLERS)} and {_DOOMED} move money. {_DOOMED} (process {doomed.pid}) {doomed.end}")
        left = [each for each in lake.writing.sidecars.pending() if each.actor == _DOOMED]
        held = sorted({head.key.name for each in left for head in each.heads})
        say(f"it left a note of what it had begun with {', '.join(held) or 'nothing'}")
        app.clock.sleep(_LEASE_SECONDS + _SKEW_SECONDS)
        replacement = stack.enter_context(_Teller(folder, f"{_DOOMED}'s replacement", transfers, is_control))
        watch([*at_work, replacement])
        play.tellers = [teller.answer for teller in (*at_work, replacement)]
    play.recoveries = [_told(commit) for commit in lake.catalog.log(lake.resolve()) if commit.actor == RECOVERY_ACTOR]
    for each in play.recoveries:
        if each["operation"] in {note.operation for note in left}:
            tables = ", ".join(f"{key.removeprefix('default.')} {state}" for key, state in each["tables"].items())
            say(f"the next one to open the bank found it, and the change was {each['outcome']}: {tables}")
    made, retried = (sum(each[what] for each in play.tellers) for what in ("made", "retried"))
    say(f"a replacement did its work: {made} transfers made, {retried} tries lost to others and repeated")
    colour = "red" if play.wrong_audits else "green"
    say(f"[{colour}]of {play.audits} audits, {play.wrong_audits} found books that do not add up[/{colour}]")
    return play


def _play_regions(app: App, stage: Path, console: Console, transfers: int, on_services: bool) -> RegionsPlay:
    if not on_services:
        return play_regions(folder_site(app, stage), console, transfers)
    # Imported here, because a plain installation has no services.
    from headwater.cli.demo_services import services_site

    with ExitStack() as stack:
        with console.status("the services of three regions are started"):
            site = stack.enter_context(services_site(app, stage))
        return play_regions(site, console, transfers)


class _Teller(Child):
    """A teller in a process of its own."""

    def __init__(self, folder: Path, name: str, transfers: int, is_control: bool, *, failpoints: str = "") -> None:
        words = ["demo-teller", str(folder), "--name", name, "--transfers", str(transfers)]
        variables = {
            "HEADWATER_FAILPOINTS": failpoints,
            "HEADWATER_PUBLISH_LEASE_SECONDS": str(_LEASE_SECONDS),
            "HEADWATER_SEQUENCE_CLOCK_SKEW_SECONDS": str(_SKEW_SECONDS),
        }
        super().__init__(*words, *(["--table-by-table"] if is_control else []), variables=variables)


def _told(commit: Commit) -> dict[str, Any]:
    """What the log says of a recovery."""
    outcomes = json.loads(commit.properties[OUTCOMES])
    return {
        "commit": commit.hash,
        "outcome": commit.properties[KIND],
        "of": commit.properties[FOR_ACTOR],
        "operation": commit.properties[FOR_OPERATION],
        "tables": {key: outcome["state"] for key, outcome in outcomes.items()},
    }


def _read_with_spark(app: App, lake: Lake, master: str | None) -> dict[str, int]:
    """The sums, as an engine sees them that knows nothing of us but the tables' metadata files."""
    # Imported here, because a plain installation has no Spark.
    from headwater.spark.session import iceberg_jars, spark_session

    settings = app.settings.spark.model_copy(update={"master": master, "remote": None} if master else {})
    jars = iceberg_jars(cache_folder(), s3=False)
    spark = spark_session(settings, app_name="headwater demo", jars=jars, extra=_SHORT_LIVED)
    try:
        sums = {"balances": ("accounts", "balance"), "entries": ("entries", "amount")}
        return {
            name: int(
                spark.read.format("iceberg")
                .load(str(lake.table(table).location))
                .selectExpr(f"coalesce(sum({column}), 0) AS total")
                .collect()[0]["total"]
            )
            for name, (table, column) in sums.items()
        }
    finally:
        spark.stop()


def _print_books(console: Console, ours: Play, control: Play) -> None:
    books = Table("", "one transaction", "table by table", title="The books", title_justify="left")
    ends = [play.at_the_end or Audit(0, 0, 0, 0, 0) for play in (ours, control)]
    books.add_row("audits that did not add up", *(f"{each.wrong_audits} of {each.audits}" for each in (ours, control)))
    books.add_row(f"balances at the end, of {OPENING * len(OWNERS)}", *(str(each.balances) for each in ends))
    books.add_row("transfers without both sides", *(str(each.halves) for each in ends))
    books.add_row("accounts that disagree with their entries", *(str(each.wrong_accounts) for each in ends))
    console.print()
    console.print(books)


def _print_ending(console: Console, ours: Play, control: Play, regions: RegionsPlay, by_spark: dict[str, int]) -> None:
    console.print(f"\nSpark reads the bank, too: balances {by_spark['balances']}, entries {by_spark['entries']}.")
    audits, wrong = sum(regions.audits.values()), sum(regions.wrong_audits.values())
    console.print(
        f"\n[bold]A teller died between its tables, a sync half way. Of {ours.audits} audits of the bank "
        f"{ours.wrong_audits} did not add up, of {audits} in three regions {wrong}; "
        f"table by table, {control.wrong_audits} of {control.audits}.[/bold]",
        soft_wrap=True,
    )
