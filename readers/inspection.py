"""The report on a file that ``chunkmill inspect`` shows, as plain data; also a report on a store from chunk headers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engine.chunk import Chunk, ChunkHeader, TimelineKind
from ..engine.limits import MAX_INDEXED_TIMES

Ticks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TimelineReport:
    """One timeline and its range, in nanoseconds or sequence numbers. The range is None if no row has a time."""

    name: str
    kind: TimelineKind
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class EntitySummary:
    """One entity, or one topic of an MCAP. ``None`` means: unknown unless the whole file is read.

    ``rate`` is in messages (or rows) per second, ``largest_gap`` in ns. If the times within chunks are not known,
    ``gap_at_least`` is a lower bound from the chunk headers.
    """

    path: str
    rows: int | None
    chunks: int | None = None
    num_bytes: int | None = None
    is_static: bool | None = None
    timelines: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    schema: str | None = None
    encoding: str | None = None
    rate: float | None = None
    largest_gap: int | None = None
    gap_at_least: int | None = None


@dataclass(frozen=True, slots=True)
class OrderReport:
    """Faults in the row order of an entity.

    ``late_rows`` counts, for each timeline, rows whose time is before that of a preceding row. ``late_chunks`` counts
    chunks that begin before the end of an earlier chunk. ``disagreeing`` has pairs of timelines that order the rows
    differently; it is None if there are too many rows to compare.
    """

    recording_id: str | None
    path: str
    late_rows: dict[str, int]
    late_chunks: dict[str, int]
    disagreeing: tuple[tuple[str, str], ...] | None

    @property
    def is_fine(self) -> bool:
        """Whether there are no faults."""
        return not (self.late_rows or self.late_chunks or self.disagreeing)


@dataclass(frozen=True, slots=True)
class StoreReport:
    """One recording or blueprint with its timelines and entities, each sorted by name."""

    kind: str
    application_id: str | None
    recording_id: str | None
    timelines: tuple[TimelineReport, ...]
    entities: tuple[EntitySummary, ...]

    @property
    def rows(self) -> int | None:
        """The number of rows of all entities."""
        return _sum(e.rows for e in self.entities)

    @property
    def chunks(self) -> int | None:
        """The number of chunks of all entities."""
        return _sum(e.chunks for e in self.entities)

    @property
    def num_bytes(self) -> int | None:
        """The stored size of all entities in the file, in bytes."""
        return _sum(e.num_bytes for e in self.entities)


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """One column of a table. ``is_index`` is true if it may be a timeline, ``None`` if unknown."""

    name: str
    type: str
    nullable: bool | None = None
    values: int | None = None
    num_bytes: int | None = None
    uncompressed_bytes: int | None = None
    encodings: tuple[str, ...] = ()
    compression: tuple[str, ...] = ()
    is_index: bool = False


@dataclass(frozen=True, slots=True)
class FileReport:
    """The report on a file and its stores, or on the columns of a table.

    ``facts`` has properties specific to the format, by name.

    ``notes`` are the file's own key/value pairs; ``format`` is the name of the format in the registry.
    """

    path: str
    num_bytes: int
    stores: tuple[StoreReport, ...]
    facts: dict[str, str | float | bool] = field(default_factory=dict)
    columns: tuple[ColumnReport, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)
    format: str = ""
    orders: tuple[OrderReport, ...] | None = None
    """The entities with faults in their row order; None if not checked."""

    def to_json(self, indent: int | None = 2) -> str:
        """The report as JSON text. Times are nanoseconds or sequence numbers; null means not known.

        Keys may be added in later versions, but are not renamed.
        """
        return json.dumps(
            {
                "path": self.path,
                "format": self.format,
                "bytes": self.num_bytes,
                **self.facts,
                **_columns(self),
                "recordings": [_store(s) for s in self.stores if s.kind == "recording"],
                "blueprints": [_store(s) for s in self.stores if s.kind == "blueprint"],
                **({} if self.orders is None else {"orders": [asdict(order) for order in self.orders]}),
            },
            indent=indent,
            ensure_ascii=False,
        )


class Orders:
    """Collects the times of one recording's chunks, in arrival order."""

    def __init__(self) -> None:
        self._entities: dict[str, _EntityOrder] = {}
        self._rows = 0

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        if not chunk.is_static:
            self.add_times(chunk.entity_path, {line.name: line.ticks for line in chunk.data.timelines})

    def add_times(self, path: str, times: Mapping[str, Ticks]) -> None:
        """Add the times of some rows of an entity, by timeline."""
        rows = len(next(iter(times.values())))
        if rows:
            self._rows += rows
            self._entities.setdefault(path, _EntityOrder()).add(times)
        if self._rows > MAX_INDEXED_TIMES:
            for entity in self._entities.values():
                entity.parts = None

    def reports(self, recording_id: str | None) -> list[OrderReport]:
        """Return the entities with faults in their row order."""
        reports = [self._entities[path].report(recording_id, path) for path in sorted(self._entities)]
        return [report for report in reports if not report.is_fine]


@dataclass(slots=True)
class _EntityOrder:
    late_rows: dict[str, int] = field(default_factory=dict)
    late_chunks: dict[str, int] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    parts: dict[tuple[str, ...], list[list[Ticks]]] | None = field(default_factory=dict)
    """The times of all rows, by the set of their timelines."""

    def add(self, times: Mapping[str, Ticks]) -> None:
        for name, ticks in times.items():
            before = np.int64(self.latest.get(name, -(2**63)))
            reached = np.maximum.accumulate(np.concatenate([[before], ticks]))
            self._count(self.late_rows, name, int((ticks < reached[:-1]).sum()))
            self._count(self.late_chunks, name, int(ticks.min() < before))
            self.latest[name] = int(reached[-1])
        if self.parts is not None and len(times) > 1:
            self.parts.setdefault(tuple(times), []).append(list(times.values()))

    def report(self, recording_id: str | None, path: str) -> OrderReport:
        pairs: dict[tuple[str, str], None] = {}
        for names, parts in (self.parts or {}).items():
            ticks = {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(names)}
            for one, other in combinations(names, 2):
                order = np.lexsort((ticks[other], ticks[one]))
                later = ticks[other][order]
                if (later[1:] < later[:-1]).any():
                    pairs[one, other] = None
        disagreeing = None if self.parts is None else tuple(pairs)
        return OrderReport(recording_id, path, self.late_rows, self.late_chunks, disagreeing)

    @staticmethod
    def _count(counts: dict[str, int], name: str, more: int) -> None:
        if more:
            counts[name] = counts.get(name, 0) + more


_TIMES = (TimelineKind.TIMESTAMP, TimelineKind.DURATION)


def summarise_store(
    kind: str, application_id: str | None, recording_id: str | None, chunks: Iterable[tuple[ChunkHeader, int | None]]
) -> StoreReport:
    """The report on one store from its chunk headers, each with its size in the file or None."""
    entities: dict[str, _EntitySums] = {}
    timelines: dict[str, TimelineReport] = {}
    for header, num_bytes in chunks:
        entities.setdefault(header.entity_path, _EntitySums()).add(header, num_bytes)
        for line in header.timelines:
            existing = timelines.get(line.name)
            starts = [s for s in (line.start, existing.start if existing else None) if s is not None]
            ends = [e for e in (line.end, existing.end if existing else None) if e is not None]
            timelines[line.name] = TimelineReport(
                line.name, line.kind, min(starts, default=None), max(ends, default=None)
            )
    return StoreReport(
        kind,
        application_id,
        recording_id,
        tuple(timelines[name] for name in sorted(timelines)),
        tuple(entities[path].report(path) for path in sorted(entities)),
    )


@dataclass(slots=True)
class _EntitySums:
    rows: int = 0
    chunks: int = 0
    num_bytes: int | None = 0
    static_chunks: int = 0
    timelines: set[str] = field(default_factory=set)
    components: set[str] = field(default_factory=set)
    spans: dict[tuple[int, str], list[tuple[int, int, int]]] = field(default_factory=dict)
    """The ranges and rows of chunks by timeline, wall-clock times first."""

    def add(self, header: ChunkHeader, num_bytes: int | None) -> None:
        self.rows += header.num_rows
        self.chunks += 1
        self.num_bytes = _sum((self.num_bytes, num_bytes))
        self.static_chunks += header.is_static
        for line in header.timelines:
            self.timelines.add(line.name)
            if line.kind in _TIMES and line.start is not None and line.end is not None:
                key = (_TIMES.index(line.kind), line.name)
                self.spans.setdefault(key, []).append((line.start, line.end, header.num_rows))
        self.components.update(c.descriptor.component for c in header.components)

    def report(self, path: str) -> EntitySummary:
        rate, exact, at_least = _timing(self.spans[min(self.spans)]) if self.spans else (None, None, None)
        return EntitySummary(
            path,
            self.rows,
            self.chunks,
            self.num_bytes,
            self.static_chunks == self.chunks,
            tuple(sorted(self.timelines)),
            tuple(sorted(self.components)),
            rate=rate,
            largest_gap=exact,
            gap_at_least=at_least,
        )


def _timing(spans: list[tuple[int, int, int]]) -> tuple[float | None, int | None, int | None]:
    """Return rows per second, the largest gap between rows and, if that is unknown, a lower bound for it.

    In a chunk of one or two rows, all times are known. In a larger chunk, the largest gap is at least that of evenly
    spaced rows.

    >>> _timing([(0, 1_000_000_000, 2), (3_000_000_000, 4_000_000_000, 11)])
    (3.0, None, 2000000000)
    """
    spans.sort()
    start, end = spans[0][0], max(span[1] for span in spans)
    rows = sum(span[2] for span in spans)
    rate = (rows - 1) / ((end - start) / 1e9) if end > start else None
    if rows < 2:
        return rate, None, None
    gap = max(((last - first) // (count - 1) for first, last, count in spans if count > 1), default=0)
    reached = spans[0][1]
    for first, last, _ in spans[1:]:
        gap = max(gap, first - reached)
        reached = max(reached, last)
    overlap = any(later[0] < earlier[1] for earlier, later in pairwise(spans))
    if all(span[2] <= 2 for span in spans) and not overlap:
        return rate, gap, None
    return rate, None, gap if not overlap else None


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _columns(report: FileReport) -> dict[str, Any]:
    """The keys that only tables have."""
    if not report.columns:
        return {}
    columns = [_renamed(asdict(column)) for column in report.columns]
    return {"columns": columns, "key_values": report.notes}


def _store(store: StoreReport) -> dict[str, Any]:
    return {
        "application_id": store.application_id,
        "recording_id": store.recording_id,
        "chunks": store.chunks,
        "rows": store.rows,
        "bytes": store.num_bytes,
        "timelines": [{"name": t.name, "type": t.kind.value, "start": t.start, "end": t.end} for t in store.timelines],
        "entities": [_entity(e) for e in store.entities],
    }


def _entity(entity: EntitySummary) -> dict[str, Any]:
    of_messages, of_chunks = ("schema", "encoding"), ("timelines", "components", "gap_at_least")
    is_topic = entity.schema is not None or entity.encoding is not None
    left_out = of_chunks if is_topic else of_messages
    return _renamed({key: value for key, value in asdict(entity).items() if key not in left_out})


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    """A dataclass's values, by the keys of the JSON text."""
    keys = {"num_bytes": "bytes", "is_static": "static", "is_index": "index_candidate"}
    return {keys.get(key, key): value for key, value in values.items()}
