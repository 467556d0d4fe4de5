"""`headwater sequence`: look at sequenced metadata, and collect it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

import click

from headwater.app import App
from headwater.cli.output import json_option, print_json, print_table
from headwater.kernel.durations import format_duration, parse_duration
from headwater.kernel.errors import RefusedError
from headwater.sequence.collect import Collector
from headwater.sequence.decide import latest_id
from headwater.sequence.model import Retention
from headwater.sequence.pins import Pins


@click.group()
def sequence() -> None:
    """Sequenced metadata: ids, boundary, pins."""


@sequence.command()
@click.argument("url")
@click.argument("name")
@click.option("--suffix", help="Ending of the objects; read off them by default.")
@json_option
@click.pass_obj
def show(app: App, url: str, name: str, suffix: str | None, as_json: bool) -> None:
    """Print ids, latest, boundary and pins of the namespace NAME under URL."""
    history = app.open_history(url, name, suffix=suffix)
    listing = tuple(history.listing())
    boundary = history.boundary.read()
    records = Pins(history).records()
    latest = latest_id(listing)
    if latest is None:
        click.echo(f"note: there is no object of {name} under {history.store.name}", err=True)
    elif latest <= boundary:
        click.echo("note: the boundary covers everything that is there: the newest object is missing", err=True)
    if as_json:
        print_json(
            {
                "namespace": name,
                "suffix": history.namespace.suffix,
                "boundary": boundary,
                "latest": latest,
                "objects": [asdict(each) for each in listing],
                "pins": [asdict(record) for record in records],
            }
        )
        return
    click.echo(f"latest    {latest or '-'}")
    click.echo(f"boundary  {boundary}")
    now = app.clock.now()
    pins = {record.id: record.pins for record in records}
    rows = []
    for each in listing:
        state = "latest" if each.id == latest else "behind the boundary" if each.id <= boundary else "live"
        note = ", ".join(
            f"{pin.holder} until {pin.expires_at.isoformat(timespec='seconds')}" for pin in pins.get(each.id, ())
        )
        rows.append((each.id, state, format_duration(now - each.last_modified), note))
    if rows:
        click.echo()
        print_table(("id", "state", "age", "pinned by"), rows)


@sequence.command()
@click.argument("url")
@click.argument("name")
@click.option("--min-age", required=True, metavar="DUR", help="Keep what is younger: 30s, 15m, 6h, 7d.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--suffix", help="Ending of the objects; read off them by default.")
@json_option
@click.pass_obj
def collect(app: App, url: str, name: str, min_age: str, dry_run: bool, suffix: str | None, as_json: bool) -> None:
    """Advance the boundary of the namespace NAME under URL, and delete behind it."""
    skew = timedelta(seconds=app.settings.sequence.clock_skew_seconds)
    retention = Retention(parse_duration(min_age), skew)
    lake = app.lake_around(url)
    if lake is not None:
        raise RefusedError(
            f"{name} belongs to the lake {lake}", hint="a lake's history is collected by `headwater reclaim` only"
        )
    history = app.open_history if dry_run else app.open_sequencer
    collector = Collector(history(url, name, suffix=suffix), retention)
    told = collector.plan() if dry_run else collector.collect()
    if as_json:
        print_json({"namespace": name, "dry_run": dry_run, **asdict(told)})
        return
    would = "would be " if dry_run else ""
    click.echo(f"boundary  {told.boundary_before} -> {told.boundary_after}" + (" (dry run)" if dry_run else ""))
    click.echo(f"objects   {len(told.deleted)} {would}deleted, {len(told.pinned)} pinned")
