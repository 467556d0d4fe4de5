"""Where a writer puts the files of a table: in the table's own folder, or at the same place of its region.

A table's location says where it was made. A writer of another region puts data files, deletes, manifests and statistics
under the prefix of its own region, so that no write crosses regions. The files of one table lie in several buckets
then, and each is named by its whole URI.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.view.metadata import ViewMetadata

from headwater.tables.files import normalise

# Where files of tables and views are put that lie outside of the lake, each under the identity that Iceberg gives it.
ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Placing:
    """Where new files go. Without a local prefix, or without a lake, they go where their table is."""

    lake: str | None = None
    local_prefix: str | None = None

    def folder_of(self, metadata: TableMetadata) -> str:
        """The folder that takes the place of the table's location for this writer, without a slash at its end."""
        return self._folder_at(metadata.location, metadata.table_uuid)

    def view_folder_of(self, view: ViewMetadata) -> str:
        """The same for a view. It has no head, so that its documents go to the region on every catalog."""
        return self._folder_at(view.location, view.view_uuid)

    def _folder_at(self, location: str, identity: object) -> str:
        location = location.rstrip("/")
        if self.local_prefix is None:
            return location
        local, given = _folder(self.local_prefix), normalise(location)
        if given.startswith(f"{local}/"):
            return location
        lake = None if self.lake is None else _folder(self.lake)
        if lake is not None and given.startswith(f"{lake}/"):
            return f"{local}/{given[len(lake) + 1 :]}"
        return f"{local}/{ELSEWHERE}/{identity}"

    def data_folder_of(self, metadata: TableMetadata, own: str | None) -> str:
        """Where data files go: as the table itself says, or below its folder; a region's writer stays in its region."""
        if own and self.local_prefix is None:
            return own.rstrip("/")
        return f"{self.folder_of(metadata)}/data"


def _folder(prefix: str) -> str:
    return normalise(prefix).rstrip("/")
