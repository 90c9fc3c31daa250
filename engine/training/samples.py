"""Samples by number: the place of each one, and its fields as arrays."""

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

from ..chunk import ComponentColumnDescriptor, TimelineKind, alternatives
from ..errors import ReadError, UsageError
from ..limits import MIB
from ..rrd import OpenFiles
from ..task_context import TaskContext
from ..video import (
    DETECTORS,
    H265_END,
    H265_OPEN,
    H265_SKIPPED,
    VideoSample,
    VideoTrack,
    decode_planes,
    h265_picture,
)
from .column_decoders import ColumnDecoder, ColumnReading, IndexValue, index_value
from .episodes import EPISODE
from .fields import (
    VIDEO_CODECS,
    Field,
    FixedRateSampling,
    ImageDecoder,
    NumericDecoder,
    RowSampling,
    VideoFrameDecoder,
    blobs_of,
    yuv420_frame,
)
from .pixels import FORMATS
from .plan import Blocks, Integers, blocks_of
from .source import BEGINNING, DataSource, PinnedSource, SegmentReader, Series, is_fresh

Sample = dict[str, Any]
"""A sample: the fields by name, the masks of padding, and the sample's number as ``sample``."""

CACHE_BYTES: Final = 256 * MIB
"""The bytes of values that a reader caches, not counting decoded video and pictures."""

BLOCK: Final = 128
"""The least number of samples in a block."""

_MOST_SEGMENTS: Final = 1024
_MOST_SAMPLES: Final = 1 << 30
_MOST_OF_BLOCK: Final = 1024
"""The most samples of a block before a late key frame, or eight times the requested number if that is more."""

_MOST_GROUP: Final = 512 * MIB
"""The most bytes of samples that are held while searching for an earlier key frame."""

_CODEC: Final = "VideoStream:codec"


@dataclass(frozen=True)
class SegmentMetadata:
    """A segment with samples: its id, the index values of the first and last sample, and the number of samples."""

    segment_id: str
    index_start: int
    index_end: int
    num_samples: int


@dataclass(frozen=True)
class SampleIndex:
    """The samples of a source, numbered segment by segment.

    ``times`` are the index values of the samples; ``ends`` are the ends of each segment's samples. ``edges``, of shape
    ``(segments, 2)``, are the first and last index values of the segments, beyond which windows are padded. ``blocks``
    are samples that are read together. A value is valid from ``tolerance`` before its time.
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
        """Find the samples of the present version of a source.

        A sequence index has a sample at each number from the first to the last of a segment. An index of times has the
        samples of ``timeline_sampling``; values are then valid from a microsecond before their time, because frame
        intervals are not whole nanoseconds. A block has ``block_size`` samples. With video it is extended to the end of
        a group of pictures, known from ``VideoStream:is_keyframe`` or the chunks. With ``by_chunks``, in sources larger
        than :data:`CACHE_BYTES`, blocks also end at chunks of the field with the most bytes, and the blocks of a chunk
        are a group.

        Raises ``ValueError`` for unknown names, and ``TypeError`` for an index of times without a sampling.
        """
        check_names(fields, source.episode_columns if source.episodes is None else (EPISODE, *source.episode_columns))
        if block_size < 1:
            raise UsageError(f"block_size: expected 1 or more, got {block_size}")
        paths = [field.path for field in fields.values()]
        if isinstance(timeline_sampling, RowSampling):
            paths.append(timeline_sampling.path)
        pinned = source.pinned(index, paths)
        is_time = pinned.kind is not TimelineKind.SEQUENCE
        if is_time and timeline_sampling is None:
            raise TypeError(f"the index {index!r} has times: give timeline_sampling to set when samples are taken")
        if not is_time and type(timeline_sampling) is FixedRateSampling:
            raise UsageError(f"the index {index!r} is a sequence with a sample at each number, so it has no rate")
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
        reader: SegmentReader | None = None
        for segment in pinned.segments:
            assert segment.span is not None
            first, last = segment.span
            is_same = reader is not None and reader.segment_id == segment.segment_id
            reader = reader.part(segment) if reader is not None and is_same else SegmentReader(segment)
            if isinstance(timeline_sampling, RowSampling):
                column = pinned.column(timeline_sampling.path)
                series = reader.series(column, reader.needed(column, first, last))
                if BEGINNING in series.times:
                    raise UsageError(f"{column.name} is static in segment {segment.segment_id}, and has no times")
                is_there = series.values.is_valid().to_numpy(zero_copy_only=False)
                whole = series.times[(series.times >= first) & (series.times <= last) & is_there]
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
            stored += (not is_same) * (sum(size for _, size in chunks) if is_cut else segment.stored_bytes)
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
        """Whether the index has times instead of numbers."""
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
        """The segments with samples."""
        bounds = zip(self.source.segments, self.segment_offsets.tolist(), self.ends.tolist(), strict=False)
        return [
            SegmentMetadata(segment.segment_id, int(self.times[first]), int(self.times[end - 1]), end - first)
            for segment, first, end in bounds
            if end > first
        ]

    @property
    def segment_offsets(self) -> Integers:
        """The number of the first sample of each segment, followed by the total number of samples."""
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
            raise IndexError(f"there are {len(self):,} samples, numbered from 0, but no sample {idx}")
        before = int(self.segments_of(np.array([idx]))[0])
        first, end = self.segment_offsets[before : before + 2].tolist()
        segment_id = self.source.segments[before].segment_id
        segment = SegmentMetadata(segment_id, int(self.times[first]), int(self.times[end - 1]), end - first)
        return segment, index_value(int(self.times[idx]), self.source.kind)


def _grid(sampling: FixedRateSampling, segment_id: str, first: int, last: int) -> Integers:
    """Return the times of samples of a segment. Raises ``ValueError`` if their number is implausibly large."""
    count = (last - first) * sampling.rate_hz / 1e9
    if count > _MOST_SAMPLES:
        raise UsageError(
            f"segment {segment_id} has {count:.3g} samples at {sampling.rate_hz} Hz from {first} to {last} ns",
            hint="Check its times for outliers, or use RowSampling, which takes samples at rows.",
        )
    return sampling.times(first, last)


def check_names(fields: Mapping[str, Field], others: Sequence[str] = ()) -> None:
    """Raise ``ValueError`` if there is no field, and for reserved names.

    ``others`` are the names of other values in samples.
    """
    if not fields:
        raise UsageError("fields: a sample needs at least one field")
    masks = {f"{name}_is_pad" for name, field in fields.items() if field.window is not None}
    own = ("sample", "is_repeat", *masks)
    taken = sorted({*own, *others} & set(fields) | set(own) & set(others))
    if taken:
        raise UsageError(f"the field {taken[0]!r} has a reserved name", hint="Rename it.")


def _cuts(times: Integers, bounds: Sequence[Integers], size: int) -> Integers:
    """Return the samples at which blocks begin: at ``bounds``, if given. Blocks have ``size`` samples or more.

    Long gaps between bounds are divided, because all samples of a block are in memory at once.
    """
    if not bounds:
        return np.arange(0, len(times), size)
    begins = np.unique(np.searchsorted(times, bounds[0]))
    kept, most = [0], max(8 * size, _MOST_OF_BLOCK)
    for begin in [*begins.tolist(), len(times)]:
        if begin - kept[-1] > most:
            kept += range(kept[-1] + size, begin, size)
        if begin - kept[-1] >= size and begin < len(times):
            kept.append(begin)
    return np.array(kept, np.int64)


def _grouped_cuts(
    times: Integers, bounds: Sequence[Integers], chunks: Sequence[tuple[Integers, int]], size: int
) -> tuple[Integers, Integers]:
    """Return the same as :func:`_cuts` with bounds at chunks, and the part to which each block belongs.

    A part begins at a chunk of the largest column, or at the next possible block, and has at least half of ``size``
    samples. ``chunks`` has the beginnings of each column's chunks, and their bytes.
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


Decode = Callable[[pa.ListArray, Integers], Any]
"""A function that makes values from rows of a component."""

Values = Callable[[], list[npt.NDArray[Any] | None]]
"""A function that returns the value of a field at each time, or None if there is no value."""


class SampleReader:
    """Reads samples of an index by number.

    Use one reader per process, in one thread at a time. ``cache_bytes`` limits the values that are cached between
    calls. ``threads`` threads decode pictures and video.
    """

    def __init__(self, index: SampleIndex, cache_bytes: int = CACHE_BYTES, threads: int = 1) -> None:
        self._index = index
        self._most = cache_bytes
        self._files = OpenFiles()
        self._segments: OrderedDict[str, SegmentReader] = OrderedDict()
        self._series: OrderedDict[tuple[str, str, Any, bytes], Series] = OrderedDict()
        self._held = 0
        self._pool = ThreadPoolExecutor(threads, "chunkmill-decode")
        self.decoded_frames = 0
        """The number of decoded video frames."""
        self.missing: Counter[str] = Counter()
        """The numbers of samples that were left out, by the field without a value."""
        self.decoded_groups = 0
        """The number of groups of pictures from which frames were decoded."""

    def close(self) -> None:
        """Close open files, and end the threads."""
        self._files.close()
        self._pool.shutdown(cancel_futures=True)

    def read(self, samples: Integers) -> dict[int, Sample]:
        """Return samples by number. A sample is skipped if a field with ``fill="skip"`` has no value.

        Raises ``ReadError`` for damaged data, and ``ValueError`` for a field without a value.
        """
        return self.begin(samples)()

    def begin(self, samples: Integers) -> Callable[[], dict[int, Sample]]:
        """Read the data of samples, begin to decode it, and return a function that waits for the samples.

        The call and the returned function raise the errors of :meth:`read`.
        """
        distinct = np.unique(samples)
        if len(distinct) and not 0 <= distinct[0] <= distinct[-1] < len(self._index):
            raise IndexError(
                f"there are {len(self._index):,} samples, numbered from 0, but not all of {distinct[0]} to "
                f"{distinct[-1]}"
            )
        owners = self._index.segments_of(distinct)
        with TaskContext(self._files).entered():
            begun = [self._begin(segment, distinct[owners == segment]) for segment in np.unique(owners).tolist()]
        return lambda: {sample["sample"]: sample for finish in begun for sample in finish()}

    def _begin(self, segment: int, samples: Integers) -> Callable[[], list[Sample]]:
        reader = self._reader(segment)
        episodes = self._index.source.episodes
        shared = {} if episodes is None else episodes.values(segment)
        made: list[Sample] = [{"sample": number, **shared} for number in samples.tolist()]
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
        """Read the values at some times, and begin to decode them. Values that are too old count as missing."""
        column = self._index.source.column(field.path)
        numbers = reader.needed_at(column, np.unique(wanted) + self._index.tolerance)
        series = self._kept(reader, field, column, numbers)
        rows = self._rows(field, series, wanted)
        if isinstance(field.decode, ImageDecoder):
            make = self._images(reader, field, column, series)
            return self._pool.submit(_decoded, field, reader.segment_id, series, rows, make).result
        if field.select is not None and pa.types.is_null(series.values.type.value_type) and (rows >= 0).any():
            _check_fields(field, self._kept(reader, replace(field, select=None), column, numbers).values)
        flat = _decoded(field, reader.segment_id, series, rows)
        return lambda: flat

    def _images(self, reader: SegmentReader, field: Field, column: ComponentColumnDescriptor, series: Series) -> Decode:
        """Return the function that decodes pictures. For raw ones, it uses the format of each."""
        decoder: ImageDecoder = field.decode
        name = FORMATS.get(column.component)
        if name is None or field.select is not None or not len(series.times):
            return decoder.decode
        form = self._index.source.columns.component(f"{column.entity_path}:{name}")
        if form is None:
            raise UsageError(f"{field.path} has pixels, but the dataset has no column {column.entity_path}:{name}")
        first, last = series.times[[0, -1]].tolist()
        kept = self._kept(reader, Field(form.name, decoder), form, reader.needed(form, first, last))
        latest = kept.latest(series.times)
        blends = column.component == "Image:buffer"

        def decode(values: pa.ListArray, rows: Integers) -> list[Any]:
            formats = [None if at < 0 else (kept.values[at].as_py() or [None])[0] for at in latest[rows].tolist()]
            return decoder.decode_raw(values, rows, formats, blends=blends)

        return decode

    def _rows(self, field: Field, series: Series, wanted: Integers) -> Integers:
        """Return the number of the event that is valid at each time, flat; -1 if there is none, or it is too old."""
        rows = series.latest(wanted + self._index.tolerance)
        if len(series.times):
            since, tolerance = series.times[np.maximum(rows, 0)], self._index.tolerance
            fresh = is_fresh(field, since, wanted, is_time=self._index.is_time, tolerance=tolerance)
            rows = np.where(fresh, rows, -1)
        return rows.ravel()

    def _video(self, reader: SegmentReader, field: Field, wanted: Integers) -> Values:
        """Read the groups of pictures for some times, and begin to decode them."""
        column = self._index.source.column(field.path)
        first, last = (int(some) + self._index.tolerance for some in (wanted.min(), wanted.max()))
        if not len(reader.needed_at(column, np.array([last]))):
            return lambda: [None] * wanted.size
        track = self._track(reader, column, field.decode.codec)
        stream = self._groups(track, reader, column, first, last)
        rows = self._rows(field, stream.series, wanted)
        chosen = stream.chosen(rows)
        self.decoded_frames += len(chosen)
        self.decoded_groups += sum(sample.is_keyframe for sample in chosen)
        return self._pool.submit(_frames, field, track, chosen, rows, f"{reader.segment_id}{field.path}").result

    def _own(self, reader: SegmentReader, field: Field, samples: Integers, wanted: Integers) -> Values:
        """Read the rows that a user-defined decoder needs. The returned function calls the decoder."""
        reading = ColumnReading(self._index.source, reader, field, self._index.times[samples], wanted)
        column = self._index.source.column(field.path)
        series = self._kept(reader, replace(field, select=None), column, reading.chunks(column))
        return lambda: reading.values(series)

    # --- reading

    def _reader(self, segment: int) -> SegmentReader:
        part = self._index.source.segments[segment]
        reader = self._segments.pop(part.segment_id, None) or SegmentReader(part)
        self._segments[part.segment_id] = reader = reader.part(part)
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
                series = Series(series.times, selected(field, series.values))
        self._keep(key, series)
        return series

    def _streamed(
        self, reader: SegmentReader, column: ComponentColumnDescriptor, numbers: Integers, span: int
    ) -> Series:
        """Return video samples. They are cached if they span more than twice ``span``, because others may need them."""
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
    ) -> VideoGroups:
        """Return the samples of a stream from the key frame at or before ``first`` to ``last``.

        Raises ``ReadError`` if there are too many bytes and no key frame before ``first``.
        """
        detector = DETECTORS[track.codec]
        marked: dict[int, bool] = {}
        begin, back = first, 1
        while True:
            numbers = reader.needed(column, begin + 1, last)
            series = self._streamed(reader, column, numbers, last - first)
            blobs = blobs_of(series.values, np.arange(len(series.times))) if len(series.times) else []
            for time, blob in zip(series.times.tolist(), blobs, strict=True):
                if time not in marked:
                    marked[time] = blob is not None and detector(bytes(blob))
            groups = VideoGroups(
                track.codec, series, blobs, np.array([marked[time] for time in series.times.tolist()], np.bool_)
            )
            if groups.begins_before(first):
                return groups
            if series.nbytes > _MOST_GROUP:
                raise ReadError(
                    f"{column.entity_path} of segment {reader.segment_id} has {series.nbytes >> 20:,} MiB of video"
                    f" before {first} without a key frame",
                    hint="Encode it with a key frame every few seconds.",
                )
            earlier = begin
            for _ in range(back):
                before = reader.before(column, numbers)
                if before is None or before >= earlier:
                    break
                earlier, numbers = before, reader.needed(column, before + 1, last)
            if earlier == begin:
                return groups
            begin, back = earlier, 2 * back

    def _track(self, reader: SegmentReader, column: ComponentColumnDescriptor, given: str | None) -> VideoTrack:
        values = reader.static(column.entity_path, _CODEC)
        codec = None if values is None else values[0].as_py()
        if given is not None:
            number = VIDEO_CODECS[given.lower()]
            if codec and codec[0] != number:
                raise ReadError(
                    f"{column.entity_path} of segment {reader.segment_id} has codec {codec[0]:#x}, not {given}",
                    hint="Remove codec from the decoder: the recordings state their codec.",
                )
            codec = [number]
        if not codec or codec[0] not in DETECTORS:
            raise ReadError(
                f"{column.entity_path} of segment {reader.segment_id} has no codec of video"
                + ("" if not codec else f": {codec[0]:#x}"),
                hint="H.264, H.265, AV1, VP8 and VP9 are supported.",
            )
        return VideoTrack(codec[0], 0, 0, Fraction(1))


def _decoded(
    field: Field, segment_id: str, series: Series, rows: Integers, decode: Decode | None = None
) -> list[npt.NDArray[Any] | None]:
    """Return the values of events; None if there is no event."""
    flat: list[npt.NDArray[Any] | None] = [None] * len(rows)
    places = np.flatnonzero(rows >= 0)
    if not len(places):
        return flat
    distinct, which = np.unique(rows[places], return_inverse=True)
    try:
        decoded = (decode or field.decode.decode)(series.values, distinct)
    except UsageError:
        raise
    except ValueError as error:
        raise ReadError(f"{field.path} cannot be decoded: {error}, in segment {segment_id}") from error
    given = np.zeros(len(distinct), np.bool_)
    for place, number in zip(places.tolist(), which.tolist(), strict=True):
        value = decoded[number]
        flat[place] = value if value is None or not given[number] else _copied(value)  # samples share no values
        given[number] = True
    return flat


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value.clone()


def _joined(parts: Sequence[Values]) -> list[npt.NDArray[Any] | None]:
    return [value for values in parts for value in values()]


class VideoGroups:
    """Samples of a stream, and which of them are key frames.

    They are decoded in logged order. With B-frames, that differs from the order of their times.
    """

    def __init__(
        self, codec: int, series: Series, blobs: Sequence[memoryview | None], is_keyframe: npt.NDArray[np.bool_]
    ) -> None:
        self.series = series
        self._may_be_open = codec == VIDEO_CODECS["hevc"]
        self._blobs = blobs
        self._order = np.arange(len(blobs)) if series.order is None else series.order
        self._places = np.argsort(self._order)
        self._keyframes = np.flatnonzero(is_keyframe[self._order])

    def begins_before(self, time: int) -> bool:
        """Return whether there is no frame at a time, or the key frame that it needs is present."""
        row = int(self.series.latest(np.array([time]))[0])
        group = int(np.searchsorted(self._keyframes, self._places[row], side="right")) - 1 if row >= 0 else 0
        return row < 0 or group > 0 or (group == 0 and not self._needs_group_before(int(self._places[row])))

    def _needs_group_before(self, place: int) -> bool:
        """Return whether a picture of an open group needs the previous group: it is shown before the key frame."""
        blob = self._blobs[int(self._order[place])] if self._may_be_open else None
        return blob is not None and h265_picture(bytes(blob)) in H265_SKIPPED

    def chosen(self, rows: Integers) -> list[VideoSample]:
        """Return the samples needed for the frames of rows: in each group of pictures, those up to the last wanted one.

        In an open group, some samples need the previous group. If one of them is wanted, the previous group is
        returned, too. Otherwise such samples are left out.
        """
        places = self._places[np.unique(rows[rows >= 0])]
        group = np.searchsorted(self._keyframes, places, side="right") - 1
        joined: set[int] = set()
        ends: dict[int, int] = {}
        for number, place in zip(group.tolist(), places.tolist(), strict=True):
            if number >= 0 and self._needs_group_before(place):
                if not number:
                    continue
                joined.add(number)
                ends[number - 1] = int(self._keyframes[number]) - 1
            if number >= 0:
                ends[number] = max(ends.get(number, 0), place)
        chosen: list[VideoSample] = []
        before = -1
        for number, last in sorted(ends.items()):
            first = int(self._keyframes[number])
            for place in range(first, last + 1):
                row = int(self._order[place])
                blob = self._blobs[row]
                if blob is None or (number not in joined and self._needs_group_before(place)):
                    continue
                data = bytes(blob)
                if place == first and before != first - 1 and self._may_be_open and h265_picture(data) == H265_OPEN:
                    data = H265_END + data
                chosen.append(VideoSample(row, row, place == first, data))
            before = last
        return chosen


def _frames(
    field: Field, track: VideoTrack, samples: Sequence[VideoSample], rows: Integers, path: str
) -> list[npt.NDArray[Any] | None]:
    """Return the frame of each row; None if there is no key frame before it."""
    if not samples:
        return [None] * len(rows)
    decoder: VideoFrameDecoder = field.decode
    frames: dict[int, Any] = {}
    for frame in decode_planes(
        track,
        samples,
        output=decoder.output_format,
        crop=decoder.crop,
        size=decoder.size,
        wanted=frozenset(rows.tolist()),
        threads=decoder.threads,
        path=path,
    ):
        if decoder.output_format == "rgb":
            frames[frame.pts] = np.ascontiguousarray(frame.planes[0].transpose(2, 0, 1))
        else:
            y, uv = frame.planes
            frames[frame.pts] = yuv420_frame(y, uv, frame.color_space, frame.color_range)
    given: set[int] = set()
    flat: list[npt.NDArray[Any] | None] = []
    for row in rows.tolist():
        shown = frames.get(row)
        flat.append(shown if shown is None or row not in given else _copied(shown))
        given.add(row)
    return flat


def selected(field: Field, values: pa.ListArray) -> pa.ListArray:
    """Return the results of a field's selector for values, row by row."""
    selector = field.selector
    assert selector is not None
    made = None if pa.types.is_null(values.type.value_type) else selector.execute_per_row(values)
    return pa.nulls(len(values), pa.list_(pa.null())) if made is None else made


def _check_fields(field: Field, values: pa.ListArray) -> None:
    """Raise ``ValueError`` if a selector of numbers, which gives nothing, names a field that does not exist."""
    from ...lenses.selector import missing_field

    selector = field.selector
    if selector is None or not isinstance(field.decode, NumericDecoder):
        return
    missing = missing_field(selector.pipeline, values)
    if missing is not None:
        raise UsageError(
            f"select: {field.select} gives no values of {field.path}",
            hint=f"There is no field {missing[0]!r}. {alternatives(*missing)}",
        )


def _windows(
    flat: list[npt.NDArray[Any] | None], shape: tuple[int, ...], field: Field
) -> tuple[list[npt.NDArray[Any] | None], list[int]]:
    """Return the value of each sample, stacked if the field has a window, and the samples without a value."""
    count, width = shape
    some = next((value for value in flat if value is not None), None)
    if field.fill == "nan" and isinstance(some, np.ndarray) and some.dtype.kind == "f":
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
            made.append(_stacked([value for value in values if value is not None]) if values else None)
        except ValueError as error:
            raise UsageError(f"the values of {field.path} in a window have different shapes: {error}") from error
    return made, missing


def _stacked(values: list[Any]) -> Any:
    return np.stack(values) if isinstance(values[0], np.ndarray) else type(values[0]).stack(values)


def _no_value(name: str, field: Field, segment_id: str, time: int) -> UsageError:
    return UsageError(
        f"the field {name!r} ({field.path}) has no value at {time} in segment {segment_id}",
        hint='Field(..., fill="skip") skips and counts such samples; fill="nan" fills floating-point fields with '
        "NaN, if the segment has a value elsewhere.",
    )
