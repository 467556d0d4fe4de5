"""What must expire: leased keys, compare-and-swap over several of them, and a watch that resumes.

The promise, the same on the database and on etcd: a transaction lands whole or not at all; of two that compare
the same key only one wins; a key whose lease has expired is gone for everybody, its holder included; and a list
followed by a watch misses nothing. A holder that carries `Held.compare()` in its transactions cannot write after
it lost its lease, however long it was paused.
"""

from headwater.coordination.leadership import Held, acquire
from headwater.coordination.model import (
    Absent,
    Batch,
    CompactedError,
    Compare,
    CreatedAt,
    Delete,
    Entry,
    Event,
    Lease,
    LeasedBy,
    LeaseExpiredError,
    Listing,
    ModifiedAt,
    Operation,
    Put,
)
from headwater.coordination.on_database import DatabaseCoordination
from headwater.coordination.on_etcd import EtcdCoordination
from headwater.coordination.open import open_coordination
from headwater.coordination.port import Coordination

__all__ = [
    "Absent",
    "Batch",
    "CompactedError",
    "Compare",
    "Coordination",
    "CreatedAt",
    "DatabaseCoordination",
    "Delete",
    "Entry",
    "EtcdCoordination",
    "Event",
    "Held",
    "Lease",
    "LeaseExpiredError",
    "LeasedBy",
    "Listing",
    "ModifiedAt",
    "Operation",
    "Put",
    "acquire",
    "open_coordination",
]
