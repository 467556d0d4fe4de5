"""`headwater cleanup|repair`: what nothing ever referenced goes, and heads that drifted come back."""

from __future__ import annotations

import click

from headwater.app import App
from headwater.cli.lakes import split, words
from headwater.cli.output import counted, json_option, print_json, print_table, shown
from headwater.kernel.durations import parse_duration
from headwater.kernel.settings import user_name
from headwater.publish.cleanup.model import Cleaned, Found
from headwater.publish.errors import HeadsBehindError
from headwater.publish.repair.model import Drift, Repaired

# How many lines of what stays are shown; JSON has them all.
_SHOWN = 20


@click.command()
@words
@click.option("--older-than", default="3d", show_default=True, metavar="AGE", help="Spare what is younger.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and change nothing.")
@json_option
@click.pass_obj
def cleanup(app: App, words: tuple[str, ...], older_than: str, dry_run: bool, as_json: bool) -> None:
    """Delete files and forks that no commit ever referenced.

    Changes that began longer ago than AGE can no longer be committed: give more than the longest of them takes.
    """
    url, _ = split(app, words)
    age = parse_duration(older_than)
    cleaned = app.open_lake(url, sweep=not dry_run).cleanup(older_than=age, dry_run=dry_run)
    if as_json:
        print_json(_cleaned_json(cleaned, dry_run=dry_run))
        return
    for each in (*cleaned.deleted, *cleaned.residue):
        click.echo(f"{'would delete' if dry_run else 'deleted'} {shown(each.path)}")
    for kept in cleaned.kept[:_SHOWN]:
        click.echo(f"kept {shown(kept.path)}: {shown(kept.why)}{f' ({shown(kept.detail)})' if kept.detail else ''}")
    if len(cleaned.kept) > _SHOWN:
        click.echo(f"kept {len(cleaned.kept) - _SHOWN} more; --json names them")
    count = len(cleaned.deleted) + len(cleaned.residue)
    told = f"{counted(count, 'object')}, {counted(cleaned.deleted_bytes, 'byte')}"
    click.echo(f"{'would delete' if dry_run else 'deleted'} {told}")


@click.command()
@words
@click.option("--actor", help="Who repairs; the user's name by default.")
@click.option("--dry-run", is_flag=True, help="Say what would be repaired, and change nothing.")
@json_option
@click.pass_obj
def repair(app: App, words: tuple[str, ...], actor: str | None, dry_run: bool, as_json: bool) -> None:
    """Set heads that drifted from their pins back to what the branch holds.

    Refused while a sidecar is pending: what it explains is recovered, by `headwater recover`.
    """
    url, _ = split(app, words)
    lake = app.open_lake(url, sweep=False)
    repaired = lake.repair(actor=actor or user_name(), dry_run=dry_run)
    if as_json:
        print_json(_repaired_json(repaired, dry_run=dry_run))
    elif repaired.drifts:
        rows = [(each.branch, each.key, each.state, each.pinned_id, each.latest_id) for each in repaired.drifts]
        print_table(("branch", "table", "head", "pinned at", "head at"), rows)
        for branch, commit in sorted(repaired.commits.items()):
            click.echo(f"repaired {shown(branch)} by {commit[:12]}")
    else:
        click.echo("every head is where its branch pins it")
    if repaired.behind:
        raise HeadsBehindError({each.key: (each.pinned_id, each.latest_id) for each in repaired.behind})


def _cleaned_json(cleaned: Cleaned, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "horizon": cleaned.horizon,
        "deleted": [_found_json(each) for each in cleaned.deleted],
        "residue": [_found_json(each) for each in cleaned.residue],
        "deleted_bytes": cleaned.deleted_bytes,
        "kept": [{"path": each.path, "why": str(each.why), "detail": each.detail} for each in cleaned.kept],
    }


def _found_json(found: Found) -> dict[str, object]:
    return {"path": found.path, "size_bytes": found.size_bytes, "last_modified": found.last_modified}


def _repaired_json(repaired: Repaired, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "drifts": [_drift_json(each) for each in repaired.drifts],
        "commits": dict(repaired.commits),
    }


def _drift_json(drift: Drift) -> dict[str, object]:
    return {
        "branch": drift.branch,
        "table": str(drift.key),
        "state": str(drift.state),
        "path": drift.path,
        "pinned_id": drift.pinned_id,
        "head_id": drift.latest_id,
    }
