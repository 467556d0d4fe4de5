"""Alembic enters here."""

from headwater.database import run_migrations

run_migrations()
