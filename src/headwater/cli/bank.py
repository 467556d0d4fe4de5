"""The bank of the demo: its tables, its tellers and its auditor.

A transfer touches three tables. A teller makes it as one transaction, or, as the control, table by table: the same
statements on the same kind of lake, each table committed on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import pyarrow as pa

from headwater.app import App
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.cli.output import print_json
from headwater.kernel.clock import Clock
from headwater.kernel.errors import ConflictError
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import Randomness, seeded
from headwater.lake import Lake
from headwater.publish.errors import ConstraintViolationError

OWNERS = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gil", "Hana")
OPENING = 100

SCHEMA = f"""
CREATE TABLE accounts (
    id BIGINT PRIMARY KEY,
    owner STRING NOT NULL,
    balance BIGINT NOT NULL,
    CONSTRAINT never_overdrawn CHECK (balance >= 0)
);
CREATE TABLE transfers (
    id STRING PRIMARY KEY,
    source BIGINT NOT NULL REFERENCES accounts (id),
    target BIGINT NOT NULL REFERENCES accounts (id),
    amount BIGINT NOT NULL,
    CONSTRAINT something_moves CHECK (amount BETWEEN 1 AND {OPENING})
);
CREATE TABLE entries (
    transfer STRING NOT NULL REFERENCES transfers (id),
    account BIGINT NOT NULL REFERENCES accounts (id),
    amount BIGINT NOT NULL,
    PRIMARY KEY (transfer, account),
    CONSTRAINT two_sides CHECK (count(*) OVER (PARTITION BY transfer) <= 2)
);
"""

# One question to one commit: what a reader sees of all three tables at the same moment.
AUDIT = f"""
SELECT
    (SELECT sum(balance) FROM accounts) AS balances,
    (SELECT coalesce(sum(amount), 0) FROM entries) AS entries,
    (SELECT count(*) FROM transfers) AS transfers,
    (SELECT count(*) FROM transfers WHERE (SELECT count(*) FROM entries WHERE transfer = transfers.id) <> 2) AS halves,
    (SELECT count(*) FROM accounts WHERE balance <> {OPENING} + coalesce(
        (SELECT sum(amount) FROM entries WHERE account = accounts.id), 0)) AS wrong_accounts
"""

# A teller goes on trying for longer than it takes until a dead colleague's change is undone.
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Audit:
    """What an auditor saw at one commit."""

    balances: int
    entries: int
    transfers: int
    halves: int
    wrong_accounts: int

    @property
    def adds_up(self) -> bool:
        """Whether no money was made or lost, and every account is what its entries say."""
        return (self.balances, self.entries, self.halves, self.wrong_accounts) == (OPENING * len(OWNERS), 0, 0, 0)


@dataclass(frozen=True)
class Transfer:
    """Money that is to move."""

    id: str
    source: int
    target: int
    amount: int

    def steps(self) -> tuple[str, str, str]:
        """One statement for each table."""
        entries = f"('{self.id}', {self.source}, {-self.amount}), ('{self.id}', {self.target}, {self.amount})"
        change = f"CASE WHEN id = {self.source} THEN {-self.amount} ELSE {self.amount} END"
        return (
            f"INSERT INTO transfers VALUES ('{self.id}', {self.source}, {self.target}, {self.amount})",
            f"INSERT INTO entries VALUES {entries}",
            f"UPDATE accounts SET balance = balance + {change} WHERE id IN ({self.source}, {self.target})",
        )


def found(lake: Lake) -> None:
    """Open the bank: its tables, and the same balance for everybody."""
    lake.apply(SCHEMA, actor="founder", message="open the bank")
    accounts = pa.table({"id": range(len(OWNERS)), "owner": OWNERS, "balance": [OPENING] * len(OWNERS)})
    with lake.transaction(actor="founder", message="first balances") as transaction:
        transaction.insert("accounts", accounts)


def audit(lake: Lake, *, branch: str = DEFAULT_BRANCH) -> Audit:
    """Look at all three tables at one commit."""
    [row] = lake.query(AUDIT, branch=branch).to_pylist()
    return Audit(**{name: int(value) for name, value in row.items()})


@click.command(hidden=True)
@click.argument("url")
@click.option("--name", required=True)
@click.option("--transfers", type=int, required=True)
@click.option("--table-by-table", is_flag=True)
@click.pass_obj
def demo_teller(app: App, url: str, name: str, transfers: int, table_by_table: bool) -> None:
    """Make transfers between accounts, chosen by the teller's name; print one JSON line at the end."""
    teller = Teller(app.open_lake(url), name, app.clock, app.randomness, is_control=table_by_table)
    for transfer in teller.wishes(transfers):
        teller.make(transfer)
    print_json({"name": name, "made": teller.made, "refused": teller.refused, "retried": teller.retried})


class Teller:
    """Makes transfers, again and again while others are faster."""

    def __init__(self, lake: Lake, name: str, clock: Clock, randomness: Randomness, *, is_control: bool) -> None:
        self._lake = lake
        self._name = name
        self._clock = clock
        self._randomness = randomness
        self._is_control = is_control
        self.made = self.refused = self.retried = 0

    def wishes(self, count: int) -> Iterator[Transfer]:
        """Transfers that depend on the teller's name alone."""
        dice = seeded(self._name)
        for _ in range(count):
            source = dice.randrange(0, len(OWNERS))
            target = (source + dice.randrange(1, len(OWNERS))) % len(OWNERS)
            yield Transfer(new_ulid(self._clock, self._randomness), source, target, dice.randrange(1, OPENING // 2))

    def make(self, transfer: Transfer) -> None:
        """All steps in one transaction; the control commits each table for itself."""
        steps = transfer.steps()
        parts = [[each] for each in steps] if self._is_control else [list(steps)]
        try:
            for part in parts:
                self._until_won(part)
        except ConstraintViolationError:
            self.refused += 1  # the account does not hold that much
        else:
            self.made += 1

    def _until_won(self, statements: Sequence[str]) -> None:
        give_up_at = self._clock.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                with self._lake.transaction(actor=self._name, message="a transfer") as transaction:
                    for sql in statements:
                        transaction.sql(sql)
            except ConflictError:
                if self._clock.monotonic() > give_up_at:
                    raise
                self.retried += 1
                self._clock.sleep(0.1 + 0.4 * self._randomness.random())
            else:
                return
