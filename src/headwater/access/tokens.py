"""Tokens on the database.

Promise: a token is good from the moment it is created until the moment it is revoked; nothing that is stored lets
anybody act as its owner. Where there ever was a token, nobody is let in without one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row

from headwater.access import decide, tables
from headwater.access.model import Caller, Role, Token, TokenRefusedError
from headwater.database import Database, Isolation, migrate
from headwater.kernel.errors import ConflictError, UsageError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import Randomness

MIGRATIONS = Path(__file__).parent / "migrations"

# Asked with every request to a server, so they are put together once.
_ANY = sa.select(sa.exists().where(tables.tokens.c.id.is_not(None)))
_ONE = sa.select(tables.tokens).where(tables.tokens.c.id == sa.bindparam("token"))


class Tokens:
    """The tokens of a lake. Safe to share among threads."""

    def __init__(self, database: Database, randomness: Randomness) -> None:
        self._database = database
        self._randomness = randomness
        migrate(database, "access", MIGRATIONS)

    def create(self, name: str, role: Role) -> tuple[Token, str]:
        """A new token, and its text, which is shown this once; its name must be no other valid token's."""
        decide.check_name(name)
        token = new_ulid(self._database.clock, self._randomness)
        text = decide.spelled(token, self._randomness.randbytes(decide.SECRET_BYTES))
        columns = tables.tokens.c
        with self._database.write(isolation=Isolation.SERIALIZABLE) as connection:
            same = sa.select(columns.id).where(columns.name == name, columns.revoked_at.is_(None))
            if connection.execute(same).first() is not None:
                raise ConflictError(
                    f"there is a token {name} already", hint="take another name, or revoke it first", name=name
                )
            made = Token(token, name, role, self._database.now(connection))
            connection.execute(
                sa.insert(tables.tokens).values(
                    id=made.id,
                    name=name,
                    role=str(role),
                    digest=decide.digest_of(decide.secret_of(text)),
                    created_at=made.created_at,
                )
            )
        return made, text

    def revoke(self, which: str) -> Token:
        """End the valid token of this name or id. It is refused from now on."""
        columns = tables.tokens.c
        with self._database.write() as connection:
            named = sa.select(tables.tokens).where(
                sa.or_(columns.name == which, columns.id == which), columns.revoked_at.is_(None)
            )
            row = connection.execute(named).first()
            if row is None:
                raise UsageError(
                    f"there is no valid token {which!r}", hint="`headwater token list` shows them", token=which
                )
            now = self._database.now(connection)
            connection.execute(sa.update(tables.tokens).where(columns.id == row.id).values(revoked_at=now))
        return Token(Ulid(row.id), row.name, Role(row.role), row.created_at, now)

    def list(self) -> tuple[Token, ...]:
        """Every token that ever was, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(sa.select(tables.tokens).order_by(tables.tokens.c.id)).all()
        return tuple(_as_token(row) for row in rows)

    def has_any(self) -> bool:
        """Whether there ever was one."""
        with self._database.read() as connection:
            return bool(connection.scalar(_ANY))

    def caller(self, text: str) -> Caller:
        """Whose token this text is; `TokenRefusedError` when it is nobody's, without telling why."""
        found = decide.parsed(text)
        row = self._row(found[0]) if found is not None else None
        is_valid = row is not None and row.revoked_at is None
        # The secret is compared in any case: how long that takes tells nothing about which ids there are.
        secret = found[1] if found is not None else ""
        if not decide.is_secret(secret, row.digest if row is not None and is_valid else None):
            raise TokenRefusedError("the token is not valid", hint="it is mistyped, or was revoked")
        assert row is not None
        return Caller(row.id, row.name, Role(row.role))

    def _row(self, token: Ulid) -> Row[Any] | None:
        with self._database.read() as connection:
            return connection.execute(_ONE, {"token": token}).first()


def _as_token(row: Row[Any]) -> Token:
    return Token(Ulid(row.id), row.name, Role(row.role), row.created_at, row.revoked_at)
