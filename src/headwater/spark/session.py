"""The Spark session: on this machine by default, on a cluster by its master, or remote by Spark Connect.

A local Spark leaves nothing behind and says nothing: its JVM works in a folder of its own, and what it would print
goes into `spark.log` there. Secrets never reach a command line, where other users of the machine could read them.
"""

from __future__ import annotations

import atexit
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.kernel.artifacts import ICEBERG_AWS_BUNDLE, ICEBERG_SPARK_RUNTIME, fetch, find_java
from headwater.kernel.errors import UnavailableError, UsageError
from headwater.kernel.logs import Log, scrub
from headwater.kernel.settings import S3Settings, SparkSettings, environment, variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

T = TypeVar("T")

_CATALOG = "spark.sql.catalog."
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_JAVA = 17
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CONFIDENTIAL = "(?i)secret|password|token|credential|access[._-]?key"
_NONE: Mapping[str, str] = MappingProxyType({})
# Few tasks, each with much to do: a Python task costs about 75 ms whatever it does.
_LOCAL_SHUFFLES = 4

_log = Log("spark")


def spark_session(
    settings: SparkSettings,
    *,
    app_name: str,
    jars: Sequence[Path] = (),
    s3: S3Settings | None = None,
    extra: Mapping[str, str] = _NONE,
    folder: Path | None = None,
) -> SparkSession:
    """The process's session, started if there is none.

    `extra` is Spark's own configuration. Every catalog in it reads and writes by `s3`, if that is given. `folder` is
    where a local Spark keeps its warehouse, its temporary files and its log; without one they go when the process does.
    """
    _require_pyspark()
    # Catalogs are looked up when they are first used, so they can be set late, and without a command line.
    late = {key: value for key, value in extra.items() if key.startswith(_CATALOG)}
    if s3 is not None:
        catalogs = [name for key in late if "." not in (name := key.removeprefix(_CATALOG))]
        late = {key: value for name in catalogs for key, value in s3_file_io(name, s3).items()} | late
    early = {key: value for key, value in extra.items() if key not in late}
    if settings.remote:
        session = _connect(settings.remote, app_name)
        late = early | late
    else:
        session = _start(settings, app_name, jars, early, folder)
    for key, value in late.items():
        session.conf.set(key, value)
    return session


def iceberg_jars(cache: Path, *, s3: bool) -> tuple[Path, ...]:
    """The jars that a session needs for Iceberg tables, on S3 too if asked for; downloaded when they are missing."""
    wanted = (ICEBERG_SPARK_RUNTIME, ICEBERG_AWS_BUNDLE) if s3 else (ICEBERG_SPARK_RUNTIME,)
    return tuple(fetch(artifact, cache) for artifact in wanted)


def s3_file_io(catalog: str, s3: S3Settings) -> dict[str, str]:
    """Configuration by which an Iceberg catalog reads and writes S3. It holds the secret key: do not print it."""
    values = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **s3_properties(s3)}
    return {f"{_CATALOG}{catalog}.{key}": value for key, value in values.items()}


def s3_properties(s3: S3Settings) -> dict[str, str]:
    """The same as Iceberg's own properties. They hold the secret key, too."""
    values = {"client.region": s3.region, "s3.path-style-access": "false" if s3.virtual_hosted else "true"}
    if s3.endpoint:
        values["s3.endpoint"] = s3.endpoint
    if s3.access_key_id and s3.secret_access_key:
        values["s3.access-key-id"] = s3.access_key_id
        values["s3.secret-access-key"] = s3.secret_access_key.get_secret_value()
    return values


def ship_package(session: SparkSession) -> Path:
    """Bring this package to the executors, as a zip on their import path; returns the zip.

    Its dependencies must be installed there, with the same Python version.
    """
    package = Path(__file__).resolve().parents[1]
    archive = _temporary_folder() / f"{package.name}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                packed.write(path, path.relative_to(package.parent))
    if hasattr(session, "_jsparkSession"):
        session.sparkContext.addPyFile(str(archive))
    else:
        session.addArtifacts(str(archive), pyfile=True)
    return archive


def _require_pyspark() -> None:
    if find_spec("pyspark") is None:
        raise UnavailableError("PySpark is not installed", hint="pip install 'headwater[spark]'")


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _connect(remote: str, app_name: str) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession as SparkSession

    try:
        return SparkSession.builder.remote(remote).appName(app_name).getOrCreate()
    except ImportError as error:
        raise UnavailableError(
            f"Spark Connect needs more than PySpark: {_first_line(error)}", hint="pip install 'pyspark[connect]'"
        ) from None
    except PySparkException as error:
        raise UnavailableError(
            f"{scrub(remote)} does not answer: {_first_line(error)}", hint="is the Spark Connect server up?"
        ) from error


def _start(
    settings: SparkSettings, app_name: str, jars: Sequence[Path], extra: Mapping[str, str], folder: Path | None
) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as SparkSession

    running = SparkContext._active_spark_context
    if running is None:
        _start_context(settings, app_name, jars, extra, folder)
        session = SparkSession.builder.getOrCreate()
        if not _is_local(settings.master):
            ship_package(session)
        return session
    present = (running.getConf().get("spark.jars") or "").split(",")
    if missing := [jar.name for jar in jars if str(jar) not in present]:
        raise UsageError(f"this process has a Spark session without {', '.join(missing)}", hint="stop it first")
    session = SparkSession.builder.getOrCreate()
    if fixed := [
        key for key in extra if running.getConf().get(key) != extra[key] and not session.conf.isModifiable(key)
    ]:
        raise UsageError(f"this process has a Spark session with another {', '.join(fixed)}", hint="stop it first")
    for key, value in extra.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def _start_context(
    settings: SparkSettings, app_name: str, jars: Sequence[Path], extra: Mapping[str, str], folder: Path | None
) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    launch: Callable[..., Any] = launch_gateway  # PySpark does not annotate it
    _require_java()
    home = folder or _temporary_folder()
    home.mkdir(parents=True, exist_ok=True)
    values = _configuration(settings, app_name, jars, home) | {k: v for k, v in extra.items() if k != _JAVA_OPTIONS}
    values[_JAVA_OPTIONS] = " ".join(filter(None, (_java_options(home), extra.get(_JAVA_OPTIONS))))
    conf = SparkConf(loadDefaults=False).setAll(list(values.items()))
    # A secret goes to the JVM by its socket, not by its command line.
    told = SparkConf(loadDefaults=False).setAll([(k, v) for k, v in values.items() if not re.search(_CONFIDENTIAL, k)])
    log = home / "spark.log"
    _log.info("starting Spark", master=settings.master, log=str(log))
    with log.open("ab") as stream:
        kwargs: dict[str, Any] = {"cwd": home, "stdout": stream, "stderr": stream}
        # Otherwise a machine whose own name does not resolve has no Spark.
        local = {"SPARK_LOCAL_IP": "127.0.0.1"} if _is_local(settings.master) else {}
        with variables(local):
            gateway = SparkContext._gateway or _explained(lambda: launch(told, kwargs), log)
    context = _explained(lambda: SparkContext(conf=conf, gateway=gateway), log)
    if _is_local(settings.master):
        # The workers are ours too; without this they would be whatever `python3` is on the PATH.
        context.pythonExec = sys.executable


def _require_java() -> None:
    try:
        find_java(_JAVA, environment())
    except UnavailableError as error:
        raise UnavailableError(error.message, hint="Spark runs on Java 17 or 21", **error.fields) from None


def _configuration(settings: SparkSettings, app_name: str, jars: Sequence[Path], home: Path) -> dict[str, str]:
    values = {
        "spark.app.name": app_name,
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.local.dir": str(home / "local"),
        "spark.redaction.regex": _CONFIDENTIAL,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (home / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if jars:
        values["spark.jars"] = ",".join(str(jar) for jar in jars)
    if any(jar.name.startswith(ICEBERG_SPARK_RUNTIME.name) for jar in jars):
        values["spark.sql.extensions"] = _EXTENSIONS
    if _is_local(settings.master):
        values |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.pyspark.python": sys.executable,
            "spark.sql.shuffle.partitions": str(_LOCAL_SHUFFLES),
        }
    return values


def _java_options(home: Path) -> str:
    properties = Path(__file__).with_name("log4j2.properties").as_uri()
    temporary = home / "tmp"
    temporary.mkdir(exist_ok=True)
    options = {
        "derby.system.home": home,
        "java.io.tmpdir": temporary,
        "log4j2.configurationFile": properties,
        "user.timezone": "UTC",
    }
    return " ".join(f'"-D{name}={value}"' for name, value in options.items())


def _explained(action: Callable[[], T], log: Path) -> T:
    try:
        return action()
    except Exception as error:  # whatever two languages and a socket can raise, it means the same
        raise UnavailableError(
            f"Spark does not start: {_first_line(error)}", hint=_reason(log), log=str(log)
        ) from error


def _reason(log: Path) -> str | None:
    """The first line of Spark's log that says what is wrong: the log may be gone by the time anybody looks."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    telling = [line.strip() for line in lines if re.search("Exception|Error|Invalid", line)]
    return scrub(telling[0]) if telling else None


def _first_line(error: BaseException) -> str:
    return scrub(next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__))


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="headwater-spark-"))
    atexit.register(_remove, folder)
    return folder


def _remove(folder: Path) -> None:
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    shutil.rmtree(folder, ignore_errors=True)
