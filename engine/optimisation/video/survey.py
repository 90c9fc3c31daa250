"""A survey of a video stream: the time of each sample, key frame or not, and labels that disagree with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...chunk import Chunk, ChunkData, TimelineKind, ticks
from .codecs import IsKeyframe

SAMPLE = "VideoStream:sample"
CODEC = "VideoStream:codec"
IS_KEYFRAME = "VideoStream:is_keyframe"


def column(data: ChunkData, component: str) -> pa.ListArray | None:
    """The values of a component, None where the chunk has no such column."""
    return next((c.values for c in data.components if c.descriptor.component == component), None)


def samples(values: pa.ListArray) -> Iterator[tuple[int, bytes]]:
    """Each row that has a sample, with its bytes.

    Raises ``ValueError`` where the column holds something else than bytes.
    """
    rows, first = first_values(values)
    read = _byte_reader(values.values)
    for row, index in zip(rows.tolist(), first.tolist(), strict=True):
        sample = read(index)
        if sample:
            yield row, sample


def first_values(values: pa.ListArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows that hold a value, and where in ``values.values`` the first one of each lies."""
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ends = np.frombuffer(values.buffers()[1], dtype=np.int32, count=len(values) + 1, offset=4 * values.offset)
    there = ends[1:] > ends[:-1]
    if values.null_count:
        there &= values.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(there).astype(np.int64)
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
        there = blobs.is_valid().to_numpy(zero_copy_only=False)
        return lambda index: flat[ends[index] : ends[index + 1]].tobytes() if there[index] else None
    raise ValueError(f"video samples are stored as {datatype}, not as bytes")


Ticks = npt.NDArray[np.int64]

_RANKS = {"message_log_time": 3, "log_time": 1, "log_tick": 0}
_RANK_OF_USERS = 2


class VideoError(ValueError):
    """A stream that can't be laid out because it contradicts itself or lacks what is needed."""


class LeftAloneError(ValueError):
    """A stream that is better left as it is."""


@dataclass(frozen=True, slots=True)
class ChunkSurvey:
    """The rows of one chunk with samples: their times on the chosen timeline, which ones hold samples and key frames.

    ``keyframe_times`` has the times of the key frames on every timeline; ``labels`` the times and values of rows
    with an ``is_keyframe``.
    """

    times: Ticks
    has_sample: npt.NDArray[np.bool_]
    is_keyframe: npt.NDArray[np.bool_]
    keyframe_times: dict[str, Ticks]
    labels: tuple[Ticks, npt.NDArray[np.bool_]]


def untouched_data(chunk: Chunk) -> ChunkData:
    """The columns of a chunk; a payload that is still where it was stored does not stay in memory with the chunk."""
    return chunk.data if chunk.payload is None else Chunk.lazy(None, chunk.payload).data


def best_timeline(chunks: Sequence[Chunk]) -> str:
    """The timeline that orders the samples: one that all chunks have, a user's rather than a logger's."""
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
    """Look at the samples of each chunk. Raises :class:`LeftAloneError` for chunks that can't be laid out anew."""
    shape: tuple[tuple[str, TimelineKind], ...] | None = None
    datatypes: dict[str, pa.DataType] = {}
    out = []
    for chunk in chunks:
        data = untouched_data(chunk)
        if not all(t.is_sorted for t in data.timelines):
            raise LeftAloneError("its samples are not in the order of their times")
        found = tuple((t.name, t.kind) for t in data.timelines)
        if shape is None:
            shape = found
        names = {c.descriptor.component: c.values.type for c in data.components}
        if found != shape or any(datatypes.setdefault(name, kind) != kind for name, kind in names.items()):
            raise LeftAloneError("its chunks differ in timelines or datatypes")
        if len(names) < len(data.components):
            raise LeftAloneError("two columns claim one component")
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
    there = flags.is_valid().to_numpy(zero_copy_only=False)
    given = flags.fill_null(False).to_numpy(zero_copy_only=False)
    return times[rows[there]], given[there]


def times_of(data: ChunkData, timeline: str) -> Ticks:
    """The times of all rows on a timeline, as a copy. Raises :class:`VideoError` where the chunk is not on it."""
    found = next((t.times for t in data.timelines if t.name == timeline), None)
    if found is None:
        raise VideoError(f"its `is_keyframe` data is not on the timeline '{timeline}' of its samples")
    return ticks(found).copy()


_SHOWN = 3


def disagreement(keyframes: Ticks, times: Ticks, values: npt.NDArray[np.bool_]) -> str | None:
    """Return what is wrong with labels at ``times``, given the times of the key frames; None when they agree."""
    found, labelled = set(keyframes.tolist()), set(times[values].tolist())
    missing, extra, negative = sorted(found - labelled), sorted(labelled - found), times[~values].tolist()
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
