"""What is in a Parquet file, as far as its footer tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from .file import ParquetFile
from .timelines import is_index_type

_CODECS: Final = ("none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
_ENCODINGS: Final = {
    0: "plain",
    2: "plain_dictionary",
    3: "rle",
    4: "bit_packed",
    5: "delta_binary_packed",
    6: "delta_length_byte_array",
    7: "delta_byte_array",
    8: "rle_dictionary",
    9: "byte_stream_split",
}
_TIME_WORDS: Final = ("time", "stamp", "frame", "index", "seq", "tick")


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """One column. ``values`` counts what is stored of it, ``bytes`` and ``uncompressed_bytes`` are those of its pages.

    ``is_index``: its type can be a timeline, and its type or name says that it may be meant as one.
    """

    name: str
    type: str
    nullable: bool
    encodings: tuple[str, ...]
    compression: tuple[str, ...]
    values: int
    bytes: int
    uncompressed_bytes: int
    is_index: bool


@dataclass(frozen=True, slots=True)
class ParquetInfo:
    """What :meth:`ParquetReader.info` tells. ``bytes`` is the size of the file."""

    path: str
    bytes: int
    created_by: str
    rows: int
    row_groups: int
    columns: tuple[ColumnInfo, ...]
    key_values: Mapping[str, str]

    @property
    def index_candidates(self) -> tuple[str, ...]:
        """Columns that may be meant as timelines."""
        return tuple(column.name for column in self.columns if column.is_index)


def describe_file(file: ParquetFile) -> ParquetInfo:
    """Describe an open file from its footer."""
    return ParquetInfo(
        file.path,
        file.size,
        file.footer.created_by,
        file.footer.rows,
        len(file.footer.row_groups),
        tuple(_column(file, position, field) for position, field in enumerate(file.schema)),
        dict(file.footer.key_values),
    )


def _column(file: ParquetFile, position: int, field: pa.Field) -> ColumnInfo:
    stored = [group.columns[leaf] for group in file.footer.row_groups for leaf in file.leaves([position])]
    encodings = Counter(encoding for column in stored for encoding in column.encodings)
    codecs = Counter(column.codec for column in stored)
    return ColumnInfo(
        field.name,
        str(field.type),
        field.nullable,
        tuple(_ENCODINGS.get(e, str(e)) for e in sorted(encodings)),
        tuple(_CODECS[c] if 0 <= c < len(_CODECS) else str(c) for c in sorted(codecs)),
        sum(column.values for column in stored),
        sum(column.compressed for column in stored),
        sum(column.uncompressed for column in stored),
        _may_be_index(field),
    )


def _may_be_index(field: pa.Field) -> bool:
    if not is_index_type(field.type):
        return False
    named = any(word in field.name.lower() for word in _TIME_WORDS)
    return bool(pa.types.is_temporal(field.type)) or named
