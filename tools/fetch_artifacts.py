"""Fill the cache with the pinned jars: `python tools/fetch_artifacts.py [--only name,...]`."""

from __future__ import annotations

import argparse
import sys

from headwater.kernel import artifacts, settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import HeadwaterError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(each.name for each in artifacts.ALL)}")
    chosen = parser.parse_args().only
    names = {each.name for each in artifacts.ALL} if chosen is None else set(chosen.split(","))
    if unknown := names - {each.name for each in artifacts.ALL}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    clock, cache = SystemClock(), settings.cache_folder()
    for artifact in artifacts.ALL:
        if artifact.name not in names:
            continue
        before = clock.monotonic()
        try:
            path = artifacts.fetch(artifact, cache)
        except HeadwaterError as error:
            print(f"{artifact}: {error}", file=sys.stderr)
            return error.exit_code
        size_mb = path.stat().st_size / 1e6
        print(f"{artifact}  {size_mb:.0f} MB  {clock.monotonic() - before:.1f} s  {path}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
