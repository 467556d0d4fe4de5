"""A process to be killed: localises one table of `us` for `eu`, both of them folders.

Run as `python -m tests.crash.localise_actor FOLDER SOURCE`, with HEADWATER_FAILPOINTS saying where it dies.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from headwater.database import open_database
from headwater.kernel import failpoints
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import parse_ulid
from headwater.kernel.randomness import system_randomness
from headwater.regions.claims import Claims
from headwater.regions.outputs import Outputs
from headwater.storage.file import FileStore
from headwater.sync.localise.model import Place
from headwater.sync.localise.protocol import localise
from headwater.tables.files import Files
from tests.unit.localise_world import REGION, REGIONS, RESERVED, ClaimedOutputs, PrefixMapping

RUN = parse_ulid(f"01J{'1' * 23}")


def main(folder: Path, source: str) -> None:
    clock, randomness = SystemClock(), system_randomness()
    stores = {f"file://{folder}/{name}": FileStore(folder / name, clock, randomness) for name in REGIONS}
    mapping = PrefixMapping(list(stores), f"file://{folder}/{REGION}")
    with open_database(folder / "state.db") as database:
        claims = Claims(database)
        run = claims.open(RUN, REGION, fence=1, lease_seconds=60).run
        outputs = ClaimedOutputs(Outputs(database), claims, run)
        place = Place(Files(stores), mapping, outputs, f"file://{folder}/{REGION}/{RESERVED}")
        done = localise(place, source)
    print(json.dumps({"location": done.location, "manifests": done.manifests_written}), flush=True)


if __name__ == "__main__":
    failpoints.arm_from(os.environ.get("HEADWATER_FAILPOINTS", ""))
    main(Path(sys.argv[1]), sys.argv[2])
