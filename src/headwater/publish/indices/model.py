"""What a table declares to be found faster by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Declared:
    """What the files and the metadata of a table are to have.

    `sort_order_id` is None for a table without an order. `blooms` and `statistics` are columns, by name, with their
    field ids.
    """

    sort_order_id: int | None
    blooms: Mapping[str, int]
    statistics: Mapping[str, int]
    partition_statistics: bool
