"""The decisions of copying, row by row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from headwater.kernel.errors import RefusedError, UnavailableError, UsageError
from headwater.kernel.settings import S3Settings
from headwater.regions.registry.model import Region, Registry
from headwater.sync.copy.decide import RETRIED_ALONE, Next, is_worth_a_retry, legs, merged, next_step, roots, throughput
from headwater.sync.copy.elsewhere import Elsewhere
from headwater.sync.copy.model import CopyItem, Leg, Moved
from headwater.sync.copy.rclone import RcloneMover, RcloneOptions, _Said, find_rclone
from headwater.sync.copy.remotes import Remotes
from tests.unit.copy_world import REGISTRY

pytestmark = pytest.mark.proves("copying between regions")


@pytest.mark.parametrize(
    ("source", "destination", "prefixes", "expected"),
    [
        ("s3://us/a/b", "s3://eu/a/b", (), ("s3://us", "s3://eu", "a/b")),
        ("s3://us/a/b", "s3://eu/lake/a/b", (), ("s3://us", "s3://eu/lake", "a/b")),
        # A bucket's name is no part of a file's, also when both have the same.
        ("s3://one/a", "gs://one/a", (), ("s3://one", "gs://one", "a")),
        ("s3://us/lake/t/x", "s3://eu/lake/t/x", (), ("s3://us", "s3://eu", "lake/t/x")),
        # What leads to a store hangs on a region's prefix: the root does not end above it.
        ("s3://us/lake/t/x", "s3://eu/lake/t/x", ("s3://eu/lake/",), ("s3://us/lake", "s3://eu/lake", "t/x")),
        ("s3://us/lake/x", "s3://eu/lake/x", ("s3://us/", "s3://eu/lake/"), ("s3://us/lake", "s3://eu/lake", "x")),
        ("s3://us/p/x", "s3://eu/q/x", (), ("s3://us/p", "s3://eu/q", "x")),
        ("s3://us/p/x", "s3://eu/p/y", (), ("s3://us/p/x", "s3://eu/p/y", "")),
        ("file:///us/a/b", "file:///eu/a/b", (), ("file:///us", "file:///eu", "a/b")),
        ("file:///us/a", "s3://eu/us/a", (), ("file://", "s3://eu", "us/a")),
        ("file:///us/a", "s3://eu/us/a", ("file:///us/",), ("file:///us", "s3://eu/us", "a")),
        ("s3://us/x y/é #", "s3://eu/x y/é #", (), ("s3://us", "s3://eu", "x y/é #")),
    ],
)
def test_roots(source: str, destination: str, prefixes: tuple[str, ...], expected: tuple[str, str, str]) -> None:
    assert roots(source, destination, prefixes) == expected
    source_root, destination_root, name = expected
    if name:
        assert (f"{source_root}/{name}", f"{destination_root}/{name}") == (source, destination)


def item(source: str, destination: str, size_bytes: int = 1) -> CopyItem:
    return CopyItem(source, destination, size_bytes)


def test_legs_are_by_pairs_of_roots_and_hold_each_file_once() -> None:
    first, second = item("s3://us/a", "s3://eu/a"), item("s3://us/b/c", "s3://eu/b/c")
    other, renamed = item("s3://asia/a", "s3://eu/x/a"), item("s3://us/d", "s3://eu/e")
    local = item("s3://eu/there", "s3://eu/there")
    assert legs([first, other, second, first, renamed, local]) == (
        Leg("s3://us", "s3://eu", (("a", first), ("b/c", second))),
        Leg("s3://asia", "s3://eu/x", (("a", other),)),
        Leg("s3://us/d", "s3://eu/e", (("", renamed),)),
    )
    assert legs([]) == ()


PATHS = st.lists(st.sampled_from(["a", "b", "lake", "x y"]), min_size=1, max_size=5).map("/".join)


@given(st.lists(st.tuples(PATHS, PATHS), max_size=12, unique_by=lambda pair: pair[1]))
def test_legs_lose_no_file_and_add_none(pairs: list[tuple[str, str]]) -> None:
    items = [item(f"s3://us/{source}", f"s3://eu/{destination}") for source, destination in pairs]
    rebuilt = []
    for leg in legs(items, ("s3://eu/lake/", "s3://us/")):
        for name, each in leg.items:
            ends = [f"{root}/{name}" if name else root for root in (leg.source_root, leg.destination_root)]
            assert ends == [each.source, each.destination]
            if each.destination.startswith("s3://eu/lake/") and name:
                assert f"{leg.destination_root}/".startswith("s3://eu/lake/")
            rebuilt.append(each)
    assert sorted(rebuilt, key=repr) == sorted(items, key=repr)


@pytest.mark.hazard("R6")
def test_r6_two_files_with_one_destination_are_refused() -> None:
    with pytest.raises(RefusedError, match="s3://us/a and s3://asia/a have one destination, s3://eu/a") as caught:
        legs([item("s3://us/a", "s3://eu/a"), item("s3://asia/a", "s3://eu/a")])
    assert caught.value.fields["sources"] == ["s3://us/a", "s3://asia/a"]


@pytest.mark.parametrize(
    ("source_bytes", "destination_bytes", "is_local", "expected"),
    [
        (5, None, False, Next.ALONE),
        (7, None, False, Next.ALONE),  # the source has another size than was planned: verify says so
        (None, None, False, Next.ELSEWHERE),
        (5, 5, False, Next.THERE),
        (None, 5, False, Next.THERE),  # whoever brought it
        (5, 4, False, Next.OCCUPIED),
        (None, 4, False, Next.OCCUPIED),
        (5, 0, False, Next.OCCUPIED),
        (None, None, True, Next.ELSEWHERE),
        (5, None, True, Next.ELSEWHERE),
    ],
)
def test_what_is_done_about_a_file_that_did_not_arrive(
    source_bytes: int | None, destination_bytes: int | None, is_local: bool, expected: Next
) -> None:
    file = item("s3://eu/a" if is_local else "s3://us/a", "s3://eu/a", 5)
    assert next_step(file, source_bytes=source_bytes, destination_bytes=destination_bytes) is expected


def test_a_cause_that_is_not_in_the_files_is_not_retried_file_by_file() -> None:
    assert is_worth_a_retry(RETRIED_ALONE)
    assert not is_worth_a_retry(RETRIED_ALONE + 1)


@pytest.mark.parametrize(
    ("samples", "now", "expected"),
    [
        ([], 0.0, 0.0),
        ([(0.0, 0)], 0.0, 0.0),
        ([(0.0, 0), (10.0, 100)], 10.0, 10.0),
        ([(0.0, 0), (100.0, 1000), (130.0, 1600)], 130.0, 20.0),  # the first is too old
        ([(5.0, 0), (5.0, 100)], 5.0, 0.0),
        ([(0.0, 0), (10.0, 100)], 100.0, 0.0),
    ],
)
def test_throughput_is_of_the_last_minute(samples: list[tuple[float, int]], now: float, expected: float) -> None:
    assert throughput(samples, now) == pytest.approx(expected)


def test_merged() -> None:
    one = Moved(frozenset({"a"}), frozenset({"b"}), {"c": "why"}, 3)
    assert merged([one, Moved(copied=frozenset({"d"}), transferred_bytes=4)]) == Moved(
        frozenset({"a", "d"}), frozenset({"b"}), {"c": "why"}, 7
    )
    assert merged([]) == Moved()


SAID = [
    b'{"level":"error","msg":"Source and destination exist but do not match: immutable","object":"b"}',
    b'{"level":"info","msg":"Copied (new)","size":3,"object":"a"}',
    b'{"level":"info","msg":"Multi-thread Copied (new)","size":9,"object":"big"}',
    b'{"level":"info","msg":"Copied (new)","size":3,"object":"stranger"}',
    b'{"level":"notice","msg":"Transferred","stats":{"bytes":12,"errors":1,"speed":4.0}}',
    b"\n",
]


def heard(lines: list[bytes], progress: list[int] | None = None) -> _Said:
    said = _Said()
    for line in lines:
        said.hear(line, (progress if progress is not None else []).append)
    return said


def test_what_rclone_says_becomes_what_was_moved() -> None:
    progress: list[int] = []
    moved = heard(SAID, progress).moved(["a", "b", "big", "same", "gone"], ["same", "alien"], 0)
    assert moved == Moved(
        frozenset({"a", "big"}),
        frozenset({"same"}),
        {"b": "Source and destination exist but do not match: immutable"},
        12,
    )
    assert progress == [12]


def test_after_a_failure_silence_is_no_proof_that_a_file_is_gone() -> None:
    moved = heard(SAID).moved(["a", "gone"], [], 1)
    assert moved.copied == {"a"}
    assert moved.failed == {"gone": "Source and destination exist but do not match: immutable"}
    crashed = heard([b"panic: out of memory\n"]).moved(["a"], [], 2)
    assert crashed.failed == {"a": "panic: out of memory"}
    assert heard([]).moved(["a"], [], 7).failed == {"a": "rclone said nothing"}


@pytest.mark.parametrize(("failures", "copied", "expected"), [(9, 0, False), (10, 0, True), (10, 1, False)])
def test_a_store_that_is_out_of_reach_is_given_up(failures: int, copied: int, expected: bool) -> None:
    lines = [f'{{"level":"error","msg":"connection refused","object":"{n}"}}'.encode() for n in range(failures)]
    lines += [b'{"level":"info","msg":"Copied (new)","object":"a"}'] * copied
    assert heard(lines).is_hopeless is expected


@pytest.mark.parametrize(
    ("lines", "matching", "expected"),
    [
        ([b'{"level":"info","msg":"Copied (new) to: y","object":"x"}'], [], Moved(copied=frozenset({""}))),
        ([], ["y"], Moved(present=frozenset({""}))),
        ([], [], Moved()),
        ([b'{"level":"error","msg":"Failed to copy: no","object":"x"}'], [], Moved(failed={"": "Failed to copy: no"})),
    ],
)
def test_of_a_single_file_rclone_speaks_by_another_name(
    lines: list[bytes], matching: list[str], expected: Moved
) -> None:
    assert heard(lines).moved([""], matching, 0) == expected


def test_remotes_are_chosen_by_the_longest_prefix() -> None:
    remotes = Remotes({"s3://eu/": "eu", "s3://eu/lake/": "lake", "gs://cold/": "cold"})
    assert remotes.path("s3://eu/x y") == "eu:eu/x y"
    assert remotes.path("s3://eu/lake") == "lake:eu/lake"
    assert remotes.path("s3://eu/lake/a") == "lake:eu/lake/a"
    assert remotes.path("s3://eu/lakes") == "eu:eu/lakes"
    assert remotes.path("s3://other/a") == "headwater-s3:other/a"
    assert remotes.path("gs://cold") == "cold:cold"
    assert remotes.path("file:///a/b c") == "/a/b c"
    with pytest.raises(UsageError, match="ftp"):
        remotes.path("ftp://x/y")


def test_keys_are_in_the_environment_and_nowhere_else() -> None:
    s3 = S3Settings(endpoint="http://127.0.0.1:1", access_key_id="AK", secret_access_key=SecretStr("hush"))
    remotes = Remotes.of(REGISTRY, s3)
    assert remotes.environment["RCLONE_CONFIG_US-PROD_SECRET_ACCESS_KEY"] == "hush"
    assert remotes.environment["RCLONE_CONFIG_HEADWATER-S3_ENDPOINT"] == "http://127.0.0.1:1"
    assert "hush" not in repr(remotes)
    leg = Leg("s3://us", "s3://eu/lake", (("a", item("s3://us/a", "s3://eu/lake/a")),))
    mover = RcloneMover(RcloneOptions("rclone", bandwidth_bytes_per_second=5000), remotes, {})
    argv = mover._command(leg, is_single=False, replace=False)
    assert not any("hush" in word for word in argv)
    assert argv[:4] == ["rclone", "copy", "us-prod:us", "eu-prod:eu/lake"]
    assert "5000B" in argv
    # What is there is never overwritten, except by a copy that is made again.
    assert "--immutable" in argv
    assert "--immutable" not in mover._command(leg, is_single=False, replace=True)


def test_roles_are_for_the_real_aws_and_a_configuration_is_left_alone() -> None:
    region = Region("us", "s3://us/", "b", "us-prod", "arn:aws:iam::1:role/w")
    registry = Registry((region,), ("s3://us/",))
    on_aws = Remotes.of(registry, S3Settings())
    assert on_aws.environment["RCLONE_CONFIG_US-PROD_ROLE_ARN"] == "arn:aws:iam::1:role/w"
    assert on_aws.environment["RCLONE_CONFIG_US-PROD_ENV_AUTH"] == "true"
    other = Remotes.of(registry, S3Settings(endpoint="http://127.0.0.1:1"))
    assert "RCLONE_CONFIG_US-PROD_ROLE_ARN" not in other.environment
    configured = Remotes.of(registry, S3Settings(), configured=True)
    assert not any("US-PROD" in name for name in configured.environment)
    assert configured.path("s3://us/a") == "us-prod:us/a"


def test_rclone_that_is_not_there_is_named() -> None:
    with pytest.raises(UnavailableError, match="/no/such/rclone"):
        find_rclone("/no/such/rclone", {})


def test_a_file_may_be_in_every_region_under_the_same_name() -> None:
    elsewhere = Elsewhere(REGISTRY)
    assert elsewhere("s3://us/t/x") == ("s3://asia/t/x", "s3://eu/lake/t/x")
    assert elsewhere("s3://eu/lake/t/x") == ("s3://asia/t/x", "s3://us/t/x")
    assert elsewhere("s3://eu/other/x") == ()
