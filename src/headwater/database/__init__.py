"""Rows that we query: one SQL database per lake, SQLite embedded or PostgreSQL in production.

The promise: a block of `write()` happens whole or not at all, and survives a crash once it returned;
a block of `read()` sees one snapshot. Code above cannot tell the two databases apart: writers never
interleave (BEGIN IMMEDIATE on SQLite, SERIALIZABLE on PostgreSQL), and every failure arrives as an
error of the kernel's tree. Each room owns its tables and brings them up to date with `migrate`.
"""

from headwater.database.engine import UNIDENTIFIED, Database, Isolation, open_database
from headwater.database.migrations import migrate, run_migrations
from headwater.database.types import UtcTimestamp

__all__ = [
    "UNIDENTIFIED",
    "Database",
    "Isolation",
    "UtcTimestamp",
    "migrate",
    "open_database",
    "run_migrations",
]
