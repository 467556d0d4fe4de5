"""A process to be killed: merges `dev` into `main`, and prints what it tries and what it was told.

Run as `python -m tests.crash.merge_actor URL`, with HEADWATER_FAILPOINTS saying where it dies.
"""

from __future__ import annotations

import sys

from headwater.app import App
from headwater.kernel import failpoints, settings
from tests.crash.publish_actor import say


def main() -> None:
    lake = App(settings.load()).open_lake(sys.argv[1])
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    say(outcome="trying")
    merged = lake.merge("dev", actor="eve")
    say(outcome="merged" if merged.commit else "nothing to merge")


if __name__ == "__main__":
    main()
