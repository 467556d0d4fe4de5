"""The two indexes of a node: key to versions (primary), and row id to place (main)."""

from headwater.ingest.index.errors import (
    DuplicateKeysError,
    IndexBackendError,
    IndexMovedError,
    IndexOrderError,
    RangeOverlapError,
)
from headwater.ingest.index.main import FlushMarker, MainIndex
from headwater.ingest.index.primary import PrimaryIndex, Version, Versions

__all__ = [
    "DuplicateKeysError",
    "FlushMarker",
    "IndexBackendError",
    "IndexMovedError",
    "IndexOrderError",
    "MainIndex",
    "PrimaryIndex",
    "RangeOverlapError",
    "Version",
    "Versions",
]
