"""Fill the cache with the pinned jars: `python tools/fetch_artifacts.py [--only name,...] [--s3-server]`."""

from __future__ import annotations

import argparse
import sys

from headwater.devservices.s3 import build
from headwater.kernel import artifacts, settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import HeadwaterError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(each.name for each in artifacts.ALL)}")
    parser.add_argument("--s3-server", action="store_true", help="build the S3 server of the safety tests too")
    options = parser.parse_args()
    chosen = options.only
    names = {each.name for each in artifacts.ALL} if chosen is None else set(chosen.split(","))
    if unknown := names - {each.name for each in artifacts.ALL}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    try:
        _fill(names, s3_server=options.s3_server)
    except HeadwaterError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"the cache cannot be filled: {error} (HEADWATER_CACHE may name another folder)", file=sys.stderr)
        return 1
    return 0


def _fill(names: set[str], *, s3_server: bool) -> None:
    clock, cache = SystemClock(), settings.cache_folder()
    for artifact in artifacts.ALL:
        if artifact.name not in names:
            continue
        before = clock.monotonic()
        path = artifacts.fetch(artifact, cache)
        size_mb = path.stat().st_size / 1e6
        print(f"{artifact}  {size_mb:.0f} MB  {clock.monotonic() - before:.1f} s  {path}", flush=True)
    if s3_server:
        build(cache, settings.environment(), clock)


if __name__ == "__main__":
    sys.exit(main())
