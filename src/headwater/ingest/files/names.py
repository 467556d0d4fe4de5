"""Names of data files: who wrote them, and when.

    <table id>_<virtual node>_<utc, yyyyMMddHHmmss>_<first block id>_<file id>.parquet

The time is when the name was made; a file that is still temporary long after it was left behind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from headwater.kernel.errors import UsageError

_NUMBER = r"(0|[1-9]\d{0,18})"
_SHAPE = re.compile(rf"{_NUMBER}_{_NUMBER}_(\d{{14}})_{_NUMBER}_{_NUMBER}\.parquet", re.ASCII)
_MAXIMUM = 2**63 - 1
_TIME = "%Y%m%d%H%M%S"
SHAPE = "<table id>_<virtual node>_<yyyyMMddHHmmss>_<first block id>_<file id>.parquet"


@dataclass(frozen=True, slots=True)
class FileName:
    """What a file's name says. `created_at` is UTC, to the second."""

    table_id: int
    virtual_node: int
    created_at: datetime
    first_block_id: int
    file_id: int

    def __post_init__(self) -> None:
        numbers = (self.table_id, self.virtual_node, self.first_block_id, self.file_id)
        if min(numbers) < 0 or max(numbers) > _MAXIMUM or self.created_at.tzinfo is None:
            raise UsageError(f"{self!r} names no file", hint=f"numbers from 0 to {_MAXIMUM}, and a time with its zone")

    def __str__(self) -> str:
        at = self.created_at.astimezone(UTC)
        # %Y does not pad on every platform.
        time = f"{at.year:04}{at:%m%d%H%M%S}"
        return f"{self.table_id}_{self.virtual_node}_{time}_{self.first_block_id}_{self.file_id}.parquet"


def parse_name(name: str) -> FileName:
    """What `name` says; any other name than one of ours is a `UsageError`."""
    found = _SHAPE.fullmatch(name)
    if found is None:
        raise UsageError(f"{name!r} is not the name of a data file", hint=SHAPE, name=name)
    try:
        created_at = datetime.strptime(found[3], _TIME).replace(tzinfo=UTC)
    except ValueError:
        raise UsageError(f"{name!r} was made at no time that there is", hint=SHAPE, name=name) from None
    return FileName(int(found[1]), int(found[2]), created_at, int(found[4]), int(found[5]))
