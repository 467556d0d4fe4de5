"""The file table: a node's files in four states, in the database; and how data files are named."""

from headwater.ingest.files.model import FileRow, FileTableError, FileType, Hull, NewFile, Replacement, TablePath
from headwater.ingest.files.names import FileName, parse_name
from headwater.ingest.files.protocol import FileTable

__all__ = [
    "FileName",
    "FileRow",
    "FileTable",
    "FileTableError",
    "FileType",
    "Hull",
    "NewFile",
    "Replacement",
    "TablePath",
    "parse_name",
]
