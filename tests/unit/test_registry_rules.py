"""The registry's rules: what a person may write, the line of each mistake, and the canonical bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from headwater.kernel.errors import UsageError
from headwater.regions.errors import InvalidUriError, RegistryInvalidError, UnknownRegionError
from headwater.regions.registry import (
    DestPolicy,
    Mode,
    Override,
    Region,
    Registry,
    digest_of,
    load_registry,
    parse_registry,
)
from headwater.regions.registry.codec import canonical_bytes, from_json, to_values
from headwater.regions.uris import canonical, canonical_prefix

pytestmark = pytest.mark.proves("regions/registry")

# Every line counts here: the tests name them.
GOOD = """\
version: 2
regions:
  us-east:
    local_prefix: "s3://us/"
    rclone_remote: us-prod
    write_role_arn: "arn:aws:iam::123:role/us-writer"
  eu-central:
    local_prefix: s3a://eu/lake
    branch: replicas/eu
sources:
  - s3://us/
  - s3://eu/lake/
  - gs://old/
dest_policy:
  mode: current_region
  ensure_local_prefix: true
overrides:
  - match_from: gs://cold-archive
    to_region: us-east
    reason: cheaper there
"""


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def test_what_the_file_says() -> None:
    assert parse_registry(GOOD) == Registry(
        (
            Region("us-east", "s3://us/", "main_replica_us-east", "us-prod", "arn:aws:iam::123:role/us-writer"),
            Region("eu-central", "s3://eu/lake/", "replicas/eu"),
        ),
        ("s3://us/", "s3://eu/lake/", "gs://old/"),
        DestPolicy(Mode.CURRENT_REGION, None, ensure_local_prefix=True),
        (Override("gs://cold-archive/", "us-east", "cheaper there"),),
    )


def test_a_region_knows_its_places() -> None:
    registry = parse_registry(GOOD)
    eu = registry.region("eu-central")
    assert eu.outputs_prefix == "s3://eu/lake/_headwater/localised/"
    assert eu.outputs_prefix.startswith(eu.reserved_prefix)
    assert registry.home_of("s3://eu/lake/x") == eu
    assert registry.home_of("s3://eu/lakes/x") is None
    with pytest.raises(UnknownRegionError, match="no region 'mars'"):
        registry.region("mars")


def test_the_order_of_the_file_does_not_matter() -> None:
    shuffled = yaml.safe_load(GOOD)
    shuffled["sources"].reverse()
    shuffled["regions"] = dict(reversed(shuffled["regions"].items()))
    other = parse_registry(yaml.safe_dump(shuffled))
    assert other == parse_registry(GOOD)
    assert digest_of(other) == digest_of(parse_registry(GOOD))
    assert digest_of(parse_registry(changed("cheaper", "dearer"))) != digest_of(other)


def test_json_says_the_same_as_yaml() -> None:
    registry = parse_registry(GOOD)
    values = to_values(registry)
    assert from_json(values, "x") == registry
    assert canonical_bytes(values) == canonical_bytes(to_values(from_json(values, "x")))
    assert yaml.safe_load(canonical_bytes(values)) == values
    with pytest.raises(RegistryInvalidError, match=r"sources\[0\]: a has no slash"):
        from_json({**values, "sources": ["a"]}, "x")


def test_little_is_needed() -> None:
    registry = parse_registry("{version: 2, regions: {a: {local_prefix: /data/a}}, sources: ['file:/data/']}")
    assert registry.regions == (Region("a", "file:///data/a/", "main_replica_a"),)
    assert registry.sources == ("file:///data/",)
    assert registry.dest_policy == DestPolicy()


MISTAKES = [
    # form
    ("version: 2\n", "version: 2\nversion: 2\n", 2, "version", "on line 1"),
    ("rclone_remote: us-prod\n", "rclone_remote: a\n    rclone_remote: b\n", 6, "us-east.rclone_remote", "line 5"),
    ("sources:", "source:", 10, "source", "not known"),
    ("    branch: replicas/eu", "    brunch: replicas/eu", 9, "regions.eu-central.brunch", "not known"),
    ("  eu-central:", "  no:", 7, "regions", "the key no is not text"),
    ("version: 2", "version: 3", 1, "version", "3 is not 2"),
    ("version: 2", "version: 1e3", 1, "version", "'1e3' is not 2"),
    ("version: 2", "version: 2026-01-01", 1, "version", "read as timestamp"),
    ("  mode: current_region", "  mode: [current_region", 16, "", "not YAML"),
    ("  us-east:", "\tus-east:", 3, "", "'\\t' that cannot start"),
    ("regions:\n", "regions: &r\n  x: *r\n", 2, "regions.x", "by an alias"),
    # regions
    ("  eu-central:", "  eu central:", 7, "regions.eu central", "cannot name a region"),
    ('    local_prefix: "s3://us/"\n', "", 4, "regions.us-east.local_prefix", "missing"),
    ("s3a://eu/lake\n", "s3a://us/lake\n", 8, "regions.eu-central.local_prefix", "overlaps s3://us/ of us-east"),
    ("s3a://eu/lake\n", "s3n://us\n", 8, "regions.eu-central.local_prefix", "overlaps s3://us/ of us-east"),
    ("s3a://eu/lake\n", "hdfs://eu/lake\n", 8, "regions.eu-central.local_prefix", "scheme hdfs is unknown"),
    ("s3a://eu/lake\n", "s3:///lake\n", 8, "regions.eu-central.local_prefix", "names no bucket"),
    ("s3a://eu/lake\n", "file:///\n", 8, "regions.eu-central.local_prefix", "names no folder"),
    ("s3a://eu/lake\n", "file:///a%20b\n", 8, "regions.eu-central.local_prefix", "percent sign"),
    ("s3a://eu/lake\n", "s3://eu/../us\n", 8, "regions.eu-central.local_prefix", "segment '..'"),
    ("s3a://eu/lake\n", "s3://eu//lake\n", 8, "regions.eu-central.local_prefix", "empty segment"),
    ("s3a://eu/lake\n", "7\n", 8, "regions.eu-central.local_prefix", "it must be text"),
    ("    branch: replicas/eu", "    branch: main", 9, "regions.eu-central.branch", "cannot be its branch"),
    ("    branch: replicas/eu", "    branch: deadbeef", 9, "regions.eu-central.branch", "cannot be its branch"),
    ("    branch: replicas/eu", "    branch: a..b", 9, "regions.eu-central.branch", "cannot be its branch"),
    ("    branch: replicas/eu", "    branch: main_replica_us-east", 9, "regions.eu-central.branch", "us-east's"),
    # sources
    ("  - gs://old/", "  - gs://old", 13, "sources[2]", "no slash at its end"),
    ("  - gs://old/", "  - s3n://us/", 13, "sources[2]", "on line 11"),
    ("  - gs://old/", "  - {a: b}", 13, "sources[2]", "as text"),
    ("  - gs://old/", "  - ftp://old/", 13, "sources[2]", "scheme ftp is unknown"),
    ("  - s3://us/\n  - s3://eu/lake/\n  - gs://old/\n", "  []\n", 11, "sources", "at least one"),
    # where they go
    ("current_region", "everywhere", 15, "dest_policy.mode", "no mode 'everywhere'"),
    ("current_region", "specific_region", 15, "dest_policy.region", "needs a region"),
    ("current_region", "specific_region\n  region: us", 16, "dest_policy.region", "no region 'us'"),
    ("current_region", "current_region\n  region: us-east", 16, "dest_policy.region", "only specific_region"),
    ("ensure_local_prefix: true", "ensure_local_prefix: 1", 16, "dest_policy.ensure_local_prefix", "true or false"),
    # overrides
    ("to_region: us-east", "to_region: us-eas", 19, "overrides[0].to_region", "no region 'us-eas'"),
    ("    reason: cheaper there\n", "", 18, "overrides[0].reason", "missing"),
    ("reason: cheaper there", "reason: ''", 20, "overrides[0].reason", "not empty"),
    ("gs://cold-archive", "s3://eu/", 18, "overrides[0].match_from", "takes all of eu-central"),
    ("gs://cold-archive", "s3://eu/lake", 18, "overrides[0].match_from", "takes all of eu-central"),
    (
        "    reason: cheaper there\n",
        "    reason: a\n  - {match_from: gs://cold-archive/, to_region: eu-central, reason: b}\n",
        21,
        "overrides[1].match_from",
        "on line 18",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "at", "message"), MISTAKES)
def test_each_mistake_is_told_with_its_line(old: str, new: str, line: int, at: str, message: str) -> None:
    with pytest.raises(RegistryInvalidError) as caught:
        parse_registry(changed(old, new), "registry.yaml")
    found = [each for each in caught.value.mistakes if each.line == line and each.at.endswith(at)]
    assert found, caught.value.mistakes
    assert message in found[0].message
    assert caught.value.message.startswith("registry.yaml: ")
    assert caught.value.exit_code == 2


def test_a_tab_is_told_with_the_way_out() -> None:
    with pytest.raises(RegistryInvalidError, match="line 3") as caught:
        parse_registry(changed("  us-east:", "\tus-east:"))
    assert caught.value.hint == "indent with spaces: YAML takes no tabs there"


def test_all_mistakes_are_told_at_once_in_order() -> None:
    text = changed("to_region: us-east", "to_region: mars").replace("  - gs://old/", "  - gs://old")
    with pytest.raises(RegistryInvalidError) as caught:
        parse_registry(text.replace("version: 2", "version: 9"), "r")
    assert [each.line for each in caught.value.mistakes] == [1, 13, 19]
    assert "3 mistakes" in caught.value.message
    assert "line 13: sources[2]: gs://old has no slash at its end (write gs://old/)" in caught.value.message


def test_an_override_may_take_a_whole_region_where_local_files_are_not_promised() -> None:
    text = changed("gs://cold-archive", "s3://eu/lake").replace("prefix: true", "prefix: false")
    assert parse_registry(text).overrides == (Override("s3://eu/lake/", "us-east", "cheaper there"),)


def test_an_override_may_keep_a_region_s_own_files_at_home() -> None:
    assert parse_registry(changed("gs://cold-archive", "s3://us")).overrides[0].match_from == "s3://us/"


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "7\n", "a: b\n---\nc: d\n", "\t", "a: !!python/none x\n"])
def test_what_is_no_registry_is_refused(text: str) -> None:
    with pytest.raises(RegistryInvalidError):
        parse_registry(text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load_registry(tmp_path / "missing.yaml")
    with pytest.raises(UsageError, match="cannot be read: Is a directory") as caught:
        load_registry(tmp_path)
    assert caught.value.hint == "name a YAML file that you may read"
    (tmp_path / "bytes.yaml").write_bytes(b"version: \xff\n")
    with pytest.raises(UsageError, match="not UTF-8: byte 9"):
        load_registry(tmp_path / "bytes.yaml")
    (tmp_path / "control.yaml").write_text("version: \x07\n")
    with pytest.raises(RegistryInvalidError, match="not YAML"):
        load_registry(tmp_path / "control.yaml")


def test_a_tower_of_brackets_is_refused() -> None:
    with pytest.raises(RegistryInvalidError, match="nested too deeply"):
        parse_registry("[" * 5_000)


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("s3://b/x", "s3://b/x"),
        ("s3a://b/x", "s3://b/x"),
        ("S3N://b/x", "s3://b/x"),
        ("gs://b/a b/ü=%2F%20.parquet", "gs://b/a b/ü=%2F%20.parquet"),
        ("s3://b/..x/x../...", "s3://b/..x/x../..."),
        ("/a/b", "file:///a/b"),
        ("file:/a/b", "file:///a/b"),
        ("file:///a/b", "file:///a/b"),
        ("file://localhost/a/b", "file:///a/b"),
        ("file:///a//b", "file:///a/b"),
        ("//a/b", "file:///a/b"),
        ("file:///a#b?c", "file:///a#b?c"),
    ],
)
def test_one_spelling(given: str, spelled: str) -> None:
    assert canonical(given) == spelled
    assert canonical(spelled) == spelled
    assert canonical_prefix(given) == f"{spelled}/"
    assert canonical_prefix(f"{spelled}/") == f"{spelled}/"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("", "empty"),
        ("x/y", "no scheme"),
        ("hdfs://n/x", "scheme hdfs is unknown"),
        ("s3:/b/x", "no bucket"),
        ("s3:///x", "no bucket"),
        ("s3://user@b/x", "no bucket"),
        ("s3://b", "names no file"),
        ("s3://b/", "names no file"),
        ("s3://b/x/", "names a folder"),
        ("s3://b//x", "empty segment"),
        ("s3://b/x//y", "empty segment"),
        ("s3://b/x/../y", "'..'"),
        ("s3://b/x/%2e%2E/y", "'%2e%2E'"),
        ("s3://b/./y", "'.'"),
        ("s3://b/x/..", "'..'"),
        ("file:///a/../b", "'..'"),
        ("file://host/a", "no host"),
        ("file:a", "no host"),
        ("s3://b/x?y", "cut it"),
        ("gs://b/x#y", "cut it"),
        ("s3://b/x\n", "control"),
        ("s3://b/\ud800", "control"),
        ("s3://b/.hw-x", "reserved"),
        ("s3://b/" + "x" * 1025, "longer than"),
        ("s3://b/" + "ü" * 600, "longer than"),
    ],
)
def test_what_cannot_name_a_file(uri: str, reason: str) -> None:
    with pytest.raises(InvalidUriError) as caught:
        canonical(uri)
    assert reason in caught.value.message
