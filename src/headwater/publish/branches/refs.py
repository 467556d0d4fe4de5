"""Deleting a branch in good order.

A change whose writer died leaves its note; it is settled first, so that the log of the branch is whole while somebody
may still look at it. A change whose writer may be alive is waited for, by whoever asked: deleting the branch beneath it
would lose work without a word. One that begins after that loses its branch, and is discarded with a word (P12).
"""

from __future__ import annotations

from headwater.catalog.model import RefKind
from headwater.kernel.errors import UsageError
from headwater.publish.service import AnyWriting


def delete_ref(writing: AnyWriting, kind: RefKind, name: str, *, expected: str | None = None) -> None:
    """Delete a branch or tag as it is now, or while it is at `expected`; one that moves meanwhile stays."""
    ref = writing.catalog.ref(name)
    if ref.kind is not kind:
        raise UsageError(f"{name} is a {ref.kind}, not a {kind}", hint=f"delete it as a {ref.kind}", ref=name)
    if kind is RefKind.BRANCH:
        for sidecar in writing.sidecars.pending():
            if sidecar.branch == name and sidecar.branch_incarnation == ref.incarnation:
                writing.recovery.settle(sidecar.operation, branch=name)
        if expected is None:
            expected = writing.catalog.ref(name).hash  # settling has committed
    writing.catalog.delete_ref(name, expected or ref.hash, incarnation=ref.incarnation)
