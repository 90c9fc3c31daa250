"""Video streams laid out by groups of pictures, so that each chunk begins with a key frame."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import Chunk, ChunkData, ChunkHeader, ComponentDescriptor, TimelineKind, ticks
from ..errors import ReadError, ReadWarning
from ..video import (
    DETECTORS,
    IsKeyframe,
    detect_gop_start,
    is_annex_b,
    length_prefixed_to_annex_b,
)
from .merging import merge_chunks
from .profile import FIXED_BYTES, MergeCandidate, Settings, extent_of

__all__ = [
    "IS_KEYFRAME",
    "detect_gop_start",
    "disagreement",
    "is_annex_b",
    "length_prefixed_to_annex_b",
    "rebatch_video",
    "rebatch_videos",
    "video_groups",
]

SAMPLE = "VideoStream:sample"
CODEC = "VideoStream:codec"
IS_KEYFRAME = "VideoStream:is_keyframe"


def column(data: ChunkData, component: str) -> pa.ListArray | None:
    """Return the values of a component, or None if the chunk has no such column."""
    return next((c.values for c in data.components if c.descriptor.component == component), None)


def samples(values: pa.ListArray) -> Iterator[tuple[int, bytes]]:
    """Each row that has a sample, with its bytes.

    Raises ``ValueError`` if the column does not hold bytes.
    """
    rows, first = first_values(values)
    read = _byte_reader(values.values)
    for row, index in zip(rows.tolist(), first.tolist(), strict=True):
        sample = read(index)
        if sample:
            yield row, sample


def first_values(values: pa.ListArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows with a value, and the index in ``values.values`` of each row's first value."""
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ends = np.frombuffer(values.buffers()[1], dtype=np.int32, count=len(values) + 1, offset=4 * values.offset)
    has_value = ends[1:] > ends[:-1]
    if values.null_count:
        has_value &= values.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(has_value).astype(np.int64)
    return rows, ends[rows].astype(np.int64)


def _byte_reader(blobs: pa.Array) -> Callable[[int], bytes | None]:
    datatype = blobs.type
    if pa.types.is_binary(datatype) or pa.types.is_large_binary(datatype):
        return lambda index: blobs[index].as_py()
    if pa.types.is_list(datatype) and datatype.value_type.bit_width == 8 and pa.types.is_integer(datatype.value_type):
        octets = blobs.values
        buffer = octets.buffers()[1]
        flat = np.frombuffer(buffer if buffer is not None else b"", dtype=np.uint8)[octets.offset :]
        ends = np.frombuffer(blobs.buffers()[1] or b"", dtype=np.int32)[blobs.offset :]
        if not blobs.null_count:
            return lambda index: flat[ends[index] : ends[index + 1]].tobytes()
        validity = blobs.is_valid().to_numpy(zero_copy_only=False)
        return lambda index: flat[ends[index] : ends[index + 1]].tobytes() if validity[index] else None
    raise ValueError(f"video samples are stored as {datatype}, not as bytes")


Ticks = npt.NDArray[np.int64]

_RANKS = {"message_log_time": 3, "log_time": 1, "log_tick": 0}
_RANK_OF_USERS = 2


class VideoError(ValueError):
    """A stream that can't be laid out because it contradicts itself or lacks what is needed."""


class LeftAloneError(ValueError):
    """A stream whose layout should not change."""


@dataclass(frozen=True, slots=True)
class ChunkSurvey:
    """The rows of a chunk with samples: times on the chosen timeline, and masks of samples and key frames.

    ``keyframe_times`` has the key frames' times on every timeline; ``labels`` has the times and values of rows with an
    ``is_keyframe``.
    """

    times: Ticks
    has_sample: npt.NDArray[np.bool_]
    is_keyframe: npt.NDArray[np.bool_]
    keyframe_times: dict[str, Ticks]
    labels: tuple[Ticks, npt.NDArray[np.bool_]]


def untouched_data(chunk: Chunk) -> ChunkData:
    """Return the columns of a chunk. A stored payload does not stay in memory with the chunk."""
    return chunk.data if chunk.payload is None else Chunk.lazy(None, chunk.payload).data


def best_timeline(chunks: Sequence[Chunk]) -> str:
    """Return the timeline that orders samples: one that all chunks have, preferably a user's, not a logger's."""
    rows: dict[str, int] = {}
    seen: dict[str, int] = {}
    for chunk in chunks:
        for name in chunk.timeline_names:
            rows[name] = rows.get(name, 0) + chunk.num_rows
            seen[name] = seen.get(name, 0) + 1
    shared = [name for name in rows if seen[name] == len(chunks)]
    if not shared:
        raise VideoError("its chunks have no timeline in common")
    return min(shared, key=lambda name: (-_RANKS.get(name, _RANK_OF_USERS), -rows[name], name))


def survey(chunks: Sequence[Chunk], timeline: str, detector: IsKeyframe) -> list[ChunkSurvey]:
    """Inspect the samples of each chunk. Raises :class:`LeftAloneError` for chunks without a new layout."""
    shape: tuple[tuple[str, TimelineKind], ...] | None = None
    datatypes: dict[str, pa.DataType] = {}
    out = []
    for chunk in chunks:
        data = untouched_data(chunk)
        if not all(t.is_sorted for t in data.timelines):
            raise LeftAloneError("its samples are not in the order of their times")
        own_shape = tuple((t.name, t.kind) for t in data.timelines)
        if shape is None:
            shape = own_shape
        names = {c.descriptor.component: c.values.type for c in data.components}
        if own_shape != shape or any(datatypes.setdefault(name, kind) != kind for name, kind in names.items()):
            raise LeftAloneError("its chunks differ in timelines or datatypes")
        if len(names) < len(data.components):
            raise LeftAloneError("two columns are of the same component")
        out.append(_survey_one(data, timeline, detector))
    return out


def _survey_one(data: ChunkData, timeline: str, detector: IsKeyframe) -> ChunkSurvey:
    has_sample = np.zeros(data.num_rows, np.bool_)
    keyframes = np.zeros(data.num_rows, np.bool_)
    values = column(data, SAMPLE)
    assert values is not None
    times = times_of(data, timeline)
    try:
        for row, sample in samples(values):
            has_sample[row] = True
            keyframes[row] = detector(sample)
    except ValueError as error:
        raise VideoError(f"{error}") from None
    marked = {t.name: t.ticks[keyframes] for t in data.timelines}
    return ChunkSurvey(times, has_sample, keyframes, marked, labels(data, times))


def labels(data: ChunkData, times: Ticks) -> tuple[Ticks, npt.NDArray[np.bool_]]:
    """The times and values of the rows that have an ``is_keyframe``."""
    values = column(data, IS_KEYFRAME)
    if values is None:
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    rows, first = first_values(values)
    flags = values.values.take(pa.array(first))
    if not pa.types.is_boolean(flags.type):
        raise VideoError(f"`is_keyframe` is stored as {flags.type}, not as booleans")
    validity = flags.is_valid().to_numpy(zero_copy_only=False)
    given = flags.fill_null(False).to_numpy(zero_copy_only=False)
    return times[rows[validity]], given[validity]


def times_of(data: ChunkData, timeline: str) -> Ticks:
    """The times of all rows on a timeline, as a copy. Raises :class:`VideoError` if the chunk lacks it."""
    time_array = next((t.times for t in data.timelines if t.name == timeline), None)
    if time_array is None:
        raise VideoError(f"its `is_keyframe` data is not on the timeline '{timeline}' of its samples")
    return ticks(time_array).copy()


_SHOWN = 3


def disagreement(keyframes: Ticks, times: Ticks, values: npt.NDArray[np.bool_]) -> str | None:
    """Return the fault of labels at ``times``, given the times of the key frames, or None if they agree."""
    codec_times, labelled = set(keyframes.tolist()), set(times[values].tolist())
    missing, extra, negative = sorted(codec_times - labelled), sorted(labelled - codec_times), times[~values].tolist()
    parts = []
    if missing:
        parts.append(f"{len(missing)} codec keyframe(s) missing an `is_keyframe=true` label ({_examples(missing)})")
    if extra:
        parts.append(
            f"{len(extra)} sample(s) labeled `is_keyframe=true` that are not codec keyframes ({_examples(extra)})"
        )
    if negative:
        parts.append(
            f"{len(negative)} `is_keyframe=false` row(s) ({_examples(negative)}); "
            "`is_keyframe` is a sparse marker, only `true` should be logged"
        )
    return "; ".join(parts) if parts else None


def _examples(times: Iterable[int]) -> str:
    shown = list(times)
    more = f" (+{len(shown) - _SHOWN} more)" if len(shown) > _SHOWN else ""
    return f"e.g. at times {', '.join(map(str, shown[:_SHOWN]))}{more}"


_OPEN_CHUNKS = 4

Run = tuple[int, int, int]
"""A run of rows: chunk, first row, row after the last."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one stream in time order, each as runs of rows of its chunks.

    ``starts_late``: the first group begins with samples before any key frame.
    """

    runs: list[list[Run]]
    starts_late: bool


def find_groups(surveys: Sequence[ChunkSurvey]) -> Groups:
    """Cut the rows of all chunks, in the order of their times, at the key frames.

    Rows without a sample go with the sample before them, or with the first group.
    """
    sizes = [len(s.times) for s in surveys]
    chunks = np.repeat(np.arange(len(surveys)), sizes)
    rows = np.concatenate([np.arange(n) for n in sizes])
    order = np.lexsort((rows, chunks, np.concatenate([s.times for s in surveys])))
    chunks, rows = chunks[order], rows[order]
    key = np.concatenate([s.is_keyframe for s in surveys])[order]
    starts = np.flatnonzero(key)
    head = int(starts[0]) if len(starts) else len(order)
    late = bool(np.concatenate([s.has_sample for s in surveys])[order][:head].any())
    cuts = [0, *starts.tolist(), len(order)] if late else [0, *starts.tolist()[1:], len(order)]
    runs = [_runs(chunks[a:b], rows[a:b]) for a, b in pairwise(cuts) if a < b]
    return Groups(runs, late)


def _runs(chunks: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> list[Run]:
    """The rows of each chunk, consecutive as its times ascend."""
    indexes, first, count = np.unique(chunks, return_index=True, return_counts=True)
    begin = rows[first]
    return list(zip(indexes.tolist(), begin.tolist(), (begin + count).tolist(), strict=True))


class GroupBatcher:
    """Lays out groups in chunks: each has as many whole groups as ``max_bytes`` allows, and at least one.

    It loads chunks on demand, and holds one batch and a few chunks at a time.
    """

    def __init__(self, chunks: Sequence[Chunk], max_bytes: int) -> None:
        self._chunks = chunks
        self._max_bytes = max_bytes
        self._open: OrderedDict[int, ChunkData] = OrderedDict()
        self.largest = 0
        """Bytes of the largest group so far."""

    def batches(self, groups: Sequence[list[Run]]) -> Iterator[Chunk]:
        """The chunks of all groups, without the ``is_keyframe`` column."""
        batch: dict[int, tuple[ChunkData, int, int]] = {}
        held = 0
        for group in groups:
            size = self._bytes(group)
            self.largest = max(self.largest, size)
            if batch and held + size > self._max_bytes:
                yield from self._chunk_of(batch)
                batch, held = {}, 0
            held += size
            for index, first, end in group:
                data = self._data(index)
                entry = batch.get(index)
                batch[index] = (data, first, end) if entry is None else (data, entry[1], end)
        if batch:
            yield from self._chunk_of(batch)

    def _chunk_of(self, batch: dict[int, tuple[ChunkData, int, int]]) -> list[Chunk]:
        if len(batch) == 1:
            index, (data, first, end) = next(iter(batch.items()))
            chunk = self._chunks[index]
            if end - first == data.num_rows and not _is_labelled(chunk):
                return [chunk]
        slices = [data.slice(first, end - first) for data, first, end in batch.values()]
        slices.sort(key=lambda s: bytes(s.row_ids[0].as_py()))
        return merge_chunks([Chunk.from_data(s) for s in slices])

    def _bytes(self, group: list[Run]) -> int:
        total: MergeCandidate | None = None
        for index, first, end in group:
            extent = extent_of(self._data(index).slice(first, end - first))
            if total is None:
                total = extent
            else:
                total = total.joined(extent) if total.first_row <= extent.first_row else extent.joined(total)
        assert total is not None
        return total.size - FIXED_BYTES

    def _data(self, index: int) -> ChunkData:
        """The columns of a chunk except ``is_keyframe``."""
        rest = self._open.get(index)
        if rest is None:
            data = untouched_data(self._chunks[index])
            other_columns = tuple(c for c in data.components if c.descriptor.component != IS_KEYFRAME)
            rest = data if len(other_columns) == len(data.components) else data.with_components(other_columns)
            self._open[index] = rest
            if len(self._open) > _OPEN_CHUNKS:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(index)
        return rest


def _is_labelled(chunk: Chunk) -> bool:
    return any(c.descriptor.component == IS_KEYFRAME for c in chunk.header.components)


_LARGE_GROUP = 10 * 1024 * 1024
_MARKER = ComponentDescriptor(IS_KEYFRAME, "rerun.archetypes.VideoStream", "rerun.components.IsKeyframe")


def rebatch_videos(chunks: Sequence[Chunk], settings: Settings, *, strict: bool = True) -> list[Chunk]:
    """All ``chunks`` of a recording, by chunk id, with video streams laid out by groups of pictures.

    See :func:`rebatch_video`.
    """
    out = {c.id: c for c in chunks}
    for group in video_groups([c.header for c in chunks]):
        mine = [chunks[i] for i in group]
        rebatched = list(rebatch_video(mine, settings, strict=strict))
        for chunk in mine:
            del out[chunk.id]
        out.update((c.id, c) for c in rebatched)
    return sorted(out.values(), key=lambda c: c.header.chunk_id)


def is_of_video(header: ChunkHeader) -> bool:
    """Return True if a chunk has samples, the codec or labels of a video stream."""
    return any(c.descriptor.component in (SAMPLE, CODEC, IS_KEYFRAME) for c in header.components)


def video_groups(headers: Sequence[ChunkHeader]) -> list[list[int]]:
    """For each entity with a video stream, its chunks for :func:`rebatch_video`: samples, codec and labels."""
    entities: dict[str, list[int]] = {}
    streams = set()
    for index, header in enumerate(headers):
        if is_of_video(header):
            entities.setdefault(header.entity_path, []).append(index)
        if not header.is_static and any(c.descriptor.component == SAMPLE for c in header.components):
            streams.add(header.entity_path)
    return [indexes for entity, indexes in sorted(entities.items()) if entity in streams]


def rebatch_video(chunks: Sequence[Chunk], settings: Settings, *, strict: bool = True) -> Iterator[Chunk]:
    """Return new chunks for ``chunks``, the video stream of one entity, laid out by groups of pictures.

    Key frames are found in the samples. Chunks hold whole groups, as many as fit into ``max_bytes`` and at least one;
    no row is lost. One more chunk marks the key frames (``VideoStream:is_keyframe``). Chunks that need no change are
    returned as they are. A stream whose samples are out of order, or do not fit one chunk's columns, stays unchanged,
    with a warning. Memory: one chunk to write and a few to read.

    Raises :class:`ReadError` (without ``strict``: warns, and does not change the stream) if the codec is unknown, a key
    frame's parameters can't be read, or ``is_keyframe`` data contradicts the samples and is not to be fixed.
    """
    entity = chunks[0].entity_path
    ordered = sorted(chunks, key=lambda c: c.header.chunk_id)
    try:
        stream = _Stream(ordered, settings)
    except LeftAloneError as error:
        _warn(f"VideoStream '{entity}' keeps its chunks: {error}")
        yield from ordered
        return
    except VideoError as error:
        if strict:
            raise ReadError(f"Failed to add chunk to store: VideoStream '{entity}': {error}") from None
        _warn(f"VideoStream '{entity}' keeps its chunks: {error}")
        yield from ordered
        return
    yield from stream.laid_out()


def _warn(message: str) -> None:
    warnings.warn(message, ReadWarning, stacklevel=4)


class _Stream:
    """One video stream, and the survey of its samples."""

    def __init__(self, chunks: list[Chunk], settings: Settings) -> None:
        self._settings = settings
        self._entity = chunks[0].entity_path
        self._samples = [c for c in chunks if not c.is_static and _has(c, SAMPLE)]
        self._labels = [c for c in chunks if not c.is_static and not _has(c, SAMPLE) and _has(c, IS_KEYFRAME)]
        changed = {id(c) for c in (*self._samples, *self._labels)}
        self._others = [c for c in chunks if id(c) not in changed]
        self._timeline = best_timeline(self._samples)
        self._surveys = survey(self._samples, self._timeline, _detector(chunks, self._timeline))
        self._trusts_labels = self._check_labels()

    def laid_out(self) -> Iterator[Chunk]:
        """The new chunks of the stream."""
        yield from self._others
        groups = find_groups(self._surveys)
        if groups.starts_late:
            _warn(f"VideoStream '{self._entity}': the first sample is not a keyframe")
        batcher = GroupBatcher(self._samples, self._settings.max_bytes)
        yield from batcher.batches(groups.runs)
        if batcher.largest > _LARGE_GROUP:
            _warn(
                f"VideoStream '{self._entity}': its largest group of pictures takes {batcher.largest:,} bytes and "
                "stays in one chunk"
            )
        if self._trusts_labels:
            yield from self._moved_labels()
        else:
            yield from self._unlabelled()
            yield from _markers(self._entity, self._samples[0].header, self._surveys)

    def _check_labels(self) -> bool:
        """Return True if there are labels to keep. Raises :class:`VideoError` for wrong ones."""
        if self._settings.fix_keyframe:
            return False
        all_labels = [s.labels for s in self._surveys]
        for chunk in self._labels:
            data = untouched_data(chunk)
            all_labels.append(labels(data, times_of(data, self._timeline)))
        times = np.concatenate([t for t, _ in all_labels])
        if not len(times):
            return False
        keyframes = np.concatenate([s.times[s.is_keyframe] for s in self._surveys])
        wrong = disagreement(keyframes, times, np.concatenate([v for _, v in all_labels]))
        if wrong is not None:
            raise VideoError(
                f"user-supplied `is_keyframe` data is incorrect: {wrong}; pass `--fix-keyframe` (Python: "
                "`fix_keyframe=True`) to drop the existing labels and re-derive them from the encoded samples"
            )
        return True

    def _moved_labels(self) -> Iterator[Chunk]:
        """Move labels to separate chunks; chunks that only have labels stay unchanged."""
        beside_samples = [label for c in self._samples if (label := _labels_of(c)) is not None]
        if beside_samples:
            yield from merge_chunks(sorted(beside_samples, key=lambda c: bytes(c.data.row_ids[0].as_py())))
        for chunk in self._labels:
            if len(chunk.header.components) == 1:
                yield chunk
                continue
            label = _labels_of(chunk)
            if label is not None:
                yield label
            yield from _without_labels(chunk)

    def _unlabelled(self) -> Iterator[Chunk]:
        for chunk in self._labels:
            yield from _without_labels(chunk)


def _has(chunk: Chunk, component: str) -> bool:
    return any(c.descriptor.component == component for c in chunk.header.components)


def _detector(chunks: Sequence[Chunk], timeline: str) -> IsKeyframe:
    """The key frame test for the last codec logged; static ones take precedence."""
    best: tuple[bool, bool, int, bytes] | None = None
    codec = 0
    for chunk in chunks:
        if not _has(chunk, CODEC):
            continue
        data = untouched_data(chunk)
        values = column(data, CODEC)
        assert values is not None
        rows, first = first_values(values)
        times = next((t.ticks for t in data.timelines if t.name == timeline), None)
        for row, index in zip(rows.tolist(), first.tolist(), strict=True):
            rank = (
                chunk.is_static,
                times is not None,
                0 if times is None else int(times[row]),
                data.row_ids[row].as_py(),
            )
            number = values.values[index].as_py()
            if number is not None and (best is None or rank >= best):
                best, codec = rank, number
    if best is None:
        raise VideoError("couldn't resolve video codec")
    detector = DETECTORS.get(codec)
    if detector is None:
        raise VideoError(f"couldn't resolve video codec: {codec!r} is not a known codec")
    return detector


def _labels_of(chunk: Chunk) -> Chunk | None:
    """The rows with a label, with only this column, under their row ids."""
    data = untouched_data(chunk)
    values = column(data, IS_KEYFRAME)
    if values is None:
        return None
    rows, _ = first_values(values)
    if not len(rows):
        return None
    label_columns = tuple(c for c in data.components if c.descriptor.component == IS_KEYFRAME)
    return Chunk.from_data(data.with_components(label_columns).take(rows))


def _without_labels(chunk: Chunk) -> list[Chunk]:
    data = untouched_data(chunk)
    other_columns = tuple(c for c in data.components if c.descriptor.component != IS_KEYFRAME)
    return [Chunk.from_data(data.with_components(other_columns))] if other_columns else []


def _markers(entity: str, shape: ChunkHeader, surveys: Sequence[ChunkSurvey]) -> list[Chunk]:
    """Return a chunk with one ``is_keyframe`` row for each key frame, or none without key frames."""
    order = np.argsort(np.concatenate([s.times[s.is_keyframe] for s in surveys]), kind="stable")
    if not len(order):
        return []
    times = {
        t.name: pa.array(np.concatenate([s.keyframe_times[t.name] for s in surveys])[order]).view(t.kind.arrow_type)
        for t in shape.timelines
    }
    return [Chunk.build(entity, times, [(_MARKER, pa.array([[True]] * len(order), pa.list_(pa.bool_())))])]
