"""Video samples: reading from files, decoding and encoding frames, writing MP4. PyAV runs in a process that may die."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, BinaryIO, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import MissingExtraError, ReadError, ReadWarning, UnsupportedError, UsageError, extra_command
from ..limits import MAX_FRAME_PIXELS, MAX_VIDEO_MEMORY, check_limit
from ..sandbox import Item, SandboxRequest
from ..storage.positional import PositionalFile
from .bitstream import DETECTORS, without_repeats
from .matroska import is_matroska, read_matroska
from .mp4 import CODECS, HINT, EditsError, NotPlainError, read_boxes, read_video, rotation, shown_frames
from .samples import SampleBatch, VideoSample

BFrames = Literal["reencode", "error", "keep"]
"""How to treat samples whose display order differs from their decoding order."""

FrameOutput = Literal["rgb", "yuv420p"]

_SPACES: Final[Mapping[int, Literal["bt601", "bt709", "bt2020"]]] = {
    1: "bt709",
    5: "bt601",
    6: "bt601",
    9: "bt2020",
    10: "bt2020",
}
"""By FFmpeg's numbers (``AVColorSpace``, ``AVColorRange``)."""

_RANGES: Final[Mapping[int, Literal["limited", "full"]]] = {1: "limited", 2: "full"}

QUALITY: Final = 18
"""The constant rate factor of re-encoded videos. Lower means better quality and larger files."""

_NAMES: Final = {number: name for name, number in CODECS.items()}
_SHOWN: Final = {"h264": "H.264", "hevc": "H.265", "av1": "AV1", "vp8": "VP8", "vp9": "VP9"}
_H265: Final = CODECS["hevc"]
_NO_ENCODER: Final = "vp8"
_BATCH_BYTES: Final = 1 << 20
_PROGRAM: Final = f"{__package__}.worker"


def has_video_extra() -> bool:
    """Return True if PyAV is installed (the extra ``video``)."""
    return importlib.util.find_spec("av") is not None


def _require_video_extra(what: str = "video needs PyAV, which is") -> None:
    """Raise ``MissingExtraError`` if PyAV is not installed. ``what`` begins the message."""
    if not has_video_extra():
        raise MissingExtraError(f"{what} not installed", hint=extra_command("video"))


def _work(request: dict[str, Any], **ends: Any) -> SandboxRequest:
    """Send a request to a process that runs PyAV. ``ends`` are arguments of :class:`SandboxRequest`."""
    _require_video_extra()
    return SandboxRequest(_PROGRAM, request, memory=MAX_VIDEO_MEMORY, **ends)


class VideoFrame(NamedTuple):
    """The pixels of a frame: RGB of shape ``(height, width, 3)``, shown at ``pts`` ticks."""

    pts: int
    image: npt.NDArray[np.uint8]


class FramePlanes(NamedTuple):
    """The planes of a frame, with the colour space and range if the video has them.

    They are RGB of shape ``(height, width, 3)``; or luma ``(height, width)`` and chroma ``(2, ceil(height / 2),
    ceil(width / 2))``.
    """

    pts: int
    planes: tuple[npt.NDArray[np.uint8], ...]
    color_space: Literal["bt601", "bt709", "bt2020", "unspecified"]
    color_range: Literal["limited", "full", "unspecified"]


@dataclass(frozen=True, slots=True)
class VideoTrack:
    """The properties of a video track.

    ``codec`` is the number in ``VideoStream:codec``. ``time_base`` is the length of a tick in seconds. ``rate`` is the
    mean number of frames per second, if known. ``pixel_format`` is FFmpeg's name of the pixel format.
    """

    codec: int
    width: int
    height: int
    time_base: Fraction
    rate: Fraction | None = None
    pixel_format: str = "yuv420p"

    @property
    def codec_name(self) -> str:
        """The name of the codec, such as ``H.264``."""
        return _SHOWN[_NAMES[self.codec]]

    def nanoseconds(self, ticks: int) -> int:
        """Convert ticks to nanoseconds, rounded.

        >>> VideoTrack(0x61763031, 64, 48, Fraction(1, 15360)).nanoseconds(512)
        33333333
        """
        base = self.time_base
        return (2 * ticks * base.numerator * 1_000_000_000 + base.denominator) // (2 * base.denominator)


class Demultiplexed:
    """The video track of a file, and its samples, which can be read only once, on demand."""

    def __init__(
        self,
        track: VideoTrack,
        batches: Iterator[tuple[SampleBatch, int]],
        path: str,
        work: SandboxRequest | None = None,
        video_tracks: int = 1,
    ) -> None:
        self.track = track
        self.video_tracks = video_tracks
        self._batches = batches
        self._work = work
        self._path = path

    def samples(self) -> Iterator[VideoSample]:
        """Yield the samples in decoding order. Raises ``ReadError``."""
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[SampleBatch]:
        """Yield batches of samples, of some MiB each, in decoding order. Raises ``ReadError``."""
        is_first, claimed = True, 0
        for batch, false_marks in self._batches:
            if is_first and not batch.is_keyframe[0]:
                _warn(f"{self._path}: the first sample of the video is not a key frame, and cannot be decoded")
            is_first = False
            claimed += false_marks
            yield batch
        if claimed:
            _warn(f"{self._path}: {claimed:,} samples are marked as key frames, but a decoder cannot start at them")

    def close(self) -> None:
        """Stop reading, if there are unread samples."""
        if self._work is not None:
            self._work.close()

    def __enter__(self) -> Demultiplexed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _work_batches(work: SandboxRequest, codec: int, path: str) -> Iterator[tuple[SampleBatch, int]]:
    """Yield the batches that the process reads, with the number of samples falsely marked as key frames."""
    detector = DETECTORS[codec]
    for items in _batches(work.items()):
        samples, claimed = [], 0
        for (pts, dts, is_marked, place), data in items:
            try:
                is_keyframe = detector(data)
            except ValueError as error:
                raise ReadError(f"a key frame cannot be read: {error}", path=path, offset=place, hint=HINT) from error
            claimed += is_marked and not is_keyframe
            kept = without_repeats(data) if is_keyframe and codec == _H265 else data
            samples.append(VideoSample(pts, dts, is_keyframe, kept))
        yield SampleBatch.of(samples), claimed


def demultiplex(
    file: PositionalFile,
    *,
    start: Fraction | None = None,
    end: Fraction | None = None,
    track: int = 0,
    b_frames: BFrames = "reencode",
    quality: int = QUALITY,
    codec: int | None = None,
    keyframe_interval: int | None = None,
    reads_all: bool = False,
) -> Demultiplexed:
    """Open a video track of an MP4, QuickTime, Matroska or WebM file, and read its samples without decoding.

    Guarantee: samples are in decoding order, and the same in every run. H.264 and H.265 are in Annex B form with
    parameter sets at each key frame; AV1, VP8 and VP9 are unchanged. ``start`` and ``end`` (seconds, excluding ``end``)
    select the samples shown in that time, and earlier ones from the last key frame on, which decoding needs.

    A ``VideoStream`` cannot hold B-frames. Such videos are re-encoded in the same codec, with the same key frames and a
    ``ReadWarning``; there are then no samples before ``start``. The same applies to a whole video whose edit list shows
    several parts. ``b_frames="error"`` raises an error instead, and ``"keep"`` returns the samples unchanged. With
    ``codec`` (the number in ``VideoStream:codec``) or ``keyframe_interval`` (frames), all samples are re-encoded, in
    that codec and with that distance of key frames.

    A ``ReadWarning`` names the tracks that are not read; if the caller ``reads_all`` video tracks, it names only other
    tracks, once. Another ``ReadWarning`` reports the rotation of a video, which its samples lack.

    Raises ``ReadError`` with the offset, ``UnsupportedError`` for other containers and codecs, and
    ``MissingExtraError`` if a file needs the extra ``video``.
    """
    encoding = _encoding(quality, "fast", keyframe_interval)
    is_made = codec is not None or keyframe_interval is not None
    matroska = read_matroska(file) if is_matroska(file) else None
    order: list[tuple[int, int]] | None = None
    if matroska is None:
        boxes = read_boxes(file)
        turned = None if boxes.movie is None else rotation(boxes.movie, track)
        _warn_of_rotation(file.path, track, turned)
        try:
            plain = read_video(file, boxes, track)
            if is_made:
                raise NotPlainError("it is re-encoded")
        except NotPlainError as reason:
            _require_video_extra(f"{file.path} needs PyAV, because {reason}; PyAV is")
            order = _edit_order(file.path, boxes.movie, track)
        else:
            described = _track(plain.facts, file.path, track, b_frames, quality, reads_all)
            batches = plain.batches(file, start, end)
            return Demultiplexed(described, batches, file.path, None, plain.facts["video_tracks"])
    else:
        _require_video_extra(f"{file.path} needs PyAV, because it is Matroska; PyAV is")
        degrees = matroska.tracks[track].rotation if track < len(matroska.tracks) else 0
        _warn_of_rotation(file.path, track, f"turned by {degrees} degrees clockwise" if degrees else None)
    request = {
        "operation": "demultiplex",
        "container": "mp4" if matroska is None else "matroska",
        "blocks": None if matroska is None else matroska.blocks_of(track),
        "may_reorder": matroska is not None or boxes.may_reorder,
        "is_made": is_made,
        "order": order if b_frames == "reencode" and start is None and end is None else None,
        "output": None if codec is None else _NAMES[codec],
        "size": file.size,
        "track": track,
        "start": None if start is None else start.as_integer_ratio(),
        "end": None if end is None else end.as_integer_ratio(),
        "b_frames": b_frames,
        **encoding,
    }
    work = _work(request, path=file.path, file=file)
    try:
        facts = {**work.answer, "codec": request["output"] or work.answer["codec"], "is_wanted": is_made}
        described = _track(facts, file.path, track, b_frames, quality, reads_all)
        batches = _work_batches(work, described.codec, file.path)
        return Demultiplexed(described, batches, file.path, work, facts["video_tracks"])
    except BaseException:
        work.close()
        raise


def _edit_order(path: str, movie: bytes | None, track: int) -> list[tuple[int, int]] | None:
    """Return ticks in the file, and ticks of display, of the frames of several parts; None if there is one part.

    Raises ``ReadError`` and ``UnsupportedError`` for an edit list that FFmpeg would show differently.
    """
    try:
        frames = None if movie is None else shown_frames(movie, track)
    except EditsError as error:
        kind = UnsupportedError if error.is_unsupported else ReadError
        raise kind(str(error), path=path, offset=0, hint=HINT) from error
    except NotPlainError:
        return None
    if frames is None or not frames.is_apart:
        return None
    return list(zip(frames.media.tolist(), frames.shown.tolist(), strict=True))


def _warn_of_rotation(path: str, track: int, turned: str | None) -> None:
    if turned is not None:
        _warn(f"{path}: video track {track} is shown {turned}; its samples are not rotated")


def _track(
    facts: dict[str, Any], path: str, track: int, b_frames: BFrames, quality: int, reads_all: bool
) -> VideoTrack:
    for side in ("width", "height"):
        check_limit(facts[side] - 1, MAX_FRAME_PIXELS, path=path, offset=None, what=f"the {side} of the video")
    pixels = facts["width"] * facts["height"]
    check_limit(pixels, MAX_FRAME_PIXELS, path=path, offset=None, what="the number of pixels of a frame")
    name, rate = facts["codec"], facts["rate"]
    is_wanted = facts.get("is_wanted", False)
    if facts["is_reordered"] and b_frames == "error" and not is_wanted:
        raise UnsupportedError(
            "the video has B-frames, which a VideoStream cannot hold",
            path=path,
            hint='Re-encode it with b_frames="reencode".',
        )
    others = [f"{facts['video_tracks'] - 1} more video"] if facts["video_tracks"] > 1 and not reads_all else []
    if (others or facts["other_tracks"]) and not (reads_all and track):
        _warn(
            f"{path}: only {'video' if reads_all else f'video track {track}'} is read; other tracks: "
            f"{', '.join(others + facts['other_tracks'])}"
        )
    if Fraction(*facts["time_base"]) >= 1:
        _warn(f"{path}: the video has ticks of whole seconds, or no time scale: its times may be wrong")
    if facts["encoder"] and not is_wanted:
        reason = "an edit list with several parts" if facts.get("is_edited") else "B-frames"
        _warn(
            f"{path}: the video has {reason}, which a VideoStream cannot hold; it is re-encoded as"
            f" {_SHOWN[name]} by {facts['encoder']} (constant rate factor {quality}), which loses some detail"
        )
    return VideoTrack(
        codec=CODECS[name],
        width=facts["width"],
        height=facts["height"],
        time_base=Fraction(*facts["time_base"]),
        rate=Fraction(*rate) if rate else None,
        pixel_format=facts["pixel_format"] or "yuv420p",
    )


def decode(
    track: VideoTrack,
    samples: Iterable[VideoSample],
    *,
    wanted: Container[int] | None = None,
    step: int = 1,
    threads: int | None = None,
    path: str | None = None,
) -> Iterator[VideoFrame]:
    """Yield the frames of samples, in display order. The first sample must be a key frame.

    ``wanted`` selects frames by time (``pts``). ``step`` selects every ``step``-th row and column of pixels.
    ``threads`` is the number of decoding threads, by default the number of cores, at most 4.

    Raises ``ReadError`` for a sample that cannot be decoded, and if frames are missing.
    """
    for (pts, width, height), data in _decoded(track, samples, wanted, threads, path, step=step).items():
        yield VideoFrame(pts, np.frombuffer(data, np.uint8).reshape(height, width, 3))


def decode_planes(
    track: VideoTrack,
    samples: Iterable[VideoSample],
    *,
    output: FrameOutput = "rgb",
    crop: tuple[int, int, int, int] | None = None,
    size: tuple[int, int] | None = None,
    wanted: Container[int] | None = None,
    threads: int | None = None,
    path: str | None = None,
) -> Iterator[FramePlanes]:
    """Yield the frames of samples like :func:`decode`, cropped and scaled in the decoding process.

    ``crop`` is the top, left, height and width of the part; ``size`` is the scaled height and width. ``output`` is
    ``rgb``, or ``yuv420p`` to avoid the conversion of frames in this format.

    Raises ``UsageError`` if the part is not within the frames, and ``ReadError`` like :func:`decode`.
    """
    form = {"output": "rgb24" if output == "rgb" else output, "crop": crop, "size": size}
    for (pts, width, height, space, numbers), data in _decoded(
        track, samples, wanted, threads, path, form=form
    ).items():
        pixels = np.frombuffer(data, np.uint8)
        planes: tuple[npt.NDArray[np.uint8], ...]
        if output == "rgb":
            planes = (pixels.reshape(height, width, 3),)
        else:
            half = (-(-height // 2), -(-width // 2))
            count = height * width
            planes = pixels[:count].reshape(height, width), pixels[count:].reshape(2, *half)
        yield FramePlanes(pts, planes, _SPACES.get(space, "unspecified"), _RANGES.get(numbers, "unspecified"))


def _decoded(
    track: VideoTrack,
    samples: Iterable[VideoSample],
    wanted: Container[int] | None,
    threads: int | None,
    path: str | None,
    *,
    step: int = 1,
    form: dict[str, Any] | None = None,
) -> SandboxRequest:
    request = {**_decoding(track), "operation": "decode", "step": step, "threads": threads, "form": form}
    given = (((s.pts, wanted is None or s.pts in wanted), s.data) for s in samples)
    return _work(request, path=path, given=_batches(given))


def transcode(
    track: VideoTrack,
    samples: Iterable[VideoSample],
    order: Sequence[int],
    *,
    quality: int = QUALITY,
    keyframe_interval: int = 1,
    speed: str = "veryfast",
    shown: Container[int] = (),
    step: int = 1,
    threads: int | None = None,
    path: str | None = None,
) -> Iterator[VideoSample | VideoFrame]:
    """Re-encode the frames with the times in ``order``, in that order and in the same codec.

    Guarantee: pixels stay in the decoding process, in their format. The result has one sample per entry of ``order``,
    at regular times from 0. The first and each ``keyframe_interval``-th sample are key frames with parameter sets. A
    time may occur several times. ``samples`` have ascending times, and begin with a key frame. The result also has the
    decoded frames with times in ``shown``, like :func:`decode`.

    Raises ``UsageError`` if frames of this size cannot be encoded, and ``ReadError`` like :func:`decode`.
    """
    _check_encodable(track)
    request = {
        **_decoding(track),
        **_encoding(quality, speed, keyframe_interval),
        "operation": "transcode",
        "order": list(order),
        "ticks": _frame_ticks(track),
        "rate": None if track.rate is None else track.rate.as_integer_ratio(),
        "step": step,
        "threads": threads,
    }
    given = (((s.pts, s.pts in shown), s.data) for s in samples)
    detector = DETECTORS[track.codec]
    for (pts, *facts), data in _work(request, path=path, given=_batches(given)).items():
        if len(facts) == 3:
            width, height, _ = facts
            yield VideoFrame(pts, np.frombuffer(data, np.uint8).reshape(height, width, 3))
        else:
            yield VideoSample(pts, facts[0], detector(data), data)


def _decoding(track: VideoTrack) -> dict[str, Any]:
    return {
        "codec": _NAMES[track.codec],
        "time_base": track.time_base.as_integer_ratio(),
        "most_pixels": MAX_FRAME_PIXELS,
    }


def _frame_ticks(track: VideoTrack) -> int:
    return max(round(1 / (track.time_base * (track.rate or 30))), 1)


def _check_encodable(track: VideoTrack) -> None:
    if _NAMES[track.codec] == _NO_ENCODER:
        raise UsageError(f"there is no encoder for {track.codec_name}", hint="Encode as H.264, H.265, AV1 or VP9.")
    if track.pixel_format == "yuv420p" and (track.width % 2 or track.height % 2):
        raise UsageError(
            f"yuv420p needs even sizes, but frames have {track.width} x {track.height} pixels",
            hint='Crop them by a pixel, or encode a track of pixel_format="yuv444p".',
        )


def encode(
    track: VideoTrack,
    frames: Iterable[VideoFrame],
    *,
    quality: int = QUALITY,
    keyframe_interval: int | None = None,
    keyframes: Iterable[int] = (),
    speed: str = "veryfast",
    threads: int | None = None,
) -> Iterator[VideoSample]:
    """Encode frames without B-frames, with parameter sets at each key frame; yield the samples.

    Frames have the size of ``track`` and ascending times. ``quality`` is the constant rate factor. Key frames are the
    first frame, each ``keyframe_interval``-th, and those at the ticks in ``keyframes``. ``speed`` is the preset of
    H.264 and H.265. ``threads`` is the number of encoding threads, by default the number of cores, at most 4.

    Raises ``UsageError`` for invalid frames and options, and ``ReadError`` if the encoder fails.
    """
    _check_encodable(track)
    marked = frozenset(keyframes)
    request = {
        "operation": "encode",
        "threads": threads,
        "codec": _NAMES[track.codec],
        "time_base": track.time_base.as_integer_ratio(),
        "pixel_format": track.pixel_format,
        **_encoding(quality, speed, keyframe_interval),
        "rate": None if track.rate is None else track.rate.as_integer_ratio(),
    }
    work = _work(request, given=_batches(_pixels(track, frames, marked)))
    detector = DETECTORS[track.codec]
    for (pts, dts, _), data in work.items():
        yield VideoSample(pts, dts, detector(data), data)


def _pixels(track: VideoTrack, frames: Iterable[VideoFrame], keyframes: frozenset[int]) -> Iterator[Item]:
    last: int | None = None
    for pts, image in frames:
        if image.shape != (track.height, track.width, 3) or image.dtype != np.uint8:
            raise UsageError(
                f"expected a frame of uint8 with shape ({track.height}, {track.width}, 3), got {image.dtype} with "
                f"shape {image.shape}"
            )
        if last is not None and pts <= last:
            raise UsageError(f"a frame at tick {pts:,} follows one at {last:,}", hint="Times of frames must ascend.")
        last = pts
        yield (pts, track.width, track.height, pts in keyframes), np.ascontiguousarray(image).tobytes()


def mux(track: VideoTrack, samples: Iterable[VideoSample], file: BinaryIO) -> None:
    """Write samples, without encoding, as an MP4 with one track into ``file``, which is empty and seekable.

    Samples are in decoding order (H.264 and H.265 in Annex B form), and begin with a key frame. Each is shown until the
    next one, and the last as long as the one before. Without samples, nothing is written.

    Raises ``UsageError`` if times do not ascend, and ``ReadError`` if the samples do not form a track.
    """
    request = {
        "operation": "mux",
        "codec": _NAMES[track.codec],
        "width": track.width,
        "height": track.height,
        "pixel_format": track.pixel_format,
        "time_base": track.time_base.as_integer_ratio(),
    }
    for _ in _work(request, given=_batches(_timed(track, samples)), target=file).items():
        pass


def _timed(track: VideoTrack, samples: Iterable[VideoSample]) -> Iterator[Item]:
    """Yield samples with their durations: the time to the next sample."""
    before: VideoSample | None = None
    step = _frame_ticks(track)
    for sample in samples:
        if before is not None:
            step = sample.dts - before.dts
            if step <= 0:
                raise UsageError(f"a sample at tick {sample.dts:,} follows one at {before.dts:,}")
            yield (before.pts, before.dts, step, before.is_keyframe), before.data
        before = sample
    if before is not None:
        yield (before.pts, before.dts, step, before.is_keyframe), before.data


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield lists of items, of about a MiB each."""
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item[1]) + 64
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _encoding(quality: int, speed: str, keyframe_interval: int | None) -> dict[str, Any]:
    if not 0 <= quality <= 51:
        raise UsageError(f"the constant rate factor must be 0 to 51, not {quality}")
    if keyframe_interval is not None and keyframe_interval < 1:
        raise UsageError(f"keyframe_interval must be at least 1, not {keyframe_interval}")
    return {"quality": quality, "speed": speed, "keyframe_interval": keyframe_interval, "rate": None}


def _warn(message: str) -> None:
    warnings.warn(message, ReadWarning, stacklevel=3)
