"""What a load means, from names alone. Pure: nothing is read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import TableKey
from headwater.kernel.errors import UsageError
from headwater.publish.constraints.model import Cardinality, Constraints
from headwater.publish.load.model import Fitted, Format, Mode
from headwater.tables.model import TableUsageError

SUFFIXES: Mapping[str, Format] = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
    ".json": Format.NDJSON,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
}
# Files of text may be compressed as a whole; the others compress within.
_COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".lz4"})
_TEXT = frozenset({Format.CSV, Format.NDJSON})


def mode_of(text: str) -> Mode:
    """The mode of this name."""
    try:
        return Mode(text)
    except ValueError:
        raise UsageError(f"there is no mode {text!r}", hint=f"use one of {', '.join(Mode)}", mode=text) from None


def format_of(path: str, given: str | None = None) -> Format:
    """What the file is: as was said, or by its suffix."""
    if given is not None:
        try:
            return Format(given)
        except ValueError:
            raise UsageError(
                f"there is no format {given!r}", hint=f"use one of {', '.join(Format)}", format=given
            ) from None
    suffixes = [each.lower() for each in PurePath(path).suffixes]
    compressed = bool(suffixes) and suffixes[-1] in _COMPRESSED
    found = SUFFIXES.get(suffixes[-2] if compressed and len(suffixes) > 1 else suffixes[-1]) if suffixes else None
    if found is None or (compressed and found not in _TEXT):
        raise UsageError(
            f"what {path} holds cannot be told from its name",
            hint=f"say the format: {', '.join(Format)}; known suffixes are {', '.join(SUFFIXES)}",
            path=path,
        )
    return found


def delimiter_of(path: str) -> str:
    """What separates the columns of a file of text."""
    return "\t" if ".tsv" in (each.lower() for each in PurePath(path).suffixes) else ","


def match_columns(given: Sequence[str], known: Sequence[str], origin: str) -> tuple[str, ...]:
    """The table's names for the given columns: the same, or else the only one that differs in capitals alone."""
    exact = set(known)
    folded: dict[str, list[str]] = {}
    for each in known:
        folded.setdefault(each.casefold(), []).append(each)
    unknown = [each for each in given if each not in exact and each.casefold() not in folded]
    if unknown:
        raise TableUsageError(
            f"{origin} has columns that the table does not have: {', '.join(unknown)}"
            if len(unknown) > 1
            else f"{origin} has a column that the table does not have: {unknown[0]}",
            hint=f"leave them out, or add them to the table; it has {', '.join(known)}",
            columns=unknown,
            source=origin,
        )
    named = tuple(each if each in exact else _only(each, folded[each.casefold()], origin) for each in given)
    for place, name in enumerate(named):
        if name in named[:place]:
            spelled = " and ".join(given[each] for each in (named.index(name), place))
            raise TableUsageError(
                f"{origin} has the column {name} twice, as {spelled}",
                hint="leave one out",
                column=name,
                source=origin,
            )
    return named


def _only(name: str, candidates: Sequence[str], origin: str) -> str:
    if len(candidates) > 1:
        raise TableUsageError(
            f"the column {name} of {origin} may be any of {', '.join(candidates)}",
            hint="spell it as the table does",
            column=name,
            source=origin,
        )
    return candidates[0]


def merge_key(key: TableKey, metadata: TableMetadata, constraints: Constraints, on: Sequence[str] | None) -> list[str]:
    """The columns that tell which rows are the same: those named, or the primary key."""
    names = metadata.schema().column_names
    if on is not None:
        if not on:
            raise UsageError(f"the merge into {key} names no key column", hint="name at least one", table=str(key))
        fields = {each.name: each for each in metadata.schema().fields}
        named = list(match_columns(on, list(fields), "the key"))
        for name in named:
            if not fields[name].field_type.is_primitive:
                raise UsageError(
                    f"column {name} of {key} cannot be a key: it is {fields[name].field_type}",
                    hint="use plain columns",
                    column=name,
                )
        return named
    if not constraints.primary_key:
        raise UsageError(
            f"{key} has no primary key, so a merge cannot tell which rows are the same",
            hint=f"name the columns that tell, of {', '.join(names)}",
            table=str(key),
        )
    return list(constraints.primary_key)


def columns_given(pieces: Sequence[Fitted]) -> frozenset[str]:
    """The columns that a merge sets. What one file names and another does not would be emptied by the other's rows."""
    given = frozenset(name for each in pieces for name in each.given)
    for each in pieces:
        lacking = sorted(given - each.given)
        if lacking and not each.is_sparse:
            raise TableUsageError(
                f"{each.origin} does not have the column {lacking[0]}, which others in this merge have",
                hint="merge them one after the other: a column that is not given is kept as it is",
                column=lacking[0],
                source=each.origin,
            )
    return given


def may_violate(constraints: Constraints) -> bool:
    """Whether rows that fit the schema can break anything: what is required is refused as rows are fitted."""
    return bool(constraints.primary_key or constraints.declared or constraints.referenced_by)


def only_primary_key(constraints: Constraints, on: Sequence[str]) -> bool:
    """Whether a merge by these columns, in which no key comes twice, proves all that there is to prove."""
    others = constraints.declared or constraints.referenced_by
    return not others and set(on) == set(constraints.primary_key)


def counts_what_goes(constraints: Constraints) -> bool:
    """Whether rows that go can break anything: others refer to them, or there must be some."""
    at_least = any(isinstance(each, Cardinality) and each.at_least for each in constraints.declared)
    return bool(constraints.referenced_by) or at_least
