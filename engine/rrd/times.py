"""Times files: row ids, index values and validity of the chunks of a recording, without the values.

A query needs only these to count rows, or to find an index value or a row with a component, while a chunk's payload is
one compressed block. The times of a recording are consecutive pieces, each of whole chunks (of about 260,000 rows if
chunks are small), and their directory::

    piece, statistics, …  each an Arrow IPC stream of one row, whose columns are the bytes of numpy arrays, under LZ4
    directory             offset, size and digest of each piece; piece and place there of each chunk; the two counts

A piece of times is followed by a piece with its chunks' statistics (:mod:`.statistics`), to which the directory assigns
no chunk. Older readers skip it, and times without statistics are read, too.

The directory's digest is stored elsewhere, so each byte is verified before use. 64-bit columns are stored as
differences of successive values, in byte planes: first the lowest byte of all, last the highest. Validity that is the
same for all rows of a chunk takes four bytes.

In robot recordings, 32 to 39 bytes a row (two or three timelines, and the row id) shrink to 5 to 9: 0.05 to 0.2 % of
recordings with images, 8 % of one with only IMU and poses, 18 % of 120,000 rows of one scalar each. Differences under
Zstandard without byte planes have the same size, but take four times as long (155 ns a row instead of 39; 2 cores).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ChunkData, TimelineKind
from ..errors import ReadError
from ..storage.positional import NEVER_CHANGES, PositionalFile, open_positional
from .arrow_ipc import ARROW_ERRORS, first_line, read_batch
from .chunk_table import Integers, Numbers
from .payloads import DIGEST_SIZE, check_digest, digest_of
from .statistics import LeafStatistics, PieceStatistics, StatisticsWriter

_HINT: Final = "Compact or maintain the store to create the times again."
_WHAT: Final = "times of chunks"

States = npt.NDArray[np.uint8]
Line = tuple[str, TimelineKind]
"""A timeline: its name and kind."""


class Validity(IntEnum):
    """The validity of a component in a row: null or missing, an empty list, or a list of values."""

    NULL = 0
    EMPTY = 1
    VALUES = 2


MIXED: Final = 3
"""The state of a component in a chunk whose rows differ in validity."""


ID_HALVES: Final = np.dtype(">u8")
"""The type of the two halves of a row id, which sort like the ids."""
_VALUES: Final = int(Validity.VALUES), None


def validity_of(values: pa.ListArray) -> tuple[int, States | None]:
    """The validity that all rows share, or ``MIXED`` and each row's validity."""
    rows, nulls = len(values), values.null_count
    if nulls == rows:
        return int(Validity.NULL), None
    offsets = np.frombuffer(values.buffers()[1], np.int32, rows + 1, 4 * values.offset)
    has_values = offsets[1:] > offsets[:-1]
    if not nulls:
        flags = has_values.tobytes()
        if 0 not in flags:
            return _VALUES
        if 1 not in flags:
            return int(Validity.EMPTY), None
    each = np.where(has_values, np.uint8(Validity.VALUES), np.uint8(Validity.EMPTY))
    if nulls:
        each *= values.is_valid().to_numpy(zero_copy_only=False)
    return MIXED, each


class ByChunk(NamedTuple):
    """Values of chunks, chunk after chunk. Those of chunk ``i`` are ``range(ends[i], ends[i + 1])``."""

    values: npt.NDArray[Any]
    ends: Integers


ABOUT: Final = b"chunkmill:times"
"""The metadata key for the components and timelines of a piece, as JSON."""

PART_MAGIC: Final = b"CMTIMES2"
"""The end of a part with times. No message ends like this: the last byte of each is its static flag, 0 or 1."""
PART_END: Final = struct.Struct(f"<Q{DIGEST_SIZE}s{len(PART_MAGIC)}s")

# --- the directory

_PIECE: Final = np.dtype([("offset", "<u8"), ("size", "<u8"), ("digest", f"V{DIGEST_SIZE}")])
_PLACE: Final = np.dtype([("piece", "<u4"), ("place", "<u4")])
_COUNTS: Final = struct.Struct("<II")


@dataclass(frozen=True)
class TimesDirectory:
    """The pieces of times, by their offsets from the start of the times, and the piece and place of each chunk."""

    offsets: Integers
    sizes: Integers
    digests: Sequence[bytes]
    places: Integers

    @property
    def size(self) -> int:
        """The bytes of all pieces, which are consecutive."""
        return int(self.sizes.sum())

    @property
    def has_statistics(self) -> bool:
        """Whether all chunks have statistics."""
        return bool((self.statistics_of(np.unique(self.places[:, 0])) >= 0).all())

    def statistics_of(self, pieces: Integers) -> Integers:
        """The pieces with the statistics of the chunks of some pieces; -1 for a piece without statistics."""
        behind = pieces + 1
        has_some = (behind < len(self.sizes)) & ~np.isin(behind, self.places[:, 0])
        return np.where(has_some, behind, -1)

    def to_bytes(self) -> bytes:
        """The bytes of the directory, which are stored after its pieces."""
        pieces = np.empty(len(self.sizes), dtype=_PIECE)
        pieces["offset"], pieces["size"] = self.offsets, self.sizes
        pieces["digest"] = np.frombuffer(b"".join(self.digests), dtype=f"V{DIGEST_SIZE}")
        places = np.empty(len(self.places), dtype=_PLACE)
        places["piece"], places["place"] = self.places[:, 0], self.places[:, 1]
        return pieces.tobytes() + places.tobytes() + _COUNTS.pack(len(pieces), len(places))

    @classmethod
    def from_bytes(cls, data: bytes) -> TimesDirectory:
        """The inverse of :meth:`to_bytes`. Raises ``ValueError``."""
        if len(data) < _COUNTS.size or len(data) != directory_size(data):
            raise ValueError(f"its directory has {len(data)} bytes, which contradicts its declared size")
        pieces, chunks = _COUNTS.unpack_from(data, len(data) - _COUNTS.size)
        piece_rows = np.frombuffer(data, _PIECE, pieces)
        places = np.frombuffer(data, _PLACE, chunks, pieces * _PIECE.itemsize)
        if chunks and int(places["piece"].max()) >= pieces:
            raise ValueError("a chunk is in a piece that does not exist")
        return cls(
            piece_rows["offset"].astype(np.int64),
            piece_rows["size"].astype(np.int64),
            [bytes(digest) for digest in piece_rows["digest"].tolist()],
            np.stack([places["piece"], places["place"]], axis=1).astype(np.int64),
        )

    @classmethod
    def joined(cls, parts: Sequence[TimesDirectory], order: Integers) -> TimesDirectory:
        """Return one directory for the pieces of all parts, part after part.

        ``order`` has the place of each chunk among the chunks of all parts.
        """
        starts = np.cumsum([0, *(part.size for part in parts)])
        counts = np.cumsum([0, *(len(part.sizes) for part in parts)])
        places = [part.places + np.array([count, 0]) for part, count in zip(parts, counts.tolist(), strict=False)]
        return cls(
            np.concatenate([p.offsets + start for p, start in zip(parts, starts.tolist(), strict=False)]),
            np.concatenate([part.sizes for part in parts]),
            [digest for part in parts for digest in part.digests],
            np.concatenate(places)[order],
        )


def directory_size(tail: bytes) -> int:
    """Return the size of a directory in bytes, from its last bytes. Raises ``ValueError``."""
    if len(tail) < _COUNTS.size:
        raise ValueError("it has no directory")
    pieces, chunks = _COUNTS.unpack_from(tail, len(tail) - _COUNTS.size)
    return int(pieces * _PIECE.itemsize + chunks * _PLACE.itemsize + _COUNTS.size)


# --- reading


@dataclass
class Times:
    """The times of a recording's chunks, numbered as in its manifest.

    Pieces are read on first use. They are in the file ``path`` from byte ``start`` on. Raises ``ReadError`` for damaged
    bytes.
    """

    path: str
    start: int
    version: str | None
    directory: TimesDirectory
    _pieces: dict[int, _Piece] = field(default_factory=dict, repr=False)
    _statistics: dict[int, PieceStatistics] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: str, version: str | None, start: int, size: int, digest: str) -> Times:
        """Return the times in ``size`` bytes of a file. Their directory has the hexadecimal ``digest``."""
        with open_positional(path, version) as file:
            at = max(start + size - _TAIL, start)
            try:
                tail = file.read(at, start + size - at, what=_WHAT)
                length = directory_size(tail)
                if length > size:
                    raise ValueError("its directory is larger than the times")
                if length > len(tail):
                    tail = file.read(start + size - length, length, what=_WHAT)
                data = tail[len(tail) - length :]
                check_digest(data, digest)
                return cls(path, start, version, TimesDirectory.from_bytes(data))
            except ValueError as error:
                raise _unreadable(path, start + size, error) from error

    def __len__(self) -> int:
        return len(self.directory.places)

    def num_rows(self, chunks: Integers | None = None) -> Integers:
        """The numbers of rows of chunks, by default of all."""
        counts = [piece.shapes[at, 0] for piece, at in self._runs(chunks)]
        return np.concatenate(counts) if counts else np.empty(0, np.int64)

    def row_ids(self, chunks: Integers | None = None) -> tuple[ByChunk, ByChunk]:
        """The upper and the lower half of each row id, as ``uint64``."""
        high = _joined([piece.rows_of(piece.column("high"), at) for piece, at in self._runs(chunks)], np.uint64)
        low = _joined([piece.rows_of(piece.column("low"), at) for piece, at in self._runs(chunks)], np.uint64)
        return high, low

    def timelines(self, chunks: Integers | None = None) -> list[Line]:
        """The timelines of the chunks, in the order of their appearance."""
        return list(dict.fromkeys(line for piece, _ in self._runs(chunks) for line in piece.lines))

    def index(self, name: str, kind: TimelineKind, chunks: Integers | None = None) -> ByChunk:
        """Return the values of an index column, as ``int64`` in its units; no values for a chunk without the index."""
        return _joined([piece.index((name, kind), at) for piece, at in self._runs(chunks)], np.int64)

    def validity(self, component: str, chunks: Integers | None = None) -> ByChunk:
        """The :class:`Validity` of a component in each row, as ``uint8``; null if the chunk lacks the component."""
        return _joined([piece.validity(component, at) for piece, at in self._runs(chunks)], np.uint8)

    def states(self, component: str, chunks: Integers | None = None) -> States:
        """The :class:`Validity` of a component in each chunk, or ``MIXED`` if its rows differ."""
        states = [piece.states(component, at) for piece, at in self._runs(chunks)]
        return np.concatenate([np.empty(0, np.uint8), *states])

    def statistics(self, component: str, path: str, chunks: Integers) -> LeafStatistics:
        """The statistics of a leaf in some chunks. A chunk without the component has no values, and is unknown."""
        leaf = LeafStatistics.unknown(len(chunks))
        places = self.directory.places[chunks]
        pieces = np.unique(places[:, 0])
        numbers = self.directory.statistics_of(pieces)
        self._load_statistics(numbers[numbers >= 0].tolist())
        for piece, number in zip(pieces.tolist(), numbers.tolist(), strict=True):
            if number >= 0:
                mine = np.flatnonzero(places[:, 0] == piece)
                with self._readable(number):
                    self._statistics[number].add_to(leaf, component, path, places[mine, 1], mine)
        return leaf

    def _load_statistics(self, numbers: Sequence[int]) -> None:
        missing = [number for number in numbers if number not in self._statistics]
        if not missing:
            return
        with open_positional(self.path, self.version) as file:
            for number in missing:
                ((_, data),) = self._read(file, [number])
                with self._readable(number):
                    self._statistics[number] = _statistics_in(self._verified(number, data))

    def keep(self, chunks: Integers) -> None:
        """Free all pieces without one of these chunks."""
        numbers = set(self.directory.places[chunks, 0].tolist())
        self._pieces = {number: piece for number, piece in self._pieces.items() if number in numbers}

    def _runs(self, chunks: Integers | None) -> list[tuple[_Piece, Integers]]:
        """The pieces of chunks, in the chunks' order, with the chunks' places in each."""
        places = self.directory.places if chunks is None else self.directory.places[chunks]
        which = places[:, 0]
        if not len(which):
            return []
        first = np.flatnonzero(np.append(True, which[1:] != which[:-1]))
        self._load(dict.fromkeys(which[first].tolist()))
        ends = np.append(first[1:], len(which))
        return [
            (self._pieces[number], self._within(number, places[start:stop, 1]))
            for number, start, stop in zip(which[first].tolist(), first.tolist(), ends.tolist(), strict=True)
        ]

    def _within(self, number: int, at: Integers) -> Integers:
        if int(at.max(initial=0)) >= len(self._pieces[number].shapes):
            raise _unreadable(self.path, self.start, ValueError("the location of a chunk is outside the file"))
        return at

    def _load(self, numbers: Iterable[int]) -> None:
        """Read pieces that have not been read yet, adjacent ones together."""
        missing = sorted(number for number in numbers if number not in self._pieces)
        if not missing:
            return
        with open_positional(self.path, self.version) as file:
            for _, run in groupby(enumerate(missing), key=lambda item: item[1] - item[0]):
                for number, data in self._read(file, [number for _, number in run]):
                    self._pieces[number] = self._parsed(number, data)

    def _read(self, file: PositionalFile, run: Sequence[int]) -> Iterator[tuple[int, memoryview]]:
        directory = self.directory
        start, last = int(directory.offsets[run[0]]), run[-1]
        stop = int(directory.offsets[last] + directory.sizes[last])
        data = memoryview(file.read(self.start + start, stop - start, what=_WHAT))
        for number in run:
            at = int(directory.offsets[number]) - start
            yield number, data[at : at + int(directory.sizes[number])]

    def _parsed(self, number: int, data: memoryview) -> _Piece:
        with self._readable(number):
            return _Piece.of(self._verified(number, data))

    def _verified(self, number: int, data: memoryview) -> memoryview:
        if digest_of(data) != self.directory.digests[number]:
            raise ValueError("it is not what was written: its digest differs")
        return data

    @contextmanager
    def _readable(self, number: int) -> Iterator[None]:
        """Name the unreadable piece in errors."""
        try:
            yield
        except ARROW_ERRORS as error:
            raise _unreadable(self.path, self.start + int(self.directory.offsets[number]), error) from error

    @classmethod
    def in_part(cls, path: str) -> Times | None:
        """Return the times at the end of a part, in the order of its chunks, or None if it has no times."""
        with open_positional(path, NEVER_CHANGES) as file:
            at = max(file.size - PART_END.size, 0)
            end = file.read(at, file.size - at, what=_WHAT)
        if len(end) < PART_END.size or not end.endswith(PART_MAGIC):
            return None
        size, digest, _ = PART_END.unpack(end)
        return cls.open(path, NEVER_CHANGES, at - size, size, digest.hex()) if size else None

    def expect(self, number: int, data: ChunkData) -> None:
        """Compare a chunk with its stored times. Raises ``ReadError`` if they differ."""
        at = np.array([number], dtype=np.int64)
        pairs = np.frombuffer(data.row_ids.buffers()[1] or b"", ID_HALVES, 2 * data.num_rows, 16 * data.row_ids.offset)
        ids = self.row_ids(at)
        are_same = all(np.array_equal(half.values, pairs[i::2]) for i, half in enumerate(ids))
        lines = {(line.name, line.kind): line.ticks for line in data.timelines}
        for line in dict.fromkeys([*lines, *self.timelines(at)]):
            are_same &= np.array_equal(self.index(*line, at).values, lines.get(line, ()))
        for component in data.components:
            state, each = validity_of(component.values)
            expected = self.validity(component.descriptor.component, at).values
            are_same &= len(expected) == data.num_rows and bool((expected == (state if each is None else each)).all())
        if not are_same:
            raise self.unlike(data)

    def unlike(self, data: ChunkData) -> ReadError:
        """Return the error for a chunk with other times than stored."""
        return _unreadable(
            self.path, self.start, ValueError(f"the times in chunk {data.chunk_id.hex()} differ from those stored here")
        )

    def check(self) -> None:
        """Read and decode all pieces. Raises ``ReadError`` for a damaged one."""
        self._runs(None)
        numbers = self.directory.statistics_of(np.unique(self.directory.places[:, 0]))
        self._load_statistics(numbers[numbers >= 0].tolist())

    def read_pieces(self) -> bytes:
        """The stored bytes of all pieces."""
        with open_positional(self.path, self.version) as file:
            return file.read(self.start, self.directory.size, what=_WHAT)


_TAIL: Final = 1 << 16
"""Bytes that are read to find a directory; most are smaller."""


def _unreadable(path: str, offset: int, error: BaseException) -> ReadError:
    return ReadError(
        f"the times of a recording cannot be read: {first_line(error)}", path=path, offset=offset, hint=_HINT
    )


def _sums(data: States) -> Numbers:
    """The inverse of :func:`_differences`."""
    planes = data.reshape(8, -1)
    return np.cumsum(np.ascontiguousarray(planes.T).view("<u8").reshape(-1), dtype=np.uint64)


def _statistics_in(data: memoryview) -> PieceStatistics:
    batch = read_batch(pa.py_buffer(data))
    batch.validate(full=True)
    return PieceStatistics(*(bytes(batch.column(name)[0].as_buffer()) for name in ("about", "cells")))


class _Piece:
    """A piece that was read; its columns are decoded when they are used."""

    def __init__(self, batch: pa.RecordBatch, components: list[str], lines: list[Line]) -> None:
        self._batch = batch
        self._components = {name: code for code, name in enumerate(components)}
        self.lines = lines
        self.shapes = self._array("shapes", "<i4").reshape(-1, 2).astype(np.int64)
        self.ends = _ends(self.shapes[:, 0])
        self._columns: dict[str, Numbers] = {}

    @classmethod
    def of(cls, data: memoryview) -> _Piece:
        batch = read_batch(pa.py_buffer(data))
        batch.validate(full=True)
        about = json.loads((batch.schema.metadata or {})[ABOUT])
        return cls(batch, about["components"], [(name, TimelineKind(kind)) for name, kind in about["timelines"]])

    def column(self, name: str) -> Numbers:
        """The 64-bit values of a column."""
        values = self._columns.get(name)
        if values is None:
            values = self._columns[name] = _sums(self._array(name, "u1"))
        return values

    def rows_of(self, values: npt.NDArray[Any], at: Integers) -> ByChunk:
        """The part of ``values``, one a row, of chunks at these places."""
        return _taken(values, self.ends, at)

    def index(self, line: Line, at: Integers) -> ByChunk:
        """The values on a timeline of chunks at these places."""
        if line not in self.lines:
            return ByChunk(np.empty(0, np.int64), np.zeros(len(at) + 1, np.int64))
        number = self.lines.index(line)
        sizes = np.zeros(len(self.shapes), np.int64)
        on = self._array(f"on{number}", "<i4")
        sizes[on] = self.shapes[on, 0]
        return _taken(self.column(f"index{number}").view(np.int64), _ends(sizes), at)

    def states(self, component: str, at: Integers) -> States:
        """The validity of a component in chunks at these places, or ``MIXED``."""
        return self._states(component)[0][at]

    def _states(self, component: str) -> tuple[States, Integers, States, Integers]:
        """The component's validity in each chunk; then its cells among all, the validity in each, and their chunks."""
        code = self._components.get(component, -1)
        cells = self._array("cells", "<i4")
        of_chunk = np.repeat(np.arange(len(self.shapes)), self.shapes[:, 1])
        mine = np.flatnonzero(cells >> 2 == code)
        states = np.zeros(len(self.shapes), np.uint8)
        states[of_chunk[mine]] = cells[mine] & 3
        return states, mine, cells, of_chunk

    def validity(self, component: str, at: Integers) -> ByChunk:
        """The validity of a component in the rows of chunks at these places."""
        rows = self.shapes[at, 0]
        ends = _ends(rows)
        states, mine, cells, of_chunk = self._states(component)
        validities = np.repeat(states[at], rows)
        if (states[at] == MIXED).any():
            mixed = np.where(cells & 3 == MIXED, self.shapes[of_chunk, 0], 0)
            starts = np.zeros(len(self.shapes), np.int64)
            starts[of_chunk[mine]] = (np.cumsum(mixed) - mixed)[mine]
            each = self._array("mixed", "u1")
            for i in np.flatnonzero(states[at] == MIXED).tolist():
                start = int(starts[at[i]])
                validities[ends[i] : ends[i + 1]] = each[start : start + int(rows[i])]
        return ByChunk(validities, ends)

    def _array(self, name: str, dtype: str) -> npt.NDArray[Any]:
        column = self._batch.column(name)
        return np.frombuffer(column[0].as_buffer(), dtype=dtype)


def _ends(sizes: Integers) -> Integers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _taken(values: npt.NDArray[Any], ends: Integers, at: Integers) -> ByChunk:
    """The values of chunks at some places; adjacent chunks are not copied."""
    sizes = ends[at + 1] - ends[at]
    new_ends = _ends(sizes)
    if len(at) and bool((np.diff(at) == 1).all()):
        return ByChunk(values[ends[at[0]] : ends[at[-1] + 1]], new_ends)
    rows = np.arange(int(new_ends[-1])) + np.repeat(ends[at] - new_ends[:-1], sizes)
    return ByChunk(values[rows], new_ends)


def _joined(parts: Sequence[ByChunk], dtype: npt.DTypeLike) -> ByChunk:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return ByChunk(np.empty(0, dtype), np.zeros(1, np.int64))
    ends = [part.ends for part in parts]
    starts = np.cumsum([0, *(int(some[-1]) for some in ends)])
    shifted = [some[1:] + start for some, start in zip(ends, starts.tolist(), strict=False)]
    return ByChunk(np.concatenate([part.values for part in parts]), np.concatenate([np.zeros(1, np.int64), *shifted]))


PIECE_ROWS: Final = 1 << 18
"""The number of rows after which a piece ends with the next chunk end."""


class TimesWriter:
    """Collects the times of chunks, in the given order, and writes them in pieces.

    Until a piece ends, the writer holds 16 bytes a row, plus 8 a timeline, and the newest chunks' values until they are
    reduced to statistics.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._counts: list[int] = []
        self._statistics = StatisticsWriter()
        self._begin()

    def _begin(self) -> None:
        self._rows = 0
        self._shapes: list[tuple[int, int]] = []
        self._ids: list[Numbers] = []
        self._lines: dict[Line, list[Integers]] = {}
        self._on: dict[Line, list[int]] = {}
        self._names: dict[str, int] = {}
        self._cells: list[int] = []
        self._mixed: list[States] = []

    def add(self, data: ChunkData, held: int = 0) -> None:
        """Add a chunk. Each of its columns keeps ``held`` bytes of a stream in memory; 0: only its own bytes."""
        rows, ids = data.num_rows, data.row_ids
        number = len(self._shapes)
        if rows:
            self._ids.append(np.frombuffer(ids.buffers()[1], ID_HALVES, 2 * rows, 16 * ids.offset).astype(np.uint64))
        for line in data.timelines:
            key = line.name, line.kind
            self._lines.setdefault(key, []).append(line.ticks.copy())  # else it holds the whole payload
            self._on.setdefault(key, []).append(number)
        for component in data.components:
            state, each = validity_of(component.values)
            code = self._names.setdefault(component.descriptor.component, len(self._names))
            self._cells.append(4 * code + state)
            if each is not None:
                self._mixed.append(each)
        self._shapes.append((rows, len(data.components)))
        self._statistics.add(number, data, held)
        self._rows += rows
        if self._rows >= PIECE_ROWS:
            self._close()

    def finish(self) -> tuple[list[bytes], TimesDirectory]:
        """Return the pieces, and their directory, with chunks in the order of :meth:`add`."""
        if self._shapes:
            self._close()
        counts = np.array(self._counts, dtype=np.int64)
        sizes = np.array([len(piece) for piece in self._pieces], dtype=np.int64)
        places = np.empty((int(counts.sum()), 2), dtype=np.int64)
        places[:, 0] = np.repeat(2 * np.arange(len(counts)), counts)
        places[:, 1] = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        digests = [digest_of(piece) for piece in self._pieces]
        return self._pieces, TimesDirectory(np.cumsum(sizes) - sizes, sizes, digests, places)

    def _close(self) -> None:
        ids = np.concatenate(self._ids) if self._ids else np.empty(0, np.uint64)
        arrays: dict[str, npt.NDArray[Any]] = {
            "shapes": np.array(self._shapes, dtype="<i4"),
            "cells": np.array(self._cells, dtype="<i4"),
            "mixed": np.concatenate(self._mixed) if self._mixed else np.empty(0, np.uint8),
            "high": _differences(ids[::2]),
            "low": _differences(ids[1::2]),
        }
        for at, (key, ticks) in enumerate(self._lines.items()):
            arrays[f"on{at}"] = np.array(self._on[key], dtype="<i4")
            arrays[f"index{at}"] = _differences(np.concatenate(ticks))
        about = {"components": list(self._names), "timelines": [(name, str(kind)) for name, kind in self._lines]}
        self._pieces += [_packed(arrays, about), _packed(self._statistics.finish(), {})]
        self._counts.append(len(self._shapes))
        self._begin()


def _differences(values: npt.NDArray[Any]) -> States:
    """The differences of 64-bit values as byte planes, the lowest bytes first."""
    differences = np.empty(len(values), dtype="<u8")
    values = values.view(np.uint64)
    differences[:1] = values[:1]
    np.subtract(values[1:], values[:-1], out=differences[1:])
    return np.ascontiguousarray(differences.view(np.uint8).reshape(-1, 8).T)


def _packed(arrays: dict[str, npt.NDArray[Any]], about: dict[str, Any]) -> bytes:
    columns = []
    for array in arrays.values():
        ends = pa.py_buffer(np.array([0, array.nbytes], dtype=np.int32))
        columns.append(pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(np.ascontiguousarray(array))]))
    schema = pa.schema([(name, pa.binary()) for name in arrays], {ABOUT: json.dumps(about).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as out:
        out.write_batch(pa.record_batch(columns, schema=schema))
    return bytes(sink.getvalue().to_pybytes())


_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def part_end(times: TimesWriter | None) -> list[bytes]:
    """Return the end of a part with its chunks' times, or with None, of a part without times."""
    if times is None:
        return [PART_END.pack(0, bytes(DIGEST_SIZE), PART_MAGIC)]
    pieces, times_directory = times.finish()
    directory = times_directory.to_bytes()
    return [*pieces, directory, PART_END.pack(times_directory.size + len(directory), digest_of(directory), PART_MAGIC)]
