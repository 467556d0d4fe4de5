"""From a setting to a coordinator."""

from __future__ import annotations

from pathlib import Path

from headwater.coordination.etcd_gateway import ETCD_SPELLING
from headwater.coordination.on_database import DatabaseCoordination
from headwater.coordination.on_etcd import EtcdCoordination
from headwater.coordination.port import Coordination
from headwater.database import Database, open_database
from headwater.kernel.clock import Clock, SystemClock
from headwater.kernel.errors import UsageError


def open_coordination(target: str | Path | Database, *, clock: Clock | None = None) -> Coordination:
    """`etcd+http://host:port[,host:port…][/namespace]`, a database URL or path, or an open database.

    A database that was passed in open stays open after `close()`; one that was opened here is closed.
    """
    if isinstance(target, Database):
        return DatabaseCoordination(target)
    scheme = target.partition("://")[0].lower() if isinstance(target, str) and "://" in target else ""
    if scheme in ("etcd+http", "etcd+https"):
        return EtcdCoordination(scheme + str(target)[len(scheme) :], clock or SystemClock())
    if scheme in ("http", "https") or scheme.startswith("etcd"):
        raise UsageError(f"{scheme}://… is not a coordinator", hint=ETCD_SPELLING)
    database = open_database(target, clock=clock)
    try:
        return DatabaseCoordination(database, owns_database=True)
    except BaseException:
        database.close()
        raise
