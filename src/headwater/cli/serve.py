"""`headwater serve`: the lake over HTTP."""

from __future__ import annotations

import click

from headwater.app import App
from headwater.cli.lakes import split, words
from headwater.cli.output import json_option, print_json
from headwater.kernel.errors import UnavailableError, UsageError


@click.command()
@words
@click.option("--host", help="Address to listen on; any but a loopback one needs tokens.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("--tls-certificate", metavar="FILE", help="Certificate chain in PEM; goes with --tls-key.")
@click.option("--tls-key", metavar="FILE", help="Its private key in PEM.")
@json_option
@click.pass_obj
def serve(
    app: App,
    words: tuple[str, ...],
    host: str | None,
    port: int | None,
    tls_certificate: str | None,
    tls_key: str | None,
    as_json: bool,
) -> None:
    """Serve a lake: the lake API and the Iceberg REST catalog, until told to stop by SIGTERM or Ctrl-C.

    What is under way then is finished, and the exit code is 0.
    """
    url, _ = split(app, words)
    if (tls_certificate is None) != (tls_key is None):
        raise UsageError("--tls-certificate and --tls-key go together")
    given = {"host": host, "port": port, "tls_certificate": tls_certificate, "tls_key": tls_key}
    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        from headwater.server.main import serve as serve_lake
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the server needs {error.name}, which is not installed", hint="pip install 'headwater[server]'"
        ) from error

    def ready(address: str) -> None:
        if as_json:
            print_json({"lake": url, "address": address})
        else:
            click.echo(f"{url} is served at {address}")

    serve_lake(app, url, app.settings.server.model_copy(update=chosen), ready=ready)
