"""Column types that mean the same on both databases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from headwater.kernel.errors import CorruptError, UsageError

_TEXT = "%Y-%m-%dT%H:%M:%S.%fZ"


class UtcTimestamp(TypeDecorator[datetime]):
    """A moment in UTC, to the microsecond.

    `timestamptz` on PostgreSQL; on SQLite text of a fixed width, so that it sorts by time and a person can
    read it. A datetime without a zone is refused, because nobody can know what it meant.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Text where the database has no type for moments."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(sa.String(27))
        return dialect.type_descriptor(sa.DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """To the database."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise UsageError(f"{value.isoformat()} has no time zone", hint="timestamps are UTC")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z" if dialect.name == "sqlite" else utc

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """From the database."""
        if value is None:
            return None
        if dialect.name != "sqlite":
            moment: datetime = value.astimezone(UTC)
            return moment
        try:
            return datetime.strptime(value, _TEXT).replace(tzinfo=UTC)
        except (TypeError, ValueError):
            raise CorruptError(f"{value!r} in the database is not a timestamp") from None
