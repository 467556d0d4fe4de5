"""What `headwater sync` prints: JSON with a stable shape for machines, lines for people."""

from __future__ import annotations

import click

from headwater.app import App
from headwater.cli.output import counted, print_table
from headwater.sync.check.model import Checked
from headwater.sync.protocol import Status
from headwater.sync.runs.model import Run, RunSpec


def checked_shape(found: Checked) -> dict[str, object]:
    """What a check found, as machines see it."""
    return {
        "region": found.region,
        "head": found.head,
        "origin": found.origin,
        "sound": found.is_sound,
        "tables": found.tables,
        "files": found.files,
        "exempt": list(found.exempt),
        "ahead": list(found.ahead),
        "rows": found.rows,
        "findings": [
            {"table": each.table, "fault": str(each.fault), "path": each.path, "detail": each.detail}
            for each in found.findings
        ],
    }


def print_checked(found: Checked) -> None:
    """The same for people."""
    if found.findings:
        rows = [(each.table, str(each.fault), each.path, each.detail) for each in found.findings]
        print_table(("table", "fault", "path", "detail"), rows)
    for each in found.exempt:
        click.echo(f"kept elsewhere by the registry: {each}")
    for each in found.ahead:
        click.echo(f"brought further than the rest, its rows are not compared: {each}")
    click.echo(f"{found.region}: {counted(found.tables, 'table')}, {counted(found.files, 'file')} looked at")
    for table, count in found.rows.items():
        click.echo(f"{table}: {counted(count, 'row')}, the same as main")


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
        **spec_shape(run.spec),
    }


def spec_shape(spec: RunSpec) -> dict[str, object]:
    """What a run goes to, and what it rests on, as machines see it."""
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


def status_shape(found: Status, app: App) -> dict[str, object]:
    """How a region stands, as machines see it."""
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


def print_status(found: Status, app: App) -> None:
    """The same for people."""
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
