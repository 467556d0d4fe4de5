"""What requests about tables come to: drafts, made on one commit of the branch. Nothing is written here."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from headwater.catalog.model import Content, TableContent, TableKey
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.publish.creation import TABLES, place_of
from headwater.publish.foreign import Arrival, judge
from headwater.publish.foreign_files import check_places
from headwater.publish.heads import HOME
from headwater.publish.model import TableWish
from headwater.server.iceberg.decide import (
    incarnation_in,
    is_creation,
    require,
    told,
    without_own,
)
from headwater.server.iceberg.errors import AlreadyThereError, BodyError, RequirementFailedError, SentBeforeError
from headwater.server.iceberg.looking_back import sent
from headwater.server.iceberg.model import CreateTableBody, RegisterBody, TableChange
from headwater.server.iceberg.protocol import Desk, Draft
from headwater.server.iceberg.resent import Sending
from headwater.tables.blank import blank
from headwater.tables.create import DEFAULT_PROPERTIES, new_table, uuid_from
from headwater.tables.head import INCARNATION, METADATA_FOLDER, OPERATION
from headwater.tables.metadata import decode_metadata
from headwater.tables.metadata_log import with_log_entry
from headwater.tables.model import Staged, TableCorruptError, TableVersion
from headwater.tables.properties import FORMAT_VERSION, GC_ENABLED, OWN_PREFIX
from headwater.tables.reach import reach
from headwater.tables.rules import later
from headwater.tables.updates import apply_updates


def new_document(desk: Desk, key: TableKey, body: CreateTableBody) -> TableMetadata:
    """The first document of a table, which the client may take as it is, or commit later."""
    if body.location is not None:
        raise BodyError(f"the lake chooses the place of {key} by itself", hint="leave the location out")
    incarnation = new_ulid(desk.staging.clock, desk.staging.randomness)
    metadata = new_table(
        body.schema_,
        location=place_of(desk.lake, TABLES, key, incarnation),
        spec=body.partition_spec or UNPARTITIONED_PARTITION_SPEC,
        sort_order=body.write_order or UNSORTED_SORT_ORDER,
        properties=body.properties,
        format_version=_format_version(body),
        incarnation=incarnation,
        operation=desk.staging.operation,
        clock=desk.staging.clock,
        randomness=desk.staging.randomness,
    )
    check_places(desk.state.files, None, metadata)
    return _at_home(desk, metadata, incarnation)


def _format_version(body: CreateTableBody) -> int:
    text = body.properties.get(FORMAT_VERSION, "2")
    if not text.isascii() or not text.isdecimal():
        raise BodyError(f"the format version is {text!r}", hint="a whole number")
    return int(text)


def _at_home(desk: Desk, metadata: TableMetadata, incarnation: Ulid) -> TableMetadata:
    own = {INCARNATION: incarnation, OPERATION: desk.staging.operation, HOME: desk.state.ref.incarnation}
    return metadata.model_copy(update={"properties": {**metadata.properties, **own}})


def creation(desk: Desk, key: TableKey, body: CreateTableBody) -> Draft:
    """A new, empty table."""
    around = desk.free(key)
    metadata = new_document(desk, key, body)
    return Draft(f"create {key}", (TableWish(key, None, Staged(metadata)),), around)


def change(desk: Desk, changes: Sequence[TableChange]) -> Draft | None:
    """Changes of one or several tables; None when they change nothing, or were made before."""
    try:
        return _changed(desk, changes)
    except HeadwaterError as error:
        match sent(desk, changes):
            case Sending.AGAIN:
                return None
            case Sending.UNKNOWN:
                raise SentBeforeError(changes[0].key, error.message) from error
            case Sending.FIRST:
                raise


def _changed(desk: Desk, changes: Sequence[TableChange]) -> Draft | None:
    wishes, arrivals, messages = [], [], []
    reads: dict[TableKey, Content | None] = {}
    held = desk.tables([each.key for each in changes if not is_creation(each.requirements)])
    for each in changes:
        if is_creation(each.requirements):
            reads |= desk.free(each.key)
            made = _staged(desk, each)
            arrivals.append(Arrival(each.key, None, made))
            wishes.append(TableWish(each.key, None, Staged(made)))
            messages.append(told(each.key, each.updates, is_new=True))
            continue
        pinned, version = held[each.key]
        require(each.key, each.requirements, version.metadata)
        after = apply_updates(version.metadata, each.updates, desk.staging.clock.now())
        if after is version.metadata:
            reads[each.key] = pinned
            continue
        arrivals.append(Arrival(each.key, version.metadata, after))
        wishes.append(TableWish(each.key, pinned, Staged(_next(desk, version, after))))
        messages.append(told(each.key, each.updates, is_new=False))
    if not wishes:
        return None
    reads = {**judge(desk.state, arrivals, desk.options), **reads}
    return Draft("; ".join(messages), tuple(wishes), reads)


def _staged(desk: Desk, change: TableChange) -> TableMetadata:
    """The document of a table whose creation was staged, with what its maker did to it since."""
    randomness, now = desk.staging.randomness, desk.staging.clock.now()
    updates = without_own(change.updates)
    start = blank(updates, fresh_uuid=uuid_from(randomness), now=now)
    incarnation = incarnation_in(start.location, desk.lake, TABLES)
    if not _is_unused(desk, start.location):
        raise RequirementFailedError(change.key, f"{start.location} is the place of a table already")
    made = apply_updates(start, updates, now)
    properties = {**DEFAULT_PROPERTIES, **made.properties}
    return _at_home(desk, made.model_copy(update={"properties": properties}), incarnation)


def _is_unused(desk: Desk, location: str) -> bool:
    """Whether no document lies at the place: two tables must not share a sequence of versions."""
    store, path = desk.state.files.place(f"{location}/{METADATA_FOLDER}/x")
    folder = path.rpartition("/")[0]
    return not any(each.path.endswith(".metadata.json") for each in store.list(folder))


def _next(desk: Desk, version: TableVersion, after: TableMetadata) -> TableMetadata:
    """The next version of the table."""
    made = after.model_copy(update={"properties": {**after.properties, OPERATION: desk.staging.operation}})
    if version.location is None:
        return made
    return with_log_entry(made, version.location, version.metadata.last_updated_ms)


def registration(desk: Desk, key: TableKey, body: RegisterBody) -> Draft:
    """A table made from a document that is there: its files stay where they are, its new ones go to a place of its own.

    Its constraints do not come with it: they speak of tables of the lake that it was in.
    """
    held = desk.state.content(key)
    found = _registered(desk, body.metadata_location)
    others = {name: value for name, value in found.properties.items() if not name.startswith(OWN_PREFIX)}
    found = found.model_copy(update={"properties": {**others, GC_ENABLED: "false"}})
    if held is None or not body.overwrite:
        around = desk.free(key)
        incarnation = new_ulid(desk.staging.clock, desk.staging.randomness)
        made = found.model_copy(update={"location": place_of(desk.lake, TABLES, key, incarnation), "metadata_log": []})
        made = _at_home(desk, made, incarnation)
        judge(desk.state, [Arrival(key, None, made)], desk.options)
        return Draft(f"register {key}", (TableWish(key, None, Staged(made)),), around)
    if not isinstance(held, TableContent):
        raise AlreadyThereError(key, "view or namespace")
    version = desk.state.table(key)
    before = version.metadata
    own = {name: value for name, value in before.properties.items() if name.startswith(OWN_PREFIX)}
    update = {
        "location": before.location,
        "metadata_log": before.metadata_log,
        "last_updated_ms": later(before, desk.staging.clock.now()),
        "properties": {**found.properties, **own},
    }
    made = found.model_copy(update=update)
    reads = judge(desk.state, [Arrival(key, before, made)], desk.options)
    return Draft(f"register {key} anew", (TableWish(key, held, Staged(_next(desk, version, made))),), reads)


def _registered(desk: Desk, location: str) -> TableMetadata:
    """The document, whose files can all be read and lie where the lake may look."""
    files = desk.state.files
    try:
        metadata = decode_metadata(files.read(location), location)
        # All snapshots: one that cannot be read would be in the way of whoever looks for files that nothing needs.
        bare = metadata.model_copy(update={"metadata_log": []})
        for each in reach(files, bare, metadata_location=location):
            files.place(each.location)
    except TableCorruptError as error:
        raise UsageError(
            f"the table at {location} cannot be registered: {error.message}", hint="it must be whole", path=location
        ) from error
    return metadata
