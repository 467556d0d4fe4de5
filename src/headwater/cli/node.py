"""`headwater node`: run an ingest node, and look into one."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.app import App
from headwater.cli.output import json_option, print_json, print_table
from headwater.kernel.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from headwater.ingest.client import NodeClient

_GRACE_SECONDS = 10.0

address_option = click.option(
    "--node", "address", metavar="HOST:PORT", default="127.0.0.1:7501", show_default=True, help="Where the node answers."
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
    from headwater.ingest.service.server import NodeServer

    config = load_config(file)
    over = threading.Event()
    with app.open_node(config) as opened:
        limits = ServiceLimits(
            request_bytes=config.service.request_bytes,
            batch_rows=config.service.batch_rows,
            calls=config.service.calls,
        )
        server = NodeServer(opened, limits=limits)
        home = opened.topology.node(config.name)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: over.set())
        opened.start()
        server.start(home.address)
        if as_json:
            print_json({"node": config.name, "address": home.address, "state": opened.lifecycle.state})
        else:
            click.echo(f"{config.name} answers at {home.address}, and is {opened.lifecycle.state}")
        over.wait()
        server.stop(_GRACE_SECONDS)


@node.command()
@address_option
@json_option
def status(address: str, as_json: bool) -> None:
    """How a node is, and how far each of its streams has come."""
    from headwater.rpc.ingest.v1 import ingest_pb2 as pb

    with asked(address) as client:
        found = client.call(client.node.GetStatus, pb.GetStatusRequest())
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
                "streams": streams,
            }
        )
        return
    click.echo(f"{found.node} is {state}" + (f": {found.failure}" if found.failure else ""))
    if streams:
        print_table(list(streams[0]), [tuple(str(value) for value in each.values()) for each in streams])


@node.command()
@click.argument("table")
@address_option
@json_option
def files(table: str, address: str, as_json: bool) -> None:
    """The files of a table, in every state."""
    from headwater.rpc.ingest.v1 import ingest_pb2 as pb

    with asked(address) as client:
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
@click.option("--at", type=click.IntRange(0), required=True, help="The timestamp to read at.")
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
        for row in rows_of(reader):
            if as_json:
                values = zip(reader.schema.names, map(to_json, row), strict=True)
                click.echo(json.dumps(dict(values), allow_nan=False))
            elif len(lines) < limit:
                lines.append(tuple("NULL" if value is None else str(value) for value in row))
            else:
                break
        if not as_json:
            print_table(reader.schema.names, lines)


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

    if ":" not in address:
        raise UsageError(f"{address} is no address of a node", hint="HOST:PORT")
    return NodeClient(address)


