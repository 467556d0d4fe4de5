"""Making a lake, and opening one.

    marker             put if absent; a lake that was begun and not finished has only this
    objects            the first commit: the namespace `default`
    first manifest     put if absent; the lake is finished

A crash after any step leaves what the next `init` goes on with. Of several that run at once each step has one winner,
and all of them end with the same lake. A lake that lost its marker gets one again: its manifest knows which lake it is.

An older manifest format is brought to the newest, step by step, by the first writer that opens the lake: the migrated
manifest is one more entry of the history, so of several openers one migrates and the others find it done. A reader
migrates in memory. A newer format is refused by everybody.
"""

from __future__ import annotations

from datetime import timedelta

from headwater.catalog.embedded.beginning import plant
from headwater.catalog.embedded.codec import (
    MIGRATIONS,
    Migrations,
    decode_manifest,
    decode_marker,
    encode_manifest,
    encode_marker,
    newest_format,
)
from headwater.catalog.embedded.hold import HOLD_TTL
from headwater.catalog.embedded.model import MANIFEST, MARKER, Manifest, Marker
from headwater.catalog.embedded.objects import Objects
from headwater.catalog.embedded.protocol import EmbeddedCatalog
from headwater.catalog.model import Ref, RefKind
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.kernel.clock import Clock
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import Ulid, new_ulid, time_of
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import Randomness
from headwater.kernel.retry import RetryPolicy
from headwater.sequence.history import History
from headwater.sequence.model import SequenceConflictError, SequenceOutcomeUnknownError
from headwater.sequence.protocol import WRITING, Sequencer
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError, StorageOutcomeUnknownError
from headwater.storage.port import Create, ObjectStore, require

INIT_ACTOR = "headwater:init"
WORKERS = 8


def init_embedded(
    store: ObjectStore,
    *,
    clock: Clock,
    randomness: Randomness,
    metrics: Metrics | None = None,
    policy: RetryPolicy | None = None,
    workers: int = WORKERS,
) -> EmbeddedCatalog:
    """Make the store a lake, unless it is one, and open it. What else lies in the store stays as it is."""
    require(store, WRITING, by="a lake")
    sequencer = Sequencer(store, MANIFEST, clock=clock, randomness=randomness, metrics=metrics, policy=policy)
    marker = _read_marker(store) or _make_marker(store, _marker_for(sequencer))
    if sequencer.latest() is None:
        _write_first(sequencer, Objects(store, workers=workers), marker.lake)
    return open_embedded(store, clock=clock, randomness=randomness, metrics=metrics, policy=policy, workers=workers)


def open_embedded(
    store: ObjectStore,
    *,
    clock: Clock,
    randomness: Randomness,
    metrics: Metrics | None = None,
    policy: RetryPolicy | None = None,
    read_only: bool = False,
    migrations: Migrations = MIGRATIONS,
    workers: int = WORKERS,
    hold_ttl: timedelta = HOLD_TTL,
) -> EmbeddedCatalog:
    """The catalog of an existing lake; one of an older format is migrated first, in memory when it is only read."""
    marker = _read_marker(store)
    if marker is None:
        raise UsageError(f"{store.name} is no lake: it has no {MARKER}", hint="run `headwater init`", lake=store.name)
    kind = History if read_only else Sequencer
    history = kind(store, MANIFEST, clock=clock, randomness=randomness, metrics=metrics, policy=policy)
    objects = Objects(store, workers=workers)
    catalog = EmbeddedCatalog(history, objects, marker.lake, migrations=migrations, hold_ttl=hold_ttl)
    if read_only:
        catalog.refs()  # a lake that cannot be read says so now
    else:
        catalog.migrate()
    return catalog


def _marker_for(sequencer: Sequencer) -> Marker:
    """That of the lake which the manifest names, if there is one: only its marker was lost. Else that of a new lake."""
    entry = sequencer.latest()
    if entry is None:
        return Marker(new_ulid(sequencer.clock, sequencer.randomness), sequencer.clock.now())
    lake = decode_manifest(entry.payload, MANIFEST.path_of(entry.id)).lake
    return Marker(lake, time_of(lake))


def _make_marker(store: ObjectStore, marker: Marker) -> Marker:
    try:
        store.put(MARKER, encode_marker(marker), Create())
    except (PreconditionFailedError, StorageOutcomeUnknownError):
        present = _read_marker(store)  # somebody else's, or our own
        if present is None:
            raise
        return present
    return marker


def _read_marker(store: ObjectStore) -> Marker | None:
    try:
        return decode_marker(store.get(MARKER).data, MARKER)
    except ObjectNotFoundError:
        return None


def _write_first(sequencer: Sequencer, objects: Objects, lake: Ulid) -> None:
    head = plant(objects, INIT_ACTOR, "a new lake", sequencer.clock, sequencer.randomness).commit.hash
    main = Ref(DEFAULT_BRANCH, RefKind.BRANCH, head, new_ulid(sequencer.clock, sequencer.randomness))
    try:
        sequencer.write(encode_manifest(Manifest(newest_format(), lake, {main.name: main})), after=None)
    except (SequenceConflictError, SequenceOutcomeUnknownError):
        if sequencer.latest() is None:  # otherwise there is a first manifest, whoever wrote it
            raise
