"""Where the documents are that came before one: every document names its predecessors, the last of them at the end."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry

from headwater.tables.model import TableUsageError

PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
_DEFAULT_PREVIOUS_VERSIONS_MAX = 100


def with_log_entry(metadata: TableMetadata, location: str, updated_ms: int) -> TableMetadata:
    """The document, made from one that is at this location and was last updated then; the oldest entries go."""
    entry = MetadataLogEntry(metadata_file=location, timestamp_ms=updated_ms)
    if metadata.metadata_log and metadata.metadata_log[-1].metadata_file == location:
        return metadata
    log = [*metadata.metadata_log, entry]
    return metadata.model_copy(update={"metadata_log": log[-_most(metadata) :]})


def _most(metadata: TableMetadata) -> int:
    text = metadata.properties.get(PREVIOUS_VERSIONS_MAX, str(_DEFAULT_PREVIOUS_VERSIONS_MAX))
    try:
        return max(1, int(text))
    except ValueError:
        raise TableUsageError(
            f"property {PREVIOUS_VERSIONS_MAX} is {text!r}, which is not a number",
            hint="set it to one, or remove it",
            property=PREVIOUS_VERSIONS_MAX,
        ) from None
