"""Which store a URL names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headwater.storage.errors import InvalidUrlError
from headwater.storage.paths import check_prefix

_S3 = ("s3", "s3a", "s3n")
KNOWN = ("a folder", "file:///folder", "s3://bucket/prefix", "gs://bucket/prefix")


@dataclass(frozen=True)
class StoreUrl:
    """Where a store is: `scheme` is file, s3 or gs; `container` a folder or a bucket; `prefix` what lies within."""

    scheme: str
    container: str
    prefix: str

    def __str__(self) -> str:
        if self.scheme == "file":
            return Path(self.container).as_uri()
        return f"{self.scheme}://{self.container}" + (f"/{self.prefix}" if self.prefix else "")


def parse_url(url: str) -> StoreUrl:
    """Read a URL or a plain path; whatever names no store is refused."""
    if not url or any(ord(character) < 32 for character in url):
        raise InvalidUrlError(f"{url!r} names no store", hint=f"use {', '.join(KNOWN)}", url=url)
    if "://" not in url:
        return StoreUrl("file", str(Path(url).absolute()), "")
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise InvalidUrlError(f"{url}: a store URL has no query or fragment", url=url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidUrlError(f"{url}: a file URL names no host", hint="use file:///folder", url=url)
        return StoreUrl("file", str(Path(unquote(parts.path)).absolute()), "")
    if parts.scheme in _S3 or parts.scheme == "gs":
        if not parts.netloc or "@" in parts.netloc:
            raise InvalidUrlError(f"{url} has no bucket", hint=f"use {parts.scheme}://bucket/prefix", url=url)
        scheme = "gs" if parts.scheme == "gs" else "s3"
        return StoreUrl(scheme, parts.netloc, check_prefix(parts.path.strip("/")))
    raise InvalidUrlError(
        f"{url}: unknown scheme {parts.scheme!r}", hint=f"use {', '.join(KNOWN)}", url=url, scheme=parts.scheme
    )
