"""From a document to a registry, or to all of its mistakes: pure.

    version        2
    regions        by name: local_prefix, and optional rclone_remote, write_role_arn, branch
    sources        prefixes in their one spelling, with a slash at the end
    dest_policy    optional: mode, region (of specific_region), ensure_local_prefix
    overrides      optional: match_from, to_region, reason

The rules among them: local prefixes do not overlap; no prefix stands twice, however it is spelled; branches differ;
regions that are named exist; and an override does not take the whole local prefix of another region while
`ensure_local_prefix` promises that what is read in a region lies in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

from headwater.regions.errors import InvalidUriError, Mistake, RegistryInvalidError
from headwater.regions.registry.document import Located, Mapped
from headwater.regions.registry.model import BRANCH_PREFIX, VERSION, DestPolicy, Mode, Override, Region, Registry
from headwater.regions.uris import canonical_prefix

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
# Nessie's grammar of refs, which the catalog holds to as well.
_BRANCH = re.compile(r"[A-Za-z](?:(?:(?!\.\.)[A-Za-z0-9./_-])*[A-Za-z0-9_-])?")
_HASH = re.compile(r"[0-9a-fA-F]{8,64}")
_TAKEN = ("main", "HEAD", "DETACHED", "BARE")
_LONGEST_BRANCH = 255
_TOP = ("version", "regions", "sources", "dest_policy", "overrides")
_REGION = ("local_prefix", "rclone_remote", "write_role_arn", "branch")
_POLICY = ("mode", "region", "ensure_local_prefix")
_OVERRIDE = ("match_from", "to_region", "reason")


def to_registry(document: Located, name: str) -> Registry:
    """The registry that the document describes; `RegistryInvalidError` with every mistake in it."""
    reading = _Reading()
    registry = reading.registry(document)
    if reading.mistakes:
        raise RegistryInvalidError(name, sorted(reading.mistakes, key=lambda each: each.line))
    return registry


@dataclass(frozen=True)
class _Spot:
    line: int
    at: str


@dataclass
class _Reading:
    mistakes: list[Mistake] = field(default_factory=list)

    def registry(self, document: Located) -> Registry:
        top = self._mapping(document, "", _TOP, needed=("version", "regions", "sources"))
        version = top.values.get("version")
        if version is not None and version.value != VERSION:
            self._wrong(version.line, "version", f"{version.value!r} is not {VERSION}", f"write version: {VERSION}")
        regions, spots = self._regions(top)
        sources = self._sources(top)
        policy = self._policy(top, regions)
        overrides = self._overrides(top, regions, policy)
        self._branches(regions, spots)
        return Registry(tuple(regions.values()), sources, policy, overrides)

    def _regions(self, top: Mapped) -> tuple[dict[str, Region], dict[str, _Spot]]:
        found: dict[str, Region] = {}
        spots: dict[str, _Spot] = {}
        for name, line, value in self._entries(top, "regions"):
            at = f"regions.{name}"
            if not _NAME.fullmatch(name):
                self._wrong(line, at, f"{name!r} cannot name a region", "letters, digits, - and _")
                continue
            fields = self._mapping(value, at, _REGION, needed=("local_prefix",))
            spots[name] = _Spot(fields.values["branch"].line if "branch" in fields.values else line, at)
            prefix = self._prefix(fields, "local_prefix", at)
            branch = self._text(fields, "branch", at)
            if prefix is None:
                continue
            for other in found.values():
                if prefix.startswith(other.local_prefix) or other.local_prefix.startswith(prefix):
                    self._wrong(
                        fields.values["local_prefix"].line,
                        f"{at}.local_prefix",
                        f"{prefix} overlaps {other.local_prefix} of {other.name}",
                        "give each region a prefix of its own",
                    )
            found[name] = Region(
                name,
                prefix,
                branch or BRANCH_PREFIX + name,
                self._text(fields, "rclone_remote", at),
                self._text(fields, "write_role_arn", at),
            )
        return found, spots

    def _branches(self, regions: dict[str, Region], spots: dict[str, _Spot]) -> None:
        seen: dict[str, str] = {}
        for name, region in regions.items():
            spot = spots[name]
            if not _is_branch(region.branch):
                hint = "a letter first, then letters, digits and . / _ -; not main, and not like a hash"
                self._wrong(spot.line, f"{spot.at}.branch", f"{region.branch!r} cannot be its branch", hint)
            elif region.branch in seen:
                other = seen[region.branch]
                self._wrong(spot.line, f"{spot.at}.branch", f"{region.branch} is {other}'s branch too", "name another")
            seen.setdefault(region.branch, name)

    def _sources(self, top: Mapped) -> tuple[str, ...]:
        found: dict[str, int] = {}
        for at, item in self._items(top, "sources", needed=True):
            if not isinstance(item.value, str):
                self._wrong(item.line, at, "a source must be a prefix, as text", "s3://bucket/")
            elif not item.value.endswith("/"):
                self._wrong(item.line, at, f"{item.value} has no slash at its end", f"write {item.value}/")
            else:
                self._add_prefix(found, at, item)
        return tuple(found)

    def _add_prefix(self, found: dict[str, int], at: str, item: Located) -> str | None:
        prefix = self._canonical(str(item.value), item.line, at)
        if prefix is not None and prefix in found:
            same = f"{prefix} stands here and on line {found[prefix]}" if item.line else f"{prefix} stands twice"
            self._wrong(item.line, at, same, "keep one of the two; s3, s3a and s3n are one scheme")
            return None
        if prefix is not None:
            found[prefix] = item.line
        return prefix

    def _policy(self, top: Mapped, regions: dict[str, Region]) -> DestPolicy:
        value = top.values.get("dest_policy")
        if value is None:
            return DestPolicy()
        fields = self._mapping(value, "dest_policy", _POLICY, needed=("mode",))
        word, region = self._text(fields, "mode", "dest_policy"), self._text(fields, "region", "dest_policy")
        if word is not None and word not in list(Mode):
            at = fields.values["mode"].line
            self._wrong(at, "dest_policy.mode", f"there is no mode {word!r}", f"{', '.join(Mode)}")
        mode = Mode(word) if word in list(Mode) else Mode.CURRENT_REGION
        if mode is Mode.SPECIFIC_REGION and region is None:
            self._wrong(value.line, "dest_policy.region", "specific_region needs a region", "name one of regions")
        elif region is not None and mode is Mode.CURRENT_REGION:
            at = fields.values["region"].line
            self._wrong(at, "dest_policy.region", "only specific_region has a region", "leave it out")
        elif region is not None:
            self._known(region, regions, fields.values["region"].line, "dest_policy.region")
        ensure = fields.values.get("ensure_local_prefix")
        if ensure is not None and not isinstance(ensure.value, bool):
            self._wrong(ensure.line, "dest_policy.ensure_local_prefix", "it must be true or false")
        return DestPolicy(mode, region, ensure is None or ensure.value is True)

    def _overrides(self, top: Mapped, regions: dict[str, Region], policy: DestPolicy) -> tuple[Override, ...]:
        lines: dict[str, int] = {}
        found = []
        for at, item in self._items(top, "overrides", needed=False):
            fields = self._mapping(item, at, _OVERRIDE, needed=_OVERRIDE)
            to_region, reason = self._text(fields, "to_region", at), self._text(fields, "reason", at)
            raw = fields.values.get("match_from")
            if raw is None or self._text(fields, "match_from", at) is None:
                continue
            prefix = self._add_prefix(lines, f"{at}.match_from", raw)
            if to_region is None or prefix is None or reason is None:
                continue
            if self._known(to_region, regions, fields.values["to_region"].line, f"{at}.to_region"):
                found.append(Override(prefix, to_region, reason))
                if policy.ensure_local_prefix:
                    self._takes_no_whole_region(found[-1], regions, raw.line, f"{at}.match_from")
        return tuple(found)

    def _takes_no_whole_region(self, override: Override, regions: dict[str, Region], line: int, at: str) -> None:
        for region in regions.values():
            if region.name != override.to_region and region.local_prefix.startswith(override.match_from):
                self._wrong(
                    line,
                    at,
                    f"it takes all of {region.name} ({region.local_prefix}) to {override.to_region}, "
                    "and ensure_local_prefix promises local files",
                    "match a part of it, or set ensure_local_prefix: false",
                )

    def _known(self, name: str, regions: dict[str, Region], line: int, at: str) -> bool:
        if name in regions:
            return True
        near = get_close_matches(name, regions, n=1)
        hint = f"did you mean {near[0]}?" if near else f"regions are {', '.join(regions)}"
        self._wrong(line, at, f"there is no region {name!r}", hint)
        return False

    def _prefix(self, fields: Mapped, key: str, at: str) -> str | None:
        text = self._text(fields, key, at)
        return None if text is None else self._canonical(text, fields.values[key].line, f"{at}.{key}")

    def _canonical(self, text: str, line: int, at: str) -> str | None:
        try:
            prefix = canonical_prefix(text)
        except InvalidUriError as error:
            self._wrong(line, at, error.message, error.hint)
            return None
        if prefix.startswith("file://") and "%" in prefix:
            # Where stores are opened a file URL is decoded, and in table metadata it is not.
            self._wrong(line, at, f"{text} holds a percent sign", "name the folder as it is, or rename it")
            return None
        return prefix

    def _entries(self, top: Mapped, key: str) -> Iterator[tuple[str, int, Located]]:
        value = top.values.get(key)
        if value is None:
            return
        if not isinstance(value.value, Mapped) or not value.value.values:
            self._wrong(value.line, key, "it must name at least one", "`us-east:` and its fields beneath")
            return
        for name, each in value.value.values.items():
            yield name, value.value.key_lines.get(name, 0), each

    def _items(self, top: Mapped, key: str, *, needed: bool) -> Iterator[tuple[str, Located]]:
        value = top.values.get(key)
        if value is None or (value.value is None and not needed):
            return
        if not isinstance(value.value, tuple) or (needed and not value.value):
            self._wrong(
                value.line, key, "it must be a list" + (" of at least one" if needed else ""), "lines that begin -"
            )
            return
        for number, each in enumerate(value.value):
            yield f"{key}[{number}]", each

    def _mapping(self, value: Located, at: str, known: tuple[str, ...], *, needed: tuple[str, ...]) -> Mapped:
        """Its fields; none of them when it is something else, which is a mistake, as is a key that is not known."""
        if not isinstance(value.value, Mapped):
            self._wrong(value.line, at, "it must have fields, like `key: value`", f"fields are {', '.join(known)}")
            return Mapped()
        for key in value.value.values:
            if key not in known:
                near = get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                line = value.value.key_lines.get(key, 0)
                self._wrong(line, f"{at}.{key}" if at else key, "it is not known", hint)
        for key in needed:
            if key not in value.value.values:
                self._wrong(value.line, f"{at}.{key}" if at else key, "it is missing", f"add `{key}:` here")
        return value.value

    def _text(self, fields: Mapped, key: str, at: str) -> str | None:
        found = fields.values.get(key)
        if found is None:
            return None
        if not isinstance(found.value, str) or not found.value.strip():
            self._wrong(found.line, f"{at}.{key}", "it must be text, and not empty", "write it in quotes")
            return None
        return found.value

    def _wrong(self, line: int, at: str, message: str, hint: str | None = None) -> None:
        self.mistakes.append(Mistake(line, at, message, hint))


def _is_branch(name: str) -> bool:
    """Whether the catalog would take it, and it is not the branch that replicas follow."""
    fits = _BRANCH.fullmatch(name) and len(name) <= _LONGEST_BRANCH and not _HASH.fullmatch(name)
    return bool(fits) and name.upper() not in map(str.upper, _TAKEN)
