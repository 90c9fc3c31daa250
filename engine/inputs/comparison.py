"""A comparison of the contents of two inputs of any format: which entities, components and times differ, and how.

Content is what a query sees: for each component of an entity, its values except nulls, each at its times. The division
of rows into chunks, the order of chunks, and ids are not content.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...readers import STORE, detect_format, stem_of
from ..chunk import Chunk, ComponentDescriptor, TimelineKind, cell_writer, differing, plain_type, timestamp_text
from ..errors import UsageError
from ..limits import MIB
from ..locations import Location, located
from ..recordings import RecordingsFolder
from ..rrd import RrdFile, StoreEntry
from ..stream import ContentFilter, write_stores
from ..units import counted
from .stores import SourceOptions, Stores, stores_of

_SEGMENT_BYTES: Final = 8 * MIB
"""The bytes that are loaded before they are compared."""

_Mask: TypeAlias = "npt.NDArray[np.bool_]"
_Timelines: TypeAlias = "tuple[tuple[str, TimelineKind], ...]"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two inputs.

    ``text`` describes it, with the value of the first input before that of the second.

    If ``component`` is None, it concerns the whole entity; if ``entity_path`` is None, the whole recording.
    ``timeline`` and ``time`` (in ns, or a sequence number) identify the row.
    """

    text: str
    recording: str | None = None
    entity_path: str | None = None
    component: str | None = None
    timeline: tuple[str, TimelineKind] | None = None
    time: int | None = None

    def __str__(self) -> str:
        named = [word for word in (self.recording, self.entity_path, self.component) if word is not None]
        if self.timeline is not None and self.time is not None:
            named.append(f"{self.timeline[0]} {_time_text(self.timeline[1], self.time)}")
        return f"{' '.join(named)}: {self.text}" if named else self.text


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing two inputs: the numbers of common ``rows`` and ``components``, and the ``differences``.

    For each component it lists the first differences and counts the others.
    """

    rows: int
    components: int
    differences: tuple[Difference, ...]

    def __bool__(self) -> bool:
        """Return whether both inputs have the same content."""
        return not self.differences


def compare(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *,
    content: str | Iterable[str] | None = None,
    ignore_timelines: Iterable[str] = (),
    tolerance: float = 0.0,
    chunks: bool = False,
    most: int = 10,
    options: Mapping[str, Any] | None = None,
) -> Comparison:
    """Compare the content of two recordings or stores, each of any format.

    Rows are compared in the order of their times, and rows with equal times in the order in which they were recorded.
    For a static component the last value counts. NaN equals NaN. A few megabytes are read at a time, in this process.
    If each input contains one recording, these two are compared. Several recordings are matched by their ids.

    Parameters
    ----------
    first, second
        A file, a folder of a format whose recordings are folders, a store, or the URL of one of these.
    content
        The entities to compare, such as ``"/imu/**"``.
    ignore_timelines
        Names of timelines to leave out of the comparison.
    tolerance
        The largest allowed difference between two floating-point numbers.
    chunks
        Also compare the order and boundaries of chunks.
    most
        How many differences of each component to list.
    options
        Options of the formats, named like the readers' arguments. Each input uses those of its own format.

    Raises
    ------
    ReadError
        One of the two cannot be read.
    """
    if not tolerance >= 0:
        raise UsageError(f"a tolerance must be a number, 0 or larger, not {tolerance}")
    wanted = None if content is None else ContentFilter([content] if isinstance(content, str) else content)
    with tempfile.TemporaryDirectory(prefix="chunkmill-compare-") as scratch:
        sides = [
            _recordings(located(path), Path(scratch, str(number)), options or {})
            for number, path in enumerate((first, second))
        ]
        tally = _Tally(frozenset(ignore_timelines), float(tolerance), most)
        for name, pair in _pairs(sides[0], sides[1], tally):
            a, b = ([c for c in side if wanted is None or wanted.matches(c.entity_path)] for side in pair)
            _Compared(tally, name, a, b).run()
            if chunks:
                _compare_cut(tally, name, a, b)
    return Comparison(tally.rows, tally.components, tuple(tally.differences))


Recordings: TypeAlias = "list[tuple[StoreEntry, list[Chunk]]]"


def _recordings(location: Location, scratch: Path, options: Mapping[str, Any]) -> Recordings:
    """The recordings and blueprints of an input, with their chunks by reference."""
    row = detect_format(location)
    if row is STORE:
        folder = RecordingsFolder(location)
        return [(entry.store, folder.chunks(entry)) for entry in folder.live(folder.version(options.get("version")))]
    if row.name == "rrd" and not options.get("recover"):
        file = RrdFile(str(location))
        if file.has_footer:
            return [(store, list(file.chunks(store))) for store in file.stores()]
    chosen = SourceOptions(reading=options, executor="inline")
    episodes = row.open(location, options).episodes()
    inputs: list[Stores] = (
        [stores_of(location, episode.name, chosen, episode.number) for episode in episodes]
        if episodes
        else [stores_of(location, stem_of(location.name), chosen)]
    )
    scratch.mkdir()
    recordings: Recordings = []
    for number, stores in enumerate(inputs):
        path = scratch / f"{number}.rrd"
        write_stores(path, stores, executor="inline")
        written = RrdFile(path)
        recordings += [(store, list(written.chunks(store))) for store in written.stores()]
    return recordings


class _Tally:
    """The choices of a comparison, and the differences so far."""

    def __init__(self, ignored: frozenset[str], tolerance: float, most: int) -> None:
        self.ignored, self.tolerance, self.most = ignored, tolerance, most
        self.rows = self.components = 0
        self.differences: list[Difference] = []

    def note(self, difference: Difference) -> None:
        self.differences.append(difference)


def _pairs(
    first: Recordings, second: Recordings, tally: _Tally
) -> Iterator[tuple[str | None, tuple[list[Chunk], ...]]]:
    """The pairs of recordings to compare: the only ones, or those with the same ids; blueprints likewise."""
    for kind in ("recording", "blueprint"):
        sides = [{s.recording_id: chunks for s, chunks in side if s.kind == kind} for side in (first, second)]
        if len(sides[0]) == 1 == len(sides[1]):
            yield None if kind == "recording" else kind, (*sides[0].values(), *sides[1].values())
            continue
        for name in sorted(sides[0].keys() | sides[1].keys()):
            if name in sides[0] and name in sides[1]:
                yield f"{kind} {name}", (sides[0][name], sides[1][name])
            else:
                where = "first" if name in sides[0] else "second"
                tally.note(Difference(f"only in the {where}", f"{kind} {name}"))


def _compare_cut(tally: _Tally, recording: str | None, a: Sequence[Chunk], b: Sequence[Chunk]) -> None:
    """Note the first chunk that differs in its header, ids aside."""
    if len(a) != len(b):
        tally.note(Difference(f"{counted(len(a), 'chunk')} | {counted(len(b), 'chunk')}", recording))
    for number, (chunk_a, chunk_b) in enumerate(zip(a, b, strict=False)):
        said = [
            f"{counted(c.num_rows, 'row')}, timelines {c.timeline_names}, components "
            f"{[h.descriptor.component for h in c.header.components if not h.is_empty]}"
            for c in (chunk_a, chunk_b)
        ]
        if chunk_a.entity_path != chunk_b.entity_path:
            said = [f"{c.entity_path} of {text}" for c, text in zip((chunk_a, chunk_b), said, strict=True)]
        if said[0] != said[1]:
            tally.note(Difference(f"chunk {number}: {said[0]} | {said[1]}", recording, chunk_a.entity_path))
            return


class _Rows(NamedTuple):
    """Some rows of an entity: times by timeline, row ids as pairs of numbers, and columns."""

    times: tuple[npt.NDArray[np.int64], ...]
    ids: npt.NDArray[np.uint64]
    values: Mapping[ComponentDescriptor, pa.Array]

    @classmethod
    def of(cls, chunk: Chunk, timelines: _Timelines) -> Self:
        data = chunk.data
        ticks = {t.name: t.ticks for t in data.timelines}
        start = 2 * data.row_ids.offset
        ids = np.frombuffer(data.row_ids.buffers()[1], ">u8")[start : start + 2 * data.num_rows].reshape(-1, 2)
        columns = {c.descriptor: c.values for c in data.components}
        return cls(tuple(ticks[name] for name, _ in timelines), ids.astype(np.uint64), columns)

    @property
    def nbytes(self) -> int:
        return sum(int(values.nbytes) for values in self.values.values())

    def divided(self, watermark: int) -> tuple[_Rows, _Rows]:
        """The rows before a time of the first timeline, and the other rows."""
        early = self.times[0] < watermark
        return self.some(early), self.some(~early)

    def some(self, mask: _Mask) -> _Rows:
        if mask.all():
            return self
        chosen = pa.array(np.flatnonzero(mask))
        values = {name: column.take(chosen) for name, column in self.values.items()}
        return _Rows(tuple(t[mask] for t in self.times), self.ids[mask], values)

    def __len__(self) -> int:
        return len(self.ids)


class _Column(NamedTuple):
    """The values of one component without nulls, in the order of times and row ids."""

    times: npt.NDArray[np.int64]
    values: pa.Array

    @classmethod
    def of(cls, rows: Sequence[_Rows], descriptor: ComponentDescriptor, datatype: pa.DataType, timelines: int) -> Self:
        having = [r for r in rows if descriptor in r.values]
        if not having:
            return cls(np.empty((0, timelines), np.int64), pa.array([], datatype))
        columns = [r.values[descriptor] for r in having]
        values = pa.concat_arrays([c if c.type == datatype else c.cast(datatype) for c in columns])
        ids = np.concatenate([r.ids for r in having])
        times = (
            np.stack([np.concatenate([r.times[i] for r in having]) for i in range(timelines)], axis=1)
            if timelines
            else np.empty((len(ids), 0), np.int64)
        )
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        keys = (ids[:, 1], ids[:, 0], *(times[:, i] for i in reversed(range(timelines))))
        order = np.lexsort(keys)
        order = order[valid[order]]
        is_ordered = len(order) == len(ids) and bool((order[1:] > order[:-1]).all())
        return cls(times[order], values if is_ordered else values.take(pa.array(order)))


@dataclass(slots=True)
class _Compared:
    """The comparison of one recording with another."""

    tally: _Tally
    recording: str | None
    first: Sequence[Chunk]
    second: Sequence[Chunk]
    _counts: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    def run(self) -> None:
        sides = [_by_entity(chunks) for chunks in (self.first, self.second)]
        for entity in sorted(sides[0].keys() | sides[1].keys()):
            if entity in sides[0] and entity in sides[1]:
                self._entity(entity, sides[0][entity], sides[1][entity])
            else:
                side, where = (sides[0], "first") if entity in sides[0] else (sides[1], "second")
                rows = sum(chunk.num_rows for chunk in side[entity])
                self._note(entity, None, f"only in the {where}, with {counted(rows, 'row')}")
        for (entity, component), count in self._counts.items():
            if count > self.tally.most:
                self._note(entity, component, f"and {count - self.tally.most:,} more rows")

    def _note(self, entity: str, component: str | None, text: str) -> None:
        self.tally.note(Difference(text, self.recording, entity, component))

    def _entity(self, entity: str, a: Sequence[Chunk], b: Sequence[Chunk]) -> None:
        kinds_of_sides = [_kinds(chunks, self.tally.ignored) for chunks in (a, b)]
        shared: dict[_Timelines | None, list[tuple[ComponentDescriptor, pa.DataType]]] = defaultdict(list)
        for descriptor in sorted(kinds_of_sides[0].keys() | kinds_of_sides[1].keys(), key=lambda d: d.sort_key):
            kinds = [side.get(descriptor) for side in kinds_of_sides]
            name = descriptor.component
            if kinds[0] is None or kinds[1] is None:
                self._note(entity, name, f"only in the {'second' if kinds[0] is None else 'first'}{_about(descriptor)}")
            elif kinds[0].timelines.keys() != kinds[1].timelines.keys():
                self._note(entity, name, " | ".join(_timelines_text(kind.timelines) for kind in kinds if kind))
            elif kinds[0].plain != kinds[1].plain:
                self._note(entity, name, f"type {kinds[0].datatype} | {kinds[1].datatype}")
            else:
                self.tally.components += 1
                for timelines in kinds[0].timelines:
                    shared[timelines].append((descriptor, kinds[0].datatype))
        for timelines, components in shared.items():
            sides = [[c for c in chunks if _timelines_of(c, self.tally.ignored) == timelines] for chunks in (a, b)]
            if timelines is None:
                self._static(entity, sides, components)
            else:
                self._rows(entity, timelines, sides, components)

    def _static(
        self,
        entity: str,
        sides: Sequence[Sequence[Chunk]],
        components: Sequence[tuple[ComponentDescriptor, pa.DataType]],
    ) -> None:
        rows = [[_Rows.of(chunk, ()) for chunk in chunks] for chunks in sides]
        for descriptor, datatype in components:
            a, b = (_Column.of(side, descriptor, datatype, 0).values[-1:] for side in rows)
            self.tally.rows += 1
            if differing(a, b, self.tally.tolerance).any():
                self._row(entity, descriptor, None, None, f"{_text(a, 0)} | {_text(b, 0)}")

    def _rows(
        self,
        entity: str,
        timelines: _Timelines,
        sides: Sequence[Sequence[Chunk]],
        components: Sequence[tuple[ComponentDescriptor, pa.DataType]],
    ) -> None:
        for a, b in _segments(timelines, sides):
            for descriptor, datatype in components:
                columns = [_Column.of(side, descriptor, datatype, len(timelines)) for side in (a, b)]
                self._columns(entity, timelines, descriptor, columns[0], columns[1])

    def _columns(
        self, entity: str, timelines: _Timelines, descriptor: ComponentDescriptor, a: _Column, b: _Column
    ) -> None:
        self.tally.rows += min(len(a.times), len(b.times))
        first, second = a, b
        if a.times.shape != b.times.shape or not np.array_equal(a.times, b.times):
            pairs, only_a, only_b = _aligned(a.times, b.times)
            for side, only, where in ((a, only_a, "first"), (b, only_b, "second")):
                for row in only:
                    text = (
                        f"only in the {where}: {_text(side.values, row)}" if self._is_listed(entity, descriptor) else ""
                    )
                    self._row(entity, descriptor, timelines, side.times[row], text)
            at = np.array(pairs, np.int64).reshape(-1, 2)
            first = _Column(a.times[at[:, 0]], a.values.take(pa.array(at[:, 0])))
            second = _Column(b.times[at[:, 1]], b.values.take(pa.array(at[:, 1])))
        for row in np.flatnonzero(differing(first.values, second.values, self.tally.tolerance)).tolist():
            is_listed = self._is_listed(entity, descriptor)
            text = f"{_text(first.values, row)} | {_text(second.values, row)}" if is_listed else ""
            self._row(entity, descriptor, timelines, first.times[row], text)

    def _is_listed(self, entity: str, descriptor: ComponentDescriptor) -> bool:
        return self._counts[entity, descriptor.component] < self.tally.most

    def _row(
        self,
        entity: str,
        descriptor: ComponentDescriptor,
        timelines: _Timelines | None,
        times: npt.NDArray[np.int64] | None,
        text: str,
    ) -> None:
        """Count a row that differs, and note it if it is one of the first."""
        if self._is_listed(entity, descriptor):
            at = (timelines[0], int(times[0])) if timelines and times is not None else (None, None)
            self.tally.note(Difference(text, self.recording, entity, descriptor.component, *at))
        self._counts[entity, descriptor.component] += 1


@dataclass(slots=True)
class _Kind:
    """A component in the headers of one side: its timelines, and its type; ``plain`` is the type without names."""

    datatype: pa.DataType
    plain: str
    timelines: dict[_Timelines | None, None] = field(default_factory=dict)


def _kinds(chunks: Sequence[Chunk], ignored: frozenset[str]) -> dict[ComponentDescriptor, _Kind]:
    """The components that have a value in some chunk."""
    kinds: dict[ComponentDescriptor, _Kind] = {}
    for chunk in chunks:
        for component in chunk.header.components:
            if component.ranges and all(r.num_rows == 0 for r in component.ranges):
                continue
            kind = kinds.get(component.descriptor)
            if kind is None:
                kind = kinds[component.descriptor] = _Kind(component.datatype, plain_type(component.datatype))
            kind.timelines[_timelines_of(chunk, ignored)] = None
    return kinds


def _by_entity(chunks: Iterable[Chunk]) -> dict[str, list[Chunk]]:
    chunks_of: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        chunks_of[chunk.entity_path].append(chunk)
    return chunks_of


def _timelines_of(chunk: Chunk, ignored: frozenset[str]) -> _Timelines | None:
    """The timelines of a chunk that are compared; None for a static one."""
    if chunk.is_static:
        return None
    return tuple((t.name, t.kind) for t in chunk.header.timelines if t.name not in ignored)


def _segments(
    timelines: _Timelines, sides: Sequence[Sequence[Chunk]]
) -> Iterator[tuple[Sequence[_Rows], Sequence[_Rows]]]:
    """The rows of both sides, piece by piece: a piece has all rows of both sides in its range of times.

    Chunks are loaded by ascending first time, and kept while later chunks may have rows between their rows.
    """
    if not timelines:
        yield [_Rows.of(c, timelines) for c in sides[0]], [_Rows.of(c, timelines) for c in sides[1]]
        return
    name = timelines[0][0]
    waiting = [sorted(((_start(c, name), i) for i, c in enumerate(side)), reverse=True) for side in sides]
    held: list[list[_Rows]] = [[], []]
    loaded = 0
    while waiting[0] or waiting[1]:
        side = min((s for s in (0, 1) if waiting[s]), key=lambda s: waiting[s][-1])
        rows = _Rows.of(sides[side][waiting[side].pop()[1]], timelines)
        held[side].append(rows)
        loaded += rows.nbytes
        nexts = [queue[-1][0] for queue in waiting if queue]
        if nexts and loaded < _SEGMENT_BYTES:
            continue
        loaded = 0
        if not nexts:
            yield held[0], held[1]
            return
        divided = [[rows.divided(min(nexts)) for rows in some] for some in held]
        held = [[late for _, late in some if len(late)] for some in divided]
        yield [early for early, _ in divided[0]], [early for early, _ in divided[1]]


def _start(chunk: Chunk, timeline: str) -> int:
    return next((t.start for t in chunk.header.timelines if t.name == timeline and t.start is not None), 0)


def _aligned(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Pairs of rows with equal times, and the rows of either side without a partner; both sides are in order."""
    left, right = list(map(tuple, a.tolist())), list(map(tuple, b.tolist()))
    pairs: list[tuple[int, int]] = []
    only: tuple[list[int], list[int]] = ([], [])
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif left[i] < right[j]:
            only[0].append(i)
            i += 1
        else:
            only[1].append(j)
            j += 1
    return pairs, [*only[0], *range(i, len(left))], [*only[1], *range(j, len(right))]


def _about(descriptor: ComponentDescriptor) -> str:
    said = [part for part in (descriptor.archetype, descriptor.component_type) if part]
    return f" ({', '.join(said)})" if said else ""


def _timelines_text(timelines: Iterable[_Timelines | None]) -> str:
    texts = ("static" if t is None else f"on {', '.join(name for name, _ in t) or 'no timeline'}" for t in timelines)
    return " and ".join(sorted(texts))


def _time_text(kind: TimelineKind, time: int) -> str:
    if kind is TimelineKind.SEQUENCE:
        return f"{time:,}"
    return timestamp_text(time, pa.timestamp("ns"), None) if kind is TimelineKind.TIMESTAMP else f"{time / 1e9:.9f} s"


def _text(values: pa.Array, row: int) -> str:
    """A value as a table shows it."""
    return cell_writer(values.type)(values[row])
