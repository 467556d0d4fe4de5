"""`headwater sync`: bring the replica of a region to what `main` shows, and say how it stands."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace

import click

from headwater.app import App
from headwater.catalog.model import TableKey
from headwater.cli.exporting import exported
from headwater.cli.lakes import split, words
from headwater.cli.output import counted, json_option, print_json
from headwater.cli.sync_shapes import checked_shape, print_checked, print_status, run_shape, spec_shape, status_shape
from headwater.kernel.errors import ConflictError, CorruptError, UnavailableError, UsageError
from headwater.kernel.logs import Log
from headwater.sync.check.protocol import Checker
from headwater.sync.lease import RegionLease, leased
from headwater.sync.opening import Ground, open_syncing
from headwater.sync.outlook import look_ahead
from headwater.sync.protocol import Goals
from headwater.sync.runs.model import History, Run, RunState, Step

region_option = click.option("--region", required=True, metavar="R", help="The region whose replica it is.")
history_option = click.option(
    "--history", type=click.Choice([str(each) for each in History]), help="Which snapshots the replica has."
)
table_option = click.option(
    "--table", "tables", multiple=True, metavar="T", help="Only this table; the replica's origin stays where it was."
)

_log = Log("sync")


@click.group()
def sync() -> None:
    """Regional replicas of `main`, whose paths are local."""


@sync.command("run")
@words
@region_option
@click.option("--once/--watch", default=True, help="Stop when caught up, or go on.  [default: once]")
@table_option
@history_option
@click.option("--dry-run", is_flag=True, help="Only say what the next run would do.")
@json_option
@click.pass_obj
def run(
    app: App,
    words: tuple[str, ...],
    region: str,
    once: bool,
    tables: tuple[str, ...],
    history: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring the replica of a region to what `main` shows: diff, plan, copy, verify, localise, promote, observe."""
    lake, _ = split(app, words)
    if tables and not once:
        raise UsageError("--table and --watch do not go together", hint="a subset is synced once")
    if dry_run:
        _print_next(app, lake, region, tables, history, as_json=as_json)
        return
    while True:
        try:
            _catch_up(app, lake, region, tables, history, as_json=as_json)
        except (UnavailableError, ConflictError) as error:  # a region that was lost, too: it may be free again
            if once:
                raise
            _log.warning("the sync is tried again", region=region, error=str(error))
        if once:
            return
        app.clock.sleep(app.settings.sync.watch_seconds)


@sync.command("step")
@click.argument("words", nargs=-1, metavar="[LAKE] STEP")
@region_option
@history_option
@json_option
@click.pass_obj
def step(app: App, words: tuple[str, ...], region: str, history: str | None, as_json: bool) -> None:
    """Bring the run of a region to the end of STEP, for schedulers that want each step as a task of its own.

    STEP is diff, plan, copy, verify, localise, promote or observe. Nothing is done when nothing is pending.
    """
    lake, (name,) = split(app, words, "STEP")
    if name not in list(Step):
        raise UsageError(f"there is no step {name!r}", hint=", ".join(Step))
    with leased_ground(app, lake, region) as (ground, lease):
        goals = goals_of(app, ground, (), history)
        syncing = open_syncing(ground, lease)
        with exported(app, syncing):
            found = syncing.advance(goals, lease, Step(name), told=lambda *_: None)
    if as_json:
        print_json({"region": region, "run": None if found is None else run_shape(found)})
    elif found is None:
        click.echo(f"{region} shows what main shows")
    else:
        click.echo(f"{found.id} {found.state}: {found.done}")


@sync.command("status")
@words
@region_option
@json_option
@click.pass_obj
def status(app: App, words: tuple[str, ...], region: str, as_json: bool) -> None:
    """Say what the replica of a region shows, what it lacks, and what is under way."""
    lake, _ = split(app, words)
    with app.open_sync(lake, region) as ground:
        found = open_syncing(ground).status()
    if as_json:
        print_json(status_shape(found, app))
    else:
        print_status(found, app)


@sync.command("plan")
@words
@region_option
@table_option
@history_option
@json_option
@click.pass_obj
def plan(
    app: App, words: tuple[str, ...], region: str, tables: tuple[str, ...], history: str | None, as_json: bool
) -> None:
    """Say what the next run would go to, and what it rests on."""
    lake, _ = split(app, words)
    _print_next(app, lake, region, tables, history, as_json=as_json)


@sync.command("check")
@words
@region_option
@click.option("--deep", is_flag=True, help="Compare the rows with those of main, too, by Spark.")
@json_option
@click.pass_obj
def check(app: App, words: tuple[str, ...], region: str, deep: bool, as_json: bool) -> None:
    """Prove the replica of a region: every path local, every file there with its size, and the rows of `main`."""
    lake, _ = split(app, words)
    with app.open_sync(lake, region) as ground:
        checker = Checker(ground.catalog, ground.files, ground.generation.registry, region)
        count_rows = app.count_rows(ground.generation.registry) if deep else None
        replica = open_syncing(ground).status().replica
        found = checker.check(replica, count_rows)
    if replica.origin is None and not found.tables:
        # Nothing was found wrong because there is nothing: that proves no replica.
        raise UsageError(
            f"the replica of {region} shows nothing yet", hint="`headwater sync run` brings it up", region=region
        )
    if as_json:
        print_json(checked_shape(found))
    else:
        print_checked(found)
    if not found.is_sound:
        first = found.findings[0]
        raise CorruptError(
            f"the replica of {region} is not sound: {first.table}: {first.fault}: {first.path or first.detail}",
            hint=f"{counted(len(found.findings), 'finding')}; `sync run` goes on from the last good state",
            region=region,
        )


def goals_of(app: App, ground: Ground, tables: tuple[str, ...], history: str | None) -> Goals:
    """What is wanted of a replica, by the options of a command."""
    goals = ground.goals(History(history or app.settings.sync.history))
    return replace(goals, tables=tuple(TableKey.parse(each) for each in tables)) if tables else goals


@contextmanager
def leased_ground(app: App, lake: str, region: str) -> Iterator[tuple[Ground, RegionLease]]:
    """What the sync of a region stands on, and the right to do it."""
    holder = f"{socket.gethostname()}:{os.getpid()}"
    with (
        app.open_sync(lake, region) as ground,
        closing(app.open_coordination(lake)) as coordination,
        leased(coordination, region, holder, app.settings.sync.lease_seconds) as lease,
    ):
        yield ground, lease


def _catch_up(app: App, lake: str, region: str, tables: tuple[str, ...], history: str | None, *, as_json: bool) -> None:
    def told(run: Run, step: Step) -> None:
        if not as_json:
            click.echo(f"{run.spec.target.hash[:12]}  {step}")

    with leased_ground(app, lake, region) as (ground, lease):
        syncing = open_syncing(ground, lease)
        with exported(app, syncing):
            runs = syncing.catch_up(goals_of(app, ground, tables, history), lease, told=told)
    if as_json:
        print_json({"region": region, "runs": [run_shape(each) for each in runs]})
        return
    done = [each for each in runs if each.state is RunState.DONE]
    click.echo(f"{region}: {counted(len(done), 'commit')} promoted" if runs else f"{region} shows what main shows")


def _print_next(
    app: App, lake: str, region: str, tables: tuple[str, ...], history: str | None, *, as_json: bool
) -> None:
    with app.open_sync(lake, region) as ground:
        spec = open_syncing(ground).next_spec(goals_of(app, ground, tables, history))
        ahead = None if spec is None else look_ahead(ground, spec)
    if as_json:
        shape = None if spec is None or ahead is None else {**spec_shape(spec), "plan": asdict(ahead)}
        print_json({"region": region, "next": shape})
    elif spec is None:
        click.echo(f"{region} shows what main shows")
    else:
        since = "everything" if spec.shown is None else f"what changed since {spec.shown.hash[:12]}"
        way = ", straight to the newest" if spec.is_forward else ""
        click.echo(f"{region} goes to {spec.target.hash[:12]}{way}: {since}")
        if ahead is not None:
            copied = "" if ahead.copied_files is None else f", {ahead.copied_files} of them to copy"
            size = "" if ahead.copied_bytes is None else f" ({ahead.copied_bytes} bytes)"
            click.echo(f"{counted(len(ahead.tables), 'table')}, {counted(ahead.files, 'file')}{copied}{size}")
