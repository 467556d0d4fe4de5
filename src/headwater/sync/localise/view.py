"""A view for the region: its document names a place, and no files."""

from __future__ import annotations

import json

from headwater.sync.localise.codec import digest_of, location_of, version_of_bytes
from headwater.sync.localise.model import Output, OutputKind, Place
from headwater.sync.localise.store import create
from headwater.tables.views import decode_view


def localise_view(place: Place, source: str) -> str:
    """Where the document is that the region reads in place of the one at `source`."""
    data = place.files.read(source)
    decode_view(data, source)  # what is no view is refused here
    document = json.loads(data)
    document["location"] = place.mapping.folder(document["location"])
    content = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    digest = digest_of(place, OutputKind.METADATA, source, version_of_bytes(data))
    location = location_of(place, OutputKind.METADATA, digest, content=content)
    place.outputs.record([Output(location, OutputKind.METADATA, source)])
    create(place, location, content)
    return location
