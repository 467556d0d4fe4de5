"""Uses the indexes in a folder, says what it was told, and dies where a failpoint says.

Run as `python -m tests.crash.ingest_index_actor FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headwater.kernel import failpoints, settings
from tests.unit.ingest_index_world import FILE, World

NAMES = [f"k{number:03}" for number in range(200)]
ROUNDS = 4


def say(**said: object) -> None:
    print(json.dumps(said), flush=True)


def main() -> None:
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    world = World.open(Path(sys.argv[1]))
    for timestamp in range(1, ROUNDS + 1):
        rows = world.put(NAMES, timestamp)
        say(timestamp=timestamp, first=int(rows[0]))
        say(flushed=world.main.flush_index_entries_of_file(FILE).row_count)
    world.close()


if __name__ == "__main__":
    main()
