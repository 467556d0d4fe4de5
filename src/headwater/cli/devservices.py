"""`headwater devservices`: real servers on loopback, for development and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click

from headwater import devservices as services
from headwater.cli.output import json_option, print_json, print_table
from headwater.kernel import settings
from headwater.kernel.errors import UsageError
from headwater.kernel.logs import scrub


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that all three commands share."""
    for option in (
        json_option,
        click.option(
            "--dir",
            "folder",
            type=click.Path(file_okay=False, path_type=Path),
            help="Where data, logs and state live.  [default: devservices below HEADWATER_HOME]",
        ),
        click.option(
            "--only",
            metavar="NAME,...",
            help=f"Some of {', '.join(services.names())}; one of a region is postgres@REGION.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def devservices() -> None:
    """Run PostgreSQL, etcd, an S3 server and Nessie on loopback."""


@devservices.command()
@click.option("--regions", metavar="REGION,...", help="Also a catalog to read from and a bucket in each of these.")
@_options
def up(only: str | None, folder: Path | None, regions: str | None, *, as_json: bool) -> None:
    """Start what does not run, and wait until each service answers.

    Running it again changes nothing, except that a service which died is started on its data.

    With `--regions us-east,eu-central` each region gets a PostgreSQL that follows the primary (postgres@us-east), a
    Nessie on it that can be read and not written (nessie@us-east), and a bucket (headwater-us-east).
    """
    chosen = _chosen(only) or services.DEFAULT
    regional = () if regions is None else services.regional_names(_words(regions, "--regions names no region"))
    endpoints = services.up((*chosen, *regional), _folder(folder))
    _print(endpoints.values(), as_json=as_json)


@devservices.command()
@click.option("--purge", is_flag=True, help="Remove their data, too.")
@_options
def down(only: str | None, folder: Path | None, *, purge: bool, as_json: bool) -> None:
    """Stop the services, and those that need them. Only processes that `up` started are touched."""
    stopped = services.down(_folder(folder), _chosen(only), purge=purge)
    if as_json:
        print_json({"stopped": list(stopped)})
    else:
        click.echo(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")


@devservices.command()
@_options
def status(only: str | None, folder: Path | None, *, as_json: bool) -> None:
    """Show the services and whether they answer. Passwords and keys are in the JSON alone."""
    chosen = _chosen(only)
    known = services.status(_folder(folder))
    _print((each for name, each in known.items() if chosen is None or name in chosen), as_json=as_json)


def _folder(chosen: Path | None) -> Path:
    return chosen or settings.home_folder() / "devservices"


def _chosen(only: str | None) -> Sequence[str] | None:
    if only is None:
        return None
    names = _words(only, "--only names no service", hint=f"there are: {', '.join(services.names())}")
    services.check_names(names)
    return names


def _words(text: str, complaint: str, *, hint: str | None = None) -> Sequence[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError(complaint, hint=hint)
    return words


def _state(endpoint: services.Endpoint) -> str:
    if endpoint.pid is None:
        return "stopped"
    return "healthy" if endpoint.healthy else "not answering"


def _print(endpoints: Iterable[services.Endpoint], *, as_json: bool) -> None:
    shown = list(endpoints)
    if as_json:
        print_json({"services": [each.as_json() for each in shown]})
        return
    rows = [(each.name, _state(each), each.pid or "-", scrub(each.url)) for each in shown]
    print_table(("service", "state", "pid", "url"), rows)
