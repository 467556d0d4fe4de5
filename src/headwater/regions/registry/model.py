"""The registry: which regions there are, where files come from, and where each of them has its place in a region."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from headwater.regions.errors import UnknownRegionError

VERSION = 2
BRANCH_PREFIX = "main_replica_"
# Right under each local prefix; what sync writes of its own goes there, and nothing is ever copied into it (hazard R5).
RESERVED_FOLDER = "_headwater/"
OUTPUTS_FOLDER = RESERVED_FOLDER + "localised/"


@dataclass(frozen=True)
class Region:
    """A place that holds a copy of everything. Prefixes are canonical, with a slash at their end."""

    name: str
    local_prefix: str
    branch: str
    rclone_remote: str | None = None
    write_role_arn: str | None = None

    @property
    def reserved_prefix(self) -> str:
        """Where only our own objects are."""
        return self.local_prefix + RESERVED_FOLDER

    @property
    def outputs_prefix(self) -> str:
        """Where localised metadata goes."""
        return self.local_prefix + OUTPUTS_FOLDER


class Mode(enum.StrEnum):
    """Whose local prefix a source is copied to."""

    CURRENT_REGION = "current_region"
    SPECIFIC_REGION = "specific_region"


@dataclass(frozen=True)
class DestPolicy:
    """Where sources go. `region` belongs to `specific_region` alone.

    With `ensure_local_prefix` a source never leads out of the region that asks; an override may, for that is what it
    is for.
    """

    mode: Mode = Mode.CURRENT_REGION
    region: str | None = None
    ensure_local_prefix: bool = True


@dataclass(frozen=True)
class Override:
    """Files under `match_from` have their only copy in one region, and all regions read it there (hazard R8)."""

    match_from: str
    to_region: str
    reason: str


@dataclass(frozen=True)
class Registry:
    """One consistent set of rules, in one order whatever the order of the file: equal rules are equal."""

    regions: tuple[Region, ...]
    sources: tuple[str, ...]
    dest_policy: DestPolicy = DestPolicy()
    overrides: tuple[Override, ...] = ()
    _by_name: dict[str, Region] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regions", tuple(sorted(self.regions, key=lambda each: each.name)))
        object.__setattr__(self, "sources", tuple(sorted(self.sources)))
        object.__setattr__(self, "overrides", tuple(sorted(self.overrides, key=lambda each: each.match_from)))
        self._by_name.update({each.name: each for each in self.regions})

    @property
    def region_names(self) -> tuple[str, ...]:
        """All regions, by name."""
        return tuple(self._by_name)

    def region(self, name: str) -> Region:
        """The region of this name; `UnknownRegionError` when there is none."""
        found = self._by_name.get(name)
        if found is None:
            raise UnknownRegionError(name, self.region_names)
        return found

    def home_of(self, uri: str) -> Region | None:
        """The region under whose local prefix this canonical URI lies; at most one, since they do not overlap."""
        return next((each for each in self.regions if uri.startswith(each.local_prefix)), None)
