"""Resolution: where each file has its place in a region. Pure, and an index: its cost does not grow with the rules.

The order of rules: already local, then the longest override, then the longest source. Prefixes end in a slash, so
that one which fits is aligned to segments: `data/` never takes `data-archive/`. The parts of a URI, from its deepest
folder up, are looked up in a dictionary of prefixes.

What the rules promise:

    1  A file in the region that asks stays where it is.
    2  Under an override all regions agree on the place, but for the one that has the original (1): also of files that
       lie in `to_region` already, which stay there under their own name. Otherwise a region would wait for a copy
       that `to_region`, where the file is local, never makes.
    3  Nothing is sent into the reserved folder of a local prefix, where sync keeps what it writes itself (hazard R5).
    4  With `ensure_local_prefix`, a source leads nowhere but into the region that asks.
    5  A URI that no rule covers is an error: nobody guesses.

Two files may have one destination: `s3://us/x` and `s3://eu/x` do. Prefixes alone cannot tell whether they will, so
each run checks its own files (`collide.py`, hazard R6).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from headwater.regions.errors import MisplacedError, NoRuleError
from headwater.regions.registry.codec import canonical_bytes
from headwater.regions.registry.model import RESERVED_FOLDER, Mode, Region, Registry
from headwater.regions.resolve.model import Resolution, Rule, RuleKind
from headwater.regions.uris import CUT, canonical, canonical_prefix


class Resolver:
    """The rules of one registry, seen from one region. Immutable, and cheap to make: a piece of work keeps its own."""

    def __init__(self, registry: Registry, region: str) -> None:
        self.registry = registry
        self.region: Region = registry.region(region)
        self._local = self.region.local_prefix
        self._local_rule = Rule(RuleKind.LOCAL, self._local, self._local, region)
        self._overrides = _Prefixes(
            {
                each.match_from: _rule(RuleKind.OVERRIDE, each.match_from, registry.region(each.to_region))
                for each in registry.overrides
            }
        )
        policy = registry.dest_policy
        home = self.region if policy.mode is Mode.CURRENT_REGION else registry.region(str(policy.region))
        self._sources = _Prefixes({each: _rule(RuleKind.SOURCE, each, home) for each in registry.sources})
        self.may_leave = not policy.ensure_local_prefix or home is self.region
        """Whether files of a source may have their place where this registry sends them."""
        rules = [self._local_rule, *self._overrides.rules, *self._sources.rules]
        asked = [[each.kind, each.prefix, each.target] for each in rules]
        self.digest = hashlib.sha256(canonical_bytes([asked, self.may_leave])).hexdigest()
        """Of the rules as this region sees them, and nothing else: resolvers of one digest answer alike."""

    def resolve(self, uri: str) -> Resolution:
        """Where the file at `uri` has its place; an error names the file, and the rule if one was found."""
        source = canonical(uri)
        rule = self._rule_of(source)
        destination = self._place(source, rule)
        return Resolution(source, destination, rule.region, self.region.name, rule)

    def destination(self, uri: str) -> str:
        """The same, without the reason: the URI under which the region reads the file."""
        source = canonical(uri)
        return self._place(source, self._rule_of(source))

    def folder(self, uri: str) -> str:
        """The place of a folder, such as a table's location; without a slash at its end, however it was given."""
        source = canonical_prefix(uri)
        return self._place(source, self._rule_of(source), is_folder=True).removesuffix("/")

    def _rule_of(self, source: str) -> Rule:
        if source.startswith(self._local):
            return self._local_rule
        rule = self._overrides.longest(source) or self._sources.longest(source)
        if rule is None:
            raise NoRuleError(source, self.region.name)
        return rule

    def _place(self, source: str, rule: Rule, *, is_folder: bool = False) -> str:
        if source.startswith(rule.target):
            destination = source  # it is at home there already
        else:
            rest = source[len(rule.prefix) :]
            destination = rule.target + rest
            if rest.startswith(RESERVED_FOLDER):
                raise MisplacedError(
                    source,
                    destination,
                    str(rule),
                    f"nothing is copied into {RESERVED_FOLDER}",
                    hint="a table's files do not belong under that name: rename the folder at its source",
                )
            if not is_folder and source.startswith("file:") and not destination.startswith("file:"):
                _refuse_cut(source, destination, rule)
        if rule.kind is RuleKind.SOURCE and not self.may_leave:
            raise MisplacedError(
                source,
                destination,
                str(rule),
                f"that is not under the local prefix {self._local} of {self.region.name}",
                hint="ensure_local_prefix forbids it: run this in the region that dest_policy names",
            )
        return destination


@dataclass(frozen=True)
class Replica:
    """One region's copy of a file: where it is, and whether that is the original."""

    region: str
    uri: str
    is_original: bool


class Replicas:
    """Where every region has its copy of a file, the original among them."""

    def __init__(self, registry: Registry) -> None:
        self._resolvers = [Resolver(registry, name) for name in registry.region_names]

    def of(self, uri: str) -> tuple[Replica, ...]:
        """One entry for each place, by the name of its region; an override's only place stands there once."""
        source = canonical(uri)
        found: dict[str, Replica] = {}
        for resolver in self._resolvers:
            try:
                resolution = resolver.resolve(source)
            except MisplacedError:
                if resolver.may_leave:
                    raise
                continue  # by `ensure_local_prefix`: it has none
            found[resolution.destination] = Replica(resolution.region, resolution.destination, resolution.is_local)
        return tuple(sorted(found.values(), key=lambda each: each.region))

    def elsewhere(self, uri: str) -> tuple[str, ...]:
        """The other URIs that may hold the same bytes, the original first; for a file that is gone where it was."""
        source = canonical(uri)
        others = [each for each in self.of(source) if each.uri != source]
        return tuple(each.uri for each in sorted(others, key=lambda each: not each.is_original))


class _Prefixes:
    """Rules by their prefix, found by the parts of a URI."""

    def __init__(self, rules: dict[str, Rule]) -> None:
        self._rules = rules
        self.rules = tuple(rules[prefix] for prefix in sorted(rules))
        self._longest = max(map(len, rules), default=0)

    def longest(self, uri: str) -> Rule | None:
        # What is longer than every prefix need not be looked up.
        end = uri.rfind("/", 0, self._longest)
        rules = self._rules
        while end > 0:
            found = rules.get(uri[: end + 1])
            if found is not None:
                return found
            end = uri.rfind("/", 0, end)
        return None


def _rule(kind: RuleKind, prefix: str, home: Region) -> Rule:
    return Rule(kind, prefix, home.local_prefix, home.name)


def _refuse_cut(source: str, destination: str, rule: Rule) -> None:
    if CUT.search(destination):
        raise MisplacedError(
            source,
            destination,
            str(rule),
            "in a bucket, Iceberg's readers would cut its name at ? or #",
            hint="rename the file, or keep its folder where it is by an override",
        )
