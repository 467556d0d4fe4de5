"""What a table declares, and what of it is missing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pyiceberg.manifest import FileFormat
from pyiceberg.table.metadata import TableMetadata

from headwater.publish.indices.model import Declared
from headwater.publish.indices.theta import THETA_BLOB
from headwater.publish.optimize.model import Plan
from headwater.tables.blooms import BLOOM_ENABLED, can_have_bloom, declared_blooms
from headwater.tables.leaves import Leaf, leaves
from headwater.tables.model import FileTask, TableUsageError
from headwater.tables.properties import STATISTICS_COLUMNS, STATISTICS_PARTITIONS
from headwater.tables.statistics import unified_partition_type


def declared_by(metadata: TableMetadata, *, strict: bool = True) -> Declared:
    """What the table declares. Of a column that is not there, or cannot have it: refused, or else passed over."""
    columns = {leaf.name: leaf for leaf in leaves(metadata.schema().fields)}
    blooms = [(name, BLOOM_ENABLED + name) for name in declared_blooms(metadata.properties)]
    named = [(name, STATISTICS_COLUMNS) for name in dict.fromkeys(_split(metadata.properties, STATISTICS_COLUMNS))]
    if strict:
        for name, declared_as in blooms:
            _check(columns.get(name), name, declared_as, can_have_bloom)
        for name, declared_as in named:
            _check(columns.get(name), name, declared_as, _can_be_counted)
    order = metadata.sort_order()
    wants_partitions = metadata.properties.get(STATISTICS_PARTITIONS, "").lower() == "true"
    return Declared(
        None if order.is_unsorted else order.order_id,
        _ids(columns, [name for name, _ in blooms], can_have_bloom),
        _ids(columns, [name for name, _ in named], _can_be_counted),
        wants_partitions and bool(unified_partition_type(metadata).fields),
    )


def missing(declared: Declared, metadata: TableMetadata, tasks: Sequence[FileTask], bloomless: Collection[str]) -> Plan:
    """What is to be built: files that lack something are written again, each by itself; `bloomless` lack a filter."""
    lacking = [
        task
        for task in tasks
        if task.file.file_format == FileFormat.PARQUET
        and (_is_unsorted(declared, task) or task.file.file_path in bloomless)
    ]
    return with_declared(declared, metadata, Plan(tuple((task,) for task in lacking)))


def with_declared(declared: Declared, metadata: TableMetadata, plan: Plan) -> Plan:
    """The plan with the statistics that the table declares, of the snapshot that there will be.

    Those of a snapshot are one file: when one column is missing, all are computed.
    """
    snapshot_id = metadata.current_snapshot_id
    if snapshot_id is None:
        return plan
    known = {
        blob.fields[0]
        for file in metadata.statistics
        if file.snapshot_id == snapshot_id
        for blob in file.blob_metadata
        if blob.type == THETA_BLOB and len(blob.fields) == 1
    }
    has_partitions = any(file.snapshot_id == snapshot_id for file in metadata.partition_statistics)
    is_new = bool(plan.groups)
    statistics = tuple(declared.statistics) if is_new or not known >= set(declared.statistics.values()) else ()
    return Plan(plan.groups, statistics, declared.partition_statistics and (is_new or not has_partitions))


def _is_unsorted(declared: Declared, task: FileTask) -> bool:
    return declared.sort_order_id is not None and task.file.sort_order_id != declared.sort_order_id


def _can_be_counted(leaf: Leaf) -> bool:
    return not leaf.repeated


def _ids(columns: Mapping[str, Leaf], names: Iterable[str], fits: Callable[[Leaf], bool]) -> dict[str, int]:
    return {name: columns[name].field_id for name in names if name in columns and fits(columns[name])}


def _split(properties: Mapping[str, str], name: str) -> list[str]:
    return [each.strip() for each in properties.get(name, "").split(",") if each.strip()]


def _check(leaf: Leaf | None, name: str, declared_as: str, fits: Callable[[Leaf], bool]) -> None:
    if leaf is not None and fits(leaf):
        return
    what = "is not in the table" if leaf is None else "lies in a list or map" if leaf.repeated else f"is {leaf.kind}"
    raise TableUsageError(
        f"the table property {declared_as} names the column {name}, which {what}",
        hint="correct or remove the property",
        property=declared_as,
        column=name,
    )
