"""Files that columns are loaded from: Parquet, Arrow IPC, and Lance tables; read by pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import pyarrow as pa

from ..errors import ChunkmillError, ReadError, SourceMissingError, UsageError
from ..folders import Folder
from ..lance import LanceTable
from ..locations import Location, located
from ..objects import ObjectUrl, RemoteFile

Format = Literal["parquet", "lance", "ipc"]

_SUFFIXES: Final[dict[str, Format]] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".lance": "lance",
    ".arrow": "ipc",
    ".ipc": "ipc",
    ".feather": "ipc",
}
_READ_ROWS: Final = 2**16
_READ_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class SourcePiece:
    """Some rows of a source: row group, record batch or fragment ``number``, and about their bytes."""

    place: str
    number: int
    size: int


@dataclass(frozen=True)
class ColumnSource:
    """A source: its format, its pieces, its columns, and what tells it from another that has its place later."""

    format: Format
    pieces: tuple[SourcePiece, ...]
    schema: pa.Schema
    identity: tuple[Any, ...]

    def read(self, piece: SourcePiece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a piece: some columns. Raises ``ReadError``."""
        if self.format == "lance":
            table = _lance_table(piece.place)
            reader = table.at(self.identity[1])
            for batch in reader.selected(reader.fragments[piece.number], columns, rows=_READ_ROWS, size=_READ_BYTES):
                yield batch.select(list(columns))
            return
        with _opened(piece.place) as file, _reading(piece.place):
            if self.format == "parquet":
                import pyarrow.parquet as pq

                parquet = pq.ParquetFile(file, page_checksum_verification=True)
                group = parquet.metadata.row_group(piece.number)
                rows = _rows_of(group.num_rows, group.total_byte_size)
                yield from parquet.iter_batches(rows, row_groups=[piece.number], columns=list(columns))
            else:
                batch = pa.ipc.open_file(file).get_batch(piece.number)
                batch.validate(full=True)  # of bytes that were damaged, what follows would read beyond them
                batch = pa.RecordBatch.from_arrays([batch.column(name) for name in columns], list(columns))
                rows = _rows_of(batch.num_rows, batch.nbytes)
                yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))


def _rows_of(rows: int, size: int) -> int:
    """Rows of a piece that are read at once."""
    return max(1, min(_READ_ROWS, _READ_BYTES * rows // max(size, 1)))


def source_of(source: str | Sequence[str], given: str | None) -> ColumnSource:
    """The source at a place, or of several files. Raises ``UsageError``, ``ReadError`` or ``SourceMissingError``."""
    if given not in (None, "parquet", "lance", "ipc"):
        raise UsageError(f"source_format is parquet, lance or ipc, not {given!r}")
    if not isinstance(source, str):
        places = [located(one) for one in source]
        if not places:
            raise UsageError("the source has no files")
        format_ = cast("Format | None", given) or _format_of(places[0])
        if format_ == "lance":
            raise UsageError("a Lance source is one table: give its place, and no list")
        return _of_files(places, format_)
    place = located(source)
    format_ = cast("Format | None", given) or _format_at(place)
    if format_ == "lance":
        table = _lance_table(str(place))
        reader = table.at()
        pieces = tuple(
            SourcePiece(str(place), number, reader.size_of(fragment))
            for number, fragment in enumerate(reader.fragments)
        )
        return ColumnSource("lance", pieces, reader.schema, (str(place), reader.version))
    return _of_files(_files_at(place, format_), format_)


def _of_files(places: Sequence[Location], format_: Format) -> ColumnSource:
    pieces: list[SourcePiece] = []
    identity: list[Any] = []
    schema: pa.Schema | None = None
    for place in places:
        with _opened(str(place)) as file, _reading(str(place)):
            if format_ == "parquet":
                import pyarrow.parquet as pq

                found = pq.ParquetFile(file)
                own = found.schema_arrow
                groups = [found.metadata.row_group(number) for number in range(found.num_row_groups)]
                pieces += [
                    SourcePiece(str(place), number, group.total_byte_size) for number, group in enumerate(groups)
                ]
            else:
                opened = pa.ipc.open_file(file)
                own = opened.schema
                count = opened.num_record_batches
                size = _size_of(place) // max(count, 1)
                pieces += [SourcePiece(str(place), number, size) for number in range(count)]
        if schema is not None and not own.equals(schema):
            raise UsageError(
                f"{place} has other columns than {places[0]}",
                hint="Load files of different columns one after the other.",
            )
        schema = own
        identity.append((str(place), *_stamp(place)))
    assert schema is not None
    return ColumnSource(format_, tuple(pieces), schema, (format_, *identity))


def _format_at(place: Location) -> Format:
    """The format of a file or of a folder of files, by the ends of names."""
    if place.name.endswith(tuple(_SUFFIXES)):
        return _format_of(place)
    folder = Folder.at(place)
    names = _names(folder)
    if names is not None:
        if "_versions" in folder.folders():
            return "lance"
        found = {_SUFFIXES[suffix] for name in names for suffix in _SUFFIXES if name.endswith(suffix)}
        if len(found) == 1:
            return found.pop()
    if not _is_there(place):
        raise SourceMissingError("there is no such file or folder", path=str(place), hint="Check the path.")
    raise _unknown(place)


def _format_of(place: Location) -> Format:
    for suffix, format_ in _SUFFIXES.items():
        if place.name.endswith(suffix):
            return format_
    raise (
        _unknown(place)
        if _is_there(place)
        else SourceMissingError("there is no such file", path=str(place), hint="Check the path.")
    )


def _unknown(place: Location) -> UsageError:
    return UsageError(
        f"the name does not say what is in it: {place.name!r}", path=str(place), hint="Give source_format."
    )


def _files_at(place: Location, format_: Format) -> list[Location]:
    """The file, or the files of that format in a folder, sorted."""
    names = _names(Folder.at(place))
    if names is None:
        if not _is_there(place):
            raise SourceMissingError("there is no such file", path=str(place), hint="Check the path.")
        return [place]
    ends = tuple(suffix for suffix, of in _SUFFIXES.items() if of == format_)
    found = sorted(name for name in names if name.endswith(ends)) or sorted(names)
    if not found:
        raise SourceMissingError(f"the folder has no {format_} files", path=str(place), hint="Check the path.")
    return [place / name for name in found]


def _names(folder: Folder) -> list[str] | None:
    """The names of the files in a folder; None where it is none."""
    try:
        names = list(folder.names())
    except (NotADirectoryError, FileNotFoundError):
        return None
    return names or (None if isinstance(folder.location, ObjectUrl) and not folder.folders() else [])


def _is_there(place: Location) -> bool:
    return Folder.at(place.parent).exists(place.name) or (isinstance(place, Path) and place.exists())


def _size_of(place: Location) -> int:
    return Folder.at(place.parent).size(place.name)


def _stamp(place: Location) -> tuple[int, int]:
    """The size of a file, and when it was written, where that is known."""
    return _size_of(place), place.stat().st_mtime_ns if isinstance(place, Path) else 0


def _opened(place: str) -> Any:
    found = located(place)
    return RemoteFile(place) if isinstance(found, ObjectUrl) else pa.memory_map(place)


@contextlib.contextmanager
def _reading(place: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, IndexError, ValueError) as error:
        if isinstance(error, ChunkmillError):
            raise
        raise ReadError(f"it cannot be read: {error}", path=place, hint="Load from a copy that is whole.") from error


def _lance_table(place: str) -> LanceTable:
    return LanceTable(located(place), located(place).name)
