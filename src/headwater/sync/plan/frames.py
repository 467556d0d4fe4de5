"""Plans on Spark: manifests in, one row for each batch out. Nobody holds a list of all files.

read       each task reads some manifests: a row for each live file that the replica will show
resolve    in the same task, by the registry
group      by destination: two sources of one destination, or two sizes of one file, are errors
plan       each part claims, looks and writes its lists, chunk by chunk
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.manifest import ManifestFile

from headwater.kernel.errors import HeadwaterError
from headwater.regions.resolve import collision
from headwater.spark.failures import raised, told
from headwater.sync.diff.manifest import live_files
from headwater.sync.diff.model import Needed
from headwater.sync.plan.model import SizesDifferError
from headwater.sync.plan.protocol import Placed, Planning, made, placed
from headwater.sync.runs.model import PlannedBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES: Final = "source string, size_bytes long, destination string, error string"
_FILES_ARROW: Final = pa.schema(
    [("source", pa.string()), ("size_bytes", pa.int64()), ("destination", pa.string()), ("error", pa.string())]
)
_BATCHES: Final = "files long, size_bytes long, list_uri string, error string"
_BATCHES_ARROW: Final = pa.schema(
    [("files", pa.int64()), ("size_bytes", pa.int64()), ("list_uri", pa.string()), ("error", pa.string())]
)
_ROWS_AT_ONCE: Final = 10_000

OpenPlanning = Callable[[], Planning]


def plan_on(
    spark: SparkSession,
    open_planning: OpenPlanning,
    manifests: Sequence[ManifestFile],
    others: Sequence[Needed] = (),
    *,
    tasks: int,
) -> Iterator[PlannedBatch]:
    """The batches of a plan over many manifests, and the few files that are in none: statistics.

    `open_planning` is called where the work is done.
    """
    files = files_frame(spark, open_planning, manifests, others, tasks=tasks)
    rows = batches_frame(files, open_planning).collect()
    for row in rows:
        if row.error is not None:
            raise raised(row.error)
    ordered = sorted(rows, key=lambda row: str(row.list_uri))
    return (PlannedBatch(number, row.files, row.size_bytes, row.list_uri) for number, row in enumerate(ordered, 1))


def files_frame(
    spark: SparkSession,
    open_planning: OpenPlanning,
    manifests: Sequence[ManifestFile],
    others: Sequence[Needed] = (),
    *,
    tasks: int,
) -> DataFrame:
    """One row for each live file that the replica will show, with its place; or the error that ended a task."""
    parts = [list(manifests[start::tasks]) for start in range(max(1, min(tasks, len(manifests))))]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield from _file_rows(open_planning(), parts[part], others if part == 0 else ())

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, _FILES)


def batches_frame(files: DataFrame, open_planning: OpenPlanning) -> DataFrame:
    """One row for each batch, or for each error."""
    from pyspark.sql import functions as sql

    grouped = files.groupBy("destination", "error").agg(
        sql.min("source"), sql.max("source"), sql.min("size_bytes"), sql.max("size_bytes")
    )

    def plan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        planning = open_planning()
        try:
            rows = [
                {"files": files, "size_bytes": size_bytes, "list_uri": list_uri, "error": None}
                for files, size_bytes, list_uri in made(planning, _placed(planning, batches))
            ]
        except HeadwaterError as error:
            rows = [{"error": told(error)}]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_BATCHES_ARROW)

    return grouped.mapInArrow(plan, _BATCHES)


def _file_rows(
    planning: Planning, manifests: Sequence[ManifestFile], others: Sequence[Needed]
) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, object]] = []
    live = (each for manifest in manifests for each in live_files(planning.files, manifest))
    try:
        for found, size_bytes in placed(planning, chain(others, live)):
            rows.append({"source": found.source, "size_bytes": size_bytes, "destination": found.destination})
            if len(rows) >= _ROWS_AT_ONCE:
                yield pa.RecordBatch.from_pylist(rows, schema=_FILES_ARROW)
                rows = []
    except HeadwaterError as error:
        rows = [{"error": told(error)}]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=_FILES_ARROW)


def _placed(planning: Planning, batches: Iterable[pa.RecordBatch]) -> Iterator[Placed]:
    for batch in batches:
        for _, error, source, other, size_bytes, other_bytes in zip(*(each.to_pylist() for each in batch), strict=True):
            if error is not None:
                raise raised(error)
            resolution = planning.resolver.resolve(source)
            if other != source:
                raise collision(resolution, planning.resolver.resolve(other))
            if other_bytes != size_bytes:
                raise SizesDifferError(source, size_bytes, other_bytes)
            yield resolution, size_bytes
