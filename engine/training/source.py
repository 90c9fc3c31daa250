"""Segments for training jobs: pinned to a version, with the events of each component that samples need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ..chunk import ComponentColumnDescriptor, TimelineKind
from ..errors import AlreadyExistsError, NotFoundError, ReadError, UsageError
from ..query import (
    AnswerColumns,
    LayerChunks,
    OpenSegment,
    QueriedSegment,
    Query,
    SegmentChunks,
    SegmentEvents,
    SegmentFigures,
    StaticValues,
    episodes_table,
    segment_column,
)
from ..recordings import layers_digest
from ..task_context import find
from .episodes import PinnedEpisodes, of_episodes
from .fields import Field, ticks_of
from .plan import Integers, Mask

BEGINNING: Final = np.iinfo(np.int64).min
"""The time of a static value."""


class SupportsQuery(Protocol):
    """A dataset of a catalog, a view of a dataset, or a store of recordings."""

    def queried(self, query: Query) -> tuple[AnswerColumns, list[QueriedSegment]]:
        """Return the result columns of a query, and the segments as of the newest version."""
        ...


class SourceVersion(NamedTuple):
    """The dataset version to which a source is pinned. ``dataset`` is a dataset's name, or the path of a store."""

    dataset: str
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of {self.dataset!r}"


@dataclass(frozen=True)
class DataSource:
    """Segments with samples, in one version of their dataset.

    The version is that of ``dataset.at(…)``, or else the newest one when the source is created. Later changes do not
    affect samples. The state of a job names the version. If maintenance removes the version, a job that reads it fails;
    a tag prevents that (``keep``).

    Parameters
    ----------
    dataset
        A dataset of a catalog, a view of it (``filter_segments``, ``filter_contents``), or a ``RecordingStore``.
    segments
        The ids of the segments; None: all.
    keep
        A tag, such as the job's name. If the dataset has the tag, the source has its version; otherwise the newest
        version gets the tag. So a restarted job, and each of its ranks, sees the same data. Remove the tag after the
        job: ``dataset.untag(keep)``.
    episodes
        The parts of the segments with samples: a table of a catalog, an Arrow table, or a DataFrame, in its present
        state. The columns are ``segment_id`` (or ``rerun_segment_id``), and ``start`` and ``end``: inclusive index
        values, or null for the end of the segment. Windows stay within an episode. A value at the beginning of
        an episode may be older, up to ``max_staleness``. A sample has the row of its episode as ``episode``.
    episode_columns
        Columns of the table of episodes, with numbers or text. Each sample gets the values of its episode.

    Raises
    ------
    TypeError
        ``dataset`` has another type, or ``episodes`` is not a table.
    ValueError
        ``keep`` is not a valid tag, or the dataset is at another version, a store, or empty; or ``episodes`` lacks
        columns.

    Examples
    --------
    >>> episodes = pa.table({"segment_id": ["a"], "start": [10], "end": [25], "task": ["lift"]})
    >>> DataSource(dataset, episodes=episodes, episode_columns=["task"])  # doctest: +SKIP
    """

    dataset: Any
    segments: Collection[str] | None = None
    keep: str | None = None
    episodes: Any = field(default=None, kw_only=True, repr=False, compare=False)
    episode_columns: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if not callable(getattr(self.dataset, "queried", None)):
            raise TypeError(
                f"dataset must be a dataset, a view of one or a RecordingStore, got {type(self.dataset).__name__}"
            )
        if isinstance(self.episode_columns, str):
            raise TypeError("episode_columns must be a list of names, got a str")
        if self.episodes is not None:
            object.__setattr__(self, "episodes", episodes_table(self.episodes))
        elif self.episode_columns:
            raise UsageError("episode_columns need a table of episodes")
        object.__setattr__(self, "dataset", _pinned(self.dataset, self.keep))

    @property
    def version(self) -> SourceVersion | None:
        """The pinned version; None if the dataset is empty or has no versions."""
        if callable(getattr(self.dataset, "at", None)):
            entry = self.dataset.dataset
            return None if entry.version is None else SourceVersion(entry.name, entry.version)
        number = getattr(getattr(self.dataset, "version", None), "number", None)
        return None if number is None else SourceVersion(str(self.dataset.path), number)

    def filter_segments(self, segment_ids: Collection[str]) -> DataSource:
        """Return the same source with only these segments."""
        if isinstance(segment_ids, str):
            raise TypeError("segment_ids must be a list of ids, got a str")
        return replace(self, segments=tuple(segment_ids))

    def split_episodes(self, column: str) -> dict[str, DataSource]:
        """Split the source by the values of a column of its episodes, for a :class:`Mixture`.

        >>> DataSource(dataset, episodes=episodes).split_episodes("task")  # doctest: +SKIP

        Raises ``ValueError`` if there are no episodes or no such column, or if it has a null.
        """
        if self.episodes is None or column not in self.episodes.column_names:
            raise UsageError(f"there is no table of episodes with a column {column!r}")
        values = self.episodes[column]
        if values.null_count:
            raise UsageError(f"the column {column!r} of the table of episodes has a null")
        return {
            str(value): replace(self, episodes=self.episodes.filter(pc.equal(values, value)))
            for value in values.unique()
        }

    def pinned(self, index: str, paths: Iterable[str]) -> PinnedSource:
        """Return the segments of the pinned version, with an index and component columns.

        Raises ``ValueError`` if the dataset lacks the index, a column or a segment.
        """
        query = Query.of(index, fill_latest_at=True, include_semantically_empty_columns=True)
        columns, segments = self.dataset.queried(query)
        if self.segments is not None:
            wanted = set(self.segments)
            segments = [segment for segment in segments if segment.segment_id in wanted]
            missing = wanted - {segment.segment_id for segment in segments}
            if missing:
                raise UsageError(f"the dataset has no segment {min(missing)!r} ({len(missing)} are missing)")
        named = {column.name: column for column in columns.components}
        for path in paths:
            if path not in named:
                entity = path.partition(":")[0]
                near = [name for name in named if name.startswith(f"{entity}:")]
                hint = (
                    f"{entity} has {', '.join(sorted(near))}." if near else "schema() of the dataset lists the columns."
                )
                raise UsageError(f"the dataset has no column {path!r}", hint=hint)
        kind = next(line.kind for line in columns.indexes if line.name == columns.query.index)
        lacking = [segment.segment_id for segment in segments if segment.span is None]
        if lacking and self.segments is not None:
            raise UsageError(f"segment {lacking[0]} does not have the index {index!r}", hint="Leave it out.")
        spanned = [segment for segment in segments if segment.span is not None]
        if self.episodes is None:
            return PinnedSource(columns, tuple(spanned), kind, self.version)
        table = self.episodes
        if self.segments is not None:
            table = table.filter(pc.is_in(segment_column(table), pa.array([*self.segments], pa.string())))
        parts, episodes = of_episodes(table, self.episode_columns, spanned, kind)
        return PinnedSource(columns, tuple(parts), kind, self.version, episodes)


def _pinned(dataset: Any, keep: str | None) -> Any:
    """Return a dataset or view at a version: its own, that of the tag ``keep``, or the newest."""
    if not callable(getattr(dataset, "at", None)):
        if keep is not None:
            raise UsageError(
                "keep needs a dataset of a catalog", hint="Give a dataset of a catalog: client.get_dataset(…)."
            )
        return dataset
    entry = dataset.dataset
    if entry.version is not None:
        if keep is not None and entry.tags().get(keep) != entry.version:
            raise UsageError(
                f"the dataset is at version {entry.version}, which has no tag {keep!r}",
                hint=f"Set the tag on the dataset without at(): tag({keep!r}, {entry.version}).",
            )
        return dataset
    try:
        if keep is not None and keep not in entry.tags():
            with suppress(AlreadyExistsError):  # another process of the job has just set it
                entry.tag(keep)
        return dataset.at(keep)
    except NotFoundError:
        if keep is not None:
            raise
        return dataset  # it is empty


@dataclass(frozen=True)
class PinnedSource:
    """The segments of one version that have the index, and its kind. Picklable; each process reads the same data."""

    columns: AnswerColumns
    segments: tuple[QueriedSegment, ...]
    kind: TimelineKind
    version: SourceVersion | None = None
    episodes: PinnedEpisodes | None = None
    """The episodes by which the dataset's segments were divided, if any."""

    @cached_property
    def digest(self) -> str:
        """A digest of the segments' content, from their manifests."""
        state = xxhash.xxh3_128()
        for segment in self.segments:
            layers = getattr(segment.source, "layers", None)
            content = repr(segment.source) if layers is None else layers_digest(layers)
            state.update(f"{segment.segment_id}\0{content}\0".encode())
            if segment.window is not None:
                state.update(repr(segment.window).encode())
        return state.hexdigest()

    def column(self, path: str) -> ComponentColumnDescriptor:
        """Return the column of a path with which the source was pinned."""
        column = self.columns.component(path)
        assert column is not None
        return column


class Series(NamedTuple):
    """The events of a component: ascending ``times`` of shape ``(n,)``, each with a list of values.

    A list is null if a clear emptied it.
    """

    times: Integers
    values: pa.ListArray
    order: Integers | None = None
    """For video, the events in logged order, if that differs from the order of times."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return int(self.times.nbytes + self.values.nbytes)

    def latest(self, times: npt.NDArray[np.int64]) -> Integers:
        """Return the number of the last event at or before each time; -1 if there is none."""
        numbers: Integers = np.searchsorted(self.times, times, side="right") - 1
        return numbers


def is_fresh(field: Field, since: Integers, wanted: Integers, *, is_time: bool, tolerance: int = 0) -> Mask:
    """Return whether values since ``since`` are recent enough at ``wanted``. Static values always are."""
    if field.max_staleness is None:
        return np.ones(wanted.shape, np.bool_)
    most = ticks_of(field.max_staleness, field.path, is_time=is_time) + tolerance
    fresh: Mask = (since >= wanted - most) | (since == BEGINNING)
    return fresh


class SegmentReader:
    """The events of one segment, read on request."""

    def __init__(
        self,
        segment: QueriedSegment,
        layers: Sequence[LayerChunks] | None = None,
        chunks: dict[str, tuple[AnswerColumns, SegmentChunks]] | None = None,
    ) -> None:
        self._segment = segment
        if layers is not None:
            self._layers = layers
        self._chunks = {} if chunks is None else chunks
        self._static: dict[tuple[str, str, tuple[int, int] | None], pa.ListArray | None] = {}

    def part(self, segment: QueriedSegment) -> SegmentReader:
        """Return a reader of another part of the same segment, which shares the known chunks."""
        reader = SegmentReader(segment, self._layers, self._chunks)
        reader._static = self._static
        return reader

    @property
    def segment_id(self) -> str:
        """The id of the segment."""
        return self._segment.segment_id

    @cached_property
    def _layers(self) -> Sequence[LayerChunks]:
        return self._segment.source.references()

    def _chunks_of(self, column: ComponentColumnDescriptor) -> tuple[AnswerColumns, SegmentChunks]:
        """Return the query for one component, and the chunks that concern it."""
        if column.name not in self._chunks:
            asked = replace(self._segment.columns, components=(column,), visible=(column,))
            self._chunks[column.name] = asked, SegmentChunks(asked, [layer.table for layer in self._layers])
        return self._chunks[column.name]

    def groups(self, column: ComponentColumnDescriptor) -> Integers:
        """Return the beginnings of groups of pictures on the index, from key frame marks, or else those of chunks.

        Recordings from ``collect(optimize=…)`` have both: marks, and chunks that begin at groups.
        """
        marks = next((c for c in self._segment.columns.components if _marks(c, column)), None)
        if marks is not None and self._segment.span is not None:
            marked = self.marked(marks, self._segment.span[1])
            if len(marked):
                return marked
        key = column.entity_path, column.component
        begins: Integers = np.unique(self._chunks_of(column)[1].claimed(key).starts)
        return begins

    def marked(self, marks: ComponentColumnDescriptor, last: int) -> Integers:
        """Return the times up to ``last`` at which a column of marks is true."""
        first = self._segment.span[0] if self._segment.span is not None else last
        series = self.series(marks, self.needed(marks, first, last))
        is_marked = [bool(some) and bool(some[0]) for some in series.values.to_pylist()]
        marked: Integers = series.times[np.array(is_marked, np.bool_)]
        return marked

    def extents(self, column: ComponentColumnDescriptor) -> tuple[Integers, int]:
        """Return the beginnings of a component's chunks on the index, ascending, and their stored bytes."""
        ranges = self._chunks_of(column)[1].claimed((column.entity_path, column.component))
        sizes = np.concatenate([np.empty(0, np.int64), *(layer.table.sizes for layer in self._layers)])
        begins: Integers = np.unique(ranges.starts)
        return begins, int(sizes[np.unique(ranges.chunks)].sum())

    def needed(self, column: ComponentColumnDescriptor, first: int, last: int) -> Integers:
        """Return the numbers of the chunks that have the events between two times, and the last event before."""
        return self._chunks_of(column)[1].needed([(first, last)])

    def needed_at(self, column: ComponentColumnDescriptor, times: Integers) -> Integers:
        """Return the numbers of the chunks that have the last event at or before each of some ascending times."""
        return self._chunks_of(column)[1].needed(None, times)

    def before(self, column: ComponentColumnDescriptor, numbers: Integers) -> int | None:
        """Return the time of the last event before all events in some chunks of a component, or None."""
        ranges = self._chunks_of(column)[1].claimed((column.entity_path, column.component))
        mine = np.isin(ranges.chunks, numbers)
        if not mine.any():
            return None
        earlier = ranges.starts < ranges.starts[mine].min()
        return int(np.minimum(ranges.ends[earlier], ranges.starts[mine].min() - 1).max()) if earlier.any() else None

    def series(self, column: ComponentColumnDescriptor, numbers: Integers, *, is_video: bool = False) -> Series:
        """Return the events of a component in some chunks; a static value is an event at the beginning of time.

        Raises ``ReadError`` for a chunk that is damaged or gone, and for several video samples at one time.
        """
        asked, chunks = self._chunks_of(column)
        key = column.entity_path, column.component
        index = asked.query.index
        assert index is not None
        figures = find(SegmentFigures)
        if figures is not None:
            tables = [layer.table for layer in self._layers]
            needed = chunks.by_layer(np.union1d(numbers, chunks.static))
            figures.need(self.segment_id, zip(self._segment.source.layer_names, tables, needed, strict=True))
        opened = OpenSegment(self._layers, [None] * len(self._layers))
        static = StaticValues(opened.rows(chunks.static, None))
        value = static.value(key) if len(chunks.static) else None
        if value is not None:
            return Series(np.array([BEGINNING]), value)
        rows = opened.rows(numbers, index)
        keys = self._segment.component_keys
        events = SegmentEvents(rows, static, asked.visible, index, keys, chunks).of(column)
        if events is None:
            return Series(np.empty(0, np.int64), pa.array([], pa.list_(pa.null())))
        present = rows.presence(key)
        if is_video and len(rows.rows(present)) > len(events.times):
            raise ReadError(
                f"{column.entity_path} of segment {self.segment_id} has several samples of video at one value of "
                f"{index!r}, of which only one would be decoded",
                hint="Choose an index that counts each frame.",
            )
        arrays = rows.arrays(key, present.chunks)
        joined = pa.concat_arrays(arrays) if len(arrays) > 1 else arrays[0]
        chunk = np.searchsorted(rows.starts, events.rows, side="right") - 1
        base = np.zeros(len(rows.starts), np.int64)
        counts = rows.counts[present.chunks]
        base[present.chunks] = np.cumsum(counts) - counts
        places = base[chunk] + events.rows - rows.starts[chunk]
        if events.cleared is not None:
            joined = joined.take(pa.array(places, mask=events.cleared))
        elif len(places) != len(joined) or bool((places != np.arange(len(places))).any()):
            joined = joined.take(pa.array(places))
        order = None
        if is_video:
            ids = tuple(half[events.rows] for half in rows.ids)
            order = _logged(chunk, np.lexsort(ids[::-1]))
        return Series(events.times, joined, order)

    def static(self, entity: str, component: str) -> pa.ListArray | None:
        """Return the static value of a component, or its value at the segment's first time, or None."""
        key = entity, component, self._segment.span
        if key not in self._static:
            self._static[key] = self._first(entity, component)
        return self._static[key]

    def _first(self, entity: str, component: str) -> pa.ListArray | None:
        column = next(
            (c for c in self._segment.columns.components if (c.entity_path, c.component) == (entity, component)), None
        )
        if column is None:
            return None
        series = self.series(column, self.needed(column, BEGINNING, BEGINNING))
        if not len(series.times):
            span = self._segment.span or (0, 0)
            series = self.series(column, self.needed(column, span[0], span[0]))
        return series.values.slice(0, 1) if len(series.times) else None


def _logged(chunk: Integers, by_id: Integers) -> Integers | None:
    """Return events ordered by row id, or None if that is the order of times within each chunk."""
    rank = np.empty(len(by_id), np.int64)
    rank[by_id] = np.arange(len(by_id))
    by_chunk = np.argsort(chunk, kind="stable")
    is_back = (np.diff(rank[by_chunk]) < 0) & (np.diff(chunk[by_chunk]) == 0)
    return by_id if is_back.any() else None


def _marks(column: ComponentColumnDescriptor, video: ComponentColumnDescriptor) -> bool:
    """Return whether a column has the key frame marks of a video."""
    return column.entity_path == video.entity_path and column.component == "VideoStream:is_keyframe"
