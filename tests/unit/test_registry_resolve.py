"""Resolution, against a model of lists that knows no strings, and the check that no two files collide."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.regions.errors import CollisionError, InvalidUriError, MisplacedError, NoRuleError, UnknownRegionError
from headwater.regions.registry import DestPolicy, Mode, Override, Region, Registry
from headwater.regions.resolve import Replica, Replicas, Resolver, RuleKind, check_injective, sharing

pytestmark = pytest.mark.proves("regions/resolve")

US, EU, ASIA = "us-east", "eu-central", "asia-south"
REGISTRY = Registry(
    (
        Region(US, "s3://us/", "main_replica_us-east"),
        Region(EU, "s3://eu/lake/", "main_replica_eu-central"),
        Region(ASIA, "gs://asia/", "main_replica_asia-south"),
    ),
    ("s3://us/", "s3://eu/lake/", "gs://asia/", "s3://old/data/", "s3://old/data/deep/er/", "file:///mnt/"),
    overrides=(
        Override("gs://cold/", US, "cheaper there"),
        Override("gs://cold/hot/", ASIA, "nearer"),
        Override("s3://eu/lake/personal/", EU, "may not leave"),
    ),
)


@pytest.mark.parametrize(
    ("region", "uri", "destination", "kind"),
    [
        # already local
        (US, "s3://us/a/b", "s3://us/a/b", RuleKind.LOCAL),
        (US, "s3n://us/a/b", "s3://us/a/b", RuleKind.LOCAL),
        (EU, "s3a://eu/lake/personal/b", "s3://eu/lake/personal/b", RuleKind.LOCAL),
        # by a source
        (EU, "s3://us/a/b", "s3://eu/lake/a/b", RuleKind.SOURCE),
        (US, "s3://eu/lake/a/b", "s3://us/a/b", RuleKind.SOURCE),
        (ASIA, "s3a://us/p=%2F/ü b", "gs://asia/p=%2F/ü b", RuleKind.SOURCE),
        (US, "file:/mnt/x", "s3://us/x", RuleKind.SOURCE),
        # the longest source
        (US, "s3://old/data/x", "s3://us/x", RuleKind.SOURCE),
        (US, "s3://old/data/deep/x", "s3://us/deep/x", RuleKind.SOURCE),
        (US, "s3://old/data/deep/er/x", "s3://us/x", RuleKind.SOURCE),
        (US, "s3://old/data/deep/ers/x", "s3://us/deep/ers/x", RuleKind.SOURCE),
        # by an override, from wherever it is asked
        (US, "gs://cold/a", "s3://us/a", RuleKind.OVERRIDE),
        (EU, "gs://cold/a", "s3://us/a", RuleKind.OVERRIDE),
        (EU, "gs://cold/hot/a", "gs://asia/a", RuleKind.OVERRIDE),
        # an override that keeps files where they are
        (US, "s3://eu/lake/personal/b", "s3://eu/lake/personal/b", RuleKind.OVERRIDE),
        (ASIA, "s3://eu/lake/personal/b", "s3://eu/lake/personal/b", RuleKind.OVERRIDE),
        (ASIA, "s3://eu/lake/personality/b", "gs://asia/personality/b", RuleKind.SOURCE),
    ],
)
def test_where_a_file_has_its_place(region: str, uri: str, destination: str, kind: RuleKind) -> None:
    resolver = Resolver(REGISTRY, region)
    found = resolver.resolve(uri)
    assert (found.destination, found.rule.kind) == (destination, kind)
    assert resolver.destination(uri) == destination
    assert found.asked_by == region
    assert REGISTRY.region(found.region).local_prefix == found.rule.target


@pytest.mark.parametrize(
    "uri", ["s3://old/x", "s3://old/database/x", "s3://old/data-archive/x", "s3://eu/lakes/x", "s3://eu/x", "gs://us/x"]
)
def test_a_uri_that_no_rule_covers_is_named(uri: str) -> None:
    with pytest.raises(NoRuleError, match="no rule of the registry covers") as caught:
        Resolver(REGISTRY, US).resolve(uri)
    assert caught.value.fields["uri"] == uri


def test_an_unknown_region_and_a_bad_uri_are_errors() -> None:
    with pytest.raises(UnknownRegionError):
        Resolver(REGISTRY, "mars")
    with pytest.raises(InvalidUriError):
        Resolver(REGISTRY, US).resolve("s3://eu/lake/../../us/x")


@pytest.mark.hazard("R8")
def test_r8_only_the_region_of_an_override_copies() -> None:
    here, there = (Resolver(REGISTRY, name).resolve("gs://cold/a") for name in (US, EU))
    assert (here.must_copy, here.is_elsewhere) == (True, False)
    assert (there.must_copy, there.is_elsewhere) == (False, True)
    kept = Resolver(REGISTRY, US).resolve("s3://eu/lake/personal/b")
    assert (kept.must_copy, kept.is_elsewhere, kept.is_local) == (False, True, True)


@pytest.mark.hazard("R8")
def test_r8_all_regions_agree_on_an_override_s_place() -> None:
    for uri in ("gs://cold/a", "gs://cold/hot/a", "s3://eu/lake/personal/b"):
        assert len({Resolver(REGISTRY, name).destination(uri) for name in REGISTRY.region_names}) == 1


@pytest.mark.hazard("R5")
def test_r5_nothing_is_copied_into_the_reserved_folder() -> None:
    for uri in ("s3://us/_headwater/localised/x", "gs://cold/_headwater/x"):
        with pytest.raises(MisplacedError, match="nothing is copied into _headwater/") as caught:
            Resolver(REGISTRY, EU if uri.startswith("s3") else US).resolve(uri)
        assert caught.value.exit_code == 4
    assert Resolver(REGISTRY, US).destination("s3://us/_headwater/localised/x") == "s3://us/_headwater/localised/x"
    assert Resolver(REGISTRY, EU).destination("s3://us/t/_headwater/x") == "s3://eu/lake/t/_headwater/x"


def test_specific_region() -> None:
    policy = DestPolicy(Mode.SPECIFIC_REGION, US, ensure_local_prefix=False)
    registry = replace(REGISTRY, dest_policy=policy)
    assert Resolver(registry, EU).resolve("s3://old/data/x").is_elsewhere
    assert Resolver(registry, EU).destination("s3://old/data/x") == "s3://us/x"
    assert Resolver(registry, EU).destination("s3://us/x") == "s3://us/x"
    assert Resolver(registry, EU).destination("s3://eu/lake/x") == "s3://eu/lake/x"


def test_a_source_that_would_leave_the_region_is_refused() -> None:
    registry = replace(REGISTRY, dest_policy=DestPolicy(Mode.SPECIFIC_REGION, US, ensure_local_prefix=True))
    with pytest.raises(MisplacedError, match="not under the local prefix s3://eu/lake/ of eu-central") as caught:
        Resolver(registry, EU).resolve("s3://old/data/x")
    assert caught.value.fields["rule"] == "source s3://old/data/ to us-east"
    assert Resolver(registry, US).destination("s3://old/data/x") == "s3://us/x"
    assert Resolver(registry, EU).destination("gs://cold/x") == "s3://us/x"  # an override may


def test_a_name_that_a_bucket_s_readers_would_cut_is_refused() -> None:
    with pytest.raises(MisplacedError, match=r"cut its name"):
        Resolver(REGISTRY, US).resolve("file:///mnt/a#b")
    folders = Registry((Region("a", "file:///a/", "ra"), Region("b", "file:///b/", "rb")), ("file:///a/",))
    assert Resolver(folders, "b").destination("file:///a/x#y") == "file:///b/x#y"


def test_folders() -> None:
    resolver = Resolver(REGISTRY, EU)
    assert resolver.folder("s3://us/wh/t") == resolver.folder("s3a://us/wh/t/") == "s3://eu/lake/wh/t"
    assert resolver.folder("s3://us") == "s3://eu/lake"
    assert resolver.folder("s3://eu/lake/t") == "s3://eu/lake/t"
    with pytest.raises(NoRuleError):
        resolver.folder("s3://eu")


def test_replicas() -> None:
    replicas = Replicas(REGISTRY)
    assert replicas.of("s3a://us/x") == (
        Replica(ASIA, "gs://asia/x", is_original=False),
        Replica(EU, "s3://eu/lake/x", is_original=False),
        Replica(US, "s3://us/x", is_original=True),
    )
    assert replicas.of("gs://cold/x") == (Replica(US, "s3://us/x", is_original=False),)
    assert replicas.elsewhere("gs://asia/x") == ("s3://eu/lake/x", "s3://us/x")
    assert replicas.elsewhere("gs://cold/x") == ("s3://us/x",)


def test_a_region_that_may_not_be_left_to_has_no_replica() -> None:
    registry = replace(REGISTRY, dest_policy=DestPolicy(Mode.SPECIFIC_REGION, US, ensure_local_prefix=True))
    assert [each.uri for each in Replicas(registry).of("s3://old/data/x")] == ["s3://us/x"]
    with pytest.raises(MisplacedError):
        Replicas(REGISTRY).of("s3://old/data/_headwater/x")


def test_a_resolver_travels_to_other_processes() -> None:
    resolver = Resolver(REGISTRY, EU)
    copy = pickle.loads(pickle.dumps(resolver))
    assert copy.digest == resolver.digest
    assert copy.resolve("s3://us/x") == resolver.resolve("s3://us/x")


def test_equal_digests_answer_alike() -> None:
    digest = Resolver(REGISTRY, US).digest
    renamed = replace(REGISTRY, overrides=tuple(replace(each, reason="x") for each in REGISTRY.overrides))
    assert Resolver(renamed, US).digest == digest
    assert Resolver(REGISTRY, EU).digest != digest
    assert Resolver(replace(REGISTRY, sources=(*REGISTRY.sources, "gs://b/")), US).digest != digest
    moved = replace(REGISTRY.overrides[0], to_region=ASIA)
    assert Resolver(replace(REGISTRY, overrides=(moved,)), US).digest != digest


@pytest.mark.hazard("R6")
@pytest.mark.parametrize(
    ("first", "second", "rules"),
    [
        ("s3://us/x", "s3://eu/lake/x", ["local_prefix s3://us/", "source s3://eu/lake/ to us-east"]),
        ("s3://old/data/x", "gs://cold/x", ["source s3://old/data/ to us-east", "override gs://cold/ to us-east"]),
        (
            "s3://old/data/x",
            "s3://old/data/deep/er/x",
            ["source s3://old/data/ to us-east", "source s3://old/data/deep/er/ to us-east"],
        ),
    ],
)
def test_r6_two_files_of_one_destination_are_refused(first: str, second: str, rules: list[str]) -> None:
    resolver = Resolver(REGISTRY, US)
    found = [resolver.resolve(uri) for uri in ("s3://us/other", first, second)]
    with pytest.raises(CollisionError, match="would both be s3://us/x") as caught:
        list(check_injective(found))
    assert caught.value.fields["rules"] == rules
    assert caught.value.exit_code == 4


@pytest.mark.hazard("R6")
def test_r6_one_file_by_two_spellings_is_one_file() -> None:
    resolver = Resolver(REGISTRY, US)
    found = [resolver.resolve(uri) for uri in ("s3://eu/lake/x", "s3a://eu/lake/x", "s3n://eu/lake/x")]
    assert list(check_injective(found)) == found


def test_which_rules_share_a_target() -> None:
    prefixes = ("file:///mnt/", "gs://asia/", "s3://eu/lake/", "s3://old/data/", "s3://old/data/deep/er/", "s3://us/")
    assert sharing(REGISTRY)[EU] == prefixes
    assert "gs://cold/" in sharing(REGISTRY)[US]
    assert "gs://cold/" not in sharing(REGISTRY)[ASIA]


# The model: a URI is a list of parts, and a prefix fits when it is the beginning of that list.

Parts = tuple[str, ...]
SEGMENTS = st.sampled_from(["x", "xx", "y", "x-y", "%2F"])
BUCKETS = st.sampled_from(["s3://b1", "s3://b2", "gs://b1"])
PREFIXES = st.tuples(BUCKETS, st.lists(SEGMENTS, max_size=3)).map(lambda found: (found[0], *found[1]))
URIS = st.tuples(BUCKETS, st.lists(SEGMENTS, min_size=1, max_size=5)).map(lambda found: (found[0], *found[1]))


def spelled(parts: Parts) -> str:
    return "/".join(parts)


def begins(parts: Parts, prefix: Parts) -> bool:
    return parts[: len(prefix)] == prefix


def holds(prefix: Parts, uri: Parts) -> bool:
    """A file of a folder's name is not in the folder."""
    return len(uri) > len(prefix) and begins(uri, prefix)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Parts], list[Parts], dict[Parts, str]]:
    """Local prefixes that do not overlap, sources, overrides."""
    local: dict[str, Parts] = {}
    for prefix in draw(st.lists(PREFIXES, min_size=1, max_size=4)):
        if not any(begins(prefix, other) or begins(other, prefix) for other in local.values()):
            local[f"r{len(local)}"] = prefix
    sources = draw(st.lists(PREFIXES, min_size=1, max_size=6, unique=True))
    overrides = draw(st.dictionaries(PREFIXES, st.sampled_from(sorted(local)), max_size=3))
    return local, sources, overrides


def expected(
    local: dict[str, Parts], sources: list[Parts], overrides: dict[Parts, str], at: str, uri: Parts
) -> Parts | None:
    if holds(local[at], uri):
        return uri
    fitting = [each for each in overrides if holds(each, uri)]
    target = local[overrides[max(fitting, key=len)]] if fitting else local[at]
    fitting = fitting or [each for each in sources if holds(each, uri)]
    if not fitting:
        return None
    return uri if holds(target, uri) else target + uri[len(max(fitting, key=len)) :]


def built(local: dict[str, Parts], sources: list[Parts], overrides: dict[Parts, str]) -> Registry:
    return Registry(
        tuple(Region(name, spelled(prefix) + "/", f"b{name}") for name, prefix in local.items()),
        tuple(spelled(each) + "/" for each in sources),
        overrides=tuple(Override(spelled(each) + "/", name, "why") for each, name in overrides.items()),
    )


@settings(max_examples=150)
@given(worlds(), st.lists(URIS, min_size=1, max_size=8), st.data())
def test_the_index_answers_like_the_model(
    world: tuple[dict[str, Parts], list[Parts], dict[Parts, str]], uris: list[Parts], data: st.DataObject
) -> None:
    local, _, _ = world
    region = data.draw(st.sampled_from(sorted(local)))
    resolver = Resolver(built(*world), region)
    for uri in uris:
        wanted = expected(*world, region, uri)
        if wanted is None:
            with pytest.raises(NoRuleError):
                resolver.resolve(spelled(uri))
            continue
        found = resolver.resolve(
            spelled(uri).replace("s3://", data.draw(st.sampled_from(["s3://", "s3a://", "s3n://"])))
        )
        assert found.destination == spelled(wanted)
        assert found.source == spelled(uri)
        if not found.is_elsewhere:
            assert found.destination.startswith(resolver.region.local_prefix)
            assert resolver.destination(found.destination) == found.destination


@settings(max_examples=100)
@given(worlds(), st.sets(URIS, min_size=2, max_size=12), st.data())
def test_r6_the_check_finds_every_collision(
    world: tuple[dict[str, Parts], list[Parts], dict[Parts, str]], uris: set[Parts], data: st.DataObject
) -> None:
    local, _, _ = world
    region = data.draw(st.sampled_from(sorted(local)))
    places = {uri: place for uri in sorted(uris) if (place := expected(*world, region, uri)) is not None}
    resolver = Resolver(built(*world), region)
    resolutions = [resolver.resolve(spelled(uri)) for uri in places]
    if len(set(places.values())) == len(places):
        assert list(check_injective(resolutions)) == resolutions
    else:
        with pytest.raises(CollisionError):
            list(check_injective(resolutions))


def test_the_cost_does_not_grow_with_the_rules() -> None:
    """An index, not a scan: fifty times the prefixes, at most twice the time."""

    def seconds(prefixes: int) -> float:
        sources = tuple(f"s3://lake-{number % 50}/wh/team-{number}/t/" for number in range(prefixes))
        resolver = Resolver(replace(REGISTRY, sources=sources), US)
        uris = [f"s3://lake-{n % prefixes % 50}/wh/team-{n % prefixes}/t/data/part-{n}.parquet" for n in range(5_000)]
        best = 1e9
        for _ in range(5):
            begun = time.perf_counter()
            for uri in uris:
                resolver.resolve(uri)
            best = min(best, time.perf_counter() - begun)
        return best

    assert seconds(1_000) < 2 * seconds(20) + 0.01
