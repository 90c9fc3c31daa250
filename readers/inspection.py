"""The report on a file that ``chunkmill inspect`` shows, as plain data; and one made of the headers of chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from ..engine.chunk import ChunkHeader, TimelineKind


@dataclass(frozen=True, slots=True)
class TimelineReport:
    """One timeline and its range in ticks: nanoseconds, or numbers of a sequence. None: no row is on it."""

    name: str
    kind: TimelineKind
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class EntitySummary:
    """One entity, or one topic of an MCAP. ``None``: not known without reading the whole file.

    ``rate`` is in messages (or rows) a second, ``largest_gap`` in ns. If the times within chunks are not known,
    ``gap_at_least`` is a lower bound, from the headers of chunks.
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
class StoreReport:
    """One recording or blueprint with its timelines and entities, each sorted by name."""

    kind: str
    application_id: str | None
    recording_id: str | None
    timelines: tuple[TimelineReport, ...]
    entities: tuple[EntitySummary, ...]

    @property
    def rows(self) -> int | None:
        """Rows of all entities."""
        return _sum(e.rows for e in self.entities)

    @property
    def chunks(self) -> int | None:
        """Chunks of all entities."""
        return _sum(e.chunks for e in self.entities)

    @property
    def num_bytes(self) -> int | None:
        """Stored bytes of all entities, as they lie in the file."""
        return _sum(e.num_bytes for e in self.entities)


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """One column of a table. ``is_index``: it may be meant as a timeline; ``None``: not known."""

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
    """One file and its stores, or the columns of a table; ``facts`` holds what only this format has, by name.

    ``notes`` are the file's own key/value pairs, ``format`` is the name of the format in the registry.
    """

    path: str
    num_bytes: int
    stores: tuple[StoreReport, ...]
    facts: dict[str, str | float | bool] = field(default_factory=dict)
    columns: tuple[ColumnReport, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)
    format: str = ""

    def to_json(self, indent: int | None = 2) -> str:
        """The report as JSON text. Times are in nanoseconds, or numbers of a sequence; null means not known.

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
            },
            indent=indent,
            ensure_ascii=False,
        )


_TIMES = (TimelineKind.TIMESTAMP, TimelineKind.DURATION)


def summarise_store(
    kind: str, application_id: str | None, recording_id: str | None, chunks: Iterable[tuple[ChunkHeader, int | None]]
) -> StoreReport:
    """The report on one store from its chunk headers, each with its bytes in the file where they are known."""
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
    """Return rows a second, the largest gap between rows, and, if that is unknown, the least that it can be.

    Of a chunk of one or two rows all times are known; the rows of a larger one are at least as far apart as if they
    were evenly so.

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
    """The values of a dataclass by the keys of the JSON text."""
    keys = {"num_bytes": "bytes", "is_static": "static", "is_index": "index_candidate"}
    return {keys.get(key, key): value for key, value in values.items()}
