"""`headwater registry` as a person or a script meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_cli import Result, Run, run

__all__ = ["run"]  # the fixture

pytestmark = pytest.mark.proves("regions/registry")

RULES = """\
version: 2
regions:
  us-east: {local_prefix: "s3://us/"}
  eu-central: {local_prefix: "s3://eu/"}
sources: ["s3://us/", "s3://eu/"]
overrides:
  - {match_from: "gs://cold/", to_region: us-east, reason: cheaper there}
"""


@pytest.fixture
def lake(run: Run, tmp_path: Path) -> Path:
    assert run("init", tmp_path / "lake").code == 0
    return tmp_path / "lake"


@pytest.fixture
def rules(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str, name: str = "registry.yaml") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def error(result: Result) -> dict[str, object]:
    found: dict[str, object] = json.loads(result.err)
    return found


def test_validate(run: Run, rules: Callable[[str], Path]) -> None:
    result = run("registry", "validate", rules(RULES))
    assert result.code == 0
    assert "is valid: 2 regions, 2 sources, 1 override" in result.out
    assert "note: in us-east a run refuses files of one name under gs://cold/, s3://eu/, s3://us/" in result.out
    told = run("registry", "validate", rules(RULES), "--json").json()
    assert told["valid"] is True
    assert told["sharing"]["eu-central"] == ["s3://eu/", "s3://us/"]
    assert told["registry"]["regions"]["us-east"]["branch"] == "main_replica_us-east"


def test_validate_tells_every_mistake_with_its_line(run: Run, rules: Callable[[str], Path]) -> None:
    file = rules(RULES.replace('"s3://eu/"]', '"s3://eu"]').replace("to_region: us-east", "to_region: us-eas"))
    result = run("registry", "validate", file)
    assert result.code == 2
    assert f"error: {file}: 2 mistakes" in result.err
    assert "line 5: sources[1]: s3://eu has no slash at its end (write s3://eu/)" in result.err
    assert "line 7: overrides[0].to_region: there is no region 'us-eas' (did you mean us-east?)" in result.err
    told = error(run("registry", "validate", file, "--json"))
    assert [each["line"] for each in told["mistakes"]] == [5, 7]  # type: ignore[attr-defined]


def test_publish_show_rollback_resolve(run: Run, lake: Path, rules: Callable[[str], Path]) -> None:
    first = run("registry", "publish", lake, rules(RULES), "--json").json()
    assert (first["generation"], first["published"], first["restores"]) == (1, True, None)
    again = run("registry", "publish", lake, rules(RULES), "--json").json()
    assert (again["generation"], again["published"]) == (1, False)
    assert run("registry", "publish", lake, rules(RULES)).out == "generation 1 has these rules already\n"

    two = rules(RULES.replace("cheaper there", "nearer"))
    assert run("registry", "publish", lake, two).out.startswith("generation 2 is published, in force from ")
    assert run("registry", "show", lake, "--json").json()["registry"]["overrides"][0]["reason"] == "nearer"
    assert run("registry", "show", lake, "--generation", "1", "--json").json()["generation"] == 1

    assert run("registry", "rollback", lake, "1").out == "generation 3 is published, with the rules of 1\n"
    shown = run("registry", "show", lake)
    assert shown.out.startswith("generation 3, from ")
    assert "gs://cold/  us-east    cheaper there" in shown.out
    history = json.loads(run("registry", "show", lake, "--history", "--json").out)
    assert [(each["generation"], each["restores"]) for each in history] == [(3, 1), (2, None), (1, None)]
    assert "in force" in run("registry", "show", lake, "--history").out.splitlines()[1]

    result = run("registry", "resolve", lake, "s3a://us/x", "--region", "eu-central")
    assert (result.out, result.err) == ("s3://eu/x\n", "by source s3://us/ to eu-central\n")
    told = run("registry", "resolve", lake, "gs://cold/x", "--region", "eu-central", "--json").json()
    assert told == {
        "uri": "gs://cold/x",
        "source": "gs://cold/x",
        "destination": "s3://us/x",
        "region": "us-east",
        "rule": {"kind": "override", "prefix": "gs://cold/"},
        "is_local": False,
        "is_elsewhere": True,
        "must_copy": False,
        "generation": 3,
    }


def test_what_goes_wrong(run: Run, lake: Path, rules: Callable[[str], Path]) -> None:
    assert run("registry", "show", lake).code == 2
    assert run("registry", "show", lake, "--history").out == "nothing was published here\n"
    run("registry", "publish", lake, rules(RULES))
    conflict = run("registry", "publish", lake, rules(RULES), "--expect", "0")
    assert conflict.code == 3
    assert "generation 1 is the newest, not 0" in conflict.err
    assert run("registry", "rollback", lake, "1").code == 2
    assert "generation 7 was never in force" in run("registry", "rollback", lake, "7").err
    assert "'x' is not a generation" in run("registry", "rollback", lake, "x").err
    unknown = run("registry", "resolve", lake, "abfs://b/x", "--region", "us-east", "--json")
    assert unknown.code == 2
    assert error(unknown)["kind"] == "InvalidUri"
    assert "no rule of the registry covers" in run("registry", "resolve", lake, "s3://x/y", "--region", "us-east").err
    assert "no region 'mars'" in run("registry", "resolve", lake, "s3://us/y", "--region", "mars").err
    reserved = run("registry", "resolve", lake, "s3://us/_headwater/x", "--region", "eu-central")
    assert reserved.code == 4
    assert "is not a moment with its zone" in run("registry", "publish", lake, rules(RULES), "--valid-from", "now").err


def test_what_is_published_for_later_is_not_in_force(run: Run, lake: Path, rules: Callable[[str], Path]) -> None:
    run("registry", "publish", lake, rules(RULES))
    later = rules(RULES.replace("cheaper there", "nearer"))
    assert run("registry", "publish", lake, later, "--valid-from", "2100-01-01T00:00Z").code == 0
    assert run("registry", "show", lake, "--json").json()["generation"] == 1
    states = [line.split()[1] for line in run("registry", "show", lake, "--history").out.splitlines()[1:]]
    assert states == ["later", "in"]


def test_where_the_registry_is(
    run: Run, lake: Path, rules: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = rules(RULES)
    assert "is no lake" in run("registry", "publish", tmp_path / "nothing", file).err
    assert run("registry", "publish", file).code == 2, "neither a lake nor a registry"
    run("registry", "publish", lake, file)
    assert (lake / "_headwater" / "registry" / "current.json").is_file()
    monkeypatch.setenv("HEADWATER_LAKE", str(lake))
    assert run("registry", "show", "--json").json()["generation"] == 1
    monkeypatch.delenv("HEADWATER_LAKE")
    monkeypatch.setenv("HEADWATER_REGISTRY", str(tmp_path / "elsewhere"))
    assert run("registry", "publish", file).code == 0
    assert (tmp_path / "elsewhere" / "registry" / "v2" / "registry-1.json").is_file()
    assert run("registry", "resolve", "s3://us/x", "--region", "eu-central").out == "s3://eu/x\n"


def test_a_lake_on_nessie_keeps_it_in_its_warehouse(run: Run, rules: Callable[[str], Path], tmp_path: Path) -> None:
    lake = f"nessie+http://127.0.0.1:9/api/v2?warehouse={tmp_path}/warehouse"
    assert run("registry", "publish", lake, rules(RULES)).code == 0
    assert (tmp_path / "warehouse" / "_headwater" / "registry" / "current.json").is_file()
    assert run("registry", "show", lake, "--json").json()["generation"] == 1


def test_a_file_can_be_asked_before_it_is_published(run: Run, rules: Callable[[str], Path]) -> None:
    asked = run("registry", "resolve", "s3://us/x", "--region", "eu-central", "--file", rules(RULES))
    assert asked.out == "s3://eu/x\n"
