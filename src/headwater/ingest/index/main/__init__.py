"""Row id to place: ranges of rows that lie one after the other."""

from headwater.ingest.index.main.decide import FlushMarker
from headwater.ingest.index.main.protocol import MainIndex

__all__ = ["FlushMarker", "MainIndex"]
