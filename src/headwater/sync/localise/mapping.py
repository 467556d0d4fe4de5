"""The registry's rules as a mapping with a digest."""

from __future__ import annotations

import re
from typing import Final

from headwater.regions.resolve import Resolver

# A name that is taken as it stands, whatever folder it is in.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_=][A-Za-z0-9_=.-]*")
_LONGEST: Final = 256
_MOST_FOLDERS: Final = 10_000


class RegistryMapping:
    """What one registry says, seen from one region. Equal rules have equal digests, whatever their generation, and
    whatever else the registry says: a remote or a reason that changes, or another region, leaves replicas as they are.

    Prefixes of rules end in a slash, so the files of one folder go to one folder. Each folder is resolved once: a
    manifest has thousands of files in few of them.
    """

    def __init__(self, resolver: Resolver) -> None:
        self.digest = resolver.digest
        self._resolver = resolver
        self._folders: dict[str, str] = {}

    def destination(self, uri: str) -> str:
        """Where the region reads this file."""
        folder, slash, name = uri.rpartition("/")
        known = self._folders.get(folder)
        is_plain = len(uri) <= _LONGEST and _PLAIN.fullmatch(name) is not None
        if known is not None and is_plain:
            return known + name
        place = self._resolver.destination(uri)
        if is_plain and slash:
            if len(self._folders) >= _MOST_FOLDERS:
                self._folders.clear()
            self._folders[folder] = place.removesuffix(name)
        return place

    def folder(self, uri: str) -> str:
        """The place of a folder."""
        return self._resolver.folder(uri)
