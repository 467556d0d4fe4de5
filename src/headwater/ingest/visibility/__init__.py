"""Which rows of a row group are deleted, and since when: right at every timestamp, whatever order deletions came in.

    RowGroupVisibility   one row group: a base bitmap as of its base timestamp, and the deletions after it
    VisibilityIndex      the row groups of admitted files

Everything is in memory; a checkpoint keeps what `snapshot()` shows. Readers take no lock.
"""

from headwater.ingest.visibility.decide import grouped
from headwater.ingest.visibility.index import VisibilityIndex, delete_rows
from headwater.ingest.visibility.model import (
    AdmittedError,
    BelowBaseError,
    NotAdmittedError,
    OutOfRangeError,
    RowGroupRows,
    VisibilitySnapshot,
)
from headwater.ingest.visibility.row_group import RowGroupVisibility

__all__ = [
    "AdmittedError",
    "BelowBaseError",
    "NotAdmittedError",
    "OutOfRangeError",
    "RowGroupRows",
    "RowGroupVisibility",
    "VisibilityIndex",
    "VisibilitySnapshot",
    "delete_rows",
    "grouped",
]
