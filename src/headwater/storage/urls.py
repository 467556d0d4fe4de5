"""Which store a URL names."""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from headwater.storage.errors import InvalidUrlError
from headwater.storage.paths import check_prefix

# A scheme is followed by a slash: `file:/x` is a URL, `c:x` and `a:b` are odd names of folders.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
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
    if not url or _CONTROL.search(url) or _CONTROL.search(unquote(url)):
        raise InvalidUrlError(f"{url!r} names no store", hint=f"use {', '.join(KNOWN)}", url=url)
    if not _SCHEME.match(url):
        return StoreUrl("file", os.path.abspath(url), "")  # noqa: PTH100  (of the name alone)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidUrlError(f"{url} is not a URL", hint=f"use {', '.join(KNOWN)}", url=url) from None
    if "@" in parts.netloc:
        # Not repeated in the message: what stands before the @ is a secret.
        raise InvalidUrlError(
            f"a {parts.scheme} URL carries no credentials", hint="put them into the settings", scheme=parts.scheme
        )
    if parts.query or parts.fragment:
        raise InvalidUrlError(f"{url}: a store URL has no query or fragment", url=url)
    if parts.scheme == "file":
        return _file(parts, url)
    if parts.scheme in _S3 or parts.scheme == "gs":
        return _bucket(parts, url)
    raise InvalidUrlError(
        f"{url}: unknown scheme {parts.scheme!r}", hint=f"use {', '.join(KNOWN)}", url=url, scheme=parts.scheme
    )


def _file(parts: SplitResult, url: str) -> StoreUrl:
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidUrlError(f"{url}: a file URL names a folder and no host", hint="use file:///folder", url=url)
    return StoreUrl("file", os.path.abspath(unquote(parts.path)), "")  # noqa: PTH100


def _bucket(parts: SplitResult, url: str) -> StoreUrl:
    if not _BUCKET.fullmatch(parts.netloc):
        raise InvalidUrlError(f"{url} has no bucket", hint=f"use {parts.scheme}://bucket/prefix", url=url)
    scheme = "gs" if parts.scheme == "gs" else "s3"
    return StoreUrl(scheme, parts.netloc, check_prefix(parts.path.strip("/")))
