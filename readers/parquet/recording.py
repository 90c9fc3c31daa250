"""Parquet in the registry of formats: the options, and what ``inspect`` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..recording_file import RecordingFile, option

if TYPE_CHECKING:
    from ...engine.rrd import StoreEntry
    from ...engine.stream import LazyChunkStream
    from ..inspection import FileReport

_TYPES = ("timestamp", "duration", "sequence")
_UNITS = ("ns", "us", "ms", "s")


def _index_column(text: str) -> tuple[str, ...]:
    """Turn ``NAME:TYPE`` or ``NAME:TYPE:UNIT`` into the reader's tuples; a name may hold colons.

    >>> _index_column("a:b:sequence"), _index_column("t:timestamp:ms")
    (('a:b', 'sequence'), ('t', 'timestamp', 'ms'))
    """
    parts = text.rsplit(":", 2)
    if len(parts) == 3 and parts[1] not in _TYPES:
        parts = [":".join(parts[:2]), parts[2]]
    if len(parts) < 2 or not parts[0] or parts[1] not in _TYPES or (len(parts) == 3 and parts[2] not in _UNITS):
        raise ValueError(
            f"{text!r} is not of the form NAME:TYPE[:UNIT] with a type of {', '.join(_TYPES)}"
            f" and a unit of {', '.join(_UNITS)}"
        )
    return tuple(parts)


@dataclass(frozen=True)
class ParquetRecording(RecordingFile):
    """A Parquet file; its options are those of :class:`ParquetReader`."""

    index_columns: tuple[Any, ...] = option(
        (),
        "Parquet, HDF5: a column to use as a timeline, such as 'stamp:timestamp:us'; repeatable for Parquet.",
        flag="--index-column",
        metavar="NAME:TYPE[:UNIT]",
        parse=_index_column,
    )
    static_columns: tuple[str, ...] = option(
        (),
        "Parquet: a column with the same value in every row; repeatable.",
        flag="--static-column",
        metavar="NAME",
    )
    entity_path_prefix: str | None = option(
        None, "Parquet, HDF5: prefix of all entity paths.", flag="--entity-path-prefix", metavar="PATH"
    )
    column_grouping: str = option(
        "prefix",
        "Parquet: which columns share an entity. Default: those with the same prefix.",
        flag="--column-grouping",
        choices=("prefix", "individual", "explicit_prefixes"),
    )
    delimiter: str = option(
        "_",
        "Parquet: the character that ends the prefix of a column name. Default: '_'.",
        flag="--delimiter",
        metavar="CHAR",
    )
    prefixes: tuple[str, ...] = option(
        (),
        "Parquet: a prefix for --column-grouping explicit_prefixes; repeatable.",
        flag="--prefix",
        metavar="TEXT",
    )
    use_structs: bool = option(
        True, "Parquet, HDF5: make each column a component, without structs.", flag="--flat", switch=False
    )
    column_rules: tuple[Any, ...] = option((), "Rules that join several columns into one component.", parse=None)

    def stream(self) -> LazyChunkStream:
        """Return the chunks of the file, or of the first of several recordings; see :class:`ParquetReader`."""
        return self.stores()[0][1]

    def stores(self) -> list[tuple[StoreEntry | None, LazyChunkStream]]:
        """Return the recordings of a folder of ``write_parquet``; for other files, one without an id."""
        from .reader import ParquetReader

        reader = ParquetReader(self.path, **self.given())
        stores = reader.recordings()
        if not stores:
            return [(None, reader.stream())]
        return [(store, reader.stream(recording_id=store.recording_id)) for store in stores]

    def size(self) -> int:
        """The size of the file, or of all files in the manifest of a folder, in bytes."""
        from .exported import ExportManifest, is_exported

        return (
            sum(f.bytes for f in ExportManifest.read(str(self.path)).files)
            if is_exported(self.path)
            else super().size()
        )

    def report(self) -> FileReport:
        """Return rows, columns and pages from the footer; for a folder, return its recordings from all chunks."""
        from ...engine.stream import single_tasks
        from ..inspection import ColumnReport, FileReport, summarise_store
        from .exported import is_exported
        from .reader import ParquetReader

        if is_exported(self.path):
            summaries = []
            for store, stream in self.stores():
                assert store is not None
                chunks = ((chunk.header, None) for task in single_tasks(stream) for chunk in task.run(0))
                summaries.append(summarise_store("recording", store.application_id, store.recording_id, chunks))
            return FileReport(str(self.path), self.size(), tuple(summaries))
        (info,) = ParquetReader(self.path).info()
        columns = tuple(
            ColumnReport(
                c.name,
                c.type,
                c.nullable,
                c.values,
                c.bytes,
                c.uncompressed_bytes,
                c.encodings,
                c.compression,
                c.is_index,
            )
            for c in info.columns
        )
        facts: dict[str, str | float | bool] = {
            "rows": info.rows,
            "row_groups": info.row_groups,
            "created_by": info.created_by,
        }
        return FileReport(str(self.path), info.bytes, (), facts, columns, dict(info.key_values))
