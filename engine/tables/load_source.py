"""Sources of loaded columns (Parquet, Arrow IPC and Lance), and their rows hashed and sorted by key."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ChunkmillError, ReadError, SourceMissingError, UsageError
from ..lance import LanceTable
from ..locations import Location, located
from ..storage import ObjectUrl, RemoteFile
from ..storage.folder import Folder

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
    """Some rows of a source: row group, record batch or fragment ``number``, with their approximate bytes."""

    place: str
    number: int
    size: int


@dataclass(frozen=True)
class ColumnSource:
    """A source: format, pieces, columns, and identity. A later source at the same place has another identity."""

    format: Format
    pieces: tuple[SourcePiece, ...]
    schema: pa.Schema
    identity: tuple[Any, ...]

    def read(self, piece: SourcePiece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a piece's rows. Raises ``ReadError``."""
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
                batch.validate(full=True)  # the code below would read beyond damaged bytes
                batch = pa.RecordBatch.from_arrays([batch.column(name) for name in columns], list(columns))
                rows = _rows_of(batch.num_rows, batch.nbytes)
                yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))


def _rows_of(rows: int, size: int) -> int:
    """The number of rows that are read at once."""
    return max(1, min(_READ_ROWS, _READ_BYTES * rows // max(size, 1)))


def source_of(source: str | Sequence[str], given: str | None) -> ColumnSource:
    """Return the source at a place or of files. Raises ``UsageError``, ``ReadError`` or ``SourceMissingError``."""
    if given not in (None, "parquet", "lance", "ipc"):
        raise UsageError(f"source_format must be parquet, lance or ipc, not {given!r}")
    if not isinstance(source, str):
        places = [located(path) for path in source]
        if not places:
            raise UsageError("the source has no files")
        format_ = cast("Format | None", given) or _format_of(places[0])
        if format_ == "lance":
            raise UsageError("a Lance source is a single table: give its place, not a list")
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

                parquet_file = pq.ParquetFile(file)
                own = parquet_file.schema_arrow
                groups = [parquet_file.metadata.row_group(number) for number in range(parquet_file.num_row_groups)]
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
                hint="Load files with different columns separately.",
            )
        schema = own
        identity.append((str(place), *_stamp(place)))
    assert schema is not None
    return ColumnSource(format_, tuple(pieces), schema, (format_, *identity))


def _format_at(place: Location) -> Format:
    """Return the format of a file or of a folder's files, by the suffixes of their names."""
    if place.name.endswith(tuple(_SUFFIXES)):
        return _format_of(place)
    folder = Folder.at(place)
    names = _names(folder)
    if names is not None:
        if "_versions" in folder.folders():
            return "lance"
        formats = {_SUFFIXES[suffix] for name in names for suffix in _SUFFIXES if name.endswith(suffix)}
        if len(formats) == 1:
            return formats.pop()
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
    return UsageError(f"the name does not show the format: {place.name!r}", path=str(place), hint="Give source_format.")


def _files_at(place: Location, format_: Format) -> list[Location]:
    """Return the file, or the files of that format in a folder, sorted."""
    names = _names(Folder.at(place))
    if names is None:
        if not _is_there(place):
            raise SourceMissingError("there is no such file", path=str(place), hint="Check the path.")
        return [place]
    ends = tuple(suffix for suffix, of in _SUFFIXES.items() if of == format_)
    matches = sorted(name for name in names if name.endswith(ends)) or sorted(names)
    if not matches:
        raise SourceMissingError(f"the folder has no {format_} files", path=str(place), hint="Check the path.")
    return [place / name for name in matches]


def _names(folder: Folder) -> list[str] | None:
    """Return the names of the files in a folder, or None if it is not a folder."""
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
    """Return the size of a file, and its modification time if known."""
    return _size_of(place), place.stat().st_mtime_ns if isinstance(place, Path) else 0


def _opened(place: str) -> Any:
    location = located(place)
    return RemoteFile(place) if isinstance(location, ObjectUrl) else pa.memory_map(place)


@contextlib.contextmanager
def _reading(place: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, IndexError, ValueError) as error:
        if isinstance(error, ChunkmillError):
            raise
        raise ReadError(f"it cannot be read: {error}", path=place, hint="Load from an undamaged copy.") from error


def _lance_table(place: str) -> LanceTable:
    return LanceTable(located(place), located(place).name)


HASH: Final = "_hash"
KEY: Final = "_key"
FILE: Final = "_file"
ROW: Final = "_row"
_PARTS_OPEN: Final = 512

Hashes = npt.NDArray[np.uint64]


def hashes_of(keys: pa.Array) -> Hashes:
    """Return the hashes of keys without nulls, the same in each process.

    Integers are hashed by splitmix64 (Steele, Lea and Flood, 2014), everything else by pandas' SipHash.
    """
    if pa.types.is_integer(keys.type) or pa.types.is_temporal(keys.type) or pa.types.is_boolean(keys.type):
        width = keys.type.bit_width if not pa.types.is_boolean(keys.type) else 8
        plain = keys.cast(pa.int8()) if width == 8 and pa.types.is_boolean(keys.type) else keys
        if pa.types.is_temporal(plain.type):
            plain = plain.cast(pa.int32() if width == 32 else pa.int64())
        x = plain.to_numpy(zero_copy_only=False).astype(np.uint64)
        with np.errstate(over="ignore"):
            x = x + np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return np.asarray(x ^ (x >> np.uint64(31)), dtype=np.uint64)
    from pandas.util import hash_array

    return np.asarray(hash_array(keys.to_numpy(zero_copy_only=False).astype(object), categorize=False), np.uint64)


def part_of(hashes: Hashes, parts: int) -> npt.NDArray[np.int64]:
    """Return the part number of each hash."""
    return (hashes >> np.uint64(40)).astype(np.int64) % parts


def sorted_part(tables: Sequence[pa.Table], key: str) -> pa.Table:
    """Return the rows of a part sorted by hash: the hash, the key, and the other columns."""
    table = pa.concat_tables(tables).combine_chunks()
    keys = table.column(key).combine_chunks() if table.num_rows else pa.nulls(0, table.schema.field(key).type)
    hashes = hashes_of(keys)
    order = np.argsort(hashes, kind="stable")
    taken = table.take(pa.array(order))
    return pa.table(
        [
            pa.array(hashes[order]),
            taken.column(key),
            *(taken.column(name) for name in table.schema.names if name != key),
        ],
        [HASH, KEY, *(name for name in table.schema.names if name != key)],
    )


def duplicates_in(part: pa.Table) -> int:
    """Return the number of rows in a sorted part that repeat the key of an earlier row."""
    hashes = part.column(HASH).to_numpy()
    same = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    if not len(same):
        return 0
    groups: dict[int, set[object]] = {}
    count = 0
    for at in same.tolist():
        seen = groups.setdefault(int(hashes[at]), {part.column(KEY)[at - 1].as_py()})
        value = part.column(KEY)[at].as_py()
        count += value in seen
        seen.add(value)
    return count


def written(table: pa.Table) -> memoryview:
    """Return a table as an Arrow file that can be memory-mapped."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return memoryview(sink.getvalue())


@dataclass(frozen=True)
class HashedSource:
    """A source in a folder: its sorted parts, its value files, and the bytes of a row. Picklable."""

    folder: str
    parts: int
    files: tuple[str, ...]
    row_bytes: int

    @staticmethod
    def name_of(part: int) -> str:
        """The name of a part's file."""
        return f"{part:05d}.sorted"

    def find(self, keys: pa.Array, schema: pa.Schema) -> tuple[npt.NDArray[np.bool_], pa.RecordBatch]:
        """Return the mask of the keys that the source has, and their values, in order. A null key counts as missing."""
        mask = np.zeros(len(keys), np.bool_)
        valid_rows = np.flatnonzero(np.asarray(keys.is_valid()))
        valid_keys = keys.take(pa.array(valid_rows)) if len(valid_rows) != len(keys) else keys
        hashes = hashes_of(valid_keys)
        numbers = part_of(hashes, self.parts)
        hits: list[npt.NDArray[np.int64]] = [np.empty((3, 0), np.int64)]
        for part in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == part)
            table = _part(self.folder, self.name_of(part))
            at = _places(table, hashes[mine], valid_keys.take(pa.array(mine)))
            hit = at >= 0
            hits.append(
                np.stack([valid_rows[mine[hit]], *(table.column(name).to_numpy()[at[hit]] for name in (FILE, ROW))])
            )
        order, files, rows = np.concatenate(hits, axis=1).astype(np.int64)
        if not len(order):
            return mask, pa.RecordBatch.from_pylist([], schema)
        mask[order] = True
        by_file = np.argsort(files, kind="stable")
        values = [
            _part(self.folder, self.files[files[own[0]]]).select(schema.names).take(pa.array(rows[own]))
            for own in np.split(by_file, np.flatnonzero(np.diff(files[by_file])) + 1)
        ]
        joined = pa.concat_tables(values).take(pa.array(np.argsort(order[by_file], kind="stable"))).combine_chunks()
        arrays = [
            joined.column(name).chunk(0) if joined.num_rows else pa.nulls(0, schema.field(name).type)
            for name in schema.names
        ]
        return mask, pa.RecordBatch.from_arrays(arrays, schema=schema)


def _places(table: pa.Table, hashes: Hashes, keys: pa.Array) -> npt.NDArray[np.int64]:
    """Return the row of each key in a sorted part, or -1 for a missing key."""
    sorted_ = table.column(HASH).to_numpy()
    at = np.searchsorted(sorted_, hashes).astype(np.int64)
    places = np.full(len(hashes), -1, np.int64)
    open_ = np.arange(len(hashes))
    while len(open_):
        inside = at[open_] < len(sorted_)
        open_ = open_[inside]
        open_ = open_[sorted_[at[open_]] == hashes[open_]]
        if not len(open_):
            break
        equal = np.asarray(
            pc.equal(table.column(KEY).take(pa.array(at[open_])).combine_chunks(), keys.take(pa.array(open_)))
        )
        places[open_[equal]] = at[open_[equal]]
        open_ = open_[~equal]
        at[open_] += 1  # another key has this hash
    return places


@lru_cache(maxsize=_PARTS_OPEN)
def _part(folder: str, name: str) -> pa.Table:
    return opened(folder, name)


def opened(folder: str, name: str) -> pa.Table:
    """Memory-map an Arrow file. An object is first copied to a temporary file, which is deleted at once."""
    place = located(folder)
    if isinstance(place, Path):
        return pa.ipc.open_file(pa.memory_map(str(place / name))).read_all()
    with tempfile.NamedTemporaryFile(prefix="chunkmill-part-") as copy:
        copy.write(Folder.at(place).get(name))
        copy.flush()
        return pa.ipc.open_file(pa.memory_map(copy.name)).read_all()


def forget_parts() -> None:
    """Drop all cached parts: their files may be gone."""
    _part.cache_clear()


def check_keys(type_: pa.DataType) -> None:
    """Raise ``UsageError`` for a type that keys cannot have."""
    if pa.types.is_nested(type_) or pa.types.is_floating(type_) or pa.types.is_null(type_):
        raise UsageError(f"a primary key of type {type_} is not supported", hint="Use integers, texts, bytes or times.")
