"""ParquetReader: the public face of this package."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ...engine.errors import SourceMissingError
from ...engine.locations import Location, located, reading_location
from .files import exists
from .info import ParquetInfo
from .options import IndexColumn, ParquetOptions
from .rules import ColumnRule
from .source import ParquetSource

if TYPE_CHECKING:
    from ...engine.stream import LazyChunkStream


class LayoutArguments(TypedDict, total=False):
    """The options of :class:`ParquetReader`."""

    entity_path_prefix: str | None
    column_grouping: str
    delimiter: str
    prefixes: Iterable[str] | None
    use_structs: bool
    static_columns: Iterable[str] | None
    index_columns: Iterable[IndexColumn | Sequence[str]] | None
    column_rules: Iterable[ColumnRule] | None


class ParquetReader:
    """Read chunks from a Parquet file, or from all files of a folder or of a pattern such as ``drives/*.parquet``.

    Every row of the file is one row of each chunk it goes into; values keep their Arrow type, a null is a null
    instance. The file's key/value pairs come as static data at ``/__properties``. Page checksums are compared, and a
    damaged file raises ``ReadError`` while it is read. Several files are read as one, sorted by path; folders named
    ``key=value`` add a column each.

    Parameters
    ----------
    path
        The file, folder or pattern, or the URL of one in an object store. It must exist; it is opened when the stream
        is pulled.
    entity_path_prefix
        Stands before every entity path; not before ``/__properties``.
    column_grouping
        ``"prefix"``: columns that share what stands before the first ``delimiter`` go to one entity.
        ``"individual"``: each column has its own. ``"explicit_prefixes"``: columns go by the longest of ``prefixes``
        that they begin with, the rest individually.
    delimiter
        One character.
    prefixes
        For ``"explicit_prefixes"``, and only then.
    use_structs
        Whether several columns of one group become one component ``data``, a struct; else each is a component.
        Without effect on ``"individual"``.
    static_columns
        Columns that hold one value throughout: they come once, as static data. Names that are not there are ignored.
    index_columns
        :class:`IndexColumn`, or ``(name, type)`` or ``(name, type, unit)``: the column becomes a timeline,
        ``"timestamp"``, ``"duration"`` or ``"sequence"``; ``unit`` (``ns``, ``us``, ``ms``, ``s``) is that of its
        integers. Without any there is a timeline ``row_index``, which counts rows from 0.
    column_rules
        Rules that make one component of several columns; the first that matches wins.

    Raises
    ------
    FileNotFoundError
        There is no such file (``SourceMissingError``).
    ValueError
        An option that does not exist, or does not fit another (``UsageError``).
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
        self._arguments: dict[str, Any] = {
            "entity_path_prefix": entity_path_prefix,
            "column_grouping": column_grouping,
            "delimiter": delimiter,
            "prefixes": None if prefixes is None else tuple(prefixes),
            "use_structs": use_structs,
            "static_columns": None if static_columns is None else tuple(static_columns),
            "index_columns": None if index_columns is None else tuple(index_columns),
            "column_rules": None if column_rules is None else tuple(column_rules),
        }
        self._options = ParquetOptions.checked(**self._arguments)
        if not exists(str(self._path)):
            raise SourceMissingError(f"Parquet file not found: {self._path}")

    @property
    def path(self) -> Location:
        """The path of the file, or the URL of the object."""
        return self._path

    def __repr__(self) -> str:
        return f"ParquetReader({self._path})"

    def source(self, **options: Unpack[LayoutArguments]) -> ParquetSource:
        """The file as a source for a pipeline; ``options`` as for :meth:`stream`."""
        chosen = ParquetOptions.checked(**{**self._arguments, **options}) if options else self._options
        return ParquetSource(str(located(self._path)), chosen)

    def info(self) -> list[ParquetInfo]:
        """What is in each file: rows, columns, types, encodings, sizes. Reads the footers. Raises ``ReadError``."""
        return self.source().info()

    def stream(self, **options: Unpack[LayoutArguments]) -> LazyChunkStream:
        """A lazy stream of the chunks; each call reads the file anew.

        ``options`` are those of the reader, but ``path``; one that is given here takes the place of the reader's own,
        for this stream alone.

        Order: properties; by runs of row groups of about 64 MiB, within these by batches of at most 65,536 rows, one
        chunk a group; static data. The same for every run.
        """
        from ...engine.stream import LazyChunkStream

        return LazyChunkStream.from_source(self.source(**options))
