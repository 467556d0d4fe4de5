"""One spelling for each object, so that equal objects have equal names and unequal ones do not.

Names are taken literally, as Iceberg takes them: `%2F` in a partition's folder is three characters, never a slash.
`s3`, `s3a` and `s3n` are one scheme; `/x`, `file:/x` and `file://localhost/x` are `file:///x`. Slashes in a row are
one in a folder, and another object in a bucket, which our stores cannot name: there they are refused.
"""

from __future__ import annotations

import re

from headwater.regions.errors import InvalidUriError
from headwater.storage.paths import LONGEST_BYTES, RESERVED_PREFIX

SCHEMES = ("s3", "gs", "file")
_SAME = {"s3a": "s3", "s3n": "s3"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SLASHES = re.compile("/{2,}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_DOTS = re.compile(r"(?:\.|%2[eE]){1,2}")
# What nearly every URI looks like, seen at one glance: a million of them are resolved in a run.
_PLAIN = re.compile(
    r"(?:s3|gs)://[A-Za-z0-9][A-Za-z0-9._-]*"
    r"(?:/(?!(?:\.|%2[eE]){1,2}(?:/|\Z)|\.hw-)[^/?#\x00-\x1f\x7f-\x9f\ud800-\udfff]+)+"
)
# Iceberg's readers of buckets cut a name here, and would look for another object.
CUT = re.compile("[?#]")


def canonical(uri: str) -> str:
    """The one spelling of a file's URI; `InvalidUriError` when it cannot name a file."""
    if _PLAIN.fullmatch(uri) and uri.isascii() and len(uri) <= LONGEST_BYTES:
        return uri
    scheme, container, path = _split(uri)
    if not path:
        raise InvalidUriError(uri, "it names no file")
    if path.endswith("/"):
        raise InvalidUriError(uri, "it names a folder, not a file", hint="leave out the slash at its end")
    _check_segments(uri, path)
    return _spelled(scheme, container, path)


def canonical_prefix(uri: str) -> str:
    """The one spelling of a folder's or bucket's URI, with a slash at its end."""
    scheme, container, path = _split(uri)
    path = path.removesuffix("/")
    if not path and scheme == "file":
        raise InvalidUriError(uri, "it names no folder", hint="not the whole machine: file:///folder/")
    if path:
        _check_segments(uri, path)
    return _spelled(scheme, container, f"{path}/" if path else "")


def _split(uri: str) -> tuple[str, str, str]:
    """Scheme, bucket (empty for a folder) and the rest, without the slash between."""
    if not isinstance(uri, str) or not uri:
        raise InvalidUriError(str(uri), "it is empty")
    if _CONTROL.search(uri):
        raise InvalidUriError(uri, "it has control characters")
    found = _SCHEME.match(uri)
    if found is None:
        if not uri.startswith("/"):
            raise InvalidUriError(uri, "it has no scheme", hint=f"schemes are {', '.join(SCHEMES)}")
        return "file", "", _SLASHES.sub("/", uri)[1:]
    scheme = found[1].lower()
    scheme = _SAME.get(scheme, scheme)
    rest = uri[found.end() :]
    if scheme == "file":
        return "file", "", _folder(uri, rest)
    if scheme not in SCHEMES:
        raise InvalidUriError(uri, f"its scheme {found[1]} is unknown", hint=f"schemes are {', '.join(SCHEMES)}")
    bucket, _, path = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not _BUCKET.fullmatch(bucket):
        raise InvalidUriError(uri, "it names no bucket", hint=f"{scheme}://bucket/path")
    if CUT.search(path):
        raise InvalidUriError(uri, "it holds ? or #, where Iceberg's readers would cut it")
    return scheme, bucket, path


def _folder(uri: str, rest: str) -> str:
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", rest[:1], rest[1:])
    if host not in ("", "localhost") or slash != "/":
        raise InvalidUriError(uri, "a file URI names a path and no host", hint="file:///folder/file")
    return _SLASHES.sub("/", path.lstrip("/"))


def _check_segments(uri: str, path: str) -> None:
    if len(path.encode()) > LONGEST_BYTES:
        raise InvalidUriError(uri, f"its path is longer than {LONGEST_BYTES} bytes")
    for segment in path.split("/"):
        if not segment:
            raise InvalidUriError(
                uri, "it has an empty segment, which a bucket keeps apart", hint="write it with single slashes"
            )
        if _DOTS.fullmatch(segment):
            raise InvalidUriError(uri, f"it has the segment {segment!r}, which leads elsewhere")
        if segment.startswith(RESERVED_PREFIX):
            raise InvalidUriError(uri, f"segments that start with {RESERVED_PREFIX!r} are reserved")


def _spelled(scheme: str, container: str, path: str) -> str:
    return f"{scheme}://{container}/{path}"
