"""Rows of a table as they are at a timestamp."""
