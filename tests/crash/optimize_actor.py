"""A process to be killed or stopped: optimizes the table `t`, or builds its indices, and prints how it ended.

Run as `python -m tests.crash.optimize_actor URL optimize|indices`, with HEADWATER_FAILPOINTS saying where it dies.
"""

from __future__ import annotations

import json
import sys

from headwater.app import App
from headwater.kernel import failpoints, settings
from headwater.kernel.errors import ConflictError


def main() -> None:
    url, work = sys.argv[1:]
    lake = App(settings.load()).open_lake(url)
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    try:
        if work == "optimize":
            [done] = lake.optimize("t", actor="eve", deletes=True).tables
        else:
            [done] = lake.ensure_indices("t", actor="eve").tables
    except ConflictError as error:
        said = {"end": "conflict", "kind": error.kind}
    else:
        said = {"end": str(done.end), "job": str(done.job)}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
