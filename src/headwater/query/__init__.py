"""Queries: DuckDB over the tables of a lake, as they stand at one point, with uncommitted rows laid over them.

The way of a query: `statement` reads the SQL without running anything, `references` says which names in it are tables,
and `resolve` opens those; `predicates` lets DuckDB's optimizer say which rows of each can matter; `relations` turns the
files of each into a DuckDB view; `protocol` orders all of it and shuts DuckDB in (`engine`) before the query runs.
"""

from headwater.query.deadline import Stop
from headwater.query.model import OpenTable, OpenView, Pending, QueryOptions, TableSource
from headwater.query.protocol import run, stream

__all__ = ["OpenTable", "OpenView", "Pending", "QueryOptions", "Stop", "TableSource", "run", "stream"]
