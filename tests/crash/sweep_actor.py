"""A process that recovers what others left behind, and is to be killed on the way."""

from __future__ import annotations

import sys

from headwater.app import App
from headwater.kernel import failpoints, settings


def main() -> None:
    app = App(settings.load())
    lake = app.open_lake(sys.argv[1], sweep=False)
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    lake.writing.recovery.sweep()


if __name__ == "__main__":
    main()
