"""The Spark session: it works with Iceberg, it is quiet, it leaves nothing behind, and says why it cannot start."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from headwater.kernel.errors import UnavailableError, UsageError
from headwater.kernel.settings import S3Settings, SparkSettings
from headwater.spark import s3_file_io, ship_package, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java]

COUNT_TEN = """
import contextlib
import psutil
from headwater.kernel.settings import SparkSettings
from headwater.spark import spark_session

extra = {"spark.hadoop.fs.s3a.secret.key": "stolen-if-printed"}
session = spark_session(SparkSettings(master="local[1]", driver_memory="512m"), app_name="ten", extra=extra)
assert session.sparkContext.getConf().get("spark.hadoop.fs.s3a.secret.key") == "stolen-if-printed"
for child in psutil.Process().children(recursive=True):
    with contextlib.suppress(psutil.Error):
        print(*child.cmdline())
print(session.range(10).count())
"""
STOLEN = SecretStr("stolen-if-printed")


def in_child(code: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.proves("spark/local")
def test_iceberg_tables_are_written_and_read(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE lake.bank.accounts (id bigint, balance int) USING iceberg")
    spark.sql("INSERT INTO lake.bank.accounts VALUES (1, 100), (2, 50)")
    spark.sql("UPDATE lake.bank.accounts SET balance = 60 WHERE id = 2")  # needs Iceberg's SQL extensions to be planned
    assert spark.sql("SELECT sum(balance) AS total FROM lake.bank.accounts").collect()[0]["total"] == 160
    assert spark.sql("CALL lake.system.expire_snapshots('bank.accounts')").count() == 1


def test_workers_run_our_interpreter(spark: SparkSession) -> None:
    def interpreter(batches: Iterable[Any]) -> Iterable[Any]:
        import importlib
        import sys

        arrow = importlib.import_module("pyarrow")
        for _ in batches:
            yield arrow.RecordBatch.from_pydict({"python": [sys.executable]})

    rows = spark.range(1, numPartitions=1).mapInArrow(interpreter, "python string").collect()
    assert [row["python"] for row in rows] == [sys.executable]


def test_the_session_is_set_up_for_us(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"


def test_a_second_call_gets_the_same_session_and_its_own_catalog(spark: SparkSession, tmp_path: Path) -> None:
    again = spark_session(
        SparkSettings(master="local[2]"),
        app_name="again",
        s3=S3Settings(endpoint="http://127.0.0.1:1", access_key_id="user", secret_access_key=STOLEN),
        extra={"spark.sql.catalog.other": "org.apache.iceberg.spark.SparkCatalog"},
    )
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.sql.catalog.other.s3.endpoint") == "http://127.0.0.1:1"
    shown = {row["key"]: row["value"] for row in again.sql("SET").collect()}
    assert "redacted" in shown["spark.sql.catalog.other.s3.secret-access-key"]
    assert "redacted" in shown["spark.sql.catalog.other.s3.access-key-id"]
    with pytest.raises(UsageError, match=r"without late\.jar"):
        spark_session(SparkSettings(), app_name="late", jars=[tmp_path / "late.jar"])
    with pytest.raises(UsageError, match=r"another spark\.sql\.extensions"):
        spark_session(SparkSettings(), app_name="late", extra={"spark.sql.extensions": "none.such"})


def test_the_package_reaches_executors_as_a_zip(spark: SparkSession) -> None:
    archive = ship_package(spark)
    names = zipfile.ZipFile(archive).namelist()
    assert "headwater/__init__.py" in names
    assert "headwater/spark/log4j2.properties" in names
    assert not [name for name in names if "__pycache__" in name]

    def origin(batches: Iterable[Any]) -> Iterable[Any]:
        import importlib
        import sys

        arrow = importlib.import_module("pyarrow")
        for _ in batches:
            yield arrow.RecordBatch.from_pydict({"path": [path for path in sys.path if path.endswith(".zip")]})

    # A worker that was used before may hold the package already: what counts is that it would find it.
    rows = spark.range(1, numPartitions=1).mapInArrow(origin, "path string").collect()
    assert [row["path"] for row in rows if row["path"].endswith("headwater.zip")]


def test_s3_settings_become_file_io_settings() -> None:
    prefix = "spark.sql.catalog.lake."
    assert s3_file_io("lake", S3Settings(region="eu-west-1", virtual_hosted=True)) == {
        prefix + "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        prefix + "client.region": "eu-west-1",
        prefix + "s3.path-style-access": "false",
    }
    with_keys = s3_file_io("lake", S3Settings(endpoint="http://s3", access_key_id="user", secret_access_key=STOLEN))
    assert with_keys[prefix + "s3.endpoint"] == "http://s3"
    assert with_keys[prefix + "s3.path-style-access"] == "true"
    assert with_keys[prefix + "s3.secret-access-key"] == STOLEN.get_secret_value()


def test_a_session_is_quiet_keeps_secrets_and_leaves_nothing_behind(tmp_path: Path) -> None:
    import os

    here, temporary = tmp_path / "here", tmp_path / "tmp"
    here.mkdir()
    temporary.mkdir()
    done = in_child(COUNT_TEN, here, **{**os.environ, "TMPDIR": str(temporary)})
    *command_lines, count = done.stdout.splitlines()
    assert (done.returncode, count, done.stderr) == (0, "10", "")
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in command_lines)
    assert not any("stolen-if-printed" in line for line in command_lines)
    assert list(here.iterdir()) == []
    assert list(temporary.iterdir()) == []


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not started Spark yet."""
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


@pytest.mark.usefixtures("no_session")
def test_missing_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UnavailableError) as caught:
        spark_session(SparkSettings(), app_name="none")
    assert str(caught.value) == (
        "Java 17 or newer is needed, and there is none on the PATH (Spark runs on Java 17 or 21)"
    )
    assert caught.value.exit_code == 5


@pytest.mark.usefixtures("no_session")
def test_an_old_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"the one in JAVA_HOME is 11 \(Spark runs on Java 17 or 21\)$"):
        spark_session(SparkSettings(), app_name="old")


def test_missing_pyspark_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.spark.session.find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"^PySpark is not installed \(pip install 'headwater\[spark\]'\)$"):
        spark_session(SparkSettings(), app_name="none")


def test_a_spark_that_dies_at_its_start_is_one_sentence(tmp_path: Path) -> None:
    import os

    code = """
from headwater.kernel.errors import UnavailableError
from headwater.kernel.settings import SparkSettings
from headwater.spark import spark_session

try:
    spark_session(SparkSettings(driver_memory="nonsense"), app_name="dies")
except UnavailableError as error:
    print(error)
"""
    done = in_child(code, tmp_path, **os.environ)
    assert done.stdout.startswith("Spark does not start: ")
    assert "Invalid maximum heap size: -Xmxnonsense" in done.stdout
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_a_remote_session_without_its_packages_is_one_sentence(tmp_path: Path) -> None:
    import os

    code = """
import sys
sys.modules["grpc"] = None
from headwater.kernel.errors import UnavailableError
from headwater.kernel.settings import SparkSettings
from headwater.spark import spark_session

try:
    spark_session(SparkSettings(remote="sc://127.0.0.1:1"), app_name="remote")
except UnavailableError as error:
    print(error)
"""
    done = in_child(code, tmp_path, **os.environ)
    assert done.stdout.startswith("Spark Connect needs more than PySpark: ")
    assert done.stdout.endswith(" (pip install 'pyspark[connect]')\n")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.proves("spark/cluster")
def test_executors_of_a_cluster_import_the_shipped_package(tmp_path: Path) -> None:
    import os

    code = """
from headwater.kernel.settings import SparkSettings
from headwater.spark import spark_session

def origin(batches):
    import headwater, pyarrow
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"file": [headwater.__file__]})

loopback = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
session = spark_session(SparkSettings(master="local-cluster[1,1,512]"), app_name="cluster",
                        extra={"spark.executor.memory": "512m", **loopback})
print(session.range(1, numPartitions=1).mapInArrow(origin, "file string").collect()[0]["file"])
"""
    done = in_child(code, tmp_path, **{**os.environ, "PYSPARK_PYTHON": sys.executable})
    assert (done.stdout, done.stderr) == ("./headwater.zip/headwater/__init__.py\n", "")
    assert list(tmp_path.iterdir()) == []


def test_importing_the_package_does_not_import_pyspark(tmp_path: Path) -> None:
    import os

    done = in_child("import sys, headwater.spark; print('pyspark' in sys.modules)", tmp_path, **os.environ)
    assert (done.stdout, done.stderr) == ("False\n", "")
