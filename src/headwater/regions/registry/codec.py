"""A registry as canonical JSON: equal rules are equal bytes, and so have equal digests."""

from __future__ import annotations

import hashlib
import json

from headwater.regions.registry.decide import to_registry
from headwater.regions.registry.document import from_values
from headwater.regions.registry.model import VERSION, Registry


def to_values(registry: Registry) -> dict[str, object]:
    """The rules in the shape of the YAML, everything spelled out."""
    policy = registry.dest_policy
    return {
        "version": VERSION,
        "regions": {
            each.name: {
                "local_prefix": each.local_prefix,
                "branch": each.branch,
                **({"rclone_remote": each.rclone_remote} if each.rclone_remote is not None else {}),
                **({"write_role_arn": each.write_role_arn} if each.write_role_arn is not None else {}),
            }
            for each in registry.regions
        },
        "sources": list(registry.sources),
        "dest_policy": {
            "mode": str(policy.mode),
            **({"region": policy.region} if policy.region is not None else {}),
            "ensure_local_prefix": policy.ensure_local_prefix,
        },
        "overrides": [
            {"match_from": each.match_from, "to_region": each.to_region, "reason": each.reason}
            for each in registry.overrides
        ],
    }


def from_json(values: object, name: str) -> Registry:
    """The registry in these values, held to the same rules as one that a person wrote."""
    return to_registry(from_values(values), name)


def canonical_bytes(values: object) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(registry: Registry) -> str:
    """The SHA-256 of the rules, in hexadecimal: which mapping this is, whatever generation carries it."""
    return hashlib.sha256(canonical_bytes(to_values(registry))).hexdigest()
