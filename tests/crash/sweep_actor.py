"""A process that recovers what others left behind, an hour later by its clock, and is to be killed on the way."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

from headwater.app import App
from headwater.kernel import failpoints, settings
from headwater.kernel.clock import SystemClock


class LateClock(SystemClock):
    """The clock of a process that starts when all leases have passed."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


def main() -> None:
    lake = App(settings.load(), clock=LateClock()).open_lake(sys.argv[1], sweep=False)
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    lake.writing.recovery.sweep()


if __name__ == "__main__":
    main()
