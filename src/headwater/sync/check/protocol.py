"""Checking a replica: every path, every file, and with `rows` every row. Nothing is written.

Each file of each table and view at the replica's head is looked at once; files that speak of others, by path, are read
as well. A file that cannot be read is told and passed over, so that one fault does not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

from headwater.catalog.model import Content, TableContent, TableKey, ViewContent
from headwater.catalog.port import Catalog
from headwater.kernel.errors import HeadwaterError
from headwater.regions.registry import Registry
from headwater.regions.registry.model import Override
from headwater.storage.errors import ObjectNotFoundError
from headwater.sync.check.model import Checked, Fault, Finding, Rows
from headwater.sync.model import Replica
from headwater.tables.files import Files
from headwater.tables.metadata import decode_metadata
from headwater.tables.reach import Reached, ReachKind, Unreadable, reach_leniently
from headwater.tables.relocate_deletes import relocate_position_deletes, relocate_vectors
from headwater.tables.relocate_metadata import PATH_PROPERTIES
from headwater.tables.views import decode_view

# The rows of the table whose metadata.json is there.
CountRows = Callable[[str], Rows]

# By what the formats of data files begin with: a name need not tell.
_BEGINNINGS = {b"PAR1": "PARQUET", b"Obj\x01": "AVRO", b"ORC": "ORC"}
_AT_ONCE = 1_000
_WORKERS = 32


class Checker:
    """Checks the replica of one region."""

    def __init__(self, catalog: Catalog, files: Files, registry: Registry, region: str) -> None:
        self._catalog = catalog
        self._files = files
        self._local = registry.region(region).local_prefix
        kept = [_kept_at(registry, each) for each in registry.overrides if each.to_region != region]
        policy = registry.dest_policy
        if policy.region not in (None, region) and not policy.ensure_local_prefix:
            kept.append(registry.region(str(policy.region)).local_prefix)  # where all regions read every source
        self._exempt = tuple(kept)
        self._region = region

    def check(self, replica: Replica, count_rows: CountRows | None = None) -> Checked:
        """Look at everything that the replica shows; with `count_rows` compare its rows with those of `main`."""
        shown = _shown(self._catalog.contents(replica.head)) if replica.head else {}
        made = Checked(
            self._region,
            replica.head,
            None if replica.origin is None else replica.origin.hash,
            ahead=tuple(str(each) for each in replica.ahead if each in shown),
        )
        exempt: list[str] = []
        findings: list[Finding] = []
        files = 0
        for key, content in shown.items():
            for some in _in_parts(self._reached(str(key), content)):
                found, seen = self._look(str(key), some, exempt)
                findings += found
                files += seen
        tables = sum(isinstance(each, TableContent) for each in shown.values())
        made = replace(made, tables=tables, files=files, exempt=tuple(sorted(set(exempt))))
        if count_rows is not None:
            rows, other = self._compare(shown, replica, count_rows)
            made, findings = replace(made, rows=rows), [*findings, *other]
        return replace(made, findings=tuple(findings))

    def _reached(self, table: str, content: TableContent | ViewContent) -> Iterator[Reached | Finding]:
        location = content.metadata_location
        try:
            data = self._files.read(location)
            if isinstance(content, ViewContent):
                yield from self._folders(table, location, [decode_view(data, location).location])
                yield Reached(ReachKind.METADATA, location)
                return
            metadata = decode_metadata(data, location)
        except HeadwaterError as error:
            yield Finding(table, Fault.UNREADABLE, location, error.message)
            return
        said = [metadata.properties[each] for each in PATH_PROPERTIES if each in metadata.properties]
        yield from self._folders(table, location, [metadata.location, *said])
        for each in reach_leniently(self._files, metadata, metadata_location=location):
            if isinstance(each, Unreadable):
                yield Finding(table, Fault.UNREADABLE, each.location, each.error.message)
            elif each.kind is not ReachKind.METADATA_LOG:
                yield each

    def _folders(self, table: str, location: str, folders: Sequence[str]) -> Iterator[Finding]:
        """Where a document says that its table, or what is written to it, lies."""
        for each in folders:
            if not self._may_be_at(f"{each.rstrip('/')}/"):
                yield Finding(table, Fault.FOREIGN_PATH, location, f"it names {each}, not under {self._local}")

    def _may_be_at(self, uri: str) -> bool:
        return uri.startswith((self._local, *self._exempt))

    def _look(self, table: str, some: Sequence[Reached | Finding], exempt: list[str]) -> tuple[list[Finding], int]:
        findings = [each for each in some if isinstance(each, Finding)]
        reached = [each for each in some if isinstance(each, Reached)]
        for each in reached:
            if not each.location.startswith(self._local):
                if each.location.startswith(self._exempt):
                    exempt.append(each.location)
                else:
                    findings.append(Finding(table, Fault.FOREIGN_PATH, each.location, f"not under {self._local}"))
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="check") as pool:
            looked = pool.map(lambda each: self._one(table, each), reached)
        return [*findings, *(each for found in looked for each in found)], len(reached)

    def _one(self, table: str, each: Reached) -> tuple[Finding, ...]:
        try:
            store, path = self._files.place(each.location)
            size_bytes = store.head(path).size_bytes
        except ObjectNotFoundError:
            return (Finding(table, Fault.MISSING, each.location, str(each.kind.value)),)
        except HeadwaterError as error:
            return (Finding(table, Fault.UNREADABLE, each.location, error.message),)
        inside = self._inside(table, each)
        if each.size_bytes is not None and size_bytes != each.size_bytes:
            told = f"{size_bytes} bytes, and {each.size_bytes} by the metadata"
            return (Finding(table, Fault.SIZE, each.location, told), *inside)
        return inside

    def _inside(self, table: str, each: Reached) -> tuple[Finding, ...]:
        """What a file of deletes speaks of: for data files of other paths, its deletes would hold for nothing (R9)."""
        paths: list[str] = []

        def heard(path: str) -> str:
            paths.append(path)
            return path

        try:
            if each.kind is ReachKind.DELETION_VECTOR:
                relocate_vectors(self._files.read(each.location), each.location, heard)
            elif each.kind is ReachKind.POSITION_DELETES:
                data = self._files.read(each.location)
                file_format = next((kind for magic, kind in _BEGINNINGS.items() if data.startswith(magic)), "unknown")
                relocate_position_deletes(data, each.location, file_format, heard)
        except HeadwaterError as error:
            return (Finding(table, Fault.UNREADABLE, each.location, error.message),)
        foreign = next((path for path in paths if not self._may_be_at(path)), None)
        if foreign is None:
            return ()
        told = f"it speaks of {foreign}, not under {self._local}"
        return (Finding(table, Fault.FOREIGN_PATH, each.location, told),)

    def _compare(
        self, everything: Mapping[TableKey, TableContent | ViewContent], replica: Replica, count_rows: CountRows
    ) -> tuple[dict[str, int], list[Finding]]:
        if replica.origin is None:
            told = "the replica says of no commit of main that it shows it"
            return {}, [Finding(str(key), Fault.OTHER_ROWS, "", told) for key in everything]
        shown = _tables(everything, replica.ahead)
        main = _tables(_shown(self._catalog.contents(replica.origin.hash)), replica.ahead)
        rows: dict[str, int] = {}
        findings = [Finding(str(key), Fault.OTHER_ROWS, "", "main has no such table") for key in shown.keys() - main]
        for key, content in main.items():
            if key not in shown:
                findings.append(Finding(str(key), Fault.OTHER_ROWS, "", "the replica has no such table"))
                continue
            ours, theirs = count_rows(shown[key].metadata_location), count_rows(content.metadata_location)
            rows[str(key)] = ours.count
            if ours != theirs:
                told = f"{ours.count} rows with checksum {ours.checksum}; main: {theirs.count} with {theirs.checksum}"
                findings.append(Finding(str(key), Fault.OTHER_ROWS, shown[key].metadata_location, told))
        return rows, findings


def _kept_at(registry: Registry, override: Override) -> str:
    """Where all regions read what an override covers: where it is, if its region is at home there (R8)."""
    home = registry.region(override.to_region).local_prefix
    return override.match_from if override.match_from.startswith(home) else home


def _shown(contents: Iterator[tuple[TableKey, Content]]) -> dict[TableKey, TableContent | ViewContent]:
    return {key: each for key, each in contents if isinstance(each, TableContent | ViewContent)}


def _tables(
    shown: Mapping[TableKey, TableContent | ViewContent], ahead: Sequence[TableKey]
) -> dict[TableKey, TableContent]:
    return {key: each for key, each in shown.items() if isinstance(each, TableContent) and key not in ahead}


def _in_parts(reached: Iterator[Reached | Finding]) -> Iterator[list[Reached | Finding]]:
    while some := list(islice(reached, _AT_ONCE)):
        yield some
