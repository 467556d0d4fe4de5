"""Which properties of a table a person may set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.kernel.errors import RefusedError
from headwater.tables.model import TableUsageError

OWN_PREFIX = "headwater."
# What of our own a person declares.
STATISTICS_COLUMNS = "headwater.statistics.columns"
STATISTICS_PARTITIONS = "headwater.statistics.partitions"
FORMAT_VERSION = "format-version"
GC_ENABLED = "gc.enabled"
NAME_MAPPING = "schema.name-mapping.default"

# Metadata that Iceberg shows as properties and that cannot be set as such.
_SHOWN_ONLY = frozenset(
    {
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)


def check_properties(values: Mapping[str, str], removed: Iterable[str] = ()) -> None:
    """Refuse what is ours, what is not a property, and what would let other engines delete files (hazard P5)."""
    gone = tuple(removed)
    for key in (*values, *gone):
        _check_key(key)
    for key, value in values.items():
        if not isinstance(value, str):
            raise TableUsageError(f"property {key} is not text", hint="give it as a string", property=key)
    both = sorted(set(values) & set(gone))
    if both:
        raise TableUsageError(f"property {both[0]} is both set and removed", hint="do one of the two", property=both[0])
    if values.get(GC_ENABLED, "false").lower() != "false" or GC_ENABLED in gone:
        raise RefusedError(
            f"{GC_ENABLED} stays false: other engines would delete files that the lake still needs",
            hint="old files are reclaimed by the lake itself",
            property=GC_ENABLED,
        )


def _check_key(key: str) -> None:
    if key.startswith(OWN_PREFIX) and key not in (STATISTICS_COLUMNS, STATISTICS_PARTITIONS):
        raise TableUsageError(
            f"property {key} is kept by the lake itself", hint=f"choose a name without {OWN_PREFIX}", property=key
        )
    if key == FORMAT_VERSION:
        raise TableUsageError(f"{key} is not changed as a property", hint="upgrade the table", property=key)
    if key in _SHOWN_ONLY:
        raise TableUsageError(f"{key} is shown as a property, but is not one", hint="leave it out", property=key)
