"""From a setting to a coordinator."""

from __future__ import annotations

from pathlib import Path

from headwater.coordination.on_database import DatabaseCoordination
from headwater.coordination.on_etcd import EtcdCoordination
from headwater.coordination.port import Coordination
from headwater.database import Database, open_database
from headwater.kernel.clock import Clock, SystemClock


def open_coordination(target: str | Path | Database, *, clock: Clock | None = None) -> Coordination:
    """`etcd+http://host:port[,host:port…][/namespace]`, a database URL or path, or an open database.

    A database that was passed in open stays open after `close()`; one that was opened here is closed.
    """
    if isinstance(target, Database):
        return DatabaseCoordination(target)
    if str(target).startswith(("etcd+http://", "etcd+https://")):
        return EtcdCoordination(str(target), clock or SystemClock())
    return DatabaseCoordination(open_database(target, clock=clock), owns_database=True)
