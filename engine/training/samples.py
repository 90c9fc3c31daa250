"""Samples by their numbers: where each one is, and its fields as arrays."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ComponentColumnDescriptor, TimelineKind
from ..errors import ReadError, UsageError
from ..limits import MIB
from ..rrd import OpenFiles
from ..task_context import TaskContext
from ..video import DETECTORS, VideoSample, VideoTrack, decode
from .column_decoders import ColumnDecoder, ColumnReading, IndexValue, index_value
from .fields import (
    VIDEO_CODECS,
    Field,
    FixedRateSampling,
    ImageDecoder,
    RowSampling,
    VideoFrameDecoder,
    blobs_of,
)
from .plan import Blocks, Integers, blocks_of
from .source import BEGINNING, DataSource, PinnedSource, SegmentReader, Series, is_fresh

Sample = dict[str, Any]
"""The fields of a sample by their names, masks of padding, and its number under ``sample``."""

CACHE_BYTES: Final = 256 * MIB
"""Bytes of values that a reader keeps, decoded video and pictures not among them."""

BLOCK: Final = 128
"""Samples of a block, at least."""

_MOST_SEGMENTS: Final = 1024
_MOST_SAMPLES: Final = 1 << 30
_CODEC: Final = "VideoStream:codec"


@dataclass(frozen=True)
class SegmentMetadata:
    """A segment that has samples: its id, the index values of its first and last sample, and how many there are."""

    segment_id: str
    index_start: int
    index_end: int
    num_samples: int


@dataclass(frozen=True)
class SampleIndex:
    """The samples of a source, numbered through, segment by segment.

    ``times`` has the index value of each sample, ``ends`` where the samples of each segment end, ``edges`` the first
    and the last index value of each segment, beyond which windows are padded, of shape ``(segments, 2)``. ``blocks``
    are samples that are read together. A value counts from ``tolerance`` before its time on.
    """

    source: PinnedSource
    fields: Mapping[str, Field]
    times: Integers
    ends: Integers
    edges: Integers
    blocks: Blocks
    tolerance: int = 0

    @classmethod
    def build(
        cls,
        source: DataSource,
        index: str,
        fields: Mapping[str, Field],
        *,
        timeline_sampling: FixedRateSampling | RowSampling | None = None,
        block_size: int = BLOCK,
        by_chunks: bool = False,
    ) -> SampleIndex:
        """Find the samples of a source as it is now.

        An index of numbers has a sample at each whole number from the first to the last of a segment, one of times
        those of ``timeline_sampling``, for which a value counts from a microsecond before its time on: the seconds
        between frames are no whole nanoseconds. A block has ``block_size`` samples, and with video so many more that
        it ends with a group of pictures, where the recording says by ``VideoStream:is_keyframe`` or by its chunks where
        these begin. With ``by_chunks`` blocks of a source larger than :data:`CACHE_BYTES` end with the chunks of the
        field that has most bytes, too, and those of a chunk are a group.

        Raises ``ValueError`` for names that are not there, and ``TypeError`` for an index of times without a sampling.
        """
        check_names(fields)
        if block_size < 1:
            raise UsageError(f"block_size: expected 1 or more, got {block_size}")
        paths = [field.path for field in fields.values()]
        if isinstance(timeline_sampling, RowSampling):
            paths.append(timeline_sampling.path)
        pinned = source.pinned(index, paths)
        is_time = pinned.kind is not TimelineKind.SEQUENCE
        if is_time and timeline_sampling is None:
            raise TypeError(f"the index {index!r} has times: say by timeline_sampling when samples are taken")
        if not is_time and type(timeline_sampling) is FixedRateSampling:
            raise UsageError(f"the index {index!r} has numbers, of which each whole one is a sample, and no rate")
        before = after = 0
        for field in fields.values():
            offsets = field.offsets(is_time=is_time)
            if field.edges == "trim" and field.window is not None:
                before, after = max(before, -int(offsets.min())), max(after, int(offsets.max()))
        tolerance = 0 if timeline_sampling is None or not is_time else timeline_sampling.tolerance
        video = [pinned.column(f.path) for f in fields.values() if isinstance(f.decode, VideoFrameDecoder)]
        by_chunks = by_chunks and sum(segment.stored_bytes for segment in pinned.segments) > CACHE_BYTES
        columns = {column.name: column for column in map(pinned.column, paths)}.values()
        times, edges, cuts, groups, stored = [], [], [], [], 0
        for segment in pinned.segments:
            assert segment.span is not None
            first, last = segment.span
            reader = SegmentReader(segment)
            if isinstance(timeline_sampling, RowSampling):
                column = pinned.column(timeline_sampling.path)
                series = reader.series(column, reader.needed(column, first, last))
                if BEGINNING in series.times:
                    raise UsageError(f"{column.name} is static in segment {segment.segment_id}, and has no times")
                is_there = series.values.is_valid().to_numpy(zero_copy_only=False)
                whole = series.times[(series.times >= first) & is_there]
            elif is_time:
                assert timeline_sampling is not None
                whole = _grid(timeline_sampling, segment.segment_id, first, last)
            else:
                whole = np.arange(first, last + 1)
            edges.append((first, last))
            whole = whole[(whole - before >= first) & (whole + after <= last)]
            times.append(whole)
            is_cut = len(whole) > block_size
            bounds = [reader.groups(column) for column in video] if is_cut else []
            chunks = [reader.extents(column) for column in columns] if is_cut and by_chunks else []
            stored += sum(size for _, size in chunks) if is_cut else segment.stored_bytes
            some, owners = _grouped_cuts(whole + tolerance, bounds, chunks, block_size)
            cuts.append(some)
            groups.append(owners)
        sizes = [len(some) for some in times]
        return cls(
            pinned,
            dict(fields),
            np.concatenate([np.empty(0, np.int64), *times]),
            np.cumsum(np.array(sizes, np.int64)),
            np.array(edges, np.int64).reshape(-1, 2),
            blocks_of(cuts, sizes, groups=groups if by_chunks and stored > CACHE_BYTES else None),
            tolerance,
        )

    def __len__(self) -> int:
        return len(self.times)

    @property
    def is_time(self) -> bool:
        """Whether the index has times, and not numbers."""
        return self.source.kind is not TimelineKind.SEQUENCE

    def segments_of(self, samples: Integers) -> Integers:
        """Return the number of the segment of each sample."""
        numbers: Integers = np.searchsorted(self.ends, samples, side="right")
        return numbers

    def place(self, sample: int) -> tuple[str, int]:
        """Return the segment and the index value of a sample."""
        segment = int(self.segments_of(np.array([sample]))[0])
        return self.source.segments[segment].segment_id, int(self.times[sample])

    @property
    def segments(self) -> list[SegmentMetadata]:
        """The segments that have samples."""
        bounds = zip(self.source.segments, self.segment_offsets.tolist(), self.ends.tolist(), strict=False)
        return [
            SegmentMetadata(segment.segment_id, int(self.times[first]), int(self.times[end - 1]), end - first)
            for segment, first, end in bounds
            if end > first
        ]

    @property
    def segment_offsets(self) -> Integers:
        """The number of the first sample of each segment, and behind the last one how many there are."""
        return np.concatenate([np.zeros(1, np.int64), self.ends])

    @property
    def total_samples(self) -> int:
        """The number of samples."""
        return len(self)

    def global_to_local(self, idx: int) -> tuple[SegmentMetadata, IndexValue]:
        """Return the segment of a sample, and its index value in the index's type.

        Raises ``IndexError`` beyond the last sample.
        """
        if not 0 <= idx < len(self):
            raise IndexError(f"there are {len(self):,} samples, got {idx}")
        segment_id, value = self.place(idx)
        segment = next(segment for segment in self.segments if segment.segment_id == segment_id)
        return segment, index_value(value, self.source.kind)


def _grid(sampling: FixedRateSampling, segment_id: str, first: int, last: int) -> Integers:
    """The times of samples of a segment. Raises ``ValueError`` where they are too many to be meant."""
    count = (last - first) * sampling.rate_hz / 1e9
    if count > _MOST_SAMPLES:
        raise UsageError(
            f"segment {segment_id} has {count:.3g} samples at {sampling.rate_hz} Hz from {first} to {last} ns",
            hint="Is a time of it wrong? RowSampling takes samples where rows are.",
        )
    return sampling.times(first, last)


def check_names(fields: Mapping[str, Field]) -> None:
    """Raise ``ValueError`` where there is no field, and for names that samples have for something else."""
    if not fields:
        raise UsageError("fields: a sample has one field at least")
    masks = {f"{name}_is_pad" for name, field in fields.items() if field.window is not None}
    taken = sorted({"sample", "is_repeat", *masks} & set(fields))
    if taken:
        raise UsageError(f"the field {taken[0]!r} has a name that samples have for something else", hint="Rename it.")


def _cuts(times: Integers, bounds: Sequence[Integers], size: int) -> Integers:
    """Return the samples at which blocks begin: at bounds where there are some, with ``size`` samples or more."""
    if not bounds:
        return np.arange(0, len(times), size)
    begins = np.unique(np.searchsorted(times, bounds[0]))
    kept = [0]
    for begin in begins.tolist():
        if begin - kept[-1] >= size:
            kept.append(begin)
    return np.array(kept, np.int64)


def _grouped_cuts(
    times: Integers, bounds: Sequence[Integers], chunks: Sequence[tuple[Integers, int]], size: int
) -> tuple[Integers, Integers]:
    """The same, and the part of each block: parts begin where chunks of the largest column do, or the next block can,
    and have half of ``size`` at least. ``chunks`` are where those of each column begin, and their bytes.
    """
    if not chunks:
        cuts = _cuts(times, bounds, size)
        return cuts, np.arange(len(cuts))
    begins = np.searchsorted(times, max(chunks, key=lambda some: some[1])[0])
    possible = np.unique(np.searchsorted(times, bounds[0])) if bounds else np.arange(len(times))
    parts, least = [0], -(-size // 2)
    for begin in begins.tolist():
        at = int(np.searchsorted(possible, begin))
        if at < len(possible) and least <= possible[at] - parts[-1] and possible[at] + least <= len(times):
            parts.append(int(possible[at]))
    parted, owners = [], []
    for number, (first, end) in enumerate(pairwise([*parts, len(times)])):
        some = first + _cuts(times[first:end], bounds, size)
        some = some[(some == first) | (some + least <= end)]
        parted.append(some)
        owners.append(np.full(len(some), number))
    return np.concatenate(parted), np.concatenate(owners)


Values = Callable[[], list[npt.NDArray[Any] | None]]
"""Gives the value at each time that a field of some samples wants, None where there is none."""


class SampleReader:
    """Makes samples of an index by their numbers. One for each process; not for several threads at once.

    ``cache_bytes`` bound the values that are kept between two calls. ``threads`` decode pictures and video.
    """

    def __init__(self, index: SampleIndex, cache_bytes: int = CACHE_BYTES, threads: int = 1) -> None:
        self._index = index
        self._most = cache_bytes
        self._files = OpenFiles()
        self._segments: OrderedDict[int, SegmentReader] = OrderedDict()
        self._series: OrderedDict[tuple[str, str, Any, bytes], Series] = OrderedDict()
        self._held = 0
        self._pool = ThreadPoolExecutor(threads, "chunkmill-decode")
        self.decoded_frames = 0
        """Frames of video that were decoded."""
        self.missing: Counter[str] = Counter()
        """Samples that were left out, by the field that has no value."""
        self.decoded_groups = 0
        """Groups of pictures of which frames were decoded."""

    def close(self) -> None:
        """Close the files that are open, and end the threads."""
        self._files.close()
        self._pool.shutdown(cancel_futures=True)

    def read(self, samples: Integers) -> dict[int, Sample]:
        """Return samples by their numbers. Those of a field that was to be skipped where it has no value are left out.

        Raises ``ReadError`` for damaged data, and ``ValueError`` for a field without a value.
        """
        return self.begin(samples)()

    def begin(self, samples: Integers) -> Callable[[], dict[int, Sample]]:
        """Read what samples need, and begin to decode it; what is returned waits for the samples.

        Both raise as :meth:`read` does.
        """
        distinct = np.unique(samples)
        if len(distinct) and not 0 <= distinct[0] <= distinct[-1] < len(self._index):
            raise IndexError(f"there are {len(self._index):,} samples, got {distinct[0]} to {distinct[-1]}")
        owners = self._index.segments_of(distinct)
        with TaskContext(self._files).entered():
            begun = [self._begin(segment, distinct[owners == segment]) for segment in np.unique(owners).tolist()]
        return lambda: {sample["sample"]: sample for finish in begun for sample in finish()}

    def _begin(self, segment: int, samples: Integers) -> Callable[[], list[Sample]]:
        reader = self._reader(segment)
        made: list[Sample] = [{"sample": number} for number in samples.tolist()]
        begun: list[tuple[str, Field, tuple[int, ...], Values]] = []
        for name, field in self._index.fields.items():
            offsets = field.offsets(is_time=self._index.is_time)
            wanted = self._index.times[samples][:, None] + offsets
            low, high = self._index.edges[segment].tolist()
            if field.window is not None and field.edges != "trim":
                tolerance = self._index.tolerance
                for number, mask in enumerate((wanted < low - tolerance) | (wanted > high + tolerance)):
                    made[number][f"{name}_is_pad"] = mask
                wanted = np.clip(wanted, low, high)
            if isinstance(field.decode, ColumnDecoder):
                own = self._own(reader, field, samples, wanted)
                begun.append((name, replace(field, window=None), (len(samples), 1), own))
                continue
            if isinstance(field.decode, VideoFrameDecoder):
                block = self._index.blocks.of(samples)
                parts = [self._video(reader, field, wanted[block == number]) for number in np.unique(block)]
                begun.append((name, field, wanted.shape, partial(_joined, parts)))
                continue
            begun.append((name, field, wanted.shape, self._values(reader, field, wanted)))

        def finish() -> list[Sample]:
            skipped: set[int] = set()
            for name, field, shape, values in begun:
                stacked, missing = _windows(values(), shape, field)
                if field.fill == "none":
                    missing = []
                elif missing and field.fill != "skip":
                    raise _no_value(name, field, reader.segment_id, int(self._index.times[samples[missing[0]]]))
                skipped.update(missing)
                self.missing.update({name: len(missing)} if missing else {})
                for number, value in enumerate(stacked):
                    made[number][name] = value
            return [sample for number, sample in enumerate(made) if number not in skipped]

        return finish

    def _values(self, reader: SegmentReader, field: Field, wanted: Integers) -> Values:
        """Read the values at some times, and begin to decode them. Those that are too old are missing."""
        column = self._index.source.column(field.path)
        numbers = reader.needed_at(column, np.unique(wanted) + self._index.tolerance)
        series = self._kept(reader, field, column, numbers)
        rows = self._rows(field, series, wanted)
        if isinstance(field.decode, ImageDecoder):
            return self._pool.submit(_decoded, field, reader.segment_id, series, rows).result
        flat = _decoded(field, reader.segment_id, series, rows)
        return lambda: flat

    def _rows(self, field: Field, series: Series, wanted: Integers) -> Integers:
        """The event that counts at each time, flat; -1 where there is none, or it is too old."""
        rows = series.latest(wanted + self._index.tolerance)
        if len(series.times):
            since, tolerance = series.times[np.maximum(rows, 0)], self._index.tolerance
            fresh = is_fresh(field, since, wanted, is_time=self._index.is_time, tolerance=tolerance)
            rows = np.where(fresh, rows, -1)
        return rows.ravel()

    def _video(self, reader: SegmentReader, field: Field, wanted: Integers) -> Values:
        """Read the groups of pictures that some times need, and begin to decode them."""
        column = self._index.source.column(field.path)
        first, last = (int(some) + self._index.tolerance for some in (wanted.min(), wanted.max()))
        if not len(reader.needed_at(column, np.array([last]))):
            return lambda: [None] * wanted.size
        track = self._track(reader, column, field.decode.codec)
        series, blobs, keyframes = self._groups(track, reader, column, first, last)
        rows = self._rows(field, series, wanted)
        chosen = _chosen(blobs, keyframes, rows)
        self.decoded_frames += len(chosen)
        self.decoded_groups += sum(sample.is_keyframe for sample in chosen)
        return self._pool.submit(_frames, field, track, chosen, rows, f"{reader.segment_id}{field.path}").result

    def _own(self, reader: SegmentReader, field: Field, samples: Integers, wanted: Integers) -> Values:
        """Read what a decoder of a user's own needs; what is returned has it decode."""
        reading = ColumnReading(self._index.source, reader, field, self._index.times[samples], wanted)
        column = self._index.source.column(field.path)
        series = self._kept(reader, replace(field, select=None), column, reading.chunks(column))
        return lambda: reading.values(series)

    # --- what is read

    def _reader(self, segment: int) -> SegmentReader:
        reader = self._segments.pop(segment, None) or SegmentReader(self._index.source.segments[segment])
        self._segments[segment] = reader
        if len(self._segments) > _MOST_SEGMENTS:
            self._segments.popitem(last=False)
        return reader

    def _kept(
        self, reader: SegmentReader, field: Field, column: ComponentColumnDescriptor, numbers: Integers
    ) -> Series:
        key = reader.segment_id, field.path, field.select, numbers.tobytes()
        series = self._taken(key)
        if series is None:
            series = reader.series(column, numbers)
            if field.select is not None and not pa.types.is_null(series.values.type.value_type):
                series = Series(series.times, _selected(field, series.values))
        self._keep(key, series)
        return series

    def _streamed(
        self, reader: SegmentReader, column: ComponentColumnDescriptor, numbers: Integers, span: int
    ) -> Series:
        """Samples of video; they are kept where those of other times than some so far apart are among them."""
        key = reader.segment_id, column.name, True, numbers.tobytes()
        series = self._taken(key) or reader.series(column, numbers, is_video=True)
        if len(series.times) and 2 * span < series.times[-1] - series.times[0]:
            self._keep(key, series)
        return series

    def _taken(self, key: Any) -> Series | None:
        series = self._series.pop(key, None)
        self._held -= series.nbytes if series is not None else 0
        return series

    def _keep(self, key: Any, series: Series) -> None:
        self._held += series.nbytes
        self._series[key] = series
        while self._held > self._most and len(self._series) > 1:
            self._held -= self._series.popitem(last=False)[1].nbytes

    # --- video

    def _groups(
        self, track: VideoTrack, reader: SegmentReader, column: ComponentColumnDescriptor, first: int, last: int
    ) -> tuple[Series, list[bytes | None], Integers]:
        """The samples of a stream from the key frame at or before a time to another time; and which are key frames."""
        detector = DETECTORS[track.codec]
        begin = first
        while True:
            numbers = reader.needed(column, begin + 1, last)
            series = self._streamed(reader, column, numbers, last - first)
            views = blobs_of(series.values, np.arange(len(series.times))) if len(series.times) else []
            blobs = [None if blob is None else bytes(blob) for blob in views]
            keyframes = np.array([i for i, blob in enumerate(blobs) if blob and detector(blob)], np.int64)
            target = int(series.latest(np.array([first]))[0])
            if target < 0 or (len(keyframes) and keyframes[0] <= target):
                return series, blobs, keyframes
            earlier = reader.before(column, numbers)
            if earlier is None or earlier >= begin:
                return series, blobs, keyframes
            begin = earlier

    def _track(self, reader: SegmentReader, column: ComponentColumnDescriptor, given: str | None) -> VideoTrack:
        values = reader.static(column.entity_path, _CODEC)
        codec = None if values is None else values[0].as_py()
        if given is not None:
            number = VIDEO_CODECS[given.lower()]
            if codec and codec[0] != number:
                raise ReadError(
                    f"{column.entity_path} of segment {reader.segment_id} says codec {codec[0]:#x}, and not {given}",
                    hint="Leave codec out of the decoder: recordings say it.",
                )
            codec = [number]
        if not codec or codec[0] not in DETECTORS:
            raise ReadError(
                f"{column.entity_path} of segment {reader.segment_id} has no codec of video"
                + ("" if not codec else f": {codec[0]:#x}"),
                hint="H.264, H.265, AV1, VP8 and VP9 are decoded.",
            )
        return VideoTrack(codec[0], 0, 0, Fraction(1))


def _decoded(field: Field, segment_id: str, series: Series, rows: Integers) -> list[npt.NDArray[Any] | None]:
    """The values of events, None where there is no event."""
    flat: list[npt.NDArray[Any] | None] = [None] * len(rows)
    places = np.flatnonzero(rows >= 0)
    if not len(places):
        return flat
    distinct, which = np.unique(rows[places], return_inverse=True)
    try:
        decoded = field.decode.decode(series.values, distinct)
    except UsageError:
        raise
    except ValueError as error:
        raise ReadError(f"{field.path} cannot be decoded: {error}, in segment {segment_id}") from error
    given = np.zeros(len(distinct), np.bool_)
    for place, number in zip(places.tolist(), which.tolist(), strict=True):
        value = decoded[number]
        flat[place] = value if value is None or not given[number] else value.copy()  # nobody changes that of another
        given[number] = True
    return flat


def _joined(parts: Sequence[Values]) -> list[npt.NDArray[Any] | None]:
    return [value for values in parts for value in values()]


def _chosen(blobs: Sequence[bytes | None], keyframes: Integers, rows: Integers) -> list[VideoSample]:
    """The samples that the frames of rows need: of each group of pictures those up to the last wanted one."""
    distinct = np.unique(rows[rows >= 0])
    group = np.searchsorted(keyframes, distinct, side="right") - 1
    chosen: list[VideoSample] = []
    for number in np.unique(group[group >= 0]).tolist():
        for row in range(int(keyframes[number]), int(distinct[group == number].max()) + 1):
            blob = blobs[row]
            if blob is not None:
                chosen.append(VideoSample(row, row, row == keyframes[number], blob))
    return chosen


def _frames(
    field: Field, track: VideoTrack, samples: Sequence[VideoSample], rows: Integers, path: str
) -> list[npt.NDArray[Any] | None]:
    """The frame of each row, None for one that no key frame comes before."""
    if not samples:
        return [None] * len(rows)
    wanted = frozenset(rows.tolist())
    frames = {
        frame.pts: np.ascontiguousarray(frame.image.transpose(2, 0, 1))
        for frame in decode(track, samples, wanted=wanted, threads=field.decode.threads, path=path)
    }
    given: set[int] = set()
    flat: list[npt.NDArray[Any] | None] = []
    for row in rows.tolist():
        frame = frames.get(row)
        flat.append(frame if frame is None or row not in given else frame.copy())
        given.add(row)
    return flat


def _selected(field: Field, values: pa.ListArray) -> pa.ListArray:
    selector = field.selector
    assert selector is not None
    selected = selector.execute_per_row(values)
    return pa.nulls(len(values), pa.list_(pa.null())) if selected is None else selected


def _windows(
    flat: list[npt.NDArray[Any] | None], shape: tuple[int, ...], field: Field
) -> tuple[list[npt.NDArray[Any] | None], list[int]]:
    """The values of each sample, stacked where the field has a window; and the samples that lack one."""
    count, width = shape
    some = next((value for value in flat if value is not None), None)
    if field.fill == "nan" and some is not None and some.dtype.kind == "f":
        gap = np.full(some.shape, np.nan, some.dtype)
        flat = [gap if value is None else value for value in flat]
    missing = sorted({place // width for place, value in enumerate(flat) if value is None})
    if field.window is None:
        return flat, missing
    gone = set(missing)
    made: list[npt.NDArray[Any] | None] = []
    for number in range(count):
        values = [] if number in gone else flat[number * width : (number + 1) * width]
        try:
            made.append(np.stack([value for value in values if value is not None]) if values else None)
        except ValueError as error:
            raise UsageError(f"the values of {field.path} in a window have different shapes: {error}") from error
    return made, missing


def _no_value(name: str, field: Field, segment_id: str, time: int) -> UsageError:
    return UsageError(
        f"the field {name!r} ({field.path}) has no value at {time} in segment {segment_id}",
        hint='Field(..., fill="skip") leaves such samples out and counts them; fill="nan" fills in floating-point '
        "numbers, where others of the segment say how many.",
    )
