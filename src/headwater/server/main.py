"""From settings to a server that listens, and that ends in good order.

Told to stop (SIGTERM or SIGINT), it takes no more connections, lets what is under way end, and returns. Writes are
waited for as long as their deadlines allow; queries and slow clients for `server.drain_seconds`.
"""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from headwater.access import Requests, Tokens
from headwater.app import App
from headwater.database import Database
from headwater.kernel.errors import RefusedError, UnavailableError, UsageError
from headwater.kernel.logs import Log
from headwater.kernel.settings import ServerSettings, Settings
from headwater.lake import Lake
from headwater.server.app import create_app
from headwater.server.iceberg.mounting import catalog_routes
from headwater.server.limits import Flights, Gate, Stops
from headwater.server.patience import patient
from headwater.server.serving import Serving, is_loopback

# Longer than clients keep a connection that they do not use: who sends on one that is being closed hears nothing.
KEEP_ALIVE_SECONDS = 75

_log = Log("server")


def serve(app: App, url: str, settings: ServerSettings, *, ready: Callable[[str], None]) -> None:
    """Serve the lake until the process is told to stop; `ready` hears the address once requests are taken."""
    with app.open_database(url) as database:
        lake = open_to_serve(app, url)
        serving = served(app, lake, database, settings)
        if not serving.is_loopback:
            _refuse_unguarded(serving)
        listen(application(serving), settings, ready=ready)


def open_to_serve(app: App, url: str) -> Lake:
    """The lake, whose queries end within the server's time if they are not to end sooner."""
    return App(_with_time_limit(app.settings), app.clock, app.randomness, app.metrics).open_lake(url)


def served(app: App, lake: Lake, database: Database, settings: ServerSettings) -> Serving:
    """Everything that the routes stand on."""
    return Serving(
        lake=lake,
        settings=settings,
        tokens=Tokens(database, app.randomness),
        requests=Requests(database),
        clock=app.clock,
        randomness=app.randomness,
        metrics=app.metrics,
        writes=Gate("writes", settings.writes_in_flight, app.metrics),
        queries=Gate("queries", settings.queries_in_flight, app.metrics),
        flights=Flights(),
        stops=Stops(),
        skew=timedelta(seconds=app.settings.sequence.clock_skew_seconds),
        sweep_every=timedelta(seconds=app.settings.publish.lease_seconds),
        is_loopback=is_loopback(settings.host),
        temp_directory=Path(directory) if (directory := app.settings.query.temp_directory) else None,
    )


def application(serving: Serving) -> FastAPI:
    """The lake API and every other protocol that is served."""
    return create_app(serving, routers=(catalog_routes(serving),))


def listener(application: FastAPI, settings: ServerSettings, *, ready: Callable[[str], None]) -> Listener:
    """What takes requests, ready to run."""
    if settings.tls_certificate is not None and settings.tls_key is not None:
        _refuse_unfit(settings.tls_certificate, settings.tls_key)
    config = uvicorn.Config(
        application,
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        http=patient(settings.body_seconds),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing goes by what they say
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
    return Listener(config, ready)


def listen(application: FastAPI, settings: ServerSettings, *, ready: Callable[[str], None]) -> None:
    """Take requests until told to stop."""
    server = listener(application, settings, ready=ready)
    _refuse_taken(settings.host, settings.port)
    # uvicorn raises what it has heard once more when it has ended in good order: that is the end we want.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        server.run()
    except SystemExit as error:
        raise _cannot_listen(settings.host, settings.port, "the log says why") from error
    _log.info("stopped")


class Listener(uvicorn.Server):
    """uvicorn, which says when it listens, and where."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets=sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            self._ready(f"{'https' if self.config.is_ssl else 'http'}://{shown}:{port}")


def _refuse_taken(host: str, port: int) -> None:
    """An address that cannot be had is told by name; uvicorn would only end."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(where)
            tried.listen()
    except OSError as error:
        raise _cannot_listen(host, port, error.strerror or str(error)) from error


def _cannot_listen(host: str, port: int, why: str) -> UnavailableError:
    return UnavailableError(
        f"cannot listen on {host}:{port}: {why}", hint="take another --port or --host", host=host, port=port
    )


def _refuse_unfit(certificate: str, key: str) -> None:
    """Before anything is opened: are these a certificate and its key, and can they be read?"""

    def asked_for_password() -> str:
        raise UsageError(
            f"{key} is protected by a password", hint="give a key that is not, readable by the server alone"
        )

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, asked_for_password)
    except ssl.SSLError as error:
        raise UsageError(
            f"{certificate} and {key} are not a certificate and its key: {error.reason or error}",
            hint="both in PEM; the certificate first of its chain",
            path=certificate,
        ) from error
    except OSError as error:
        missing = next((each for each in (certificate, key) if not Path(each).is_file()), certificate)
        raise UsageError(f"{missing} cannot be read: {error.strerror}", path=missing) from error


def _with_time_limit(settings: Settings) -> Settings:
    longest = settings.server.query_seconds
    given = settings.query.timeout_seconds
    query = settings.query.model_copy(update={"timeout_seconds": longest if given is None else min(given, longest)})
    return settings.model_copy(update={"query": query})


def _refuse_unguarded(serving: Serving) -> None:
    """What other machines can reach needs tokens, from the first moment on."""
    host = serving.settings.host
    if not serving.tokens.has_any():
        raise RefusedError(
            f"{host} can be reached from other machines, and there is no token yet",
            hint="make one by `headwater token create LAKE NAME --role admin`, or serve on 127.0.0.1",
            host=host,
        )
    if serving.settings.tls_certificate is None:
        _log.warning("tokens travel unencrypted: give --tls-certificate and --tls-key", host=host)
