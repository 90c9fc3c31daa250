"""One look at every sample of a video stream: when it is, and whether it is a key frame. Nothing else is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...chunk import Chunk, ChunkData, TimelineKind
from ...chunk.data import ticks
from .codecs import IsKeyframe
from .columns import IS_KEYFRAME, SAMPLE, column, first_values, samples

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
