"""A namespace's history as a Spark DataFrame."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from headwater.sequence.codec import EnvelopeCodec, id_of
from headwater.sequence.model import Namespace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id decimal(20,0), writer string, previous string, payload binary, last_modified timestamp"
_ARROW = pa.schema(
    [
        ("id", pa.decimal128(20, 0)),
        ("writer", pa.string()),
        ("previous", pa.string()),
        ("payload", pa.binary()),
        ("last_modified", pa.timestamp("us", tz="UTC")),
    ]
)


def history_frame(spark: SparkSession, url: str, namespace: Namespace) -> DataFrame:
    """Every object that is there, one row each. An object that cannot be read fails the job and is named."""
    objects = (
        spark.read.format("binaryFile")
        .option("pathGlobFilter", f"*{namespace.suffix}")
        .load(_hadoop_path(f"{url.rstrip('/')}/{namespace.folder}"))
    )

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield decode_batch(batch, namespace)

    return objects.mapInArrow(decode, SCHEMA)


def _hadoop_path(url: str) -> str:
    """Spark takes paths that are not percent-encoded, and in which some characters are wildcards."""
    parts = urlsplit(url)
    plain = unquote(parts.path) if parts.scheme == "file" else parts.path
    escaped = re.sub(r"([\\{}\[\]*?])", r"\\\1", plain)
    return f"{parts.scheme}://{parts.netloc}{escaped}"


def decode_batch(batch: pa.RecordBatch, namespace: Namespace) -> pa.RecordBatch:
    """The rows of Spark's `binaryFile` source as rows of the history."""
    codec = EnvelopeCodec()
    rows = []
    for row in batch.to_pylist():
        path = unquote(urlsplit(row["path"]).path)
        name = f"{namespace.folder}/{path.rpartition('/')[2]}"
        body = codec.decode(row["content"], path)
        rows.append(
            {
                "id": id_of(name, namespace),
                "writer": body.writer,
                "previous": body.previous,
                "payload": body.payload,
                "last_modified": row["modificationTime"],
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)
