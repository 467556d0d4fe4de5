"""Moto's S3 server: the right answers, but not atomic ones. It checks a condition, then acts, so nothing about
races may be concluded from it. Its objects live in memory and go when it stops.
"""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from pathlib import Path

from headwater.devservices import signing
from headwater.devservices.model import Command, Endpoint, Place, Record, http_endpoint
from headwater.kernel.errors import UnavailableError


class Moto:
    """A child of this Python."""

    name = "moto"
    needs: tuple[str, ...] = ()
    port_count = 1
    start_seconds = 120.0
    stop_signal = signal.SIGTERM
    death_signal = signal.SIGKILL

    def prepare(self, place: Place) -> None:
        """A folder to run in."""
        if find_spec("moto") is None:
            raise UnavailableError("moto is not installed", hint="pip install 'headwater[dev]'")
        place.of(self.name).mkdir(mode=0o700, exist_ok=True)

    def command(self, place: Place, ports: tuple[int, ...]) -> Command:
        """`python -m moto.server`."""
        argv = (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports[0]))
        # It must find the same packages as we did.
        python_path = {name: value for name, value in place.environ.items() if name == "PYTHONPATH"}
        return Command(argv, place.of(self.name), python_path)

    def check(self, place: Place, ports: tuple[int, ...]) -> None:
        """A signed list of buckets; moto accepts any keys."""
        identity = place.identity
        signing.list_buckets(ports[0], identity.access_key_id, identity.secret_access_key, place.clock)

    def endpoint(self, place: Place, record: Record, *, healthy: bool) -> Endpoint:
        """The URL and the keys."""
        return http_endpoint(self.name, place, record, healthy=healthy, with_keys=True)

    def belongings(self, place: Place) -> tuple[Path, ...]:
        """Its folder."""
        return (place.of(self.name),)
