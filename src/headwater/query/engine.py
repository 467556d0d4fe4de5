"""The DuckDB of one query: how it is opened, asked for a plan, and shut in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

from headwater.kernel.logs import Log
from headwater.query.filesystem import ROOT, LakeFileSystem
from headwater.query.model import QueryOptions
from headwater.query.types import value

# The first would judge tables by their stand-ins' content. The others make plans that DuckDB cannot show, or filters
# that exist only while it runs.
_NOT_WHILE_PLANNING = "statistics_propagation,late_materialization,join_filter_pushdown"

_log = Log("query")


def connect(options: QueryOptions, folder: Path, filesystem: LakeFileSystem) -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory that spills into `folder`."""
    config: dict[str, Any] = {
        "temp_directory": str(folder / "spill"),
        "python_enable_replacements": "false",  # or a name in the SQL could be a variable of the program
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_persistent_secrets": "false",
    }
    if options.memory_limit_bytes is not None:
        config["memory_limit"] = f"{options.memory_limit_bytes}B"
    if options.threads is not None:
        config["threads"] = str(options.threads)
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET parquet_metadata_cache = true")  # footers are read before the query, and never change
    connection.register_filesystem(filesystem)
    return connection


def plan_of(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """DuckDB's plan for the question, as JSON; None when it has none, and the connection must not be used any more."""
    connection.execute(f"SET disabled_optimizers = {value(_NOT_WHILE_PLANNING)}")
    try:
        found = connection.execute("SELECT json_serialize_plan(?, optimize := true)", [sql]).fetchone()
    except duckdb.Error as error:
        _log.debug("no plan", reason=str(error))
        return None
    plan = json.loads(found[0]) if found else {"error": True}
    if plan["error"]:
        return None
    connection.execute("SET disabled_optimizers = ''")
    return plan


def lock(connection: duckdb.DuckDBPyConnection, paths: Iterable[str]) -> None:
    """From here on DuckDB opens these files alone, and no setting changes."""
    plain = ", ".join(value(path) for path in paths if not path.startswith(ROOT))
    connection.execute(f"SET allowed_paths = [{plain}]")
    connection.execute(f"SET allowed_directories = [{value(ROOT)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
