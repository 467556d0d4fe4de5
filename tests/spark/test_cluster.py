"""A sync on a Spark standalone cluster: a master, two workers and their executors, each a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from headwater.kernel.clock import SystemClock
from headwater.sync.runs.model import RunState
from tests.unit.sync_world import Regions

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # six Java processes
    pytest.mark.proves("sync cluster"),
]

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 60.0
LOOPBACK = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_DAEMON_MEMORY": "256m",
    # Each of them lives for seconds: what an optimising compiler costs is not won back.
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

# What a cluster is told of its jobs is in Spark's own file.
DEFAULTS = """
spark.executor.cores 1
spark.executor.memory 512m
spark.cores.max 2
"""

# A process has one Spark, so the sync is in one of its own.
SYNC = """
import json, os, sys
from headwater.sync import steps
from headwater.sync.localise import decide
from tests.unit.sync_world import App, settings, leased, closing, open_syncing, History

steps.PLAN_HERE = -1
decide.SPREAD_FROM = 0
app = App(settings.load())
url, region = sys.argv[1:]
with app.open_sync(url, region) as ground, closing(app.open_coordination(url)) as coordination:
    with leased(coordination, region, "a test", ground.settings.sync.lease_seconds) as lease:
        runs = open_syncing(ground, lease).catch_up(ground.goals(History.FULL), lease, told=lambda *_: None)

def where(batches):
    import headwater, pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"pid": [os.getppid()], "package": [headwater.__file__]})

spark = app.open_spark("headwater sync")
seen = spark.range(0, 2, 1, 2).mapInArrow(where, "pid long, package string").distinct().collect()
context = spark.sparkContext
print(json.dumps({
    "states": [str(each.state) for each in runs],
    "master": context.master,
    "executors": context._jsc.sc().getExecutorMemoryStatus().size() - 1,
    "stages": len(context.statusTracker().getJobIdsForGroup(None)),
    "packages": sorted({each.package for each in seen}),
    "workers": sorted({each.pid for each in seen}),
    "driver": os.getpid(),
}))
"""


@contextmanager
def daemon(folder: Path, name: str, *words: str) -> Iterator[Path]:
    """One of Spark's own servers; what it says is in the file."""
    log = folder / f"{name}.log"
    environ = {**os.environ, **LOOPBACK, "SPARK_WORKER_DIR": str(folder / name)}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *words], env=environ, cwd=folder, stdout=stream, stderr=stream
        )
    try:
        yield log
    finally:
        process.terminate()  # a worker ends its executors first
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def told(log: Path, pattern: str) -> str:
    """What the first line that fits says; the server is waited for."""
    clock = SystemClock()
    deadline = clock.monotonic() + START_SECONDS
    while clock.monotonic() < deadline:
        if found := re.search(pattern, log.read_text()):
            return found[1]
        clock.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        log = stack.enter_context(daemon(folder, "master", "org.apache.spark.deploy.master.Master", *place))
        url = told(log, r"Starting Spark master at (spark://\S+)")
        size = ("--cores", "1", "--memory", "1g")
        workers = [
            stack.enter_context(daemon(folder, name, "org.apache.spark.deploy.worker.Worker", *place, *size, url))
            for name in ("one", "two")
        ]
        for each in workers:
            told(each, r"(Successfully registered with master)")
        yield url


def test_a_sync_on_a_cluster(cluster: str, tmp_path: Path) -> None:
    """Every step goes to executors, which have our package from the driver and not from where they stand."""
    regions = Regions(tmp_path)
    lake = regions.lake("us")
    lake.apply("create table t (id bigint, v text)", actor="ann")
    for number in range(3):
        with regions.lake("us" if number % 2 else "asia").transaction(actor="ann") as change:
            change.sql(f"insert into t values ({number}, 'x')")
    with lake.transaction(actor="ann") as change:
        change.sql("delete from t where id = 2")
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(DEFAULTS)
    environ = {
        **os.environ,
        **LOOPBACK,
        "HEADWATER_SPARK_MASTER": cluster,
        "HEADWATER_SYNC_FORWARD_COMMITS": "1",
        "HEADWATER_SYNC_TASKS": "2",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "SPARK_CONF_DIR": str(conf),
    }
    done = subprocess.run(
        [sys.executable, "-c", SYNC, regions.url, "eu"],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["states"]) == {RunState.DONE}
    assert (found["master"], found["executors"]) == (cluster, 2)
    assert found["stages"] >= 2  # a plan and a localisation, at least
    assert [Path(each).parts[-3:] for each in found["packages"]] == [("headwater.zip", "headwater", "__init__.py")]
    assert found["driver"] not in found["workers"]
    assert regions.rows("default.t") == [{"id": number, "v": "x"} for number in (0, 1)]
    local = f"{(tmp_path / 'eu').as_uri()}/"
    assert {path for path in regions.paths("default.t") if not path.startswith(local)} == set()
