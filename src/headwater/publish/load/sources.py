"""Opening what is to be loaded: files by name or pattern, or rows in memory; all of it in pieces, never as a whole."""

from __future__ import annotations

import glob
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from headwater.kernel.errors import UsageError
from headwater.publish.load.decide import delimiter_of, format_of
from headwater.publish.load.model import Format, Piece, Source
from headwater.publish.load.ndjson import read_lines
from headwater.tables.user_rows import batches_of

_ROWS_AT_A_TIME = 1 << 18
_GROUP_BYTES, _GROUP_ROWS = 1 << 27, 1 << 21
_CSV_BLOCK_BYTES = 1 << 24  # a row may not be larger
_IN_MEMORY = "the source"


def open_source(source: Source, schema: Schema, file_format: str | None = None) -> Iterator[Piece]:
    """The rows, piece by piece. What is wrong with names is found before anything is read."""
    if isinstance(source, str | Path):
        return _of_files(_named(str(source)), schema, file_format)
    if isinstance(source, list | tuple) and (not source or isinstance(source[0], str | Path)):
        if not source:
            raise UsageError("the source names no file", hint="an empty table of rows is given as a pyarrow.Table")
        return _of_files([path for each in source for path in _named(str(each))], schema, file_format)
    if file_format is not None:
        raise UsageError("a format is said of rows that are in no file", hint="leave it out", format=file_format)
    return _of_batches(_batches(source))


def _batches(source: object) -> Iterable[pa.RecordBatch]:
    match source:
        case pa.Table():
            return batches_of(source)
        case pa.RecordBatch():
            return [source]
        case _ if hasattr(source, "__arrow_c_stream__"):  # a reader, a data frame, a relation of DuckDB
            reader = pa.RecordBatchReader.from_stream(source)
            # Its columns are checked even if it has no rows.
            return chain(batches_of(reader.schema.empty_table()), reader)
        case Iterable():
            return source
    raise UsageError(
        f"rows cannot be loaded from a {type(source).__name__}",
        hint="give the name of a file, a pyarrow.Table, or batches of rows",
    )


def _of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    rows = 0
    for each in batches:
        if not isinstance(each, pa.RecordBatch):
            raise UsageError(
                f"rows cannot be loaded from a {type(each).__name__}", hint="give batches of rows: pyarrow.RecordBatch"
            )
        yield Piece(_IN_MEMORY, rows, each)
        rows += each.num_rows


def _named(text: str) -> list[str]:
    """The files of this name, or of this pattern when there is none of the name."""
    if Path(text).is_dir():
        raise UsageError(f"{text} is a folder", hint=f"name its files: {text.rstrip('/')}/*", path=text)
    if Path(text).is_file():
        return [text]
    if Path(text).exists():
        raise UsageError(f"{text} is no file that can be read twice", hint="write a pipe to a file first", path=text)
    found = sorted(each for each in glob.glob(text, recursive=True) if Path(each).is_file())  # noqa: PTH207  (whole patterns)
    if not found:
        raise UsageError(f"there is no file {text}", hint="check the name; a pattern must match something", path=text)
    return found


def _of_files(paths: list[str], schema: Schema, file_format: str | None) -> Iterator[Piece]:
    formats = [format_of(path, file_format) for path in paths]
    return chain.from_iterable(_of_file(path, each, schema) for path, each in zip(paths, formats, strict=True))


def _of_file(path: str, file_format: Format, schema: Schema) -> Iterator[Piece]:
    with _naming(path, file_format):
        match file_format:
            case Format.PARQUET:
                yield from _parquet(path)
            case Format.ARROW:
                yield from _arrow(path)
            case Format.CSV:
                yield from _csv(path)
            case Format.NDJSON:
                with io.TextIOWrapper(io.BufferedReader(pa.input_stream(path)), "utf-8-sig", newline="\n") as lines:
                    yield from read_lines(lines, schema, path)


def _parquet(path: str) -> Iterator[Piece]:
    with pq.ParquetFile(path, memory_map=True, coerce_int96_timestamp_unit="us") as file:
        # An empty batch first: the columns are checked even if there are no rows.
        empty = batches_of(file.schema_arrow.empty_table())
        yield from _counted(path, chain(empty, _row_groups(file)))


def _row_groups(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Whole row groups take half the time of batches of rows; one that is too large comes in batches."""
    for place in range(file.num_row_groups):
        group = file.metadata.row_group(place)
        if group.total_byte_size <= _GROUP_BYTES and group.num_rows <= _GROUP_ROWS:
            yield from file.read_row_group(place).to_batches(_ROWS_AT_A_TIME)
        else:
            fitting = max(1, group.num_rows * _GROUP_BYTES // max(1, group.total_byte_size))
            yield from file.iter_batches(min(fitting, _ROWS_AT_A_TIME), row_groups=[place])


def _arrow(path: str) -> Iterator[Piece]:
    with pa.memory_map(path) as mapped:
        try:
            file = pa.ipc.open_file(mapped)
        except pa.ArrowInvalid:  # then it is a stream of batches, without the index behind them
            mapped.seek(0)
            stream = pa.ipc.open_stream(mapped)
            yield from _counted(path, chain(batches_of(stream.schema.empty_table()), stream))
            return
        batches = (file.get_batch(place) for place in range(file.num_record_batches))
        yield from _counted(path, chain(batches_of(file.schema.empty_table()), batches))


def _csv(path: str) -> Iterator[Piece]:
    """Every column as text: what the texts mean is said by the table. Empty means null, `""` an empty text."""
    with _open_csv(path, ()) as header:
        names = header.schema.names
    last = None
    with _open_csv(path, names) as reader:
        for piece in _counted(path, chain(batches_of(reader.schema.empty_table()), reader), is_text=True):
            if piece.batch.num_rows:
                last = piece.batch.column(piece.batch.num_columns - 1)[-1].as_py()
            yield piece
    if last is not None and _ends_within_quotes(path, last):
        raise pa.ArrowInvalid("the last row has a quote that is never closed")


def _ends_within_quotes(path: str, last: str) -> bool:
    """Whether the last value was opened and not closed; Arrow takes all rows from there on for a part of it."""
    opened = b'"' + last.replace('"', '""').encode()
    tail, length = b"", len(opened) + 1
    with pa.input_stream(path) as stream:
        while block := stream.read(_CSV_BLOCK_BYTES):
            tail = (tail + block)[-length:]
    return tail.endswith(opened) and tail != opened + b'"'


@contextmanager
def _open_csv(path: str, names: Sequence[str]) -> Iterator[pa.csv.CSVStreamingReader]:
    with (
        pa.input_stream(path) as stream,
        pa.csv.open_csv(
            stream,
            # In one thread: only then do errors tell the row.
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter_of(path),
                newlines_in_values=True,
                ignore_empty_lines=len(names) != 1,  # of a single column, an empty line is a null
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.large_string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ) as reader,
    ):
        yield reader


def _counted(path: str, batches: Iterable[pa.RecordBatch], *, is_text: bool = False) -> Iterator[Piece]:
    rows = 0
    for each in batches:
        yield Piece(path, rows, each, is_text=is_text)
        rows += each.num_rows


@contextmanager
def _naming(path: str, file_format: Format) -> Iterator[None]:
    """Errors of readers become errors that name the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, EOFError) as error:
        raise UsageError(
            f"{path} cannot be read as {file_format}: {error}",
            hint="check the file, or say another format",
            path=path,
            format=str(file_format),
        ) from error
