"""Rows on their way from a request to a file: blocks, segments, the publisher of each stream, and the registry."""
