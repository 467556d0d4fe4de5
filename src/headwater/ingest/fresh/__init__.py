"""Queries over what nodes hold now: the scans of all of them at one timestamp, in the place of the lake's tables."""

from headwater.ingest.fresh.protocol import LaidOver, fresh_reads

__all__ = ["LaidOver", "fresh_reads"]
