"""Key and timestamp to row id: the newest version of each key, and what it replaced."""

from headwater.ingest.index.primary.model import Version, Versions
from headwater.ingest.index.primary.protocol import PrimaryIndex

__all__ = ["PrimaryIndex", "Version", "Versions"]
