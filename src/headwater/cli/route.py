"""`headwater route`: where a reader of a region should read now."""

from __future__ import annotations

import click

from headwater.app import App
from headwater.cli.lakes import split, words
from headwater.cli.output import json_option, print_json
from headwater.cli.sync import region_option
from headwater.sync.route.model import Consistency


@click.command()
@words
@region_option
@click.option(
    "--consistency",
    type=click.Choice([str(each) for each in Consistency]),
    default=str(Consistency.LOCAL),
    show_default=True,
    help="What was just written (strong), or what is near (local).",
)
@json_option
@click.pass_obj
def route(app: App, words: tuple[str, ...], region: str, consistency: str, as_json: bool) -> None:
    """Say which endpoint and branch a reader of a region should use now.

    That is the local replica; or `main` where writes go, while the replica does not answer or is too stale, and until
    it has been well again for a while.
    """
    lake, _ = split(app, words)
    with app.open_router(lake, region) as router:
        found = router.route(Consistency(consistency))
    if as_json:
        print_json(
            {
                "region": region,
                "consistency": consistency,
                "way": str(found.way),
                "endpoint": found.endpoint,
                "branch": found.branch,
                "reason": found.reason,
                "since": found.since,
            }
        )
        return
    click.echo(f"{found.branch} at {found.endpoint}")
    click.echo(f"{found.way}: {found.reason}", err=True)
