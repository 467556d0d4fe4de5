"""The names of outputs. They are durable: an output is found again, and never made twice, by its name alone (R5).

    <prefix>/<2 digits>/<digest>.<ending>              of a file that names no other output
    <prefix>/<2 digits>/<digest>-<content>.<ending>    of one that does

`digest` (40 hexadecimal digits) is of everything that the bytes are made from: the source's URI and version, the digest
of the mapping, the history mode and the version of this writer. An output that names others holds their lengths, too:
one that was collected and is made again, by a newer library, may be longer. So its name has a digest of its content.

The version of a source is what its parent says of it. A manifest's is its length, its snapshot and its sequence number,
by the manifest list; that of metadata.json, which has no parent, is the digest of its bytes. Iceberg never writes a
file twice, and a table that was dropped and made anew has other snapshots.
"""

from __future__ import annotations

import hashlib
from typing import Final

from headwater.sync.localise.model import WRITER_VERSION, OutputKind, Place

_DIGEST_DIGITS: Final = 40
_CONTENT_DIGITS: Final = 16
_ENDINGS: Final = {
    OutputKind.METADATA: "metadata.json",
    OutputKind.MANIFEST_LIST: "list.avro",
    OutputKind.MANIFEST: "manifest.avro",
    OutputKind.VECTORS: "puffin",
}


def digest_of(place: Place, kind: OutputKind, source: str, version: str) -> str:
    """The part of an output's name that is known before it is made."""
    parts = (str(WRITER_VERSION), place.mapping.digest, str(place.history), str(kind), source, version)
    # With their lengths, so that no two lists of parts read alike.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]


def location_of(
    place: Place, kind: OutputKind, digest: str, *, content: bytes | None = None, file_format: str = ""
) -> str:
    """Where an output is; `content` is given for one that names other outputs."""
    name = digest if content is None else f"{digest}-{hashlib.sha256(content).hexdigest()[:_CONTENT_DIGITS]}"
    ending = _ENDINGS.get(kind) or file_format.lower()
    return f"{place.prefix.rstrip('/')}/{digest[:2]}/{name}.{ending}"


def digest_in(place: Place, location: str) -> str | None:
    """The digest in an output's name; None when the location is no output of this place."""
    prefix = place.prefix.rstrip("/") + "/"
    if not location.startswith(prefix):
        return None
    name = digest_named(location)
    return name if len(name) == _DIGEST_DIGITS else None


def digest_named(location: str) -> str:
    """The digest in the name of what is known to be an output."""
    return location.rpartition("/")[2].partition(".")[0].partition("-")[0]


def version_of_bytes(data: bytes) -> str:
    """The version of a document that nobody else tells anything of."""
    return hashlib.sha256(data).hexdigest()
