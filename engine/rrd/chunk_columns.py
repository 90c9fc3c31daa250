"""Columns of a footer on its chunks: gathered from headers, or taken over from another footer.

Timelines that one recording can't hold together are found before it is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ChunkHeader, ComponentDescriptor, TimelineHeader, TimelineKind
from ..errors import WriteError
from .chunk_table import ChunkEntry
from .column_names import START, column_name


class TimelineRegister:
    """The timelines seen so far, by name."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._by_column: dict[str, str] = {}
        self.kinds: dict[str, TimelineKind] = {}

    def add(self, timelines: tuple[TimelineHeader, ...]) -> None:
        """Take note of a chunk's timelines. Raises :class:`WriteError` for two that one manifest can't tell apart."""
        for timeline in timelines:
            if self.kinds.get(timeline.name) is not timeline.kind:
                self._add_other(timeline.name, timeline.kind)

    def add_kinds(self, kinds: Mapping[str, TimelineKind]) -> None:
        """Like :meth:`add`, for the timelines of many chunks."""
        for name, kind in kinds.items():
            if self.kinds.get(name) is not kind:
                self._add_other(name, kind)

    def _add_other(self, name: str, kind: TimelineKind) -> None:
        known = self.kinds.get(name)
        if known is not None:
            raise WriteError(
                f"the timeline {name!r} is a {known.value} in one chunk and a {kind.value} in "
                "another; one recording can't hold both",
                path=self._path,
                hint="Rename one of them, or write them into two recordings.",
            )
        column = column_name(name, None, START)
        other = self._by_column.setdefault(column, name)
        if other != name:
            raise WriteError(
                f"the timelines {other!r} and {name!r} share the column {column!r} in the file's footer",
                path=self._path,
                hint="Rename one of them: space, comma, point, hyphen, backslash and underscore count as the same.",
            )
        self.kinds[name] = kind


Integers = npt.NDArray[np.int64]

_ALL_TIMES: Final = (1 - 2**63, 2**63 - 1)


class Cells(NamedTuple):
    """The cells of one group of columns that are not null, by row."""

    rows: Integers
    start: Integers
    end: Integers
    num_rows: Integers


class UnionComponent(NamedTuple):
    """One component of one entity in the recording; the first chunk says its descriptor and type."""

    descriptor: ComponentDescriptor
    datatype: pa.DataType
    is_static: bool
    is_empty: bool

    def joined(self, other: UnionComponent) -> UnionComponent:
        """The same component, in more chunks."""
        return self._replace(is_static=self.is_static | other.is_static, is_empty=self.is_empty & other.is_empty)


@dataclass(frozen=True, slots=True)
class ChunkColumns:
    """Chunks of one store, a row each, with their offsets in one file.

    ``digests`` are those of their messages, null where not known. ``statics`` has the rows that hold a component
    statically (none for one that only temporal chunks have), ``timelines`` the ranges of chunks, ``components`` those
    of single components, by timeline and descriptor. ``union`` is what the union schema is made of, by entity path and
    component.
    """

    paths: pa.Array
    ids: pa.Array
    is_static: npt.NDArray[np.bool_]
    num_rows: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.uint64]
    uncompressed_sizes: npt.NDArray[np.uint64]
    digests: pa.Array
    kinds: dict[str, TimelineKind]
    statics: dict[ComponentDescriptor, Integers]
    timelines: dict[str, Cells]
    components: dict[tuple[str, ComponentDescriptor], Cells]
    union: dict[tuple[str, str], UnionComponent]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def manifest_columns(self) -> int:
        """Count the columns of a manifest that say this, but for those that every manifest has."""
        return len(self.statics) + 2 * len(self.timelines) + 3 * len(self.components)


class _Gathering:
    """Collects the cells of headers, row by row."""

    def __init__(self) -> None:
        self.statics: dict[ComponentDescriptor, list[int]] = {}
        self.timelines: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
        self.components: defaultdict[tuple[str, ComponentDescriptor], list[tuple[int, ...]]] = defaultdict(list)

    def add(self, row: int, header: ChunkHeader) -> None:
        if header.is_static:
            for component in header.components:
                self.statics.setdefault(component.descriptor, []).append(row)
            return
        if header.num_rows == 0:
            self._add_without_rows(row, header)
            return
        for timeline in header.timelines:
            if timeline.start is not None and timeline.end is not None:
                self.timelines[timeline.name].append((row, timeline.start, timeline.end, header.num_rows))
        for component in header.components:
            self.statics.setdefault(component.descriptor, [])
            for timeline, found in zip(header.timelines, component.ranges, strict=True):
                cells = self.components[timeline.name, component.descriptor]
                if found.start is not None and found.end is not None:
                    cells.append((row, found.start, found.end, found.num_rows))

    def _add_without_rows(self, row: int, header: ChunkHeader) -> None:
        """A chunk without rows is given the range of all times, as Rerun does, so that its columns are known."""
        for timeline in header.timelines:
            self.timelines[timeline.name].append((row, *_ALL_TIMES, 0))
        for component in header.components:
            self.statics.setdefault(component.descriptor, [])
            for timeline in header.timelines:
                self.components[timeline.name, component.descriptor].append((row, *_ALL_TIMES, 0))


def columns_of_entries(entries: Sequence[ChunkEntry], *, path: str) -> ChunkColumns:
    """The columns that describe ``entries``, in their order.

    Raises :class:`WriteError`, naming ``path``, for timelines that one recording can't hold together.
    """
    headers = [e.header for e in entries]
    register = TimelineRegister(path)
    found = _Gathering()
    for row, header in enumerate(headers):
        register.add(header.timelines)
        found.add(row, header)
    return ChunkColumns(
        pa.array([h.entity_path for h in headers], pa.string()),
        pa.array([h.chunk_id for h in headers], pa.binary(16)),
        np.array([h.is_static for h in headers], dtype=bool),
        np.array([h.num_rows for h in headers], dtype=np.uint64),
        np.array([e.offset for e in entries], dtype=np.uint64),
        np.array([e.size for e in entries], dtype=np.uint64),
        np.array([e.uncompressed_size for e in entries], dtype=np.uint64),
        pa.array([e.digest for e in entries], pa.binary(16)),
        register.kinds,
        {descriptor: np.array(rows, dtype=np.int64) for descriptor, rows in found.statics.items()},
        {name: _cells(cells) for name, cells in found.timelines.items()},
        {key: _cells(cells) for key, cells in found.components.items()},
        _union(headers),
    )


def joined(pieces: Sequence[ChunkColumns], *, path: str) -> ChunkColumns:
    """The rows of all pieces, one piece after the other. Raises like :func:`columns_of_entries`."""
    if len(pieces) == 1:
        return pieces[0]
    register = TimelineRegister(path)
    for piece in pieces:
        register.add_kinds(piece.kinds)
    starts = np.cumsum([0, *(len(p) for p in pieces)]).tolist()
    union: dict[tuple[str, str], UnionComponent] = {}
    for piece in pieces:
        for key, component in piece.union.items():
            union[key] = union[key].joined(component) if key in union else component
    return ChunkColumns(
        paths=pa.concat_arrays([p.paths for p in pieces]),
        ids=pa.concat_arrays([p.ids for p in pieces]),
        is_static=np.concatenate([p.is_static for p in pieces]),
        num_rows=np.concatenate([p.num_rows for p in pieces]),
        offsets=np.concatenate([p.offsets for p in pieces]),
        sizes=np.concatenate([p.sizes for p in pieces]),
        uncompressed_sizes=np.concatenate([p.uncompressed_sizes for p in pieces]),
        digests=pa.concat_arrays([p.digests for p in pieces]),
        kinds=register.kinds,
        statics=_joined_rows([p.statics for p in pieces], starts),
        timelines=_joined_cells([p.timelines for p in pieces], starts),
        components=_joined_cells([p.components for p in pieces], starts),
        union=union,
    )


def _joined_rows(
    pieces: Sequence[dict[ComponentDescriptor, Integers]], starts: list[int]
) -> dict[ComponentDescriptor, Integers]:
    found: defaultdict[ComponentDescriptor, list[Integers]] = defaultdict(list)
    for piece, start in zip(pieces, starts, strict=False):
        for key, rows in piece.items():
            found[key].append(rows + start)
    return {key: np.concatenate(rows) for key, rows in found.items()}


def _joined_cells(pieces: Sequence[dict[Any, Cells]], starts: list[int]) -> dict[Any, Cells]:
    found: defaultdict[Any, list[Cells]] = defaultdict(list)
    for piece, start in zip(pieces, starts, strict=False):
        for key, cells in piece.items():
            found[key].append(cells._replace(rows=cells.rows + start))
    return {key: Cells(*map(np.concatenate, zip(*cells, strict=True))) for key, cells in found.items()}


def _cells(cells: list[tuple[int, ...]]) -> Cells:
    return Cells(*np.array(cells, dtype=np.int64).reshape(-1, 4).T)


def _union(headers: Iterable[ChunkHeader]) -> dict[tuple[str, str], UnionComponent]:
    """Let the first chunk have its way where chunks disagree about the type or descriptor of a component."""
    components: dict[tuple[str, str], UnionComponent] = {}
    for header in headers:
        for component in header.components:
            key = (header.entity_path, component.descriptor.component)
            found = UnionComponent(
                component.descriptor, component.datatype, header.is_static, component.is_empty is True
            )
            known = components.get(key)
            if known is None:
                components[key] = found
            elif (known.is_static, known.is_empty) != (found.is_static, found.is_empty):
                components[key] = known.joined(found)
    return components
