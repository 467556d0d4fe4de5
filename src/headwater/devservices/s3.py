"""An S3 server whose conditional writes hold under races: versitygw over a folder, built once with Go."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from headwater.devservices import processes, signing, state
from headwater.devservices.model import Command, Endpoint, Place, Record, http_endpoint, service_name
from headwater.kernel.clock import Clock
from headwater.kernel.errors import UnavailableError
from headwater.kernel.logs import Log

# Before 1.8.0 two creates of one key could both be told that they won.
_VERSION = "v1.8.0"
_MODULE = "github.com/versity/versitygw/cmd/versitygw"
_BUILD_SECONDS = 1800.0
SERVICE = "s3"
_log = Log("devservices")


def bucket_of(region: str | None) -> str:
    """The bucket of a region, or the one for lakes that know no regions."""
    return "headwater" if region is None else f"headwater-{region}"


class S3:
    """Buckets are folders below `s3/data`. One at a region is a second door, through which that region's is reached.

    Who goes through a region's door alone cannot reach the other buckets; and while the door is shut, nobody who
    was told to use it reaches this one.
    """

    port_count = 1
    start_seconds = 60.0
    stop_signal = signal.SIGTERM
    death_signal = signal.SIGKILL

    def __init__(self, region: str | None = None) -> None:
        self.region = region
        self.name = service_name(SERVICE, region)
        self.needs: tuple[str, ...] = () if region is None else (SERVICE,)

    def prepare(self, place: Place) -> None:
        """Build the server if this machine has not done so yet, and make its folders."""
        build(place.cache, place.environ, place.clock)
        for name in ("data", "metadata"):
            (place.of(self.name) / name).mkdir(parents=True, exist_ok=True)
        if self.region is not None:
            bucket = bucket_of(self.region)
            signing.create_bucket(place.running[SERVICE], bucket, place.clock)
            for name in ("data", "metadata"):
                link = place.of(self.name) / name / bucket
                if not link.is_symlink():
                    link.symlink_to(place.of(SERVICE) / name / bucket)

    def command(self, place: Place, ports: tuple[int, ...]) -> Command:
        """The gateway with its metadata in extended attributes, or beside the data where there are none."""
        home = place.of(self.name)
        attributes: tuple[str, ...] = () if _has_attributes(home / "data") else ("--sidecar", str(home / "metadata"))
        if self.region is not None:
            attributes = (*attributes, "--bucketlinks")
        argv = (str(_binary(place.cache)), "--port", f"127.0.0.1:{ports[0]}", "--quiet", "posix")
        keys = {
            "ROOT_ACCESS_KEY_ID": place.identity.access_key_id,
            "ROOT_SECRET_ACCESS_KEY": place.identity.secret_access_key,
        }
        return Command((*argv, *attributes, str(home / "data")), home, keys)

    def check(self, place: Place, ports: tuple[int, ...]) -> None:
        """A signed list of buckets."""
        identity = place.identity
        signing.list_buckets(ports[0], identity.access_key_id, identity.secret_access_key, place.clock)

    def endpoint(self, place: Place, record: Record, *, healthy: bool) -> Endpoint:
        """The URL and the keys."""
        bucket = None if self.region is None else bucket_of(self.region)
        return http_endpoint(
            self.name, place, record, healthy=healthy, with_keys=True, region=self.region, bucket=bucket
        )

    def belongings(self, place: Place) -> tuple[Path, ...]:
        """Every bucket. The built server stays in the cache."""
        return (place.of(self.name),)


def build(cache: Path, environ: Mapping[str, str], clock: Clock) -> Path:
    """The server's program, built by `go install` into the cache on first use (about two minutes)."""
    binary = _binary(cache)
    if binary.exists():
        return binary
    go = shutil.which("go", path=environ.get("PATH"))
    if go is None:
        raise UnavailableError("the S3 server is built with Go, and there is no `go` on the PATH", hint="install Go")
    binary.parent.mkdir(parents=True, exist_ok=True)
    with state.locked(binary.with_name(f"{binary.name}.lock"), clock, _BUILD_SECONDS):
        if not binary.exists():
            _log.info("building the S3 server, once for this machine", version=_VERSION)
            _install(go, binary, environ)
    return binary


def _install(go: str, binary: Path, inherited: Mapping[str, str]) -> None:
    for abandoned in binary.parent.glob("build-*"):  # by a build that was killed; we hold the lock
        shutil.rmtree(abandoned, ignore_errors=True)
    # Modules and objects take 800 MB that nothing needs afterwards, so they do not go into the user's own caches.
    with tempfile.TemporaryDirectory(prefix="build-", dir=binary.parent) as folder:
        scratch = Path(folder)
        environ = {
            **inherited,
            "GOPATH": str(scratch / "path"),
            "GOMODCACHE": str(scratch / "path" / "mod"),
            "GOCACHE": str(scratch / "objects"),
            "GOBIN": str(scratch / "bin"),
            "CGO_ENABLED": "0",
        }
        # -modcacherw: without it the module cache is read-only, and could not be removed.
        argv = (go, "install", "-modcacherw", "-trimpath", f"{_MODULE}@{_VERSION}")
        log = scratch / "log"
        if processes.run(Command(argv, scratch, environ), log) != 0:
            last = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
            raise UnavailableError(f"the S3 server cannot be built: {last}", hint="Go must reach its module proxy")
        (scratch / "bin" / "versitygw").replace(binary)


def _binary(cache: Path) -> Path:
    return cache / "bin" / f"versitygw-{_VERSION}"


def _has_attributes(folder: Path) -> bool:
    try:
        os.setxattr(folder, "user.headwater", b"1")
        os.removexattr(folder, "user.headwater")
    except OSError:
        return False
    return True
