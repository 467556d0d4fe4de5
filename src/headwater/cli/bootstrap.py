"""`headwater bootstrap`: begin the replica of a region with data that was shipped there on disks."""

from __future__ import annotations

from dataclasses import replace

import click

from headwater.app import App
from headwater.catalog.port import Catalog
from headwater.catalog.travel import resolve
from headwater.cli.exporting import exported
from headwater.cli.lakes import split, words
from headwater.cli.output import json_option, print_json
from headwater.cli.sync import goals_of, history_option, leased_ground, region_option
from headwater.cli.sync_shapes import run_shape
from headwater.kernel.errors import UsageError
from headwater.sync.model import ORIGIN_BRANCH, Origin, origin_to_show
from headwater.sync.opening import open_syncing
from headwater.sync.runs.model import Run, Shipped, Step


@click.command()
@words
@region_option
@click.option("--from-loaded-data", is_flag=True, help="Files were loaded into the region; they are not copied again.")
@click.option("--no-copy", is_flag=True, help="Refuse when a file was not loaded, and name it; do not copy it.")
@click.option("--at", metavar="WHEN", help="The commit or tag that was shipped; the newest commit of main by default.")
@history_option
@json_option
@click.pass_obj
def bootstrap(
    app: App,
    words: tuple[str, ...],
    region: str,
    from_loaded_data: bool,
    no_copy: bool,
    at: str | None,
    history: str | None,
    as_json: bool,
) -> None:
    """Begin the replica of a region with files that were shipped and loaded there.

    Each is looked for, its size is compared, and of a sample its bytes; then everything is localised at one commit of
    `main`. `sync run` goes on from there. Tag that commit on the day of shipping, so that nothing of it is collected.
    """
    lake, _ = split(app, words)
    if not from_loaded_data:
        raise UsageError("there is nothing to begin with", hint="give --from-loaded-data, or begin with `sync run`")

    def told(run: Run, step: Step) -> None:
        if not as_json:
            click.echo(f"{run.spec.target.hash[:12]}  {step}")

    with leased_ground(app, lake, region) as (ground, lease):
        goals = replace(
            goals_of(app, ground, (), history),
            shipped=Shipped.ALL if no_copy else Shipped.SOME,
            cutover=None if at is None else _origin(ground.catalog, at),
        )
        syncing = open_syncing(ground, lease)
        with exported(app, syncing):
            runs = syncing.catch_up(goals, lease, told=told)
    if as_json:
        print_json({"region": region, "runs": [run_shape(each) for each in runs]})
        return
    for run in runs:
        click.echo(f"{region} shows main at {run.spec.target.hash[:12]}: `headwater sync run` goes on from there")


def _origin(catalog: Catalog, at: str) -> Origin:
    return origin_to_show(catalog.commit_at(resolve(catalog, at, ORIGIN_BRANCH)))
