"""`headwater node`: run an ingest node, and look into one."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.app import App
from headwater.cli.output import counted, json_option, print_json, print_table
from headwater.kernel.errors import HeadwaterError, UnavailableError, UsageError

if TYPE_CHECKING:
    from headwater.ingest.client import NodeClient

address_option = click.option(
    "--node", "address", metavar="HOST:PORT", default="127.0.0.1:7501", show_default=True, help="Where it answers."
)


@click.group()
def node() -> None:
    """An ingest node: it takes change streams and answers fresh reads.

    Recovery is not built yet: a node that is run stays in RECOVERING, and refuses writes and reads.
    """


@node.command()
@click.option("--config", "file", type=click.Path(path_type=Path), required=True, help="The node's TOML file.")
@json_option
@click.pass_obj
def run(app: App, file: Path, as_json: bool) -> None:
    """Run a node until SIGTERM or Ctrl-C; what it holds is published then."""
    with_grpc()
    from headwater.ingest.config import load_config
    from headwater.ingest.service.limits import ServiceLimits
    from headwater.ingest.service.running import keep_for_good, running

    config = load_config(file)
    over = threading.Event()
    with app.open_node(config) as opened:
        limits = ServiceLimits(
            request_bytes=config.service.request_bytes,
            batch_rows=config.service.batch_rows,
            calls=config.service.calls,
        )
        address, state = opened.node.topology.node(config.name).address, opened.node.lifecycle.state
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: over.set())
        with running(opened.node, opened.keeper, address, limits):
            keep_for_good()
            if as_json:
                print_json({"node": config.name, "address": address, "state": state})
            else:
                click.echo(f"{config.name} answers at {address}, and is {state}")
            over.wait()


@node.command()
@address_option
@json_option
def status(address: str, as_json: bool) -> None:
    """How a node is, how far each of its streams has come, and where time stands."""
    with asked(address) as client:
        from headwater.rpc.ingest.v1 import ingest_pb2 as pb

        found = client.call(client.node.GetStatus, pb.GetStatusRequest())
    marks = _watermarks(address)
    state = pb.LifecycleState.Name(found.state).removeprefix("LIFECYCLE_STATE_").lower()
    streams = [
        {
            "table": each.table,
            "virtual_node": each.virtual_node,
            "applied_timestamp": each.applied_timestamp,
            "applied_sequence": each.applied_sequence,
            "buffered_rows": each.buffered_rows,
            "buffered_bytes": each.buffered_bytes,
            "files": each.files,
        }
        for each in found.streams
    ]
    if as_json:
        print_json(
            {
                "node": found.node,
                "state": state,
                "topology_hash": found.topology_hash,
                "failure": found.failure or None,
                "tables": list(found.tables),
                "time": marks,
                "streams": streams,
            }
        )
        return
    click.echo(f"{found.node} is {state}" + (f": {found.failure}" if found.failure else ""))
    click.echo("time  " + "  ".join(f"{name} {value}" for name, value in marks.items() if value is not None))
    if streams:
        print_table(list(streams[0]), [tuple(str(value) for value in each.values()) for each in streams])


@node.command()
@click.argument("table")
@address_option
@json_option
def files(table: str, address: str, as_json: bool) -> None:
    """The files of a table, in every state."""
    with asked(address) as client:
        from headwater.rpc.ingest.v1 import ingest_pb2 as pb

        found = client.call(client.node.ListFiles, pb.ListFilesRequest(table=table)).files
    listed = [
        {
            "file_id": each.file_id,
            "type": each.type,
            "row_groups": each.row_groups,
            "min_row_id": each.min_row_id,
            "max_row_id": each.max_row_id,
            "name": each.name,
        }
        for each in found
    ]
    if as_json:
        print_json({"table": table, "files": listed})
    else:
        names = ["file_id", "type", "row_groups", "min_row_id", "max_row_id", "name"]
        print_table(names, [tuple(str(value) for value in each.values()) for each in listed])


@node.command()
@click.argument("table")
@click.argument("key", nargs=-1, required=True)
@address_option
@json_option
def index(table: str, key: tuple[str, ...], address: str, as_json: bool) -> None:
    """All that the index knows of a key, the newest version first: a text for each key column, in their order.

    Bytes are written in hex, dates as in 2026-01-31, moments as in 2026-01-31T12:00:00Z. Put -- before a key that
    begins with a dash.
    """
    with asked(address) as client:
        from headwater.rpc.ingest.v1 import ingest_pb2 as pb

        found = client.call(client.node.LookUpKey, pb.LookUpKeyRequest(table=table, texts=key))
    versions = [
        {
            "timestamp": each.timestamp,
            "is_tombstone": each.is_tombstone,
            "row_id": None if each.is_tombstone else each.row_id,
            "file_id": each.file_id if each.is_located else None,
            "row_group": each.row_group if each.is_located else None,
            "offset": each.offset if each.is_located else None,
        }
        for each in found.versions
    ]
    if as_json:
        print_json({"table": table, "key": list(key), "virtual_node": found.virtual_node, "versions": versions})
        return
    click.echo(f"virtual node {found.virtual_node}, {counted(len(versions), 'version')}")
    if versions:
        print_table(list(versions[0]), [tuple(map(_cell, each.values())) for each in versions])


@node.command()
@click.argument("table")
@click.option("--at", type=click.IntRange(0, 2**63 - 2), required=True, help="The timestamp to read at.")
@click.option("--column", "columns", multiple=True, help="Only this column; may be given several times.")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="Rows shown.")
@address_option
@json_option
def scan(table: str, at: int, columns: tuple[str, ...], limit: int, address: str, as_json: bool) -> None:
    """Rows of the node's part of a table at a timestamp."""
    import json

    from headwater.query.output import rows_of, to_json

    with asked(address) as client:
        reader = client.scan(table, at, columns=columns)
        lines: list[tuple[str, ...]] = []
        rest = ""
        for row in rows_of(reader):
            if as_json:
                values = zip(reader.schema.names, map(to_json, row), strict=True)
                click.echo(json.dumps(dict(values), allow_nan=False))
            elif len(lines) < limit:
                lines.append(tuple("NULL" if value is None else str(value) for value in row))
            else:
                rest = ", and more: raise --limit, or use --json"
                break
        if not as_json:
            print_table(reader.schema.names, lines)
            click.echo(f"({counted(len(lines), 'row')}{rest})", err=True)


def _watermarks(address: str) -> dict[str, object]:
    """Where time stands, asked of the node that this one names; of a time that nobody keeps, why."""
    from headwater.ingest.client import Times
    from headwater.rpc.ingest.v1 import ingest_pb2 as pb

    with Times([address]) as times:
        try:
            found = times.call("GetWatermarks", pb.GetWatermarksRequest())
            waits = times.call("ListOpenWrites", pb.ListOpenWritesRequest())
        except HeadwaterError as error:
            return {"holder": None, "error": error.message}
        holding = next((each for each in waits.writes if not each.is_resend), None)
        return {
            "holder": times.holder,
            "high_watermark": found.high_watermark,
            "low_watermark": found.low_watermark,
            "read_timestamp": found.read_timestamp,
            "safe_gc_timestamp": found.safe_gc_timestamp,
            "open_writes": waits.count,
            # Of a write whose owner is gone, what a person has to end.
            "waits_for_transaction": holding.transaction_id if holding else None,
            "waits_for_timestamp": holding.timestamp if holding else None,
        }


def _cell(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def with_grpc() -> None:
    """Say what is missing, before anything is opened."""
    try:
        import grpc  # noqa: F401
        import lmdb  # noqa: F401
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the node needs {error.name}, which is not installed", hint="pip install 'headwater[ingest]'"
        ) from error


def asked(address: str) -> NodeClient:
    """A client of a node."""
    with_grpc()
    from headwater.ingest.client import NodeClient

    host, _, port = address.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{address} is no address of a node", hint="HOST:PORT, as in 127.0.0.1:7501")
    return NodeClient(address)
