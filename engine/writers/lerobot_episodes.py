"""Episodes of one recording: samples of each feature, cut and aligned to frames, with an account of each episode.

Numbers and times are in memory; images stay in the scratch folder, and are read by index.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import Chunk, ChunkData, TimelineKind, alternatives
from ..errors import LensError, ReadError, SourceMissingError, UsageError
from ..limits import MAX_SCHEMA_BYTES, check_limit
from ..query import EPISODES_HINT, episodes_table, in_nanoseconds, segment_column
from ..store import ChunkStore
from ..stream import LazyChunkStream, known_entities, sink_of
from .alignment import (
    EXACT,
    HELD,
    INTERPOLATED,
    MISSING,
    Aligned,
    Outside,
    Rule,
    Ticks,
    align,
    frame_times,
    interpolated,
    slerped,
)
from .frame_transforms import FrameTree, TransformLookup, kind_of
from .lerobot_spec import (
    DESCRIPTIONS,
    STRING,
    VIDEO,
    BetweenEvents,
    ColumnSpec,
    Event,
    ExportSpec,
    FeatureColumn,
    FeatureSpec,
    FrameTransform,
    GivenEpisodes,
    Labels,
    TimeRanges,
    WhereTrue,
)

CACHE_BYTES: Final = 64_000_000
"""The most bytes of decoded image chunks in memory."""

MOST_FRAMES: Final = 50_000_000

_BLOB: Final = "EncodedImage:blob"
_BUFFER: Final = "Image:buffer"
_FORMAT: Final = "Image:format"
SAMPLE: Final = "VideoStream:sample"
_SEGMENT: Final = "rerun_segment_id"
_TICKS: Final = "_in_nanoseconds"
_CODEC: Final = "VideoStream:codec"


@dataclass(frozen=True, slots=True)
class Samples:
    """The values of a column in recorded order. ``values`` has a row of numbers for each time.

    ``lookup`` has the transforms that moved the values to another frame.
    """

    times: Ticks
    values: npt.NDArray[Any]
    lookup: TransformLookup | None = None


@dataclass(frozen=True, slots=True)
class PicturePlaces:
    """The images of a column in recorded order: their chunks in the store, and their rows in the chunks."""

    times: Ticks
    chunks: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    component: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The time of an episode in nanoseconds, both ends inclusive; and its task, if already known."""

    start: int
    end: int
    task: str | None = None


@dataclass(frozen=True, slots=True)
class FeatureAccount:
    """Counts of an episode's frames, by the source of their values of one feature.

    ``staleness`` is the largest one, in nanoseconds. ``missing`` counts frames without a value: these frames, or the
    whole episode, are dropped.
    """

    exact: int
    held: int
    interpolated: int
    missing: int
    staleness: int


@dataclass(frozen=True, slots=True)
class EpisodeAccount:
    """The report on an episode and its frames.

    ``wanted`` counts the frames in its time, ``written`` those in the dataset, ``dropped`` the others. ``reason`` is
    why the episode is not written, if so. ``start`` and ``end`` are in nanoseconds, on the timelines of the recording.
    ``staleness`` has, for each feature, the largest value in each hundredth of the episode, for a plot.
    """

    recording: str
    start: int
    end: int
    task: str
    wanted: int
    written: int
    dropped: int
    features: Mapping[str, FeatureAccount]
    reason: str | None = None
    reencoded: int = 0
    staleness: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlignedEpisode:
    """One episode: for each feature, the values of its frames, or for images the indexes of samples."""

    task: str
    length: int
    numbers: Mapping[str, npt.NDArray[Any]]
    pictures: Mapping[str, Ticks]
    account: EpisodeAccount


class RecordingSamples:
    """The chunks of one recording that an export needs, collected in the scratch folder.

    Raises
    ------
    UsageError
        The recording lacks an entity, a component or a timeline, or has several from which to choose.
    ReadError
        Values do not fit the feature.
    """

    def __init__(
        self, name: str, stream: LazyChunkStream, spec: ExportSpec, labels: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.name = name
        self._labels = labels
        self._spec = spec
        self._stream = stream
        # A filter consumes its stream, a terminal must not: so the copy is another stream over the same source.
        self._store = copy(stream).filter(content=list(spec.entities)).collect(executor="inline")
        self._chunks: list[Chunk] = list(self._store)
        self._decoded: OrderedDict[int, ChunkData] = OrderedDict()
        self._held = 0
        self._trees: dict[tuple[tuple[str, ...], str], FrameTree] = {}
        self.pictures: dict[str, PicturePlaces] = {}
        self._samples: dict[str, tuple[Samples, ...]] = {}
        for feature in spec.features:
            if feature.is_picture:
                self.pictures[feature.name] = self._pictures(feature)
            else:
                self._samples[feature.name] = self._columns(feature)

    @property
    def store(self) -> ChunkStore:
        """The chunks."""
        return self._store

    # --- columns

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the features of numbers and texts."""
        return {
            f.name: f.shape or (sum(samples.values.shape[1] for samples in self._samples[f.name]),)
            for f in self._spec.features
            if not f.is_picture
        }

    def _columns(self, feature: FeatureSpec) -> tuple[Samples, ...]:
        """Return the samples of each column of a feature of numbers or texts. Raises if its shape is another."""
        key = f"features.{feature.name}"
        if feature.dtype == STRING:
            times, pieces = self.column(feature.source, key)
            return (Samples(times, self._texts(pieces, feature)),)
        columns = tuple(self._numbers(column, feature) for column in feature.columns)
        width = sum(samples.values.shape[1] for samples in columns)
        if all(len(samples.times) for samples in columns):
            wanted = math.prod(feature.shape) if feature.shape is not None else width
            if width != wanted:
                raise ReadError(
                    f"{key}: values have {width} numbers, not {wanted}",
                    path=self.name,
                    hint="Give another shape, or a selector that returns that many numbers.",
                )
            if feature.names and len(feature.names) != wanted:
                raise UsageError(f"{key}.names: there are {len(feature.names)} names for {wanted} numbers")
        return columns

    def column(self, column: ColumnSpec, key: str) -> tuple[Ticks, list[pa.Array]]:
        """Return the times of a column, and its values in pieces: for each time, a list of values."""
        component = column.component or self._only_component(column, key)
        timeline = self._timeline(column, component, key)
        times, values = [], []
        for chunk in self._with(column.entity, component, timeline):
            made = Chunk.lazy(chunk.header, chunk.payload) if chunk.payload is not None else chunk
            if column.selector is not None:
                made = self._selected(made, component, column, key)
            data = made.data
            column_values = next(c.values for c in data.components if c.descriptor.component == component)
            ticks = next(line.ticks for line in data.timelines if line.name == timeline)
            is_there = pc.fill_null(pc.greater(pc.list_value_length(column_values), 0), False)
            times.append(ticks[np.asarray(is_there)].copy())
            values.append(column_values.filter(is_there))
        return (np.concatenate(times) if times else np.zeros(0, np.int64)), values

    def _selected(self, chunk: Chunk, component: str, column: ColumnSpec, key: str) -> Chunk:
        assert column.selector is not None
        try:
            return chunk.apply_selector(component, column.selector)
        except ValueError as error:
            reason, hint = str(error), f"chunkmill print shows the values of {column.entity}."
            if isinstance(error, LensError) and error.hint:
                reason = f"{column.selector} gives no values of {component} at {column.entity}"
                hint = f"{error.hint} {hint}"
            raise UsageError(f"{key}.selector: {reason}", path=self.name, hint=hint) from error

    def _pictures(self, feature: FeatureSpec) -> PicturePlaces:
        column, key = feature.source, f"features.{feature.name}"
        component = column.component or self._only_component(column, key, (_BLOB, _BUFFER, SAMPLE))
        if component == SAMPLE and feature.dtype != VIDEO:
            raise UsageError(
                f"{key}: {column.entity} is a video",
                path=self.name,
                hint="Set the feature's dtype to video.",
            )
        timeline = self._timeline(column, component, key)
        times, chunks, rows = [], [], []
        for number, chunk in enumerate(self._chunks):
            if not self._fits(chunk, column.entity, component, timeline):
                continue
            data = self._data(number)
            values = next(c.values for c in data.components if c.descriptor.component == component)
            is_there = np.flatnonzero(pc.fill_null(pc.greater(pc.list_value_length(values), 0), False))
            times.append(next(line.ticks for line in data.timelines if line.name == timeline)[is_there].copy())
            chunks.append(np.full(len(is_there), number))
            rows.append(is_there)
        if not times:
            return PicturePlaces(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), component)
        return PicturePlaces(np.concatenate(times), np.concatenate(chunks), np.concatenate(rows), component)

    def picture(self, places: PicturePlaces, index: int) -> tuple[bytes, Mapping[str, Any] | None]:
        """Return the bytes of an image, and its format if they are raw pixels."""
        data, row = self._data(int(places.chunks[index])), int(places.rows[index])
        columns = {c.descriptor.component: c.values for c in data.components}
        blob = columns[places.component][row].values[0].values
        raw = blob.to_numpy(zero_copy_only=False).tobytes()
        if places.component != _BUFFER:
            return raw, None
        kind = columns.get(_FORMAT)
        if kind is None or not kind[row].is_valid or not len(kind[row].values):
            raise ReadError("an image of raw pixels has no format", path=self.name, hint="Take another column.")
        return raw, kind[row].values[0].as_py()

    def codec(self, feature: FeatureSpec) -> int:
        """Return the codec of a video. Raises ``ReadError`` if there is none, or several."""
        entity = feature.source.entity
        codecs: set[int] = set()
        for chunk in self._chunks:
            if chunk.header.entity_path == entity:
                for component in chunk.header.components:
                    if component.descriptor.component == _CODEC:
                        values = next(c.values for c in chunk.data.components if c.descriptor.component == _CODEC)
                        codecs |= set(values.flatten().drop_null().unique().to_pylist())
        if len(codecs) == 1:
            return codecs.pop()
        raise ReadError(
            f"features.{feature.name}: the video has {'no' if not codecs else 'more than one'} codec",
            path=self.name,
            hint=f"{entity} needs one value of {_CODEC}.",
        )

    def _data(self, number: int) -> ChunkData:
        """Return the columns of a chunk; those of the chunks used last stay in memory."""
        if number in self._decoded:
            self._decoded.move_to_end(number)
            return self._decoded[number]
        chunk = self._chunks[number]
        fresh = Chunk.lazy(chunk.header, chunk.payload) if chunk.payload is not None else chunk
        data = fresh.data
        self._decoded[number] = data
        self._held += fresh.byte_size
        while self._held > CACHE_BYTES and len(self._decoded) > 1:
            _, old = self._decoded.popitem(last=False)
            self._held -= Chunk.from_data(old).byte_size
        return data

    def _fits(self, chunk: Chunk, entity: str, component: str, timeline: str | None) -> bool:
        header = chunk.header
        return (
            header.entity_path == entity
            and not header.is_static
            and any(c.descriptor.component == component for c in header.components)
            and (timeline is None or any(line.name == timeline for line in header.timelines))
        )

    def _with(self, entity: str, component: str, timeline: str | None) -> Iterator[Chunk]:
        return (chunk for chunk in self._chunks if self._fits(chunk, entity, component, timeline))

    def _only_component(self, column: ColumnSpec, key: str, among: Iterable[str] | None = None) -> str:
        headers = [c.header for c in self._chunks if c.header.entity_path == column.entity and not c.header.is_static]
        components = sorted({c.descriptor.component for h in headers for c in h.components})
        if not components:
            raise UsageError(
                f"{key}.entity: there is no data at {column.entity}",
                path=self.name,
                hint=self._others(column.entity),
            )
        fit = (
            [c for c in components if c.partition(":")[0] not in DESCRIPTIONS]
            if among is None
            else [c for c in components if c in set(among)]
        )
        if len(fit) == 1:
            return fit[0]
        raise UsageError(
            f"{key}.component: {column.entity} has {', '.join(components)}", path=self.name, hint="Choose one of them."
        )

    def _others(self, entity: str) -> str:
        """Suggest other entities of the recording, including those that the specification lacks."""
        have = {*known_entities(sink_of(self._stream)), *(c.header.entity_path for c in self._chunks)} - {entity}
        names = sorted(name for name in have if not name.startswith("/__"))
        return f"{alternatives(entity, names)} chunkmill inspect shows all entities."

    def _timeline(self, column: ColumnSpec, component: str, key: str) -> str:
        wanted = column.timeline or self._spec.timeline
        lines = {
            line.name: line.kind
            for chunk in self._with(column.entity, component, None)
            for line in chunk.header.timelines
        }
        if not lines:
            raise UsageError(
                f"{key}: there is no {component} at {column.entity}",
                path=self.name,
                hint=self._others(column.entity),
            )
        times = sorted(name for name, kind in lines.items() if kind is not TimelineKind.SEQUENCE)
        if wanted is None and len(times) == 1:
            return times[0]
        if wanted in times:
            return wanted
        reason = "none is chosen" if wanted is None else f"there is no {wanted!r}"
        if wanted in lines:
            reason = f"{wanted!r} is a sequence, and has no times"
        raise UsageError(
            f"{key}.timeline: {reason}; {column.entity} has {', '.join(times)}", path=self.name, hint="Choose one."
        )

    def _texts(self, pieces: Sequence[pa.Array], feature: FeatureSpec) -> npt.NDArray[Any]:
        """Return the values as rows with one text each."""
        texts = [value for piece in pieces for value in _scalars(piece, self.name)]
        wrong = next((text for text in texts if not isinstance(text, str)), "")
        if wrong != "":
            raise ReadError(
                f"features.{feature.name}: {wrong!r} is not text",
                path=self.name,
                hint=f"Give another dtype, or a selector that returns texts of {feature.source.entity}.",
            )
        return np.array(texts, object).reshape(len(texts), 1)

    def _numbers(self, column: FeatureColumn, feature: FeatureSpec) -> Samples:
        """Return the values of a column as rows of numbers, in the coordinate frame of the feature."""
        times, pieces = self.column(column.source, f"features.{feature.name}")
        rows = [_flat(piece, feature.name, column.source, self.name) for piece in pieces]
        widths = {row.shape[1] for row in rows if len(row)}
        if len(widths) > 1:
            raise ReadError(
                f"features.{feature.name}: values have {' or '.join(map(str, sorted(widths)))} numbers",
                path=self.name,
                hint="Give a selector that returns equally many numbers for each value.",
            )
        if not widths:
            return Samples(times, np.zeros((0, 1)))
        values = np.concatenate([row for row in rows if len(row)])
        if column.transform is None:
            return Samples(times, values)
        return self._transformed(Samples(times, values), column, column.transform, f"features.{feature.name}")

    def _transformed(self, samples: Samples, column: FeatureColumn, transform: FrameTransform, key: str) -> Samples:
        """Return samples in another coordinate frame, by the transforms of the recording at their own times."""
        kind = kind_of(transform, samples.values.shape[1], column.alignment.rule, key, self.name)
        source = column.source
        component = source.component or self._only_component(source, key)
        which = transform.entities, transform.timeline or self._timeline(source, component, key)
        if which not in self._trees:
            some = (chunk for chunk in self._chunks if chunk.header.entity_path in transform.entities)
            self._trees[which] = FrameTree.of(some, which[1], self.name, key)
        times = samples.times + column.alignment.offset
        tree = replace(self._trees[which], key=key)
        lookup = tree.lookup(transform, times, column.alignment)
        values = lookup.applied(samples.values.astype(np.float64), kind)
        return Samples(samples.times, values, lookup)

    # --- episodes

    def episodes(self) -> Iterator[AlignedEpisode]:
        """Yield the episodes; one that is not written has only an account."""
        for cut in self._cuts():
            yield self._aligned(cut)

    @property
    def span(self) -> tuple[int, int]:
        """The time in which every feature has samples: from the last of their beginnings to the first of their ends.

        It ends a hundredth of a frame late: LeRobot's float32 times are rounded, and the last frame could otherwise be
        lost.

        Raises ``UsageError`` if there is none.
        """
        starts, ends = [], []
        for feature in self._spec.features:
            for column, times in zip(feature.columns, self._times(feature), strict=True):
                if not len(times):
                    raise UsageError(
                        f"features.{feature.name}: there is no value", path=self.name, hint="Leave it out."
                    )
                offset = column.alignment.offset
                starts.append((int(times.min()) + offset, feature.name))
                ends.append((int(times.max()) + offset, feature.name))
        (start, late), (end, early) = max(starts), min(ends)
        if end < start:
            raise UsageError(
                f"features.{late}: it begins {(start - end) / 1e9:.3f} s after features.{early} has ended",
                path=self.name,
                hint="They may be on different clocks; set the timeline of each.",
            )
        return start, end + 1_000_000_000 // (100 * self._spec.fps)

    def _times(self, feature: FeatureSpec) -> list[Ticks]:
        """Return the times of each column."""
        if feature.is_picture:
            return [self.pictures[feature.name].times]
        return [samples.times for samples in self._samples[feature.name]]

    def _cuts(self) -> Iterator[Cut]:
        start, end = self.span
        match self._spec.episodes:
            case TimeRanges(ranges):
                for begin, stop in ranges:
                    yield Cut(start + round(begin * 1e9), start + round(stop * 1e9))
            case WhereTrue(column, equals):
                yield from self._where_true(column, equals, end)
            case BetweenEvents(first, last):
                yield from self._between(first, last)
            case Labels() | GivenEpisodes():
                for row in self._labels:
                    yield Cut(*_span_of(row, start, end), row.get("task") or None)
            case _:
                yield Cut(start, end)

    def _where_true(self, column: ColumnSpec, equals: Any, end: int) -> Iterator[Cut]:
        times, pieces = self.column(column, "episodes")
        values = [value for piece in pieces for value in _scalars(piece, self.name)]
        truths = np.array([self._truth(value) if equals is None else value == equals for value in values], bool)
        times, truths = _last_of_each_time(times, truths)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], truths, [False]]).astype(np.int8)))
        for first, after in zip(edges[::2], edges[1::2], strict=True):
            yield Cut(int(times[first]), int(times[after]) - 1 if after < len(times) else end)

    def _truth(self, value: Any) -> bool:
        """Return whether a value is true. Raises ``UsageError`` for a value that is neither true nor false."""
        if isinstance(value, bool) or (isinstance(value, int | float) and math.isfinite(value)):
            return bool(value)
        raise UsageError(
            f"episodes: {value!r} is neither true nor false",
            path=self.name,
            hint="Compare it with a value: equals: VALUE.",
        )

    def _between(self, first: Event, last: Event) -> Iterator[Cut]:
        starts, ends = self._moments(first, "episodes.start"), self._moments(last, "episodes.end")
        reached = None
        for start in starts.tolist():
            if reached is not None and start < reached:
                continue
            after = int(np.searchsorted(ends, start, side="right"))
            if after == len(ends):
                return
            reached = int(ends[after])
            yield Cut(start, reached)

    def _moments(self, event: Event, key: str) -> Ticks:
        times, pieces = self.column(event.column, key)
        if event.equals is None:
            return np.sort(times)
        same = np.array([v == event.equals for piece in pieces for v in _scalars(piece, self.name)], bool)
        times, same = _last_of_each_time(times, same)
        begins: Ticks = times[same & ~np.concatenate([[False], same[:-1]])]
        return begins

    def _aligned(self, cut: Cut) -> AlignedEpisode:
        spec = self._spec
        check_limit(
            max(cut.end - cut.start, 0) * spec.fps // 1_000_000_000,
            MOST_FRAMES,
            path=self.name,
            offset=None,
            what="the number of frames of an episode",
        )
        frames = frame_times(cut.start, cut.end, spec.fps)
        columns = {f.name: self._aligned_columns(f, frames) for f in spec.features}
        aligned = {name: _worst(some) for name, some in columns.items()}
        first, last = self.span
        keep = (frames >= first) & (frames <= last)  # do not hold values beyond that
        reason = None
        for feature, column, of_column in (
            (f, column, each) for f in spec.features for column, each in zip(f.columns, columns[f.name], strict=True)
        ):
            is_missing = (of_column.outcome == MISSING) & (frames >= first) & (frames <= last)
            keep &= ~is_missing
            if not is_missing.any():
                continue
            at = (int(frames[np.argmax(is_missing)]) - cut.start) / 1e9
            lacks = f"features.{feature.name}: the frame at {at:.3f} s has no value within its tolerance"
            if column.alignment.outside is Outside.ERROR:
                raise UsageError(lacks, path=self.name, hint="Choose another `tolerance`, or another `outside`.")
            if column.alignment.outside is Outside.DROP_EPISODE:
                reason = reason or lacks
        count = int(keep.sum())
        task = self._task(cut)
        if reason is None and not count:
            reason = "no frame has a value of every feature"
        if reason is None and count < spec.minimum * spec.fps:
            reason = f"{count / spec.fps:.3f} s is less than the minimum of {spec.minimum:g} s"
        account = EpisodeAccount(
            self.name,
            cut.start,
            cut.end,
            task,
            len(frames),
            0 if reason else count,
            len(frames) - (0 if reason else count),
            {name: _feature_account(values, keep, reason is None) for name, values in aligned.items()},
            reason,
            staleness={name: _coarse(values.staleness) for name, values in aligned.items()},
        )
        if reason is not None:
            return AlignedEpisode(task, 0, {}, {}, account)
        kept = {name: [_kept(each, keep) for each in some] for name, some in columns.items()}
        pictures = {name: kept[name][0].first for name in self.pictures}
        numbers = {f.name: self._values(f, kept[f.name]) for f in spec.features if not f.is_picture}
        return AlignedEpisode(task, count, numbers, pictures, account)

    def _aligned_columns(self, feature: FeatureSpec, frames: Ticks) -> list[Aligned]:
        """Return the samples that frames take from each column, with the outcomes of their transforms."""
        pairs = zip(self._times(feature), feature.columns, strict=True)
        aligned = [align(times, frames, column.alignment) for times, column in pairs]
        if feature.is_picture:
            return aligned
        lookups = [samples.lookup for samples in self._samples[feature.name]]
        return [a if lookup is None else lookup.mark(a) for a, lookup in zip(aligned, lookups, strict=True)]

    def _values(self, feature: FeatureSpec, aligned: Sequence[Aligned]) -> npt.NDArray[Any]:
        """Return the value of each frame, with the type and shape of the feature."""
        parts = zip(self._samples[feature.name], feature.columns, aligned, strict=True)
        rows = [
            _cast(_aligned_values(samples.values, each, column.alignment.rule), feature, self.name)
            for samples, column, each in parts
        ]
        joined = np.concatenate(rows, axis=1)
        return joined.reshape(len(joined), *(feature.shape or joined.shape[1:]))

    def _task(self, cut: Cut) -> str:
        """Return the task of an episode: its own, else the export's text, else the last recorded task at its end."""
        if cut.task is not None:
            return cut.task
        if isinstance(self._spec.task, str):
            return self._spec.task
        times, pieces = self.column(self._spec.task, "task")
        texts = [value for piece in pieces for value in _scalars(piece, self.name)]
        order = [at for at in np.argsort(times, kind="stable").tolist() if texts[at] is not None]
        at = int(np.searchsorted(times[order], cut.end, side="right")) - 1
        if at < 0:
            raise ReadError("an episode has no task before its end", path=self.name, hint="Give task a text.")
        return str(texts[order[at]])


def _last_of_each_time(times: Ticks, values: npt.NDArray[np.bool_]) -> tuple[Ticks, npt.NDArray[np.bool_]]:
    """Return the times in order, and for each the value that was recorded last."""
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    is_last = np.append(times[1:] != times[:-1], True)[: len(times)]
    return times[is_last], values[is_last]


def _flat(values: pa.Array, name: str, source: ColumnSpec, path: str) -> npt.NDArray[Any]:
    """Return rows of numbers: nested lists and the fields of structs are flattened in order."""
    key, count, kind = f"features.{name}", len(values), values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if values.null_count:
            raise ReadError(f"{key}: a list is null", path=path, hint="Give a selector that skips it.")
        lengths = pc.unique(pc.list_value_length(values))
        if len(lengths) > 1:
            raise ReadError(f"{key}: values differ in length", path=path, hint="Give a selector.")
        rows = _flat(values.flatten(), name, source, path)
        return rows.reshape(count, rows.shape[1] * (lengths[0].as_py() if count else 1))
    if pa.types.is_struct(kind) and kind.num_fields:
        if values.null_count:
            raise ReadError(f"{key}: a value is null", path=path, hint="Give a selector that skips it.")
        return np.concatenate([_flat(field, name, source, path) for field in values.flatten()], axis=1)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise UsageError(
            f"{key}: {kind} is not a number",
            path=path,
            hint=f"Give a selector that returns numbers of {source.entity}.",
        )
    if values.null_count:
        raise ReadError(f"{key}: a number is null", path=path, hint="Give a selector that skips it.")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(count, 1)


def _scalars(values: pa.Array, path: str) -> Iterator[Any]:
    """Yield the one value of each row. Raises ``ReadError`` if a row has several."""
    for row in values.to_pylist():
        while isinstance(row, list) and len(row) == 1:
            row = row[0]
        if isinstance(row, list | dict):
            raise ReadError("a row has several values, but exactly one is needed", path=path, hint="Give a selector.")
        yield row


def _kept(aligned: Aligned, keep: npt.NDArray[np.bool_]) -> Aligned:
    return Aligned(
        aligned.first[keep], aligned.second[keep], aligned.weight[keep], aligned.staleness[keep], aligned.outcome[keep]
    )


def _worst(columns: Sequence[Aligned]) -> Aligned:
    """Return the alignment of a feature: for each frame, the worst outcome and the largest staleness of its columns."""
    if len(columns) == 1:
        return columns[0]
    return replace(
        columns[0],
        staleness=np.stack([each.staleness for each in columns]).max(axis=0),
        outcome=np.stack([each.outcome for each in columns]).max(axis=0),
    )


def _aligned_values(values: npt.NDArray[Any], aligned: Aligned, rule: Rule) -> npt.NDArray[Any]:
    if rule is Rule.LINEAR:
        return interpolated(values.astype(np.float64), aligned)
    if rule is Rule.SLERP:
        return slerped(values.astype(np.float64), aligned)
    return values[aligned.first]


def _cast(rows: npt.NDArray[Any], feature: FeatureSpec, path: str) -> npt.NDArray[Any]:
    """Return numbers in the feature's type. Raises ``ReadError`` if one does not fit it, or is not finite."""
    if feature.dtype == STRING:
        return rows
    key, kind = f"features.{feature.name}", np.dtype(feature.dtype)
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise ReadError(f"{key}: a value is not finite", path=path, hint="Give a selector that skips it.")
    with np.errstate(over="ignore", invalid="ignore"):
        made = rows.astype(kind)
    is_exact = kind.kind != "f" or rows.dtype.kind in "iu"
    is_same = np.array_equal(made.astype(rows.dtype), rows) if is_exact else np.isfinite(made).all()
    if not is_same:
        raise ReadError(f"{key}: a value does not fit {feature.dtype}", path=path, hint="Give it another dtype.")
    return made


def _feature_account(aligned: Aligned, keep: npt.NDArray[np.bool_], is_written: bool) -> FeatureAccount:
    among = keep if is_written else np.zeros_like(keep)
    exact, held, made = (aligned.count(outcome, among) for outcome in (EXACT, HELD, INTERPOLATED))
    staleness = int(aligned.staleness[among].max()) if among.any() else 0
    return FeatureAccount(exact, held, made, aligned.count(MISSING), staleness)


def _coarse(staleness: Ticks, most: int = 100) -> list[int]:
    """Return the largest staleness in each of at most ``most`` parts of the frames."""
    return [int(part.max()) for part in np.array_split(staleness, min(most, len(staleness)))] if len(staleness) else []


def label_rows(labels: Labels) -> list[dict[str, Any]]:
    """Read the rows that are kept. Raises ``ReadError``."""
    import pyarrow.csv
    import pyarrow.parquet

    path = Path(labels.path)
    hint = (
        "A table of labels, CSV or Parquet, has the columns recording (or rerun_segment_id), start and end, and may "
        "have verdict and task."
    )
    try:
        check_limit(path.stat().st_size, MAX_SCHEMA_BYTES, path=str(path), offset=None, what="the size of the file")
        texts = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(("recording", "verdict", "task"), pa.string()))
        is_parquet = path.suffix == ".parquet"
        table = pyarrow.parquet.read_table(path) if is_parquet else pyarrow.csv.read_csv(path, convert_options=texts)
        rows = _in_ticks(table).to_pylist()
    except FileNotFoundError as error:
        raise SourceMissingError("there is no such table of labels", path=str(path), hint=hint) from error
    except (OSError, pa.ArrowInvalid) as error:
        raise ReadError(f"the table of labels cannot be read: {error}", path=str(path), hint=hint) from error
    for number, row in enumerate(rows):
        if not {"recording", "start", "end"} <= row.keys() or (labels.keep and "verdict" not in row):
            raise ReadError("the table of labels lacks a column", path=str(path), hint=hint)
        row["recording"] = str(row["recording"])
        ends = [row["start"], row["end"]]
        if _TICKS in row:
            if None not in ends and ends[0] > ends[1]:
                raise ReadError(f"row {number}: the label ends before it starts", path=str(path), hint=hint)
            continue
        if not all(isinstance(n, int | float) and math.isfinite(n) for n in ends) or not ends[0] < ends[1]:
            raise ReadError(
                f"row {number}: start and end must be ascending numbers of seconds, not {ends}",
                path=str(path),
                hint=hint,
            )
    return [row for row in rows if not labels.keep or str(row["verdict"]) in labels.keep]


def episode_rows(given: Any) -> list[dict[str, Any]]:
    """Return the rows of an episode table, with starts and ends in nanoseconds; None: the start or end of the segment.

    Raises ``TypeError`` for an object that is no table, and ``UsageError`` if a column is missing or unfit.
    """
    table = episodes_table(given)
    for name in ("start", "end"):
        kind = table[name].type
        if pa.types.is_null(kind):
            table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.duration("ns")))
        elif not (pa.types.is_timestamp(kind) or pa.types.is_duration(kind)):
            raise UsageError(
                f"the column {name!r} of the table of episodes has the type {kind}",
                hint="Frames have times: find events on an index of times.",
            )
    own = {name: table[name] for name in ("start", "end", "task") if name in table.column_names}
    rows: list[dict[str, Any]] = _in_ticks(pa.table({"recording": segment_column(table), **own})).to_pylist()
    for number, row in enumerate(rows):
        if row["start"] is not None and row["end"] is not None and row["end"] < row["start"]:
            raise UsageError(
                f"row {number} of the table of episodes: the episode ends before it starts", hint=EPISODES_HINT
            )
    return rows


def _in_ticks(table: pa.Table) -> pa.Table:
    """Rename the columns of a lake's labels, and give times and durations in nanoseconds, marked by ``_TICKS``."""
    if "recording" not in table.column_names:
        table = table.rename_columns(["recording" if name == _SEGMENT else name for name in table.column_names])
    places = [table.column_names.index(name) for name in ("start", "end") if name in table.column_names]
    kinds = [table.schema.field(place).type for place in places]
    if len(kinds) < 2 or not all(pa.types.is_timestamp(kind) or pa.types.is_duration(kind) for kind in kinds):
        return table
    for place in places:
        table = table.set_column(place, table.column_names[place], in_nanoseconds(table.column(place)))
    return table.append_column(_TICKS, pa.array([True] * len(table)))


def _span_of(label: Mapping[str, Any], start: int, end: int) -> tuple[int, int]:
    """The start and end of a label, in a recording with this start and end."""
    if _TICKS in label:
        return (
            start if label["start"] is None else label["start"],
            end if label["end"] is None else label["end"],
        )
    return start + round(float(label["start"]) * 1e9), start + round(float(label["end"]) * 1e9)
