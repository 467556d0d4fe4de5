"""Which of rclone's remotes leads to a URI, and what rclone must know of it.

A region's `rclone_remote` names a remote of the user's own rclone configuration, if there is one. Without it, the
remote is made from the storage settings, under the same name. Keys travel by the environment of the process alone:
arguments can be read by everybody on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from headwater.kernel.errors import UsageError
from headwater.kernel.settings import S3Settings
from headwater.regions.registry.model import Registry

# The remote of a URI that is in no region, or in a region that names none.
_DEFAULTS = {"s3": "headwater-s3", "gs": "headwater-gs"}


@dataclass(frozen=True)
class Remotes:
    """Remotes by prefix, and the variables that describe them to rclone; none when it has a configuration."""

    by_prefix: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, registry: Registry, s3: S3Settings, *, configured: bool = False) -> Self:
        """The remotes of a registry's regions; `configured` when rclone's own configuration describes them."""
        by_prefix = {
            each.local_prefix: each.rclone_remote for each in registry.regions if each.rclone_remote is not None
        }
        described: dict[str, str] = {}
        for scheme, name in _DEFAULTS.items():
            described |= _described(name, scheme, s3, None)
        for region in registry.regions:
            scheme = region.local_prefix.partition("://")[0]
            if region.rclone_remote is not None and not configured:
                described |= _described(region.rclone_remote, scheme, s3, region.write_role_arn)
        return cls(by_prefix, described)

    def path(self, uri: str) -> str:
        """The URI as rclone takes it: `remote:bucket/path`, or a path of this machine."""
        scheme, _, rest = uri.partition("://")
        if scheme == "file":
            return rest
        fitting = [prefix for prefix in self.by_prefix if f"{uri}/".startswith(prefix) or uri.startswith(prefix)]
        if fitting:
            return f"{self.by_prefix[max(fitting, key=len)]}:{rest}"
        if scheme not in _DEFAULTS:
            raise UsageError(f"{uri}: files of the scheme {scheme!r} cannot be copied", uri=uri)
        return f"{_DEFAULTS[scheme]}:{rest}"


def _described(name: str, scheme: str, s3: S3Settings, role: str | None) -> dict[str, str]:
    options: dict[str, str] = {}
    if scheme == "gs":
        options = {"TYPE": "google cloud storage", "ENV_AUTH": "true", "BUCKET_POLICY_ONLY": "true"}
    elif scheme == "s3":
        options = {
            "TYPE": "s3",
            "PROVIDER": "Other" if s3.endpoint else "AWS",
            "REGION": s3.region,
            "FORCE_PATH_STYLE": str(not s3.virtual_hosted).lower(),
        }
        if s3.endpoint:
            options["ENDPOINT"] = s3.endpoint
        elif role and role.startswith("arn:"):
            options["ROLE_ARN"] = role
        if s3.access_key_id and s3.secret_access_key:
            options |= {
                "ACCESS_KEY_ID": s3.access_key_id,
                "SECRET_ACCESS_KEY": s3.secret_access_key.get_secret_value(),
            }
        else:
            options["ENV_AUTH"] = "true"
    return {f"RCLONE_CONFIG_{name.upper()}_{option}": value for option, value in options.items()}
