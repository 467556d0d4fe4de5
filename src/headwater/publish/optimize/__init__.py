"""Compacting small files and folding deletes into them, one table at a time."""
