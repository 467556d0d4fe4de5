"""`headwater sync`: bring the replica of a region to what `main` shows, and say how it stands."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import click

from headwater.app import App
from headwater.catalog.model import TableKey
from headwater.cli.lakes import split, words
from headwater.cli.output import counted, json_option, print_json, print_table
from headwater.kernel.errors import ConflictError, CorruptError, UnavailableError, UsageError
from headwater.kernel.logs import Log
from headwater.sync.check.model import Checked
from headwater.sync.check.protocol import Checker
from headwater.sync.lease import RegionLease, leased
from headwater.sync.opening import Ground, open_syncing
from headwater.sync.protocol import Goals, Status
from headwater.sync.runs.model import History, Run, RunSpec, RunState, Step

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
        found = open_syncing(ground, lease).advance(goals, lease, Step(name), told=lambda *_: None)
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
        print_json(_status_shape(found, app))
    else:
        _print_status(found, app)


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
        found = checker.check(open_syncing(ground).status().replica, app.count_rows() if deep else None)
    if as_json:
        print_json(_checked_shape(found))
    else:
        _print_checked(found)
    if not found.is_sound:
        first = found.findings[0]
        raise CorruptError(
            f"the replica of {region} is not sound: {first.table}: {first.fault}: {first.path or first.detail}",
            hint=f"{counted(len(found.findings), 'finding')}; `sync run` goes on from the last good state",
            region=region,
        )


def _checked_shape(found: Checked) -> dict[str, object]:
    return {
        "region": found.region,
        "head": found.head,
        "origin": found.origin,
        "sound": found.is_sound,
        "tables": found.tables,
        "files": found.files,
        "exempt": list(found.exempt),
        "rows": found.rows,
        "findings": [
            {"table": each.table, "fault": str(each.fault), "path": each.path, "detail": each.detail}
            for each in found.findings
        ],
    }


def _print_checked(found: Checked) -> None:
    if found.findings:
        rows = [(each.table, str(each.fault), each.path, each.detail) for each in found.findings]
        print_table(("table", "fault", "path", "detail"), rows)
    for each in found.exempt:
        click.echo(f"kept elsewhere by an override: {each}")
    click.echo(f"{found.region}: {counted(found.tables, 'table')}, {counted(found.files, 'file')} looked at")
    for table, count in found.rows.items():
        click.echo(f"{table}: {counted(count, 'row')}, the same as main")


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
        runs = open_syncing(ground, lease).catch_up(goals_of(app, ground, tables, history), lease, told=told)
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
    if as_json:
        print_json({"region": region, "next": None if spec is None else _spec_shape(spec)})
    elif spec is None:
        click.echo(f"{region} shows what main shows")
    else:
        since = "everything" if spec.shown is None else f"what changed since {spec.shown.hash[:12]}"
        way = ", straight to the newest" if spec.is_forward else ""
        click.echo(f"{region} goes to {spec.target.hash[:12]}{way}: {since}")


def run_shape(run: Run) -> dict[str, object]:
    """A run, as machines see it."""
    return {
        "run": run.id,
        "state": str(run.state),
        "done": None if run.done is None else str(run.done),
        "began_at": run.began_at,
        "ended": {str(step): at for step, at in run.ended.items()},
        "promoted": run.promoted,
        "error": run.error,
        **_spec_shape(run.spec),
    }


def _spec_shape(spec: RunSpec) -> dict[str, object]:
    return {
        "region": spec.region,
        "target": spec.target.hash,
        "target_created_at": spec.target.created_at,
        "shown": None if spec.shown is None else spec.shown.hash,
        "replica_head": spec.replica_head,
        "registry_generation": spec.generation,
        "history": str(spec.history),
        "tables": None if spec.tables is None else [str(each) for each in spec.tables],
        "fast_forward": spec.is_forward,
        "shipped": str(spec.shipped),
    }


def _status_shape(found: Status, app: App) -> dict[str, object]:
    origin, waiting = found.replica.origin, found.pending
    return {
        "region": found.region,
        "branch": found.replica.branch,
        "head": found.replica.head,
        "origin": None if origin is None else {"hash": origin.hash, "created_at": origin.created_at},
        "pending_commits": 0 if waiting is None else waiting.count,
        "oldest_pending_age_seconds": _age_seconds(found, app),
        "backlog": {"files": found.backlog.files, "bytes": found.backlog.size_bytes},
        "pressure": list(found.pressure.reasons),
        "runs": [run_shape(each) for each in found.runs],
    }


def _age_seconds(found: Status, app: App) -> float:
    if found.pending is None:
        return 0.0
    return max(0.0, (app.clock.now() - found.pending.oldest.created_at).total_seconds())


def _print_status(found: Status, app: App) -> None:
    origin = "nothing yet" if found.replica.origin is None else f"main at {found.replica.origin.hash[:12]}"
    lag = _age_seconds(found, app)
    lacks = "all of it" if found.pending is None else f"{counted(found.pending.count, 'commit')} behind, {lag:.0f} s"
    click.echo(f"{found.region} ({found.replica.branch}) shows {origin}: {lacks}")
    if found.backlog.files:
        click.echo(f"to copy: {counted(found.backlog.files, 'file')}, {found.backlog.size_bytes} bytes")
    for reason in found.pressure.reasons:
        click.echo(f"warning: {reason}")
    if found.runs:
        rows = [
            (each.id, str(each.state), str(each.done or "-"), each.spec.target.hash[:12], each.error or "")
            for each in found.runs
        ]
        print_table(("run", "state", "last step", "target", "error"), rows)
