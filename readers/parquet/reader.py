"""``ParquetReader``, and the facts of files."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Unpack

import pyarrow as pa

from ...engine.errors import ReadWarning, SourceMissingError, UsageError
from ...engine.locations import Location, located, reading_location
from ...engine.markup import bar, panel, panel_or_error, table
from ...engine.rrd import StoreEntry
from ...engine.units import counted, size
from ..recording_file import FrameReader
from .exported import ExportedSource, ExportManifest, is_exported
from .file import ParquetFile
from .layout import is_index_type
from .options import ColumnRule, IndexColumn, LayoutArguments, ParquetOptions
from .source import ParquetSource, exists, find_files

if TYPE_CHECKING:
    from ...engine.stream import LazyChunkStream

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
    """One column.

    ``values`` is the number of stored values; ``bytes`` and ``uncompressed_bytes`` are the sizes of the pages.

    ``is_index`` is true if the column can be a timeline, and its type or name suggests a timeline.
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
    """The description of a file's content, from :meth:`ParquetReader.info`. ``bytes`` is the size of the file."""

    path: str
    bytes: int
    created_by: str
    rows: int
    row_groups: int
    columns: tuple[ColumnInfo, ...]
    key_values: Mapping[str, str]

    @property
    def index_candidates(self) -> tuple[str, ...]:
        """The columns that may be timelines."""
        return tuple(column.name for column in self.columns if column.is_index)


def _describe(file: ParquetFile) -> ParquetInfo:
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


class ParquetReader(FrameReader):
    """Read chunks from a Parquet file, or from all files of a folder or of a pattern such as ``drives/*.parquet``.

    A row of the file becomes one row in each entity. Values keep their Arrow type, and a null becomes a null instance.
    The file's key/value pairs become static data at ``/__properties``. Page checksums are verified, and a damaged file
    raises ``ReadError`` while it is read. Several files are read as one, sorted by path. Each folder named
    ``key=value`` adds a column. A folder written by :func:`write_parquet` gives the original chunks.

    Parameters
    ----------
    path
        The file, folder or pattern, or the URL of one in an object store. It must exist; it is opened when the stream
        runs.
    entity_path_prefix
        Prefix of every entity path, except for ``/__properties``.
    column_grouping
        How columns form entities. With ``"prefix"``, columns with the same text before the first ``delimiter`` form one
        entity. With ``"individual"``, each column does. With ``"explicit_prefixes"``, columns with the same longest
        prefix in ``prefixes`` do, and each other column forms its own.
    delimiter
        One character.
    prefixes
        The prefixes, only for ``"explicit_prefixes"``.
    use_structs
        Whether several columns of a group become one component ``data``, a struct. Otherwise each becomes a component.
        This has no effect with ``"individual"``.
    static_columns
        Columns with the same value in every row; they become static data. Missing names are ignored.
    index_columns
        The columns that become timelines: :class:`IndexColumn`, ``(name, type)`` or ``(name, type, unit)``. The type is
        ``"timestamp"``, ``"duration"`` or ``"sequence"``; ``unit`` (``ns``, ``us``, ``ms``, ``s``) is the unit of
        integers. Without index columns, the timeline ``row_index`` counts rows from 0.
    column_rules
        Rules that join several columns into one component; the first matching rule wins.

    Raises
    ------
    FileNotFoundError
        There is no such file (``SourceMissingError``).
    ValueError
        An option is invalid, or contradicts another (``UsageError``).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        entity_path_prefix: str | None = None,
        column_grouping: str = "prefix",
        delimiter: str = "_",
        prefixes: Iterable[str] | None = None,
        use_structs: bool = True,
        static_columns: Iterable[str] | None = None,
        index_columns: Iterable[IndexColumn | Sequence[str]] | None = None,
        column_rules: Iterable[ColumnRule] | None = None,
    ) -> None:
        self._path = reading_location(path)
        self._options = ParquetOptions().changed(
            entity_path_prefix=entity_path_prefix,
            column_grouping=column_grouping,
            delimiter=delimiter,
            prefixes=prefixes,
            use_structs=use_structs,
            static_columns=static_columns,
            index_columns=index_columns,
            column_rules=column_rules,
        )
        if not exists(str(self._path)):
            raise SourceMissingError(f"Parquet file not found: {self._path}")

    @property
    def path(self) -> Location:
        """The path of the file, or the URL of the object."""
        return self._path

    def __repr__(self) -> str:
        return f"ParquetReader({self._path})"

    def _repr_html_(self) -> str:
        return panel_or_error(repr(self), self._panel)

    def _panel(self) -> str:
        """A panel of the first file and the size of all files."""
        files = self.info()
        facts = [
            counted(len(files), "file"),
            counted(sum(file.rows for file in files), "row"),
            counted(sum(file.row_groups for file in files), "row group"),
            size(sum(file.bytes for file in files)),
        ]
        columns = files[0].columns if files else ()
        largest = max((column.bytes for column in columns), default=0) or 1
        rows = (
            (c.name, c.type, "may be a timeline" if c.is_index else "", size(c.bytes), bar(c.bytes / largest))
            for c in columns
        )
        head = ["column", "type", "", "size", ""]
        return panel(repr(self), facts, table(head, rows, len(columns), kind="wide"))

    def recordings(self) -> list[StoreEntry]:
        """Return the recordings of a folder written by :func:`write_parquet`. Other files have no recording ids."""
        place = located(self._path)
        return list(ExportManifest.read(str(place)).recordings) if is_exported(place) else []

    def source(
        self, *, recording_id: str | None = None, **options: Unpack[LayoutArguments]
    ) -> ParquetSource | ExportedSource:
        """Return the file as a source for a pipeline. The arguments are as for :meth:`stream`."""
        chosen = self._options.changed(**options) if options else self._options
        place = located(self._path)
        if not is_exported(place):
            if recording_id is not None:
                raise UsageError("recording_id is only for a folder that write_parquet wrote", path=str(place))
            return ParquetSource(str(place), chosen)
        if chosen != ParquetOptions():
            raise UsageError(
                "this folder has a manifest, and is read without options",
                path=str(place),
                hint="To set options, read the folder of one entity.",
            )
        stores = self.recordings()
        if recording_id is None and len(stores) > 1:
            warnings.warn(
                f"{place} has {len(stores)} recordings; {stores[0].recording_id} is read. Choose one with"
                " recording_id.",
                ReadWarning,
                stacklevel=3,
            )
        return ExportedSource(str(place), recording_id)

    def info(self) -> list[ParquetInfo]:
        """Describe each file by its footer: rows, columns, types, encodings, sizes. Raises ``ReadError``."""
        infos = []
        for data in find_files(str(located(self._path))):
            with ParquetFile(data.path) as file:
                infos.append(_describe(file))
        return infos

    def stream(self, *, recording_id: str | None = None, **options: Unpack[LayoutArguments]) -> LazyChunkStream:
        """A lazy stream of the chunks; each call reads the file again.

        A folder written by :func:`write_parquet` gives the original chunks with their ids, entity by entity.
        ``recording_id`` selects the recording, by default the first.

        ``options`` are those of the reader, except ``path``. They replace the reader's options for this stream only.

        Order: first properties; then runs of row groups of about 64 MiB, in batches of at most 65,536 rows, with one
        chunk per group of columns; then static data. It is the same in every run.
        """
        from ...engine.stream import LazyChunkStream

        return LazyChunkStream.from_source(self.source(recording_id=recording_id, **options))
