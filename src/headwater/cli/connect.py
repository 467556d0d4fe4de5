"""`headwater connect`: settings with which an engine reads the replica of a region."""

from __future__ import annotations

from urllib.parse import urlsplit

import click

from headwater.access import Tokens
from headwater.app import App
from headwater.catalog.nessie.urls import is_nessie_url, parse_nessie_url
from headwater.cli.lakes import split, words
from headwater.cli.output import json_option, print_json
from headwater.cli.sync import region_option
from headwater.kernel.errors import UsageError
from headwater.kernel.settings import ServerSettings
from headwater.sync.connect.decide import connection
from headwater.sync.connect.model import Bucket, Engine, OnNessie, Place, Served

# Where `headwater serve` has its Iceberg REST catalog.
_CATALOG = "iceberg"


@click.command()
@words
@region_option
@click.option("--engine", type=click.Choice([str(each) for each in Engine]), required=True, help="Who connects.")
@click.option("--server", metavar="URL", help="Where `headwater serve` is reached; by default where it would listen.")
@json_option
@click.pass_obj
def connect(app: App, words: tuple[str, ...], region: str, engine: str, server: str | None, as_json: bool) -> None:
    """Print settings with which an engine reads the replica of a region, ready to be pasted.

    A lake in folders or buckets is reached by `headwater serve`, one on Nessie by Nessie. Secrets are not printed.
    """
    lake, _ = split(app, words)
    found = connection(Engine(engine), _place(app, lake, region, server))
    if as_json:
        print_json(
            {
                "region": region,
                "engine": engine,
                "reader": dict(found.reader),
                "writer": dict(found.writer) or None,
                "text": found.text,
                "notes": list(found.notes),
            }
        )
        return
    click.echo(found.text, nl=False)
    for note in found.notes:
        click.echo(f"note: {note}", err=True)


def _place(app: App, lake: str, region: str, server: str | None) -> Place:
    found = app.open_registry(lake).in_force(app.clock.now()).registry.region(region)
    s3 = app.settings.storage.s3
    bucket = Bucket(s3.endpoint, s3.region, s3.virtual_hosted) if found.local_prefix.startswith("s3") else None
    if is_nessie_url(lake):
        if server is not None:
            raise UsageError("--server is for lakes without Nessie", hint="set `sync.catalog` to the region's Nessie")
        primary = parse_nessie_url(lake).api
        regional = parse_nessie_url(app.settings.sync.catalog).api if app.settings.sync.catalog else primary
        needs_token = app.settings.nessie.token is not None
        return Place(OnNessie(regional, primary, found.branch), found.local_prefix, bucket, needs_token)
    with app.open_database(lake) as database:
        needs_token = Tokens(database, app.randomness).has_any()
    uri = f"{_server(server, app.settings.server)}/{_CATALOG}"
    return Place(Served(uri, found.branch), found.local_prefix, bucket, needs_token)


def _server(given: str | None, settings: ServerSettings) -> str:
    if given is None:
        scheme = "http" if settings.tls_certificate is None else "https"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        return f"{scheme}://{host}:{settings.port}"
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise UsageError("--server is not the address of a server", hint="like http://127.0.0.1:8181, without secrets")
    return given.rstrip("/")
