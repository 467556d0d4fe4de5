"""Manifests localised on Spark: few tasks, each with many manifests, because a task costs more than most manifests.

Only names and lengths travel: the work goes out with the function, one row for each manifest comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.kernel.errors import HeadwaterError
from headwater.spark.failures import raised, told
from headwater.sync.localise.decide import in_tasks, is_worth_spreading
from headwater.sync.localise.manifest import localise_manifests
from headwater.sync.localise.model import ManifestDone, ManifestWork, Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A row is either what became of a manifest, or the error that ended a task.
SCHEMA: Final = (
    "source string, location string, length_bytes long, manifests_read long, manifests_written long, "
    "deletes_written long, error string"
)
_ARROW: Final = pa.schema(
    [
        ("source", pa.string()),
        ("location", pa.string()),
        ("length_bytes", pa.int64()),
        ("manifests_read", pa.int64()),
        ("manifests_written", pa.int64()),
        ("deletes_written", pa.int64()),
        ("error", pa.string()),
    ]
)


def spread_on(
    spark: SparkSession, open_place: Callable[[], Place], *, tasks: int
) -> Callable[[Sequence[ManifestWork]], Iterator[ManifestDone]]:
    """Does manifests on Spark when they are many, and here when they are not.

    `open_place` is called where the work is done, so it must be something that can be sent there.
    """

    def spread(works: Sequence[ManifestWork]) -> Iterator[ManifestDone]:
        if not is_worth_spreading(works):
            yield from localise_manifests(open_place(), works)
            return
        for row in manifests_frame(spark, open_place, works, tasks=tasks).collect():
            found = row.asDict()
            if (error := found.pop("error")) is not None:
                raise raised(error)
            yield ManifestDone(**found)

    return spread


def manifests_frame(
    spark: SparkSession, open_place: Callable[[], Place], works: Sequence[ManifestWork], *, tasks: int
) -> DataFrame:
    """One row for each manifest, by `SCHEMA`; one with an error ends its task."""
    parts = in_tasks(works, tasks)

    def localised(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield from _rows(open_place, parts[part])

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(localised, SCHEMA)


def _rows(open_place: Callable[[], Place], works: Sequence[ManifestWork]) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, object]] = []
    try:
        rows.extend({**asdict(done), "error": None} for done in localise_manifests(open_place(), works))
    except HeadwaterError as error:
        # As a row, not as an exception: Spark would make a page of text of it, without its kind and its fields.
        rows = [{"error": told(error)}]
    yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
