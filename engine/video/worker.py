"""The program of the process that runs PyAV, so that a crash or too much memory ends only that process.

It is the program of a :class:`..sandbox.Sandbox`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import av
import av.bitstream
import av.error
import av.stream
import av.video.reformatter
import numpy as np

from ..sandbox import AskedFile, FailureError, Pipes, serve
from .bitstream import H265_END

_BATCH_BYTES = 1 << 20
_READ_BYTES = 1 << 18
_FILTERS = {"h264": "h264_mp4toannexb", "hevc": "hevc_mp4toannexb"}
_DECODERS = {"h264": "h264", "hevc": "hevc", "av1": "libdav1d", "vp8": "vp8", "vp9": "vp9"}
_ENCODERS = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1", "vp9": "libvpx-vp9"}
_INTRA = 1
_BIDIRECTIONAL = 3
_FULL_RANGE = 2
_AUTOMATIC = 0
_LENGTH_FIELD = 21
_RANDOM_ACCESS = range(16, 22)
_FIRST_NO_SLICE = 32
_FREE_OUTPUT = 64 << 20
_ENCODE = "Re-encode it with FFmpeg as H.264, H.265, AV1, VP8 or VP9."

Item = tuple[int, int, bool, bytes]
"""A sample: presentation and decoding time in ticks, whether it is a key frame, and its bytes."""

PlacedItem = tuple[int, int, bool, bytes, int | None]
"""The same with its place in the file."""


_CONVERTER = av.video.reformatter.VideoReformatter()  # creating one per frame takes as long as decoding


class MuxedFile:
    """A muxer's output file, written through the pipes."""

    def __init__(self, wire: Pipes) -> None:
        self._wire = wire
        self._position = self._size = 0

    def write(self, data: bytes) -> int:
        """Write bytes at the current position."""
        self._wire.send("write", self._position, bytes(data))
        self._position += len(data)
        self._size = max(self._size, self._position)
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset and return it."""
        self._position = (0, self._position, self._size)[whence] + offset
        return self._position

    def tell(self) -> int:
        """Return the current position."""
        return self._position


class Batches:
    """Collects results, and sends about a MiB at a time."""

    def __init__(self, wire: Pipes) -> None:
        self._wire = wire
        self._items: list[list[Any]] = []
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, item: list[Any], data: bytes) -> None:
        """Add an item with its bytes to the next batch."""
        self._items.append([*item, len(data)])
        self._parts.append(data)
        self._size += len(data) + 64
        if self._size >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send the added items."""
        if self._items:
            self._wire.send("out", self._items, b"".join(self._parts))
        self._items, self._parts, self._size = [], [], 0


def _taken(wire: Pipes) -> Iterator[tuple[list[Any], bytes]]:
    """Yield the items from the other side, with their bytes."""
    while True:
        items, data = wire.ask("next")
        if not items:
            return
        at = 0
        for *item, size in items:
            yield item, bytes(data[at : at + size])
            at += size


def demultiplex(wire: Pipes, request: dict[str, Any]) -> None:
    """Send the track, then its samples from the last key frame before ``start`` to ``end``."""
    size = request["size"]
    file = AskedFile(wire, size, 8 * size + _FREE_OUTPUT)
    try:
        order = request["order"]
        options = {"ignore_editlist": "1"} if order else {}
        with av.open(file, format=request["container"], buffer_size=_READ_BYTES, options=options) as container:
            stream = _chosen(container, request["track"])
            _check_index(stream, size)
            window = _Window(stream, request["start"], request["end"])
            packets = _Packets(container, stream, window, size, request["blocks"])
            is_reordered = stream.codec.canonical_name in _FILTERS and request["may_reorder"] and packets.is_reordered()
            name = stream.codec.canonical_name
            target = request["output"] or name
            is_made = request["is_made"] or bool(order) or (is_reordered and request["b_frames"] != "keep")
            if is_made and target not in _ENCODERS:
                raise FailureError(f"there is no encoder for {target}", "usage")
            track = {
                **_facts(container, stream),
                "is_reordered": is_reordered,
                "encoder": _ENCODERS[target] if is_made else None,
                "is_edited": bool(order),
            }
            wire.send("track", track)
            if is_reordered and not request["is_made"] and request["b_frames"] == "error":
                return
            batches = Batches(wire)
            samples: Iterator[Any] = (
                _edited(stream, packets, order, request)
                if order
                else _without_reordering(stream, packets, window, request)
                if is_made
                else _filtered(stream, packets.as_they_are() if is_reordered else packets.without_spare_lead())
            )
            for pts, dts, is_keyframe, data, *place in samples:
                batches.add([pts, dts, is_keyframe, *(place or [None])], data)
            batches.flush()
    except (av.error.FFmpegError, MemoryError, ValueError, OverflowError) as error:
        raise FailureError(_reason(error), offset=min(file.position, size)) from error
    except FailureError as error:
        error.offset = min(file.position, size) if error.offset is None else error.offset
        raise


def _videos(container: Any) -> list[Any]:
    """Return the video tracks, without cover pictures."""
    cover = av.stream.Disposition.attached_pic
    return [stream for stream in container.streams.video if not stream.disposition & cover]


def _chosen(container: Any, track: int) -> Any:
    streams = _videos(container)
    if not streams:
        raise FailureError("the file has no video track")
    if track >= len(streams):
        raise FailureError(f"there is no video track {track}; the file has {len(streams)}", "usage")
    stream = streams[track]
    context = stream.codec_context
    if context is None or stream.codec.canonical_name not in _DECODERS:
        tag = "unknown" if context is None else context.codec_tag or context.name
        raise _unsupported(f"the video codec {tag!r}")
    if stream.time_base is None or not stream.time_base > 0:
        raise FailureError("the video track has no time base")
    return stream


def _facts(container: Any, stream: Any) -> dict[str, Any]:
    context = stream.codec_context
    rate = stream.average_rate
    videos = _videos(container)
    covers = ["picture"] if len(videos) < len(container.streams.video) else []
    return {
        "codec": stream.codec.canonical_name,
        "width": context.width,
        "height": context.height,
        "pixel_format": context.pix_fmt,
        "time_base": [stream.time_base.numerator, stream.time_base.denominator],
        "rate": [rate.numerator, rate.denominator] if rate else None,
        "video_tracks": len(videos),
        "other_tracks": sorted({s.type or "data" for s in container.streams if s.type != "video"}) + covers,
    }


def _check_index(stream: Any, size: int) -> None:
    """Check that each sample of the index is in the file, and that all together are at most twice the file's size."""
    total = 0
    for number, entry in enumerate(stream.index_entries):
        total += entry.size
        if entry.pos < 0 or entry.size < 0 or entry.pos + entry.size > size:
            raise FailureError(
                f"sample {number:,} of {entry.size:,} bytes does not end within the file", offset=entry.pos
            )
    if total > 2 * size + _BATCH_BYTES:
        raise FailureError(f"its samples overlap: together they have {total:,} bytes, more than the file")


class _Window:
    """The tick of the first wanted sample, and of the first one after the last; None without a bound."""

    def __init__(self, stream: Any, start: list[int] | None, end: list[int] | None) -> None:
        base = stream.time_base
        self.start = None if start is None else _ceiling(Fraction(*start) / base)
        self.end = None if end is None else _ceiling(Fraction(*end) / base)

    def holds(self, pts: int) -> bool:
        """Return whether the sample at ``pts`` is wanted, and not only needed for decoding."""
        return (self.start is None or pts >= self.start) and (self.end is None or pts < self.end)


def _ceiling(value: Fraction) -> int:
    return max(min(-(-value.numerator // value.denominator), 1 << 62), -(1 << 62))


class _Packets:
    """The packets of a window in decoding order, from the key frame before the window on. Each iteration reads again.

    ``left_out`` are the times of packets that the edit list does not show, but that others need for decoding.
    """

    def __init__(self, container: Any, stream: Any, window: _Window, size: int, blocks: int | None) -> None:
        self._container = container
        self._stream = stream
        self._window = window
        self._most = 2 * size + _FREE_OUTPUT
        self._blocks = blocks
        self._length_size = _length_size(stream)
        self.left_out: set[int] = set()
        self._begin = self._first()

    def is_reordered(self) -> bool:
        """Return whether a packet is shown before one that is decoded earlier. Reads the window."""
        highest: int | None = None
        for packet in self._in_window():
            if highest is not None and packet.pts < highest:
                return True
            highest = packet.pts
        return False

    def __iter__(self) -> Iterator[Any]:
        """Yield the packets up to the last shown one."""
        shown: list[int] = []
        held: list[Any] = []
        self.left_out.clear()
        for packet in self._in_window():
            if packet.is_discard:
                held.append(packet)
                continue
            self.left_out.update(left.pts for left in held)
            yield from held
            held.clear()
            shown = [min(packet.pts, *shown[:1]), max(packet.pts, *shown[1:])] if shown else [packet.pts] * 2
            yield packet
        if any(shown[0] <= pts <= shown[1] for pts in self.left_out):
            raise _unsupported("an edit list with several parts")

    def as_they_are(self) -> Iterator[Any]:
        """Yield the packets. Raises :class:`FailureError` if one that is left out would be shown among others."""
        lowest: int | None = None
        for packet in self:
            if packet.pts not in self.left_out:
                lowest = packet.pts if lowest is None else min(packet.pts, lowest)
            yield packet
        if lowest is not None and any(pts > lowest for pts in self.left_out):
            raise _unsupported("an edit list that leaves out a frame that a shown frame needs")

    def without_spare_lead(self) -> Iterator[Any]:
        """Yield the packets from the last key frame that the window needs, if display order is decoding order."""
        lead: list[Any] = []
        packets = self.as_they_are()
        for packet in packets:
            if self._is_key_frame(packet):
                lead.clear()
            lead.append(packet)
            if self._window.start is None or packet.pts >= self._window.start:
                yield from lead
                yield from packets

    def _in_window(self) -> Iterator[Any]:
        self._seek(self._begin)
        window, size, count = self._window, 0, 0
        for packet in self._raw():
            count += 1
            order = packet.pts if packet.dts is None else packet.dts
            if window.end is not None and order >= window.end and packet.pts >= window.end:
                return
            size += packet.size
            if size > self._most:
                raise FailureError("its samples overlap: together they are larger than the file")
            yield packet
        if self._begin is None and self._blocks not in (None, count):
            raise FailureError(f"only {count:,} of {self._blocks:,} blocks of the track can be read")

    def _first(self) -> int | None:
        """Return a time to seek to. The first packet is then a key frame at or before the window; None: the start."""
        start = self._window.start
        if start is None:
            return None
        back = 0
        while True:
            target = start - back
            self._seek(target)
            packet = next(self._raw(), None)
            if packet is not None and packet.pts <= start and self._is_key_frame(packet):
                return target
            if back > abs(start) + (1 << 40) or target < 0:
                return None
            back = max(2 * back, int(1 / self._stream.time_base) or 1)

    def _is_key_frame(self, packet: Any) -> bool:
        """Return whether decoding can begin at a packet. H.265 files without a table of key frames mark all packets."""
        if not self._length_size or not packet.is_keyframe:
            return bool(packet.is_keyframe)
        data, at = memoryview(packet), 0
        while at + self._length_size < len(data):
            size = int.from_bytes(data[at : at + self._length_size], "big")
            at += self._length_size
            kind = data[at] >> 1 & 63
            if kind < _FIRST_NO_SLICE:
                return kind in _RANDOM_ACCESS
            at += size
        return False

    def _seek(self, target: int | None) -> None:
        at = -(1 << 62) if target is None else target
        try:
            self._container.seek(at, stream=self._stream, backward=True, any_frame=False)
        except av.error.FFmpegError:
            if target is not None:
                raise
            try:
                self._container.seek(0, stream=self._stream, backward=True, any_frame=False)
            except PermissionError:
                raise FailureError("the video has no samples") from None

    def _raw(self) -> Iterator[Any]:
        for packet in self._container.demux(self._stream):
            if not packet.size:
                continue
            if packet.is_corrupt:
                raise FailureError("a sample is damaged or cut off", offset=packet.pos)
            if packet.pts is None:
                raise FailureError("a sample has no time", offset=packet.pos)
            yield packet


def _length_size(stream: Any) -> int:
    """Return the size of the length before each H.265 NAL unit; 0 for other codecs, and without lengths."""
    description = stream.codec_context.extradata or b""
    is_prefixed = stream.codec.canonical_name == "hevc" and len(description) > _LENGTH_FIELD and description[0] == 1
    return (description[_LENGTH_FIELD] & 3) + 1 if is_prefixed else 0


def _filtered(stream: Any, packets: Iterable[Any]) -> Iterator[PlacedItem]:
    """Yield samples unchanged, but H.264 and H.265 in Annex B form with parameter sets at each key frame."""
    name = _FILTERS.get(stream.codec.canonical_name)
    chain = None if name is None else av.bitstream.BitStreamFilterContext(name, stream)
    for packet in packets:
        passed: list[Any] = [packet] if chain is None else chain.filter(packet)
        for out in passed:
            yield out.pts, out.pts if out.dts is None else out.dts, out.is_keyframe, bytes(out), out.pos


def _without_reordering(stream: Any, packets: _Packets, window: _Window, request: dict[str, Any]) -> Iterator[Item]:
    """Yield the window's samples re-encoded, with the same display times.

    Key frames stay where they were, or follow the requested interval.
    """
    name, interval = stream.codec.canonical_name, request["keyframe_interval"]
    target = request["output"] or name
    keyframes: set[int] = set()
    wanted = 0

    def samples() -> Iterator[tuple[int, bytes]]:
        nonlocal wanted
        for pts, _, is_keyframe, data, _ in _filtered(stream, packets):
            wanted += window.holds(pts) and pts not in packets.left_out
            if is_keyframe:
                keyframes.add(pts)
            yield pts, data

    made = 0
    encoder: _Encoder | None = None
    for frame in _decoded(_context(name, request), samples(), stream.time_base):
        if window.holds(frame.pts) and frame.pts not in packets.left_out:
            if encoder is None:
                encoder = _Encoder(target, frame.width, frame.height, frame.format.name, stream.time_base, request)
            is_keyframe = made % interval == 0 if interval else made == 0 or frame.pts in keyframes
            made += 1
            yield from encoder.encode(frame, is_keyframe)
    if encoder is not None:
        yield from encoder.finish()
    if made != wanted:
        raise FailureError(f"{wanted:,} samples decode to {made:,} frames")


def _edited(stream: Any, packets: _Packets, order: list[list[int]], request: dict[str, Any]) -> Iterator[Item]:
    """Yield re-encoded samples of frames in another order. ``order`` has each frame's ticks in the file and of display.

    Key frames stay where they were, and are added where a part begins; or they follow the requested interval.
    """
    name, interval = stream.codec.canonical_name, request["keyframe_interval"]
    keyframes: set[int] = set()

    def samples() -> Iterator[tuple[int, bytes]]:
        for pts, _, is_keyframe, data, _ in _filtered(stream, packets):
            if is_keyframe:
                keyframes.add(pts)
            yield pts, data

    made, shift = 0, order[0][1] - order[0][0]
    encoder: _Encoder | None = None
    frames = _Order([tick for tick, _ in order])
    for frame in _decoded(_context(name, request), samples(), stream.time_base):
        for wanted in frames.after(frame):
            tick, shown = order[made]
            if encoder is None:
                target = request["output"] or name
                encoder = _Encoder(target, wanted.width, wanted.height, wanted.format.name, stream.time_base, request)
            is_first = made == 0 or shown - tick != shift
            is_keyframe = made % interval == 0 if interval else is_first or tick in keyframes
            made, shift = made + 1, shown - tick
            wanted.pts = shown
            yield from encoder.encode(wanted, is_keyframe)
    if encoder is not None:
        yield from encoder.finish()
    frames.check_end()


def _threads(request: dict[str, Any]) -> int:
    return request.get("threads") or min(os.cpu_count() or 1, 4)


def _context(name: str, request: dict[str, Any]) -> Any:
    """Return a decoder for a codec."""
    context: Any = av.CodecContext.create(_DECODERS[name], "r")
    context.thread_count = _threads(request)
    context.options = {"err_detect": "explode"} if name in _FILTERS else {}
    return context


def _decoded(context: Any, samples: Iterator[tuple[int, bytes]], time_base: Fraction) -> Iterator[Any]:
    """Yield the frames of samples. Raises :class:`FailureError` for a sample that cannot be decoded."""
    number = 0
    try:
        for pts, data in samples:
            if data.startswith(H265_END):  # otherwise the decoder would drop its remaining frames
                yield from _sound(context.decode(None))
                context.flush_buffers()
            packet = av.Packet(data)
            packet.pts = packet.dts = pts
            packet.time_base = time_base
            yield from _sound(context.decode(packet))
            number += 1
        yield from _sound(context.decode(None))
    except (av.error.FFmpegError, ValueError, MemoryError) as error:
        raise FailureError(f"sample {number:,} cannot be decoded: {_reason(error)}") from error


def _sound(frames: list[Any]) -> Iterator[Any]:
    for frame in frames:
        if frame.is_corrupt or frame.pts is None:
            raise FailureError("a frame is damaged: a frame that it refers to is missing")
        yield frame


class _Encoder:
    """Encodes frames without reordering, with key frames where requested, and parameter sets in the stream."""

    def __init__(
        self, name: str, width: int, height: int, pixel_format: str, time_base: Fraction, request: dict[str, Any]
    ) -> None:
        codec = av.Codec(_ENCODERS[name], "w")
        formats = [f.name for f in codec.video_formats or ()]
        context: Any = av.CodecContext.create(codec, "w")
        context.width, context.height = width, height
        context.pix_fmt = self._format = pixel_format if pixel_format in formats else "yuv420p"
        context.time_base = time_base
        rate = request.get("rate")
        context.framerate = Fraction(*rate) if rate else Fraction(30)
        context.gop_size = self._interval = request["keyframe_interval"] or 1 << 20
        context.max_b_frames = 0
        context.thread_count = _threads(request)
        context.options = _options(name, request["quality"], request["speed"], self._interval)
        context.open()
        self._context = context

    def encode(self, frame: Any, is_keyframe: bool) -> Iterator[Item]:
        """Yield the samples that are ready after this frame."""
        pts, time_base = frame.pts, self._context.time_base
        if frame.format.name != self._format:
            frame = _CONVERTER.reformat(frame, format=self._format)
        frame.pts, frame.time_base = pts, time_base
        frame.pict_type = _INTRA if is_keyframe else _AUTOMATIC
        yield from self._samples(self._context.encode(frame))

    def finish(self) -> Iterator[Item]:
        """Yield the remaining samples."""
        yield from self._samples(self._context.encode(None))

    def _samples(self, packets: list[Any]) -> Iterator[Item]:
        for packet in packets:
            yield packet.pts, packet.pts, packet.is_keyframe, bytes(packet)


def _options(name: str, quality: int, speed: str, interval: int) -> dict[str, str]:
    if name == "h264":
        return {"crf": f"{quality}", "preset": speed, "sc_threshold": "0", "forced-idr": "1", "bf": "0"}
    if name == "hevc":
        settings = f"bframes=0:scenecut=0:open-gop=0:repeat-headers=1:keyint={interval}:log-level=none"
        return {"crf": f"{quality}", "preset": speed, "forced-idr": "1", "x265-params": settings}
    if name == "av1":
        return {"crf": f"{quality}", "preset": "8", "svtav1-params": "pred-struct=1:scd=0"}
    return {"crf": f"{quality}", "b": "0", "deadline": "realtime", "cpu-used": "6", "lag-in-frames": "0"}


class _Taken:
    """The samples for a decoder, and the times of marked samples."""

    def __init__(self, wire: Pipes) -> None:
        self._wire = wire
        self.marked: set[int] = set()
        self.count = 0
        self._numbers: dict[int, int] = {}

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for (pts, is_marked), data in _taken(self._wire):
            self._numbers[pts] = self.count
            self.count += 1
            if is_marked:
                self.marked.add(pts)
            yield pts, data

    def frames(self, request: dict[str, Any]) -> Iterator[Any]:
        """Yield the frame of each sample. Raises :class:`FailureError`, also for a sample without a frame."""
        made = last = 0
        is_bidirectional = is_reordered = False
        context = _context(request["codec"], request)
        for frame in _decoded(context, iter(self), Fraction(*request["time_base"])):
            if frame.width * frame.height > request["most_pixels"]:
                raise FailureError(f"a frame has {frame.width} x {frame.height} pixels")
            number = self._numbers.pop(frame.pts, last)
            is_reordered |= number < last
            if frame.key_frame:
                _check_order(is_bidirectional, is_reordered)
                is_bidirectional = is_reordered = False
            is_bidirectional |= frame.pict_type == _BIDIRECTIONAL and context.has_b_frames
            made, last = made + 1, number
            yield frame
        _check_order(is_bidirectional, is_reordered)
        if made != self.count:
            is_open = request["codec"] == "hevc" and made < self.count
            hint = (
                "It may begin with an open group (CRA), whose leading pictures (RASL) need the previous group: encode "
            )
            hint += "it with closed groups (x265: open-gop=0)."
            raise FailureError(f"{self.count:,} samples decode to {made:,} frames", hint=hint if is_open else None)


def _check_order(is_bidirectional: bool, is_reordered: bool) -> None:
    """Raise :class:`FailureError` if pictures need later ones, but none came after a later one."""
    if is_bidirectional and not is_reordered:
        raise FailureError(
            "the video has B-frames, but its samples are in display order instead of decoding order",
            hint="Encode it without B-frames, which a VideoStream cannot hold.",
        )


class _Order:
    """Returns frames in the wanted order, each as often as wanted. Holds frames that come early."""

    def __init__(self, order: list[int]) -> None:
        self._left = Counter(order)
        self._held: dict[int, Any] = {}
        self._awaited = iter(order)
        self._next = next(self._awaited, None)

    def after(self, frame: Any) -> Iterator[Any]:
        """Yield the frames whose turn has come with ``frame``."""
        if self._left[frame.pts]:
            self._held[frame.pts] = frame
        while self._next is not None and self._next in self._held:
            yield self._held[self._next]
            self._left[self._next] -= 1
            if not self._left[self._next]:
                del self._held[self._next]
            self._next = next(self._awaited, None)

    def check_end(self) -> None:
        """Raise :class:`FailureError` if wanted frames did not come."""
        if self._next is not None:
            raise FailureError(f"{sum(self._left.values()):,} frames are missing")


def decode(wire: Pipes, request: dict[str, Any]) -> None:
    """Take samples (pts, whether the frame is wanted), and send frames (pts, width, height) as rows of pixels."""
    wire.send("track", None)
    batches, samples = Batches(wire), _Taken(wire)
    for frame in samples.frames(request):
        if frame.pts not in samples.marked:
            continue
        if request["form"] is None:
            _add_pixels(batches, frame, request["step"])
        else:
            _add_planes(batches, frame, **request["form"])
    batches.flush()


def _add_planes(batches: Batches, frame: Any, output: str, crop: list[int] | None, size: list[int] | None) -> None:
    """Send a frame, or its part in ``crop`` (top, left, height, width), scaled to ``size`` (height, width).

    The frame's time, width and height are sent, too, and FFmpeg's numbers for its colour space and range.
    """
    pts, name = frame.pts, frame.format.name
    form = name if output == "yuv420p" and name == "yuvj420p" else output  # the same planes with another range
    meaning = [int(frame.colorspace), _FULL_RANGE if name.startswith("yuvj") else int(frame.color_range)]
    if crop is not None:
        top, left, height, width = crop
        if top + height > frame.height or left + width > frame.width:
            raise FailureError(
                f"the crop ends at {top + height} x {left + width} (height x width), but frames have"
                f" {frame.height} x {frame.width}",
                "usage",
                hint="Give a part within all frames.",
            )
        is_plain = size is not None and name in ("yuv420p", "yuvj420p") and not (top % 2 or left % 2)
        kept = name if is_plain else form  # scaling converts, too, and only the part
        part = av.VideoFrame(width, height, kept)
        part.colorspace, part.color_range = frame.colorspace, frame.color_range
        for to, whole in zip(_planes(part), _planes(_CONVERTER.reformat(frame, format=kept)), strict=True):
            rows = 2 if len(to) < height else 1
            columns = left * 3 if kept == "rgb24" else left // rows
            to[:] = whole[top // rows :, columns:][: to.shape[0], : to.shape[1]]
        frame = part
    height, width = size or (frame.height, frame.width)
    frame = _CONVERTER.reformat(frame, width=width, height=height, format=form)
    batches.add([pts, width, height, *meaning], b"".join(plane.tobytes() for plane in _planes(frame)))


def _planes(frame: Any) -> list[Any]:
    """Return the bytes of each plane of a frame, in rows without padding."""
    channels = 3 if frame.format.name == "rgb24" else 1
    return [
        np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: plane.height, : plane.width * channels]
        for plane in frame.planes
    ]


def _add_pixels(batches: Batches, frame: Any, step: int, *facts: int) -> None:
    image = _CONVERTER.reformat(frame, format="rgb24").to_ndarray()[::step, ::step]
    batches.add([frame.pts, image.shape[1], image.shape[0], *facts], image.tobytes())


def transcode(wire: Pipes, request: dict[str, Any]) -> None:
    """Take samples (pts, whether the frame is shown), and send samples re-encoded from the frames in ``order``.

    Frames that are shown are sent, too, like in :func:`decode`, with one more value.
    """
    wire.send("track", None)
    batches, samples, order = Batches(wire), _Taken(wire), _Order(request["order"])
    name, time_base = request["codec"], Fraction(*request["time_base"])
    encoder: _Encoder | None = None
    number = 0
    for frame in samples.frames(request):
        if frame.pts in samples.marked:
            _add_pixels(batches, frame, request["step"], 0)
        for wanted in order.after(frame):
            with _encoding():
                if encoder is None:
                    encoder = _Encoder(name, wanted.width, wanted.height, wanted.format.name, time_base, request)
                wanted.pts = number * request["ticks"]
                for sample in encoder.encode(wanted, number % request["keyframe_interval"] == 0):
                    batches.add(list(sample[:3]), sample[3])
            number += 1
    with _encoding():
        for sample in encoder.finish() if encoder is not None else ():
            batches.add(list(sample[:3]), sample[3])
    batches.flush()
    order.check_end()


@contextlib.contextmanager
def _encoding() -> Iterator[None]:
    try:
        yield
    except (av.error.FFmpegError, ValueError, MemoryError) as error:
        raise FailureError(f"the frames cannot be encoded: {_reason(error)}") from error


def encode(wire: Pipes, request: dict[str, Any]) -> None:
    """Take RGB frames (pts, width, height, whether it is a key frame), and send samples."""
    wire.send("track", None)
    batches = Batches(wire)
    encoder: _Encoder | None = None
    time_base = Fraction(*request["time_base"])
    with _encoding():
        for (pts, width, height, is_keyframe), data in _taken(wire):
            frame = av.VideoFrame.from_ndarray(np.frombuffer(data, np.uint8).reshape(height, width, 3), format="rgb24")
            is_first = encoder is None
            if encoder is None:
                encoder = _Encoder(request["codec"], width, height, request["pixel_format"], time_base, request)
            frame.pts = pts
            for sample in encoder.encode(frame, is_keyframe or is_first):
                batches.add(list(sample[:3]), sample[3])
        for sample in encoder.finish() if encoder is not None else ():
            batches.add(list(sample[:3]), sample[3])
    batches.flush()


def mux(wire: Pipes, request: dict[str, Any]) -> None:
    """Take samples (pts, dts, duration, whether it is a key frame), and write them as an MP4 through the pipes."""
    wire.send("track", None)
    target = MuxedFile(wire)
    time_base = Fraction(*request["time_base"])
    try:
        with av.open(
            target, "w", format="mp4", options={"video_track_timescale": f"{time_base.denominator}"}
        ) as container:
            stream = _muxed(container, request)
            stream.time_base = time_base
            for (pts, dts, duration, is_keyframe), data in _taken(wire):
                packet = av.Packet(data)
                packet.stream = stream
                packet.time_base = time_base
                packet.pts, packet.dts, packet.duration, packet.is_keyframe = pts, dts, duration, is_keyframe
                container.mux_one(packet)
    except (av.error.FFmpegError, ValueError, MemoryError) as error:
        raise FailureError(f"the samples cannot be written as MP4: {_reason(error)}") from error


def _muxed(container: Any, request: dict[str, Any]) -> Any:
    name, width, height = request["codec"], request["width"], request["height"]
    if name != "vp9":
        return container.add_mux_stream(name, width=width, height=height)
    stream = container.add_stream(_ENCODERS[name])  # VP9's box has the pixel format, which only an encoder sets
    stream.width, stream.height, stream.pix_fmt = width, height, request["pixel_format"]
    return stream


def _unsupported(message: str) -> FailureError:
    return FailureError(message, "unsupported", hint=_ENCODE)


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than allowed for a video"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


_OPERATIONS = {"demultiplex": demultiplex, "decode": decode, "transcode": transcode, "encode": encode, "mux": mux}


def _import_all() -> None:
    """Import all modules of PyAV now, because later imports would need files."""
    for module in pkgutil.walk_packages(av.__path__, "av."):
        if module.name not in ("av.__main__", "av.datasets"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    av.logging.set_level(None)
    _import_all()
    serve(_OPERATIONS)
