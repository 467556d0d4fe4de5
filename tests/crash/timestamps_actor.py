"""A process to be killed or stopped: holds a timestamp service, does one thing, and prints what it was told.

Run as `python -m tests.crash.timestamps_actor DATABASE CALL NUMBER`, with HEADWATER_FAILPOINTS saying where it dies.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headwater.coordination import DatabaseCoordination
from headwater.database import open_database
from headwater.ingest.timestamps import FencedError, TimestampService, open_timestamps
from headwater.kernel import failpoints, settings
from headwater.kernel.clock import SystemClock


def take(path: Path | str, holder: str) -> TimestampService:
    database = open_database(path)
    return open_timestamps(
        database,
        DatabaseCoordination(database),
        "bank",
        holder,
        clock=SystemClock(),
        lease_seconds=600,
        read_lease_seconds=30,
    )


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main(path: str, call: str, number: str) -> None:
    service = take(path, "actor")
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    try:
        match call:
            case "begin":
                say(timestamp=service.begin(timestamp=int(number) or None).timestamp)
            case "commit":
                service.commit(int(number))
                say(committed=int(number))
            case "alive":
                service.keep_alive(int(number))
                say(high=service.watermarks().high)
            case _:
                raise AssertionError(call)
    except FencedError:
        say(outcome="fenced")


if __name__ == "__main__":
    main(*sys.argv[1:])
