"""A namespace's history as Spark sees it, beside what was written."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import CorruptError
from headwater.kernel.randomness import seeded
from headwater.sequence.frames import decode_batch, history_frame
from headwater.sequence.model import Entry, Namespace
from headwater.sequence.protocol import Sequencer
from headwater.storage.file import FileStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE = Namespace("lake", "manifest", ".manifest")


@pytest.fixture
def history(tmp_path: Path) -> list[Entry]:
    store = FileStore(tmp_path, SystemClock(), seeded(1), durable=False)
    sequencer = Sequencer(store, NAMESPACE, clock=SystemClock(), randomness=seeded(2))
    return [sequencer.update(lambda latest: bytes([latest.id if latest else 0]) * 3) for _ in range(5)]


@pytest.mark.spark
@pytest.mark.java
def test_every_object_is_a_row(spark: SparkSession, tmp_path: Path, history: list[Entry]) -> None:
    """In a folder whose name Spark would otherwise read as something else."""
    (tmp_path / "lake" / "manifest" / ".hw-residue.tmp").write_bytes(b"half")
    odd = tmp_path / "sp ace [1] 100%"
    shutil.copytree(tmp_path / "lake", odd / "lake")
    rows = history_frame(spark, odd.as_uri(), NAMESPACE).orderBy("id").collect()
    seen = [(int(row.id), row.writer, row.previous, bytes(row.payload)) for row in rows]
    assert seen == [(entry.id, entry.writer, entry.previous, entry.payload) for entry in history]


def batch(path: str, content: bytes) -> pa.RecordBatch:
    row = {
        "path": path,
        "modificationTime": datetime(2026, 1, 1, tzinfo=UTC),
        "length": len(content),
        "content": content,
    }
    return pa.RecordBatch.from_pylist([row])


def test_a_row_is_decoded_without_spark(tmp_path: Path, history: list[Entry]) -> None:
    file = tmp_path / NAMESPACE.path_of(3)
    [row] = decode_batch(batch(f"file:{file}", file.read_bytes()), NAMESPACE).to_pylist()
    assert (int(row["id"]), row["writer"], row["payload"]) == (3, history[2].writer, history[2].payload)


def test_a_damaged_object_is_named(tmp_path: Path, history: list[Entry]) -> None:
    file = tmp_path / NAMESPACE.path_of(3)
    with pytest.raises(CorruptError, match=r"00000000000000000003\.manifest"):
        decode_batch(batch(f"file:{file}", file.read_bytes()[:-1]), NAMESPACE)
    with pytest.raises(CorruptError, match=r"x\.manifest"):
        decode_batch(batch("file:/lake/manifest/x.manifest", file.read_bytes()), NAMESPACE)
