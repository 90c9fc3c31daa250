"""Samples of video as chunks of a ``VideoStream``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from ..chunk import Chunk, ComponentDescriptor
from ..limits import MIB
from .coding import VideoSample, VideoTrack

CHUNK_BYTES: Final = 2 * MIB
_LARGEST_BYTES: Final = 64 * MIB
_ARCHETYPE: Final = "rerun.archetypes.VideoStream"
_CODEC: Final = ComponentDescriptor("VideoStream:codec", _ARCHETYPE, "rerun.components.VideoCodec")
_SAMPLE: Final = ComponentDescriptor("VideoStream:sample", _ARCHETYPE, "rerun.components.VideoSample")
_IS_KEYFRAME: Final = ComponentDescriptor("VideoStream:is_keyframe", _ARCHETYPE, "rerun.components.IsKeyframe")

TimesOf = Callable[[Sequence[VideoSample]], Mapping[str, pa.Array]]
"""The times of samples on each timeline: ``int64``, ``timestamp[ns]`` or ``duration[ns]``."""


def stream_chunks(
    entity_path: str, track: VideoTrack, samples: Iterable[VideoSample], times: TimesOf
) -> Iterator[Chunk]:
    """Yield the chunks of a ``VideoStream``.

    Order: the codec, static; the samples, whole groups of pictures packed to about 2 MiB; a row that is true for each
    key frame. A group of more than 64 MiB is cut, so that memory is bounded.
    """
    yield Chunk.build(entity_path, {}, [(_CODEC, pa.array([[track.codec]], pa.list_(pa.uint32())))])
    marks: list[Mapping[str, pa.Array]] = []
    for batch in pack_groups(samples):
        lines = times(batch)
        yield Chunk.build(entity_path, lines, [(_SAMPLE, _blobs(batch))])
        rows = pa.array([row for row, sample in enumerate(batch) if sample.is_keyframe], pa.int64())
        marks.append({name: values.take(rows) for name, values in lines.items()})
    if sum(len(next(iter(lines.values()))) for lines in marks):
        joined = {name: pa.concat_arrays([lines[name] for lines in marks]) for name in marks[0]}
        count = len(next(iter(joined.values())))
        yield Chunk.build(entity_path, joined, [(_IS_KEYFRAME, pa.array([[True]] * count, pa.list_(pa.bool_())))])


def pack_groups(samples: Iterable[VideoSample], size: int = CHUNK_BYTES) -> Iterator[list[VideoSample]]:
    """Yield samples in batches of whole groups of pictures, as many as ``size`` allows, at least one."""
    batch: list[VideoSample] = []
    held = group = 0
    begin = 0
    for sample in samples:
        if sample.is_keyframe:
            if begin and held + group > size:
                yield batch[:begin]
                batch, held = batch[begin:], 0
            held += group
            group, begin = 0, len(batch)
        elif group + held > _LARGEST_BYTES:
            yield batch
            batch, held, group, begin = [], 0, 0, 0
        batch.append(sample)
        group += len(sample.data)
    if begin and held + group > size:
        yield batch[:begin]
        batch = batch[begin:]
    if batch:
        yield batch


def _blobs(samples: Sequence[VideoSample]) -> pa.ListArray:
    """Each sample as one instance of bytes."""
    ends = np.cumsum([0, *(len(sample.data) for sample in samples)]).astype(np.int32)
    data = b"".join(sample.data for sample in samples)
    numbers = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
    blob = pa.list_(pa.field("item", pa.uint8(), nullable=False))
    inner = pa.Array.from_buffers(blob, len(samples), [None, pa.py_buffer(ends)], children=[numbers])
    return pa.ListArray.from_arrays(pa.array(np.arange(len(samples) + 1, dtype=np.int32)), inner)
