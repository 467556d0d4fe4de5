"""Whether the head of a table is where its branch pins it."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import Ref, TableContent, TableKey
from headwater.publish.errors import DriftError, RecoveryPendingError
from headwater.publish.service import AnyWriting


def refuse_drift(
    writing: AnyWriting, ref: Ref, key: TableKey, pinned: TableContent, metadata: TableMetadata, *, pending_too: bool
) -> None:
    """Raise `DriftError` when the head is ahead of the pin and no sidecar says why.

    With `pending_too`, one that a sidecar explains is refused as well, by `RecoveryPendingError`.
    """
    if writing.heads is None:
        return  # what the branch holds is all there is
    path = writing.heads.path_for(metadata, ref.incarnation)
    latest, pinned_id = writing.heads.sequence(path).latest(), writing.heads.id_in(path, pinned)
    if latest is None or not pinned_id or latest.id <= pinned_id:
        return  # what lies in a fork that the branch does not pin is followed on by the next write
    # A writer deletes its sidecar after its commit: when there is none, the branch tells now what has become of it.
    sidecars = [each for each in writing.sidecars.pending() if any(head.path == path for head in each.heads)]
    now = writing.catalog.content(writing.catalog.ref(ref.name).hash, [key]).get(key)
    if now != pinned:
        return  # whoever publishes on the old version hears of that
    if not sidecars:
        raise DriftError(key, pinned_id, latest.id)
    if pending_too:
        until = sidecars[0].lease_until.isoformat(timespec="seconds")
        raise RecoveryPendingError(key, sidecars[0].operation, until)
