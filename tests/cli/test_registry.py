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


def test_validate_tells_of_a_region_whose_files_no_rule_covers(run: Run, rules: Callable[[str], Path]) -> None:
    """It may be meant so: nobody writes there. But then it is not forgotten."""
    lonely = rules(RULES.replace('sources: ["s3://us/", "s3://eu/"]', 'sources: ["s3://us/"]'))
    told = run("registry", "validate", lonely)
    assert told.code == 0
    assert "note: no source covers s3://eu/: what is written in eu-central stays there\n" in told.out
    assert run("registry", "validate", lonely, "--json").json()["uncovered"] == ["eu-central"]
    assert run("registry", "validate", rules(RULES), "--json").json()["uncovered"] == []
    by_override = rules(RULES.replace('"s3://eu/"]', '"s3://eu/lake/"]').replace("gs://cold/", "s3://us/"))
    assert run("registry", "validate", by_override, "--json").json()["uncovered"] == ["eu-central"]


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
    assert "s3://us/\nthey go to the region that asks\n" in shown.out
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


def test_show_tells_where_sources_go(run: Run, lake: Path, rules: Callable[[str], Path]) -> None:
    policy = "dest_policy: {mode: specific_region, region: us-east, ensure_local_prefix: false}\n"
    run("registry", "publish", lake, rules(RULES + policy))
    assert "s3://us/\nthey go to us-east, and need not be local to be read\n" in run("registry", "show", lake).out


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


def test_a_history_is_shown_as_far_as_it_can_be_read(run: Run, lake: Path, rules: Callable[[str], Path]) -> None:
    for reason in ("a", "b", "c"):
        run("registry", "publish", lake, rules(RULES.replace("cheaper there", reason)))
    damaged = lake / "_headwater" / "registry" / "v2" / "registry-1.json"
    damaged.write_bytes(b"rubbish")
    shown = run("registry", "show", lake, "--history")
    assert [line.split()[0] for line in shown.out.splitlines()[1:]] == ["3", "2"]
    assert shown.code == 1
    assert "registry-1.json does not have the checksum" in shown.err
    listed = run("registry", "show", lake, "--history", "--json")
    assert [each["generation"] for each in json.loads(listed.out)] == [3, 2]
    assert error(listed)["path"] == damaged.as_uri()
    assert run("registry", "show", lake).code == 0


def test_a_folder_behind_a_link_is_refused_with_its_name(run: Run, lake: Path, tmp_path: Path) -> None:
    """Tables name their files by where they are, and then no rule would cover them."""
    (tmp_path / "real" / "eu").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    prefix = f"{(tmp_path / 'link' / 'eu').as_uri()}/"
    real = f"{(tmp_path / 'real' / 'eu').resolve().as_uri()}/"
    text = f"version: 2\nregions:\n  eu: {{local_prefix: '{prefix}'}}\nsources: ['{prefix}']\n"
    (tmp_path / "linked.yaml").write_text(text)
    told = run("registry", "publish", lake, tmp_path / "linked.yaml")
    assert told.code == 2
    assert told.err == f"error: {prefix} leads through a link to {real}\n  way out: write {real}\n"
    assert run("registry", "show", lake, "--history").out == "nothing was published here\n"
    (tmp_path / "real.yaml").write_text(text.replace(prefix, real))
    assert run("registry", "publish", lake, tmp_path / "real.yaml").code == 0


@pytest.mark.parametrize(
    ("text", "told", "way_out"),
    [
        ("version: 2\nregions:\n\tus: {}\n", "line 3: not YAML: found character '\\t'", "indent with spaces"),
        ("version: 2\nregions: {us: \n", "line 3: not YAML", "look at this line, and above it"),
        ("hello\n", "line 1: it must have fields", "fields are version, regions, sources"),
        ("version: 2\nregions: {}\nsources: [s3://a/]\n", "line 2: regions: it must name at least one", "`us-east:`"),
    ],
)
def test_bad_files_are_told_with_line_and_way_out_and_change_nothing(
    run: Run, lake: Path, rules: Callable[[str], Path], text: str, told: str, way_out: str
) -> None:
    file = rules(text)
    for command in (("validate", file), ("publish", lake, file)):
        found = run("registry", *command)
        assert found.code == 2
        assert f"error: {file}: {told}" in found.err
        assert f"way out: {way_out}" in found.err
    assert not (lake / "_headwater" / "registry").exists()


def test_a_file_that_is_none(run: Run, lake: Path, tmp_path: Path) -> None:
    for name, told in ((tmp_path / "none.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        for command in (("validate", name), ("publish", lake, name)):
            found = run("registry", *command)
            assert (found.code, found.out) == (2, "")
            assert f"error: {name} cannot be read: {told}\n  way out: name a YAML file" in found.err


def test_where_no_registry_is_the_place_is_named(run: Run, lake: Path) -> None:
    place = f"{lake.as_uri()}/_headwater"
    for command in (
        ("registry", "show", lake),
        ("registry", "rollback", lake, "1"),
        ("registry", "resolve", lake, "s3://us/x", "--region", "us"),
        ("sync", "run", lake, "--region", "us"),
        ("sync", "status", lake, "--region", "us"),
        ("sync", "check", lake, "--region", "us"),
        ("route", lake, "--region", "us"),
        ("connect", lake, "--region", "us", "--engine", "spark"),
        ("bootstrap", lake, "--region", "us", "--from-loaded-data"),
        ("mutate", lake, "DELETE FROM t", "--region", "us"),
    ):
        found = run(*command)
        assert (found.code, found.out) == (2, ""), command
        assert f"error: no registry was published in {place}\n  way out: `headwater registry publish FILE`" in found.err


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
