"""The rows of access. Migrations make them; this says what they are today."""

from __future__ import annotations

import sqlalchemy as sa

from headwater.database import UtcTimestamp

metadata = sa.MetaData()

tokens = sa.Table(
    "access_tokens",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("revoked_at", UtcTimestamp),
)
"""One row for each token that ever was. One that is revoked stays: where there were tokens, none is optional."""

requests = sa.Table(
    "access_requests",
    metadata,
    sa.Column("caller", sa.String(26), primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("branch", sa.Text, nullable=False),
    sa.Column("operation", sa.String(26), nullable=False),
    sa.Column("lease_until", UtcTimestamp, nullable=False),
    sa.Column("created_at", UtcTimestamp, nullable=False, index=True),
    sa.Column("answer", sa.Text),
)
"""Requests that carry a key; no answer means that it is under way, or that nobody heard how it ended."""
