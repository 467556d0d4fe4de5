"""A process to be killed or stopped: moves money between accounts, and prints what it tries and what it was told.

Run as `python -m tests.crash.publish_actor URL NAME TRANSFERS`, with HEADWATER_FAILPOINTS saying where it dies. A
transfer touches three tables: it takes from one account, gives to another, and enters both.
"""

from __future__ import annotations

import json
import random
import sys

from headwater.app import App
from headwater.kernel import failpoints, settings
from headwater.kernel.errors import ConflictError, OutcomeUnknownError
from headwater.lake import Lake

ACCOUNTS = 4


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def transfer(lake: Lake, name: str, dice: random.Random) -> None:
    giver, taker = dice.sample(range(ACCOUNTS), 2)
    amount = dice.randrange(1, 10)
    try:
        with lake.transaction(actor=name, message="a transfer") as tx:
            say(outcome="trying", operation=tx.operation)
            tx.sql(f"update accounts set balance = balance - {amount} where id = {giver}")
            tx.sql(f"update accounts set balance = balance + {amount} where id = {taker}")
            tx.sql(f"insert into transfers values ('{tx.operation}', {giver}, {taker}, {amount})")
            for account, change in ((giver, -amount), (taker, amount)):
                tx.sql(f"insert into entries values ('{tx.operation}', {account}, {change})")
    except ConflictError as error:
        say(outcome="conflict", operation=tx.operation, kind=error.kind)
    except OutcomeUnknownError as error:
        say(outcome="unknown", operation=error.operation)
    else:
        say(outcome="committed", operation=tx.operation)


def main() -> None:
    url, name, transfers = sys.argv[1:]
    lake = App(settings.load()).open_lake(url)
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    dice = random.Random(name)
    for _ in range(int(transfers)):
        transfer(lake, name, dice)


if __name__ == "__main__":
    main()
