"""What optimizing talks about: what is wanted (a spec), what was decided (a job), an attempt at it (a run)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from headwater.catalog.model import Commit, TableKey
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import Ulid
from headwater.tables.model import FileTask

MEGABYTE = 1 << 20
DEFAULT_TARGET_BYTES = 128 * MEGABYTE
DEFAULT_MIN_FILES = 2
DEFAULT_DELETE_RATIO = 0.3


class Purpose(enum.StrEnum):
    """Why files are written again."""

    COMPACT = "compact"
    INDICES = "indices"


@dataclass(frozen=True)
class Spec:
    """What is wanted of one table. `target_size_bytes` None: what the table itself says."""

    table: TableKey
    branch: str
    purpose: Purpose = Purpose.COMPACT
    target_size_bytes: int | None = None
    min_files: int = DEFAULT_MIN_FILES
    delete_ratio: float = DEFAULT_DELETE_RATIO
    all_deletes: bool = False


@dataclass(frozen=True)
class Plan:
    """What is to be done: files that are written again, group by group, and statistics that are computed.

    The files of a group are in one partition, and become one file, or a few.
    """

    groups: tuple[tuple[FileTask, ...], ...] = ()
    statistics: tuple[str, ...] = ()
    partition_statistics: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.groups or self.statistics or self.partition_statistics)

    @property
    def inputs(self) -> tuple[FileTask, ...]:
        """Every file that is written again."""
        return tuple(task for group in self.groups for task in group)


@dataclass(frozen=True)
class Job:
    """A durable decision: this spec, on this version of this table. It is taken before the first file is written."""

    id: Ulid
    spec: Spec
    actor: str
    branch_incarnation: Ulid
    incarnation: str
    metadata_location: str
    groups: int
    files: int
    size_bytes: int


class RunState(enum.StrEnum):
    """Where a run is.

        running ──► published       its commit is in the log
           ├──────► given up        others changed what it had read
           ├──────► failed          an error, or a request to stop
           └──────► abandoned       its lease passed: its process is taken for dead

    The run's own process writes all of them but the last, which is written by the next one that wants the table.
    """

    RUNNING = "running"
    PUBLISHED = "published"
    GIVEN_UP = "given up"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Run:
    """An attempt at a job, by one process, which renews the lease while it works."""

    process: Ulid
    started_at: datetime
    lease_until: datetime
    state: RunState = RunState.RUNNING
    ended_at: datetime | None = None
    rebases: int = 0
    commit: str | None = None
    why: str = ""


@dataclass(frozen=True)
class Compactions:
    """The jobs of a lake, oldest first, each with its run: all that are running, and the last that have ended."""

    runs: Mapping[Ulid, tuple[Job, Run]] = field(default_factory=dict)


# Told after each group: the table, how many groups are written, and how many there are.
Progress: TypeAlias = Callable[[TableKey, int, int], None]


class End(enum.StrEnum):
    """How it ended for one table."""

    NOTHING = "nothing to do"
    PLANNED = "planned"
    PUBLISHED = "published"
    GIVEN_UP = "given up"
    FAILED = "failed"


@dataclass(frozen=True)
class TableOutcome:
    """What became of one table, or, of a dry run, what would."""

    key: TableKey
    end: End
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    files_with_deletes: int = 0
    statistics: tuple[str, ...] = ()
    rebases: int = 0
    job: Ulid | None = None
    commit: Commit | None = None
    why: str = ""
    error: HeadwaterError | None = None


@dataclass(frozen=True)
class Optimized:
    """What became of each table that was asked for."""

    tables: tuple[TableOutcome, ...]

    @property
    def errors(self) -> tuple[HeadwaterError, ...]:
        """The errors of tables that failed; the others went on."""
        return tuple(each.error for each in self.tables if each.error is not None)
