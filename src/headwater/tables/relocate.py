"""Files of a table with other paths in them: what each kind of file becomes when the files it names have moved.

    metadata.json         relocate_metadata.py     location, properties, manifest lists, statistics
    manifest list         relocate_manifests.py    manifests and their lengths
    manifest of data      relocate_manifests.py    data files
    manifest of deletes   relocate_manifests.py    delete files, their lengths, bounds and referenced data files
    position deletes      relocate_deletes.py      data files; sorted again
    deletion vectors      relocate_deletes.py      data files, in the footer of the Puffin file

Equality deletes, data and statistics hold no paths. All of it is pure: bytes in, bytes out. A file names others with
their lengths, so deletes come before manifests, manifests before lists, and lists before metadata.json.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

# Where a file is from now on, by where it was; raises when it has no place.
Resolve: TypeAlias = Callable[[str], str]
