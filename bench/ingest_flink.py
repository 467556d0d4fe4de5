"""A streaming peer: Flink's upsert sink into Iceberg, with the same keys and columns, on both cores. We take a node for
each of them.

Flink comes as the jars of PyPI's `apache-flink-libraries` and is driven through the py4j of PySpark: it needs no second
Python environment. Its source makes rows inside Java at next to no cost; it commits every five seconds, as often as a
node makes files, and writes equality deletes, for which its readers pay. Where it cannot be had it is left out, and
that is said.
"""

from __future__ import annotations

import hashlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.ingest_client import fed_node, processor_seconds
from bench.ingest_merge import SMALL, Shape, Side
from bench.ingest_notes import note, show
from bench.measure import Result
from headwater.kernel.artifacts import Artifact, fetch, find_java
from headwater.kernel.errors import HeadwaterError, UnavailableError
from headwater.kernel.settings import cache_folder, environment

FLINK = ("apache-flink-libraries", "2.1.3", "b48d3944755b9303f99d205ea1a9bcb798fc563a872c782393fb466f16d4f91c")
ICEBERG_FLINK_RUNTIME = Artifact(
    "org.apache.iceberg",
    "iceberg-flink-runtime-2.1",
    "1.11.0",  # the newest that there is
    None,
    "39e658d876f253815b4b17c6676bebf6a24d517afe93a21298106d1d7fa97331",
)
ROWS = 3_000_000
REQUEST_ROWS = 20_000
WARMING, ROUNDS = 1, 3
CORES = 2
_OPENED = (
    *("java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text", "java.time", "java.util"),
    *("java.util.concurrent", "sun.net.util"),
)


def upserts(keys: int = SMALL, rows: int = ROWS) -> list[Result]:
    """At least as many rows a second as Flink's sink takes, rows that replace a random key."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        try:
            jars = _jars(cache_folder())
        except (HeadwaterError, OSError, subprocess.SubprocessError) as error:
            note(f"ingest-flink is left out: Flink cannot be had here: {error}")
            return []
        with fed_node(folder / "node", CORES, flush_seconds=5) as fed, _flink(folder / "peer", jars) as peer:
            side = Side(fed, keys)
            note(f"Flink loads them in {peer.load(keys):.1f} s")
            peer.upsert(keys, keys // 5)
            peer.check(keys)  # now: after many equality deletes a read of its table takes minutes
            shape = Shape(REQUEST_ROWS, rows // REQUEST_ROWS // 5)
            turns = [(*side.rate(side.batches(shape)), *peer.rate(keys, rows)) for _ in range(WARMING + ROUNDS)][
                WARMING:
            ]
            side.check()
    ours, core, theirs, their_core = (statistics.median(each) for each in zip(*turns, strict=True))
    note(f"requests of {REQUEST_ROWS:,} rows; rows a second of one core: ours {core:,.0f}, Flink {their_core:,.0f}")
    ratio = statistics.median(own / other for own, _, other, _ in turns)
    return [Result("ingest-flink", ours, theirs, "rows/s", ratio, 1.0)]


class Upserts:
    """A table of Flink's, and jobs that write to it."""

    def __init__(self, java: Any, folder: Path) -> None:
        flink = java.org.apache.flink
        settings = {
            "execution.checkpointing.dir": f"file://{folder}/checkpoints",
            "execution.checkpointing.interval": "5s",
            "parallelism.default": str(CORES),
            "taskmanager.numberOfTaskSlots": str(CORES),
        }
        configuration = flink.configuration.Configuration()
        for key, value in settings.items():
            configuration.setString(key, value)
        self._tables, self._whole = (
            flink.table.api.TableEnvironment.create(mode.withConfiguration(configuration).build())
            for mode in (
                flink.table.api.EnvironmentSettings.newInstance().inStreamingMode(),
                flink.table.api.EnvironmentSettings.newInstance().inBatchMode(),
            )
        )
        self._jobs = 0
        self._pid = int(java.java.lang.ProcessHandle.current().pid())
        for each in (self._tables, self._whole):
            each.executeSql(
                "create catalog peer with "
                f"('type'='iceberg', 'catalog-type'='hadoop', 'warehouse'='file://{folder}/lake')"
            )
        self._tables.executeSql("create database peer.d")
        self._tables.executeSql(
            "create table peer.d.t (id bigint not null, k int, v double, name string, primary key (id) not enforced) "
            "with ('format-version'='2', 'write.upsert.enabled'='true')"
        )

    def load(self, keys: int) -> float:
        """Seconds for all keys, from nothing."""
        return self._insert(f"'fields.id.kind'='sequence', 'fields.id.start'='0', 'fields.id.end'='{keys - 1}'")

    def upsert(self, keys: int, rows: int) -> float:
        """Seconds for rows of random keys."""
        return self._insert(f"'fields.id.min'='0', 'fields.id.max'='{keys - 1}', 'number-of-rows'='{rows}'")

    def rate(self, keys: int, rows: int) -> tuple[float, float]:
        """Rows of random keys a second, on the wall and of Java's processor time."""
        before = processor_seconds(self._pid)
        seconds = self.upsert(keys, rows)
        return rows / seconds, rows / (processor_seconds(self._pid) - before)

    def _insert(self, ids: str) -> float:
        """Seconds for which a job ran, its planning left out."""
        self._jobs += 1
        self._tables.executeSql(
            f"create temporary table made{self._jobs} (id bigint) "
            f"with ('connector'='datagen', 'rows-per-second'='1000000000', {ids})"
        )
        job = self._tables.executeSql(
            "insert into peer.d.t select id, cast(mod(id * 7, 1000) as int), id / 1024.0, "
            f"'name-' || cast(mod(id, 5000) as string) from made{self._jobs}"
        )
        return float(job.getJobClient().get().getJobExecutionResult().get().getNetRuntime()) / 1000

    def check(self, keys: int) -> None:
        """All keys are there once, or its figures say nothing."""
        row = self._whole.executeSql("select count(*), sum(id) from peer.d.t").collect().next()
        assert (row.getField(0), row.getField(1)) == (keys, keys * (keys - 1) // 2), str(row)


@contextmanager
def _flink(folder: Path, jars: list[Path]) -> Iterator[Upserts]:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]

    folder.mkdir()
    opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED]
    with (folder / "flink.log").open("w") as log:
        port = launch_gateway(
            jarpath=str(_of_spark("py4j")),
            classpath=":".join(map(str, jars)),
            java_path=str(find_java(17, environment())),
            javaopts=["-Xmx3g", f"-Djava.io.tmpdir={folder}", *opened],
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            yield Upserts(gateway.jvm, folder)
        finally:
            gateway.shutdown()


def _jars(cache: Path) -> list[Path]:
    """Flink, Iceberg for it, and Hadoop, which Iceberg's Flink catalogs cannot do without."""
    flink = _flink_folder(cache)
    hadoop = [_of_spark(name) for name in ("hadoop-client-api", "hadoop-client-runtime")]
    return [*sorted(flink.glob("*.jar")), fetch(ICEBERG_FLINK_RUNTIME, cache), *hadoop]


def _flink_folder(cache: Path) -> Path:
    """The jars of PyPI's package, from the cache or downloaded."""
    name, version, sha256 = FLINK
    folder = cache / f"{name}-{version}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*command, f"{name}=={version}", "--dest", scratch], check=True, capture_output=True, text=True)
        (archive,) = Path(scratch).glob("*.tar.gz")
        with archive.open("rb") as stream:
            if (actual := hashlib.file_digest(stream, "sha256").hexdigest()) != sha256:
                raise UnavailableError(f"{archive.name} has the checksum {actual} instead of {sha256}")
        made = Path(scratch) / "jars"
        made.mkdir()
        with tarfile.open(archive) as packed:
            for member in packed.getmembers():
                content = packed.extractfile(member) if "/deps/lib/" in member.name else None
                if content is not None and member.name.endswith(".jar"):
                    (made / Path(member.name).name).write_bytes(content.read())
        made.rename(folder)
    return folder


def _of_spark(name: str) -> Path:
    spec = find_spec("pyspark")
    found = sorted((Path(spec.origin).parent / "jars").glob(f"{name}-*.jar")) if spec and spec.origin else []
    if not found:
        raise UnavailableError(f"PySpark with its {name} is not installed", hint="pip install 'headwater[spark]'")
    return found[-1]


if __name__ == "__main__":
    show(upserts(*map(int, sys.argv[1:])))
