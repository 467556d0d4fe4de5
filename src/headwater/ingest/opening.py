"""A node from its file: whole, or nothing of it is left open."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.metadata import TableMetadata

from headwater.coordination import Coordination
from headwater.database import Database
from headwater.ingest.buffer.model import BufferLimits
from headwater.ingest.config import NodeConfig
from headwater.ingest.files.protocol import FileTable
from headwater.ingest.index import MainIndex, PrimaryIndex
from headwater.ingest.index.local import LocalIndex
from headwater.ingest.model import TIMESTAMP_COLUMN, TableShape
from headwater.ingest.node import Node
from headwater.ingest.service.keeper import TimeKeeper
from headwater.ingest.timestamps.protocol import TimestampService, open_timestamps
from headwater.ingest.topology import Topology
from headwater.kernel.clock import Clock
from headwater.kernel.errors import RefusedError, UsageError
from headwater.kernel.randomness import Randomness
from headwater.storage.port import ObjectStore


@dataclass(frozen=True)
class Surroundings:
    """What a node stands on, opened by whoever runs it. `metadata_of` knows the tables, `folder_of` their place.

    `time_name` is what all nodes of the lake call their time, unless their file says otherwise: it outlives a change
    of the topology, after which time must go on.
    """

    database: Database
    coordination: Coordination
    time_name: str
    store: ObjectStore
    open_file: Callable[[str], pa.NativeFile]
    metadata_of: Callable[[str], TableMetadata]
    folder_of: Callable[[TableMetadata], str]
    clock: Clock
    randomness: Randomness


@dataclass(frozen=True)
class Opened:
    """A node, and its part in keeping the time. Nothing of it runs yet."""

    node: Node
    keeper: TimeKeeper


@contextmanager
def open_node(config: NodeConfig, surroundings: Surroundings) -> Iterator[Opened]:
    """The node; nothing of it runs yet. It is closed when the block ends, and what it holds is published."""
    topology = Topology.load(config.topology)
    home = topology.node(config.name)
    files = FileTable(surroundings.database)
    tables = {name: shape_of(name, surroundings, files) for name in config.tables}
    refuse_two_names(tables)
    with ExitStack() as stack:
        directory = stack.enter_context(directory_of(config))
        main = MainIndex.open(directory / "main.db")
        stack.callback(main.close)
        primary = PrimaryIndex.open(
            directory / "primary", main, clock=surroundings.clock, randomness=surroundings.randomness
        )
        stack.callback(primary.close)
        node = Node(
            name=config.name,
            topology=topology,
            tables=tables,
            files=files,
            store=surroundings.store,
            open_file=surroundings.open_file,
            index=LocalIndex(primary, main),
            clock=surroundings.clock,
            limits=BufferLimits(
                config.buffer.block_rows, config.buffer.segment_blocks, config.buffer.unpublished_bytes
            ),
            flush_seconds=config.buffer.flush_seconds,
            read_lease_seconds=config.time.read_lease_seconds,
        )
        stack.callback(node.finish)
        yield Opened(node, keeper_of(config, surroundings, home.address))


def keeper_of(config: NodeConfig, surroundings: Surroundings, address: str) -> TimeKeeper:
    """Who asks for the lease of the time, as the node at this address."""

    def take() -> TimestampService:
        return open_timestamps(
            surroundings.database,
            surroundings.coordination,
            config.time.name or surroundings.time_name,
            address,
            clock=surroundings.clock,
            lease_seconds=config.time.lease_seconds,
            read_lease_seconds=config.time.read_lease_seconds,
        )

    return TimeKeeper(take, config.time.lease_seconds)


def shape_of(name: str, surroundings: Surroundings, files: FileTable) -> TableShape:
    """A lake's table as a node takes it; one without a key, or of types that a node cannot hold, is refused."""
    metadata = surroundings.metadata_of(name)
    schema = metadata.schema()
    if not schema.identifier_field_ids:
        raise RefusedError(
            f"{name} has no primary key, so a node could not tell its rows apart",
            hint="create it with `primary key (…)`",
            table=name,
        )
    if metadata.spec().fields:
        raise RefusedError(f"{name} is partitioned, and a node writes whole streams", hint="leave the partition out")
    arrow = schema_to_pyarrow(schema, include_field_ids=True)
    if TIMESTAMP_COLUMN in arrow.names:
        raise RefusedError(
            f"{name} has a column {TIMESTAMP_COLUMN}, which every file of a node has for itself",
            hint="rename the column",
            table=name,
        )
    number, folder = table_id_of(metadata), surroundings.folder_of(metadata)
    if others := [each.uri for each in files.paths_of(number) if each.uri != folder]:
        # Rows of one would be found by the keys of the other.
        raise RefusedError(
            f"{name} has the number {number}, and so has {others[0]}",
            hint="the number is made of the table's UUID: create the table again",
            table=name,
        )
    key = tuple(field.name for field in schema.fields if field.field_id in schema.identifier_field_ids)
    if not set(schema.identifier_field_ids) <= {field.field_id for field in schema.fields}:
        raise UsageError(f"a column of the key of {name} is nested", hint="keys are columns of the table itself")
    path = files.add_path(number, folder)
    return TableShape(
        number, name, arrow, key, path.path_id, folder, metadata.current_schema_id, str(metadata.table_uuid)
    )


def refuse_two_names(tables: Mapping[str, TableShape]) -> None:
    """One table under two names would be two parts of every answer."""
    names: dict[int, str] = {}
    for name, shape in tables.items():
        if (other := names.setdefault(shape.id, name)) != name:
            raise UsageError(f"{other} and {name} are one table", hint="name each table once", table=name)


@contextmanager
def directory_of(config: NodeConfig) -> Iterator[Path]:
    """The folder of the index, made if it is new. For as long as the block lasts no other process has it.

    Each of two would trust what the other has changed.
    """
    directory = config.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / "node.lock").open("w")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the folder {directory} of the index cannot be made: {error}",
            hint="name a folder on a local disk that the node may write to",
            directory=str(directory),
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RefusedError(
                f"another process has the folder {directory}",
                hint="each node has a folder of its own; is this one running already?",
                directory=str(directory),
            ) from error
        yield directory


def table_id_of(metadata: TableMetadata) -> int:
    """The number of a table: the first 31 bits of its UUID, as indexes take it. It stays when the table is renamed."""
    return int.from_bytes(metadata.table_uuid.bytes[:4], "big") >> 1
