"""Which refs take no writes from clients. Pure."""

from __future__ import annotations

from headwater.catalog.model import Ref, RefKind
from headwater.server.errors import ReadOnlyBranchError

REPLICA = "main_replica_"


def refuse_replica(name: str) -> None:
    """A replica is what was copied to it: nobody else writes there, or takes its name."""
    if name.startswith(REPLICA):
        raise ReadOnlyBranchError(name, "it is a replica")


def refuse_unwritable(ref: Ref) -> None:
    """The same for tags, which stay where they are."""
    if ref.kind is not RefKind.BRANCH:
        raise ReadOnlyBranchError(ref.name, "it is a tag")
    refuse_replica(ref.name)
