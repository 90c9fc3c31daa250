"""Stores as a notebook shows them: entities with their sizes and where in time their chunks lie; recordings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..chunk import Chunk, TimelineHeader, TimelineKind
from ..markup import Cell, bar, panel, table, track
from ..units import counted, duration, size, utc_time

if TYPE_CHECKING:
    from ..recordings import RecordingEntry, RecordingsVersion

_NEVER: Final = "no rows"


@dataclass(slots=True)
class _Entity:
    """Sums over the chunks of one entity, and the range of each on every timeline."""

    rows: int = 0
    chunks: int = 0
    size: int = 0
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))


def chunks_panel(title: str, chunks: Iterable[Chunk]) -> str:
    """The entities of a store, the largest first, their chunks as bars on the timeline that most of them have.

    Headers alone are looked at.
    """
    entities: dict[str, _Entity] = defaultdict(_Entity)
    timelines: dict[str, TimelineHeader] = {}
    on: Counter[str] = Counter()
    for chunk in chunks:
        header = chunk.header
        entity = entities[header.entity_path]
        entity.rows += header.num_rows
        entity.chunks += 1
        entity.size += chunk.byte_size
        for line in header.timelines:
            on[line.name] += header.num_rows
            timelines[line.name] = _joined(timelines.get(line.name), line)
            if line.start is not None and line.end is not None:
                entity.ranges[line.name].append((line.start, line.end))
    ordered = sorted(entities.items(), key=lambda item: (-item[1].size, item[0]))
    drawn = max(timelines.values(), key=lambda line: (on[line.name], line.kind is TimelineKind.TIMESTAMP), default=None)
    facts = (
        counted(sum(e.chunks for e in entities.values()), "chunk"),
        counted(sum(e.rows for e in entities.values()), "row"),
        size(sum(e.size for e in entities.values())),
    )
    head = ["entity", "rows", "chunks", "size", "" if drawn is None else f"on {drawn.name}"]
    rows = ((path, e.rows, e.chunks, size(e.size), _bars(e, drawn)) for path, e in ordered)
    return panel(
        title,
        facts,
        table(["timeline", "from", "to", "length"], map(_line, timelines.values()), len(timelines)),
        table(head, rows, len(ordered), kind="wide"),
    )


def _joined(known: TimelineHeader | None, line: TimelineHeader) -> TimelineHeader:
    if known is None:
        return line
    starts = [s for s in (known.start, line.start) if s is not None]
    ends = [e for e in (known.end, line.end) if e is not None]
    return TimelineHeader(known.name, known.kind, min(starts, default=None), max(ends, default=None))


def _bars(entity: _Entity, line: TimelineHeader | None) -> Cell:
    if line is None or not entity.ranges:
        return "static"
    if line.start is None or line.end is None or line.name not in entity.ranges:
        return f"not on {line.name}"
    first, length = line.start, max(line.end - line.start, 1)
    return track(((a - first) / length, (b - first) / length) for a, b in entity.ranges[line.name])


def _line(line: TimelineHeader) -> Sequence[Cell]:
    if line.start is None or line.end is None:
        return line.name, _NEVER, "", ""
    ends = (_time(line.kind, line.start), _time(line.kind, line.end))
    return line.name, *ends, "" if line.kind is TimelineKind.SEQUENCE else _length(line.end - line.start)


def _time(kind: TimelineKind, ticks: int) -> str:
    """A place on a timeline as people write it.

    >>> _time(TimelineKind.SEQUENCE, 1200), _time(TimelineKind.DURATION, 1_500_000_000)
    ('1,200', '1.5 s')
    """
    if kind is TimelineKind.SEQUENCE:
        return f"{ticks:,}"
    if kind is TimelineKind.DURATION:
        return _length(ticks)
    try:
        return utc_time(ticks / 1e9)
    except (ValueError, OverflowError, OSError):
        return f"{ticks:,} ns"


def _length(nanoseconds: int) -> str:
    return duration(nanoseconds / 1e9) if nanoseconds >= 0 else f"-{duration(-nanoseconds / 1e9)}"


def recordings_panel(path: str, version: RecordingsVersion, entries: Sequence[RecordingEntry], blueprints: int) -> str:
    """The recordings of a store, the last that came first, their sizes as bars."""
    facts = [
        f"version {version.number} of {utc_time(version.created, 'seconds')}",
        counted(version.recordings, "recording"),
        counted(blueprints, "blueprint") if blueprints else "",
        counted(sum(e.rows for e in entries), "row"),
        size(sum(e.bytes for e in entries)),
    ]
    head = ["recording", "application", "added", "rows", "chunks", "size", ""]
    return panel(f"RecordingStore {path}", facts, table(head, _recordings(entries), len(entries), kind="wide"))


def _recordings(entries: Sequence[RecordingEntry]) -> Iterator[Sequence[Cell]]:
    from ..recordings import BASE_LAYER

    largest = max((e.bytes for e in entries), default=0) or 1
    for e in reversed(entries):
        added = utc_time(e.added, "seconds")
        name = e.recording_id if e.layer == BASE_LAYER else f"{e.recording_id}, layer {e.layer}"
        yield name, e.application_id, added, e.rows, e.chunks, size(e.bytes), bar(e.bytes / largest, e.source)
