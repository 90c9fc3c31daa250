"""Videos of episodes: groups of pictures that fit the frames are copied, others are encoded anew.

A group of pictures is copied if its samples match frames one to one from its first sample on; its end may be missing.
An episode that begins within a group keeps the samples before it, which are shown before its first frame. Parameter
sets are in band at each key frame, so that one track can have copied and encoded groups.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import MissingExtraError, ReadError, UnsupportedError, extra_command
from ..limits import MAX_CHUNK_UNCOMPRESSED, check_limit
from ..spark import in_task
from ..statistics import PixelCounts, Statistics, pixel_step, sampled_frames
from ..video import DETECTORS, VideoFrame, VideoSample, VideoTrack, decode, encode, mux, transcode
from .alignment import Ticks
from .lerobot_episodes import PicturePlaces, RecordingSamples
from .lerobot_spec import FeatureSpec

if TYPE_CHECKING:
    from PIL.Image import Image

H264: Final = 0x61766331
ENCODING: Final[dict[str, Any]] = {"quality": 23, "keyframe_interval": 10, "speed": "superfast"}
"""Training reads single frames, so key frames are close together. ``quality`` is the constant rate factor."""
TICKS_A_FRAME: Final = 512
LONGEST_WITH_LEAD: Final = 500
"""The longest episode, in seconds, that may begin within a group of pictures. LeRobot adds the start of its video to
the times of frames in float32, and does not find frames after 1,024 s.
"""

_NAMES: Final = {"H.264": "h264", "H.265": "hevc", "AV1": "av1", "VP9": "vp9", "VP8": "vp8"}


@dataclass(frozen=True, slots=True)
class VideoPart:
    """The video of one episode: ``lead`` frames come before its first one. ``reencoded`` frames were encoded anew."""

    lead: int
    reencoded: int
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class _Run:
    """Frames of an episode whose samples are of one group of pictures, which begins at the sample ``start``."""

    start: int
    samples: tuple[int, ...]
    place: int
    """The number of the first frame in the episode."""
    may_lead: bool
    """Whether samples before the first frame may be copied, too."""

    @property
    def is_copied(self) -> bool:
        first = self.samples[0]
        follows = self.samples == tuple(range(first, first + len(self.samples)))
        return follows and (first == self.start or (not self.place and self.may_lead))


class EncodedVideo:
    """The samples of one feature of a recording that are a video.

    Raises
    ------
    ReadError
        A sample cannot be read, or a needed sample has no key frame before it.
    UnsupportedError
        The codec is unknown.
    """

    def __init__(self, source: RecordingSamples, feature: FeatureSpec, places: PicturePlaces, fps: int) -> None:
        self._source, self._places, self._name = source, places, feature.name
        codec = source.codec(feature)
        if codec not in DETECTORS:
            raise UnsupportedError(
                f"features.{feature.name}: the codec {codec:#x} is not supported",
                path=source.name,
                hint="Leave it out.",
            )
        is_keyframe = [self._is_keyframe(codec, index) for index in range(len(places.times))]
        self._starts = np.flatnonzero(is_keyframe)
        if not len(self._starts):
            raise ReadError(f"features.{feature.name}: there is no key frame", path=source.name, hint="Leave it out.")
        self._track = VideoTrack(codec, 16, 16, Fraction(1, fps * TICKS_A_FRAME), Fraction(fps))
        first = int(self._starts[0])
        frame = next(decode(self._track, [VideoSample(0, 0, True, self._bytes(first))], path=source.name))
        height, width = frame.image.shape[:2]
        self._track = VideoTrack(codec, width, height, Fraction(1, fps * TICKS_A_FRAME), Fraction(fps))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self._track.height, self._track.width, 3

    @property
    def codec(self) -> str:
        """FFmpeg's name of the codec."""
        return _NAMES[self._track.codec_name]

    def write(self, path: Path, indexes: Ticks) -> VideoPart:
        """Write the video of an episode whose frames take the samples at ``indexes``."""
        runs = self._runs(indexes.tolist())
        lead = runs[0].samples[0] - runs[0].start if runs[0].is_copied else 0
        reencoded = sum(len(run.samples) for run in runs if not run.is_copied)
        sampled, counts = set(sampled_frames(len(indexes))), PixelCounts()
        with path.open("wb") as file:
            mux(self._track, _numbered(self._samples(runs, sampled, counts)), file)
        self._count([run for run in runs if run.is_copied], sampled, counts)
        return VideoPart(lead, reencoded, counts.statistics())

    def _runs(self, indexes: list[int]) -> list[_Run]:
        groups = np.searchsorted(self._starts, indexes, side="right") - 1
        if (groups < 0).any():
            raise ReadError(
                f"features.{self._name}: a frame is before the first key frame",
                path=self._source.name,
                hint="Start episodes later, by a time range.",
            )
        assert self._track.rate is not None
        may_lead = len(indexes) / self._track.rate < LONGEST_WITH_LEAD
        runs: list[_Run] = []
        for group, places in groupby(range(len(indexes)), key=lambda place: int(groups[place])):
            numbers = list(places)
            runs.append(
                _Run(int(self._starts[group]), tuple(indexes[place] for place in numbers), numbers[0], may_lead)
            )
        return runs

    def _samples(
        self, runs: Iterable[_Run], sampled: Container[int], counts: PixelCounts
    ) -> Iterator[tuple[bool, bytes]]:
        """Yield the samples of runs, each with whether it is a key frame. Counts pixels of encoded frames."""
        for is_copied, some in groupby(runs, key=lambda run: run.is_copied):
            if not is_copied:
                yield from self._anew(list(some), sampled, counts)
                continue
            for run in some:
                for index in range(run.start, run.samples[-1] + 1):
                    yield index == run.start, self._bytes(index)

    def _anew(self, runs: Sequence[_Run], sampled: Container[int], counts: PixelCounts) -> Iterator[tuple[bool, bytes]]:
        """Yield the samples of runs that are encoded anew."""
        indexes, order = _needed([(run.start, run.samples) for run in runs])
        frames = (run.place + at for run in runs for at in range(len(run.samples)))
        shown = Counter(place for place, frame in zip(order, frames, strict=True) if frame in sampled)
        given = self._given(indexes)
        for each in transcode(self._track, given, order, shown=shown, **ENCODING, **self._pixels):
            if isinstance(each, VideoFrame):
                counts.add(each.image, shown[each.pts])
            else:
                yield each.is_keyframe, each.data

    def _count(self, runs: Iterable[_Run], sampled: Container[int], counts: PixelCounts) -> None:
        """Count the pixels of the frames that LeRobot samples."""
        groups = []
        for run in runs:
            chosen = [index for frame, index in enumerate(run.samples, run.place) if frame in sampled]
            if chosen:
                groups.append((run.start, chosen))
        indexes, places = _needed(groups)
        times = Counter(places)
        for frame in decode(self._track, self._given(indexes), wanted=times, **self._pixels):
            counts.add(frame.image, times[frame.pts])

    @property
    def _pixels(self) -> dict[str, Any]:
        step = pixel_step(self._track.height, self._track.width)
        return {"step": step, "threads": 1 if in_task() else None, "path": self._source.name}

    def _given(self, indexes: Iterable[int]) -> Iterator[VideoSample]:
        """Yield samples for a decoder, numbered from 0."""
        return (VideoSample(place, place, False, self._bytes(index)) for place, index in enumerate(indexes))

    def _bytes(self, index: int) -> bytes:
        return self._source.picture(self._places, index)[0]

    def _is_keyframe(self, codec: int, index: int) -> bool:
        try:
            return DETECTORS[codec](self._bytes(index))
        except ValueError as error:
            raise ReadError(
                f"features.{self._name}: sample {index:,} cannot be read: {error}",
                path=self._source.name,
                hint="The recording is damaged, or has another codec.",
            ) from error


def _needed(groups: Iterable[tuple[int, Sequence[int]]]) -> tuple[list[int], list[int]]:
    """Return the samples that a decoder needs for the wanted samples of each group, and the places of the latter."""
    needed: list[int] = []
    places: list[int] = []
    for start, wanted in groups:
        places += [len(needed) + index - start for index in wanted]
        needed += range(start, max(wanted) + 1)
    return needed, places


def write_images(path: Path, images: Iterable[npt.NDArray[np.uint8]], shape: tuple[int, ...], fps: int) -> None:
    """Write images as the video of an episode, in H.264."""
    track = VideoTrack(H264, shape[1], shape[0], Fraction(1, fps * TICKS_A_FRAME), Fraction(fps))
    frames = (VideoFrame(number * TICKS_A_FRAME, image) for number, image in enumerate(images))
    with path.open("wb") as file:
        mux(track, encode(track, frames, threads=1 if in_task() else None, **ENCODING), file)


def _numbered(samples: Iterable[tuple[bool, bytes]]) -> Iterator[VideoSample]:
    """Give samples their times in the track, one frame after the other."""
    for number, (is_keyframe, data) in enumerate(samples):
        yield VideoSample(number * TICKS_A_FRAME, number * TICKS_A_FRAME, is_keyframe, data)


_KINDS: Final = ("JPEG", "PNG")
_JPEG: Final = b"\xff\xd8\xff"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_ENDS: Final = {_JPEG: b"\xff\xd9", _PNG: b"IEND"}
_HINT: Final = "Images must be JPEG or PNG; raw pixels must be 8-bit RGB, BGR or grey."

_MODELS: Final = {1: "L", 2: "RGB", 3: "RGBA", 4: "BGR", 5: "BGRA"}
"""Rerun's color models, by their numbers."""
_U8: Final = 6
"""Rerun's channel datatype for unsigned 8-bit numbers."""


def rgb_picture(data: bytes, path: str) -> tuple[bytes, int, int]:
    """Return a JPEG or PNG of red, green and blue, its height and its width.

    It is the given one if its header shows these channels, else a PNG of its pixels without an opacity channel. The
    given image must be complete.

    Raises
    ------
    UnsupportedError
        The image is neither JPEG nor PNG, or has more than 8 bits per channel.
    ReadError
        The image is incomplete, damaged or too large.
    """
    end = next((end for start, end in _ENDS.items() if data.startswith(start)), None)
    if end is None:
        raise UnsupportedError(
            f"an image is neither JPEG nor PNG: it begins with {data[:8].hex(' ')}", path=path, offset=0, hint=_HINT
        )
    if end not in data[-65_536:]:
        raise ReadError(
            f"an image of {len(data):,} bytes has no end", path=path, hint="The image is incomplete; remove it."
        )
    with _opened(data, path) as image:
        if image.mode == "RGB":
            return data, image.height, image.width
        if image.mode[0] in "IF":
            raise UnsupportedError(f"images of the kind {image.mode} are not supported", path=path, hint=_HINT)
    values = pixels(data, path)
    return _png(values), *values.shape[:2]


def _png(values: npt.NDArray[np.uint8]) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(values).save(out, "PNG", compress_level=1)
    return out.getvalue()


def pixels(data: bytes, path: str) -> npt.NDArray[np.uint8]:
    """Return the pixels of a JPEG or PNG: ``[height, width, 3]``, RGB. Raises ``ReadError``."""
    with _opened(data, path) as image:
        try:
            return np.asarray(image.convert("RGB"))
        except (OSError, ValueError, SyntaxError) as error:
            raise ReadError(f"an image cannot be decoded: {error}", path=path, hint="It is damaged.") from None


def png_of(raw: bytes, given: Mapping[str, Any], path: str) -> bytes:
    """Return a PNG of raw pixels in one of Rerun's image formats.

    Raises
    ------
    UnsupportedError
        The format is not supported.
    ReadError
        There are fewer pixels than the format says.
    """
    width, height = given.get("width"), given.get("height")
    model = _MODELS.get(given.get("color_model") or 0)
    is_plain = given.get("pixel_format") is None and given.get("channel_datatype") in (_U8, None)
    if not is_plain or model is None or not isinstance(width, int) or not isinstance(height, int):
        raise UnsupportedError(f"images of the format {dict(given)} are not supported", path=path, hint=_HINT)
    channels = len(model)
    check_limit(width * height * channels, len(raw), path=path, offset=None, what="the size of an image")
    shape = (height, width, channels)
    values = np.frombuffer(raw, np.uint8, width * height * channels).reshape(shape)
    if model.startswith("BGR"):
        values = values[..., [2, 1, 0]]
    return _png(np.ascontiguousarray(values[..., :3] if channels > 1 else np.repeat(values, 3, axis=2)))


def _opened(data: bytes, path: str) -> Image:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("images need Pillow", hint=extra_command("lerobot")) from error
    try:
        image = Image.open(io.BytesIO(data), formats=_KINDS)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ReadError(f"an image cannot be read: {error}", path=path, hint="It is damaged.") from None
    size = image.width * image.height * 3
    check_limit(size, MAX_CHUNK_UNCOMPRESSED, path=path, offset=None, what="the size of an image")
    return image
