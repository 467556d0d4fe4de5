"""A process to be killed or stopped: changes a bank, and prints what it tries and what it was told.

Run as `python -m tests.crash.publish_actor URL NAME TIMES [KIND]`, with HEADWATER_FAILPOINTS saying where it dies. Each
kind of writer makes a change that shows in several places, so that half of it could be seen:

    transaction    a transfer: takes from one account, gives to another, and enters both, in three tables
    load           three rows that belong together, into one table
    schema-apply   a column in each of two tables, a new table, and a view of it
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable

import pyarrow as pa

from headwater.app import App
from headwater.kernel import failpoints, settings
from headwater.kernel.errors import ConflictError, OutcomeUnknownError
from headwater.lake import Lake

ACCOUNTS = 4
ROWS_OF_A_LOAD = 3
Say = Callable[..., None]


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def transfer(lake: Lake, label: str, tell: Say = say) -> None:
    dice = random.Random(label)
    giver, taker = dice.sample(range(ACCOUNTS), 2)
    amount = dice.randrange(1, 10)
    with lake.transaction(actor=label, message="a transfer") as tx:
        tell(outcome="trying", change=label)
        tx.sql(f"update accounts set balance = balance - {amount} where id = {giver}")
        tx.sql(f"update accounts set balance = balance + {amount} where id = {taker}")
        tx.sql(f"insert into transfers values ('{label}', {giver}, {taker}, {amount})")
        for account, change in ((giver, -amount), (taker, amount)):
            tx.sql(f"insert into entries values ('{label}', {account}, {change})")


def load(lake: Lake, label: str, tell: Say = say) -> None:
    tell(outcome="trying", change=label)
    rows = pa.table({"change": [label] * ROWS_OF_A_LOAD, "part": list(range(ROWS_OF_A_LOAD))})
    lake.load("loaded", rows, actor=label)


def apply_schema(lake: Lake, label: str, tell: Say = say) -> None:
    tell(outcome="trying", change=label)
    lake.apply(
        f"alter table more add column {label} bigint; alter table others add column {label} bigint; "
        f"create table made_{label} (id bigint); create view view_{label} as select id from made_{label}",
        actor=label,
    )


KINDS: dict[str, Callable[[Lake, str, Say], None]] = {
    "transaction": transfer,
    "load": load,
    "schema-apply": apply_schema,
}


def attempt(lake: Lake, kind: str, label: str, tell: Say = say) -> None:
    """Make one change, and tell how it ended."""
    try:
        KINDS[kind](lake, label, tell)
    except ConflictError as error:
        tell(outcome="conflict", change=label, kind=error.kind)
    except OutcomeUnknownError as error:
        tell(outcome="unknown", change=label, operation=error.operation)
    else:
        tell(outcome="committed", change=label)


def main() -> None:
    url, name, times, *rest = sys.argv[1:]
    kind = rest[0] if rest else "transaction"
    lake = App(settings.load()).open_lake(url)
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    for number in range(int(times)):
        attempt(lake, kind, f"{name}_{number}")


if __name__ == "__main__":
    main()
