"""Where a database is: a path or a SQLAlchemy URL, checked before anything is opened."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from headwater.kernel.errors import UsageError
from headwater.kernel.logs import HIDDEN, scrub

_DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}
_MODULES = {"sqlite": "sqlite3", "postgresql": "psycopg"}
_SPELLINGS = "a path, sqlite:///path or postgresql://user:password@host:port/name"


def parse_target(target: str | Path) -> URL:
    """The URL that a path or a string means; whatever cannot be opened is a `UsageError` without the password."""
    if isinstance(target, Path) or "://" not in target:
        if not str(target):
            raise UsageError("no database was named", hint=_SPELLINGS)
        return _sqlite(URL.create("sqlite+pysqlite", database=str(target)))
    try:
        url = make_url(target)
    except (ArgumentError, ValueError):
        # Whatever the parser tripped over may be part of a password.
        scheme = target.partition("://")[0]
        raise UsageError(f"the database URL {scheme}://… cannot be read", hint=_SPELLINGS) from None
    dialect, _, driver = url.drivername.partition("+")
    dialect = "postgresql" if dialect == "postgres" else dialect
    if dialect not in _DRIVERS:
        raise UsageError(f"there is no database {dialect!r}", hint=_SPELLINGS, dialect=dialect)
    if driver not in ("", _DRIVERS[dialect]):
        raise UsageError(
            f"{dialect} is used through {_DRIVERS[dialect]}, not {driver}", hint=f"{dialect}://…", driver=driver
        )
    if importlib.util.find_spec(_MODULES[dialect]) is None:
        raise UsageError(f"the driver {_MODULES[dialect]} for {dialect} is not installed", driver=_MODULES[dialect])
    url = url.set(drivername=f"{dialect}+{_DRIVERS[dialect]}")
    return _sqlite(url) if dialect == "sqlite" else url


def _sqlite(url: URL) -> URL:
    """The same with an absolute path: a process that changes its folder, or forks, must not open another file."""
    if not url.database or url.database == ":memory:":
        raise UsageError("a SQLite database in memory is lost with its process", hint="sqlite:///path/to/file")
    if url.host or url.query:
        raise UsageError("a SQLite URL has a path alone", hint="sqlite:///relative or sqlite:////absolute")
    if "\0" in url.database:
        raise UsageError("a path has no NUL character", hint="sqlite:///path/to/file")
    return url.set(database=str(Path(url.database).absolute()))


def label_of(url: URL) -> str:
    """How the database is called in messages: never a password, and no options, which may hold one."""
    return url.set(drivername=url.get_backend_name(), query={}).render_as_string(hide_password=True)


def without_secrets(text: str, url: URL) -> str:
    """`text` without any password that `url` carries, however the driver spelled it."""
    secrets = [str(url.password)] if url.password else []
    for name, value in url.query.items():
        if re.search("password", name, re.I):
            secrets.extend([value] if isinstance(value, str) else value)
    for secret in secrets:
        text = text.replace(secret, HIDDEN) if secret else text
    return scrub(text)
