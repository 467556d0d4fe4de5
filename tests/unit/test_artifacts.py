from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from headwater.kernel import artifacts
from headwater.kernel.artifacts import Artifact
from headwater.kernel.errors import CorruptError, UnavailableError

CONTENT = b"not really a jar"
THING = Artifact("org.example", "thing", "1.0", "runner", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A `java` that plays Ivy: it puts the bytes of `served` where `-retrieve` points, and counts its runs."""
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.15"\n')
    (home / "served").write_bytes(CONTENT)
    program = home / "bin" / "java"
    program.write_text(
        f"""#!/bin/sh
echo run >> {home}/runs
while [ $# -gt 1 ]; do [ "$1" = -retrieve ] && target="$2"; shift; done
folder=$(dirname "$target")
/bin/mkdir -p "$folder" && /bin/cp {home}/served "$folder/thing-1.0-runner.jar"
"""
    )
    program.chmod(0o755)
    return home


def environ(java: Path) -> dict[str, str]:
    return {"JAVA_HOME": str(java), "PATH": "/usr/bin:/bin"}


def runs(java: Path) -> int:
    path = java / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "jars").iterdir())


def test_a_jar_is_downloaded_once(java: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    jar = artifacts.fetch(THING, cache, environ(java))
    assert jar.read_bytes() == CONTENT
    assert artifacts.fetch(THING, cache, {}) == jar  # no Java in sight, and none needed
    assert runs(java) == 1
    assert leftovers(cache) == ["thing-1.0-runner.jar", "thing-1.0-runner.jar.verified"]


def test_a_cache_hit_does_not_read_the_jar_again(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = artifacts.fetch(THING, tmp_path, environ(java))
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("it was read"))
    assert artifacts.fetch(THING, tmp_path, environ(java)) == jar


def test_a_wrong_checksum_is_refused_and_the_download_deleted(java: Path, tmp_path: Path) -> None:
    (java / "served").write_bytes(b"something else")
    cache = tmp_path / "cache"
    with pytest.raises(CorruptError) as caught:
        artifacts.fetch(THING, cache, environ(java))
    actual = hashlib.sha256(b"something else").hexdigest()
    assert caught.value.fields == {
        "artifact": "org.example:thing:1.0:runner",
        "expected": THING.sha256,
        "actual": actual,
    }
    assert THING.sha256 in str(caught.value)
    assert actual in str(caught.value)
    assert leftovers(cache) == []


@pytest.mark.parametrize("damage", [b"short", CONTENT[::-1]], ids=["another size", "the same size"])
def test_a_jar_that_was_damaged_in_the_cache_is_found_out(java: Path, tmp_path: Path, damage: bytes) -> None:
    jar = artifacts.fetch(THING, tmp_path, environ(java))
    jar.write_bytes(damage)
    with pytest.raises(CorruptError):
        artifacts.fetch(THING, tmp_path, environ(java))
    assert artifacts.fetch(THING, tmp_path, environ(java)).read_bytes() == CONTENT


def test_a_jar_without_a_marker_is_checked_but_not_downloaded(java: Path, tmp_path: Path) -> None:
    jar = artifacts.fetch(THING, tmp_path, environ(java))
    jar.with_name(f"{jar.name}.verified").write_text('{"sha256": ')
    assert artifacts.fetch(THING, tmp_path, {}) == jar
    assert runs(java) == 1


def test_two_may_fetch_at_once(java: Path, tmp_path: Path) -> None:
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(artifacts.fetch(THING, tmp_path, environ(java)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert {path.read_bytes() for path in found} == {CONTENT}


def test_a_failed_download_says_why_in_one_line(java: Path, tmp_path: Path) -> None:
    (java / "bin" / "java").write_text("#!/bin/sh\necho ':: org.example#thing;1.0: not found'\nexit 1\n")
    with pytest.raises(UnavailableError, match="not found"):
        artifacts.fetch(THING, tmp_path / "cache", environ(java))
    assert leftovers(tmp_path / "cache") == []


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"PATH": "/nowhere"}, "Java 8 or newer is needed, and there is none on the PATH (install a JDK)"),
        ({}, "Java 8 or newer is needed, and there is none on the PATH (install a JDK)"),
        ({"JAVA_HOME": "/nowhere"}, "Java 8 or newer is needed, and there is none in JAVA_HOME (install a JDK)"),
    ],
)
def test_no_java_is_one_sentence(tmp_path: Path, variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        artifacts.fetch(THING, tmp_path, variables)
    assert str(caught.value) == sentence


def test_no_pyspark_is_one_sentence(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "find_spec", lambda _: None)
    with pytest.raises(UnavailableError, match="the Ivy inside PySpark, which is not installed"):
        artifacts.fetch(THING, tmp_path, environ(java))


def test_java_is_found_by_home_first_and_must_be_new_enough(java: Path) -> None:
    assert artifacts.find_java(17, environ(java)) == java / "bin" / "java"
    assert artifacts.find_java(17, {"PATH": str(java / "bin")}) == java / "bin" / "java"
    with pytest.raises(UnavailableError, match="Java 21 or newer is needed, and the one in JAVA_HOME is 17"):
        artifacts.find_java(21, environ(java))


@pytest.mark.parametrize(("said", "enough"), [("1.8.0_402", False), ("11.0.2", False), ("17.0.1", True), ("21", True)])
def test_java_without_a_release_file_is_asked(java: Path, said: str, enough: bool) -> None:
    (java / "release").unlink()
    (java / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{said}\" 2025' >&2\n")
    if enough:
        artifacts.find_java(17, environ(java))
    else:
        with pytest.raises(UnavailableError):
            artifacts.find_java(17, environ(java))


def test_the_pins_are_whole() -> None:
    for artifact in artifacts.ALL:
        assert len(bytes.fromhex(artifact.sha256)) == 32
    assert str(artifacts.NESSIE) == "org.projectnessie.nessie:nessie-quarkus:0.99.0:runner"
    assert artifacts.NESSIE.file_name == "nessie-quarkus-0.99.0-runner.jar"
