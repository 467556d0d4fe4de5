"""The rows of the timestamp service. Migrations make them; this says what they are today."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

_NUMBER = sa.BigInteger()
_TOPOLOGY = sa.String(128)

state = sa.Table(
    "ingest_time_state",
    metadata,
    sa.Column("topology", _TOPOLOGY, primary_key=True),
    sa.Column("epoch", _NUMBER, nullable=False),
    sa.Column("high", _NUMBER, nullable=False),
    sa.Column("low", _NUMBER, nullable=False),
    sa.Column("newest", _NUMBER, nullable=False),
    sa.Column("complete_below", _NUMBER, nullable=False),
    sa.Column("last_transaction", _NUMBER, nullable=False),
    sa.Column("read_lease_seconds", sa.Double(), nullable=False, server_default="0"),
)
"""One row for each topology. `epoch` is the fence of the lease of whoever may write here.

Transaction ids up to `last_transaction` may have been given, so the next holder begins above it. Readers may have
been told that they have `read_lease_seconds`, so it lets the low watermark rest for as long.
"""

writes = sa.Table(
    "ingest_time_writes",
    metadata,
    sa.Column("topology", _TOPOLOGY, sa.ForeignKey("ingest_time_state.topology"), primary_key=True),
    sa.Column("transaction_id", _NUMBER, primary_key=True),
    sa.Column("timestamp", _NUMBER, nullable=False),
    sa.Column("is_resend", sa.Boolean, nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),
)
"""Write transactions: all that are open, and what became of the last ones, for whoever asks again."""
