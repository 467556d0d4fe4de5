"""`headwater mutate|sidecars|recover`: change tables, and see to changes whose writer died on the way."""

from __future__ import annotations

from dataclasses import asdict

import click

from headwater.app import App
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.cli.lakes import split, words, words_and, write_region_option
from headwater.cli.output import counted, json_option, print_json, print_table, shown
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import parse_ulid
from headwater.kernel.settings import user_name
from headwater.publish.model import Recovered, Sidecar


@click.command()
@words_and("SQL...")
@click.option("--branch", default=DEFAULT_BRANCH, show_default=True, help="The branch to change.")
@click.option("--actor", help="Who changes it; the user's name by default.")
@click.option("--message", default="a transaction", show_default=True, help="Why, for the log.")
@write_region_option
@json_option
@click.pass_obj
def mutate(
    app: App,
    words: tuple[str, ...],
    branch: str,
    actor: str | None,
    message: str,
    region: str | None,
    as_json: bool,
) -> None:
    """Run INSERT, UPDATE, DELETE and MERGE statements as one transaction: all of them land, or none."""
    url, statements = _lake_and_statements(app, words)
    lake = app.open_lake(url, region=region)
    with lake.transaction(branch=branch, actor=actor or user_name(), message=message) as transaction:
        counts = [transaction.sql(sql) for sql in statements]
    commit = transaction.commit
    if as_json:
        print_json({"operation": transaction.operation, "rows": counts, "commit": commit.hash if commit else None})
        return
    for count in counts:
        click.echo(counted(count, "row"))
    click.echo(f"committed {commit.hash[:12]}" if commit else "nothing changed, so nothing was committed")


def _lake_and_statements(app: App, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The first word is the lake, unless it is a statement and the settings name one."""
    if app.settings.lake is not None and words and " " in words[0].strip():
        return app.settings.lake, words
    url, _ = split(app, words[:2], "SQL")
    return url, words[1:]


@click.command()
@words
@json_option
@click.pass_obj
def sidecars(app: App, words: tuple[str, ...], as_json: bool) -> None:
    """List changes that have begun and not ended; a sidecar that cannot be read is an error at the end."""
    url, _ = split(app, words)
    sound, broken = app.open_sidecars(url).readable()
    if as_json:
        print_json([_sidecar_json(each) for each in sound])
    elif sound:
        rows = [(each.operation, each.kind, each.actor, each.branch, _tables(each), _until(each)) for each in sound]
        print_table(("operation", "kind", "actor", "branch", "tables", "lease until"), rows)
    else:
        click.echo("nothing is pending")
    if broken:
        raise broken[0]


@click.command()
@words
@click.option("--operation", help="Settle this one operation: is it committed, or will it never be?")
@click.option("--branch", default=DEFAULT_BRANCH, show_default=True, help="Where to look for the operation.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@json_option
@click.pass_obj
def recover(app: App, words: tuple[str, ...], operation: str | None, branch: str, dry_run: bool, as_json: bool) -> None:
    """Roll changes of dead writers forward or back; every recovery is told in the log."""
    if operation is not None and dry_run:
        raise UsageError("one operation is settled, or not: there is no dry run of it", hint="leave one of them out")
    url, _ = split(app, words)
    recovery = app.open_lake(url, sweep=False).writing.recovery
    if operation is not None:
        commit = recovery.settle(parse_ulid(operation), branch=branch)
        if as_json:
            print_json({"operation": operation, "committed": commit is not None, "commit": commit and commit.hash})
        else:
            click.echo(f"committed {commit.hash[:12]}" if commit else "not committed, and never will be")
        return
    done = () if dry_run else recovery.sweep()
    # What is left after a sweep: only what may still be alive.
    plan = recovery.plan()
    found = [each for _, each in plan if each is not None] if dry_run else list(done)
    waiting = [sidecar.operation for sidecar, each in plan if each is None]
    if as_json:
        print_json({"dry_run": dry_run, "recovered": [_recovered_json(each) for each in found], "waiting": waiting})
        return
    for each in found:
        states = ", ".join(f"{key} {state}" for key, state in sorted(each.states.items()))
        click.echo(f"{each.operation}  {'would be ' if dry_run else ''}{each.verdict}  ({shown(states)})")
    for pending in waiting:
        click.echo(f"{pending}  waits for the end of its lease")
    if not found and not waiting:
        click.echo("nothing is pending")


def _tables(sidecar: Sidecar) -> str:
    keys = (*(head.key for head in sidecar.heads), *sidecar.drops, *sidecar.others)
    return ", ".join(str(key) for key in sorted(keys))


def _until(sidecar: Sidecar) -> str:
    return sidecar.lease_until.isoformat(timespec="seconds")


def _sidecar_json(sidecar: Sidecar) -> dict[str, object]:
    return {
        "operation": sidecar.operation,
        "kind": str(sidecar.kind),
        "actor": sidecar.actor,
        "message": sidecar.message,
        "branch": sidecar.branch,
        "lease_until": sidecar.lease_until,
        "tables": [
            {
                "table": str(head.key),
                "path": head.path,
                "expected_id": head.expected_id,
                "planned_id": head.planned_id,
                "identity": head.identity,
                "pinned": asdict(head.pinned) if head.pinned else None,
                "renamed_from": str(head.renamed_from) if head.renamed_from else None,
            }
            for head in sidecar.heads
        ],
        "drops": [str(key) for key in sorted(sidecar.drops)],
        "reads": [str(key) for key in sorted(sidecar.reads)],
        "others": [str(key) for key in sorted(sidecar.others)],
        "merge_parent": sidecar.merge_parent,
    }


def _recovered_json(recovered: Recovered) -> dict[str, object]:
    return {
        "operation": recovered.operation,
        "verdict": str(recovered.verdict),
        "tables": {str(key): str(state) for key, state in sorted(recovered.states.items())},
        "commit": recovered.commit,
    }
