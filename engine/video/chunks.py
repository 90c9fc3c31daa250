"""Video samples as chunks of a ``VideoStream``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import Chunk, ComponentDescriptor
from ..limits import MIB
from .coding import VideoTrack
from .samples import SampleBatch, Ticks, joined, offsets_of

CHUNK_BYTES: Final = 2 * MIB
_LARGEST_BYTES: Final = 64 * MIB
_ARCHETYPE: Final = "rerun.archetypes.VideoStream"
_CODEC: Final = ComponentDescriptor("VideoStream:codec", _ARCHETYPE, "rerun.components.VideoCodec")
_SAMPLE: Final = ComponentDescriptor("VideoStream:sample", _ARCHETYPE, "rerun.components.VideoSample")
_IS_KEYFRAME: Final = ComponentDescriptor("VideoStream:is_keyframe", _ARCHETYPE, "rerun.components.IsKeyframe")
_BLOB: Final = ComponentDescriptor("AssetVideo:blob", "rerun.archetypes.AssetVideo", "rerun.components.Blob")
_TIMESTAMP: Final = ComponentDescriptor(
    "VideoFrameReference:timestamp", "rerun.archetypes.VideoFrameReference", "rerun.components.VideoTimestamp"
)

TimesOf = Callable[[Ticks], Mapping[str, pa.Array]]
"""A function that returns the times of ticks on each timeline: ``int64``, ``timestamp[ns]`` or ``duration[ns]``."""


def stream_chunks(
    entity_path: str,
    track: VideoTrack,
    batches: Iterable[SampleBatch],
    times: TimesOf,
    chunk_bytes: int | None = CHUNK_BYTES,
) -> Iterator[Chunk]:
    """Yield the chunks of a ``VideoStream``.

    Order: the codec as static data; the samples; one row with ``true`` per key frame. A chunk has whole groups of
    pictures and about ``chunk_bytes`` (with 0, one group; with None, one sample). Groups of more than 64 MiB are cut,
    to limit memory.
    """
    yield Chunk.build(entity_path, {}, [(_CODEC, pa.array([[track.codec]], pa.list_(pa.uint32())))])
    marks: list[Mapping[str, pa.Array]] = []
    for batch in _each_sample(batches) if chunk_bytes is None else pack_groups(batches, chunk_bytes):
        lines = times(batch.pts)
        yield Chunk.build(entity_path, lines, [(_SAMPLE, _blobs(batch))])
        rows = pa.array(np.flatnonzero(batch.is_keyframe))
        marks.append({name: values.take(rows) for name, values in lines.items()})
    if sum(len(next(iter(lines.values()))) for lines in marks):
        joined = {name: pa.concat_arrays([lines[name] for lines in marks]) for name in marks[0]}
        count = len(next(iter(joined.values())))
        yield Chunk.build(entity_path, joined, [(_IS_KEYFRAME, pa.array([[True]] * count, pa.list_(pa.bool_())))])


def asset_chunks(entity_path: str, content: bytes, timestamps: Ticks, lines: Mapping[str, pa.Array]) -> Iterator[Chunk]:
    """Yield the chunks of an ``AssetVideo``: the whole file as static data, and the timestamp (ns) of each frame.

    ``timestamps`` and each timeline have the shape ``(n,)``.
    """
    nothing = np.zeros(1, np.int64)
    whole = SampleBatch(nothing, nothing, np.ones(1, np.bool_), offsets_of([len(content)]), memoryview(content))
    yield Chunk.build(entity_path, {}, [(_BLOB, _blobs(whole))])
    starts = pa.array(np.arange(len(timestamps) + 1, dtype=np.int32))
    frames = pa.ListArray.from_arrays(starts, pa.array(timestamps))
    yield Chunk.build(entity_path, lines, [(_TIMESTAMP, frames)])


def _each_sample(batches: Iterable[SampleBatch]) -> Iterator[SampleBatch]:
    for batch in batches:
        for row in range(len(batch)):
            yield batch.part(row, row + 1)


def pack_groups(batches: Iterable[SampleBatch], size: int = CHUNK_BYTES) -> Iterator[SampleBatch]:
    """Yield samples in batches of whole groups of pictures, with at most ``size`` bytes unless one group is larger."""
    whole, begun = _Pieces(), _Pieces()
    for batch in batches:
        for begin, end in _runs(batch.is_keyframe):
            at = begin
            if batch.is_keyframe[begin]:
                if whole.pieces and whole.size + begun.size > size:
                    yield whole.taken()
                whole.take(begun)
                begun.add(batch, begin, begin + 1)
                at += 1
            while at < end:
                held = whole.size + begun.size - batch.offsets[at] + batch.offsets[at:end]
                stop = at + int(np.searchsorted(held, _LARGEST_BYTES, side="right"))
                begun.add(batch, at, stop)
                if stop < end:
                    whole.take(begun)
                    yield whole.taken()
                at = stop
    if whole.pieces and whole.size + begun.size > size:
        yield whole.taken()
    whole.take(begun)
    if whole.pieces:
        yield whole.taken()


def _runs(is_keyframe: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each run of samples that has no key frame after its beginning."""
    bounds = [0, *(np.flatnonzero(is_keyframe[1:]) + 1).tolist(), len(is_keyframe)]
    return pairwise(bounds) if len(is_keyframe) else iter(())


class _Pieces:
    """Consecutive samples, as parts of batches."""

    def __init__(self) -> None:
        self.pieces: list[tuple[SampleBatch, int, int]] = []
        self.size = 0

    def add(self, batch: SampleBatch, begin: int, end: int) -> None:
        """Add samples of a batch."""
        if begin == end:
            return
        self.size += int(batch.offsets[end] - batch.offsets[begin])
        if self.pieces and self.pieces[-1][0] is batch and self.pieces[-1][2] == begin:
            begin = self.pieces.pop()[1]
        self.pieces.append((batch, begin, end))

    def take(self, other: _Pieces) -> None:
        """Move all samples from another."""
        for piece in other.pieces:
            self.add(*piece)
        other.pieces, other.size = [], 0

    def taken(self) -> SampleBatch:
        """Return all samples, and remove them."""
        pieces, self.pieces, self.size = self.pieces, [], 0
        parts = [batch.part(begin, end) for batch, begin, end in pieces]
        return parts[0] if len(parts) == 1 else joined(parts)


def _blobs(batch: SampleBatch) -> pa.ListArray:
    """Return each sample as one instance of bytes."""
    numbers = pa.Array.from_buffers(pa.uint8(), len(batch.data), [None, pa.py_buffer(batch.data)])
    blob = pa.list_(pa.field("item", pa.uint8(), nullable=False))
    ends = pa.py_buffer(batch.offsets.astype(np.int32))
    inner = pa.Array.from_buffers(blob, len(batch), [None, ends], children=[numbers])
    return pa.ListArray.from_arrays(pa.array(np.arange(len(batch) + 1, dtype=np.int32)), inner)
