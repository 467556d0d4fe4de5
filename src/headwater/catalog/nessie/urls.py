"""The URL of a lake on Nessie: where the server is, and where new tables are put."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from headwater.kernel.errors import UsageError

SPELLING = "nessie+http://host:port/api/v2?warehouse=s3://bucket/prefix"

_SCHEMES = ("nessie+http", "nessie+https")


@dataclass(frozen=True)
class NessieUrl:
    """Where a lake on Nessie is: the URL of the API, and the store in which its new tables are put."""

    api: str
    warehouse: str

    def __str__(self) -> str:
        return f"nessie+{self.api}?warehouse={self.warehouse}"


def is_nessie_url(url: str) -> bool:
    """Whether the URL names a lake on Nessie."""
    return url.partition("://")[0].lower() in _SCHEMES


def parse_nessie_url(url: str) -> NessieUrl:
    """Read the URL of a lake on Nessie."""
    # Whatever is wrong with it may be part of a password, so that messages tell no more than its scheme.
    shown = f"the URL {url.partition('://')[0]}://…"
    try:
        parts = urlsplit(url)
        is_host = bool(parts.hostname) and parts.port != 0
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        raise UsageError(f"{shown} cannot be read", hint=SPELLING) from None
    if "@" in parts.netloc:
        raise UsageError(f"{shown} carries credentials", hint="put a token into the setting `nessie.token`")
    if not is_host or parts.fragment or not parts.path.strip("/"):
        raise UsageError(f"{shown} does not name the API of a Nessie", hint=SPELLING)
    if set(query) != {"warehouse"}:
        raise UsageError(f"{shown} must say where new tables are put, and nothing else", hint=SPELLING)
    api = f"{parts.scheme.removeprefix('nessie+')}://{parts.netloc}/{parts.path.strip('/')}"
    return NessieUrl(api, query["warehouse"])
