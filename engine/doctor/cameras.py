"""Faults of cameras: images that do not change, images of one colour, videos with too few key frames.

Images are compared by digests. One image in two seconds is decoded, and as many key frames of a video.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ..chunk import ChunkData, Timeline
from ..errors import ChunkmillError
from ..limits import MAX_FRAME_PIXELS, MIB
from ..video import DETECTORS, VideoSample, VideoTrack, decode, detect_gop_start, has_video_extra
from .findings import Finding

SECOND: Final = 1_000_000_000
FROZEN: Final = 5
"""The number of equal consecutive images of a frozen camera. Even at rest, images have noise; two equal ones can be
copies."""
FROZEN_TIME: Final = SECOND // 2
"""The least duration of a frozen camera: shorter runs of equal images are a burst of copies."""
EVERY: Final = 2 * SECOND
"""The time between decoded images: a dark camera is dark for longer."""
EVERY_ROWS: Final = 50
"""Without a clock, one of this number of images is decoded."""
ONE_COLOUR: Final = 3
"""The largest difference of 8-bit pixels of one colour, after compression."""
MOST_APART: Final = 30 * SECOND
"""The longest normal interval of key frames, which is usually one or two seconds. Seeking decodes from the preceding
key frame."""
_MOST_FRAMES: Final = 12
_MOST_SAMPLE: Final = 2 * MIB
_IMAGES: Final = frozenset({"Image:buffer", "DepthImage:buffer", "EncodedImage:blob", "EncodedDepthImage:blob"})
_COLOUR: Final = {"Image:buffer": "Image:format"}
_CHANNELS: Final = {1: 1, 2: 3, 3: 4, 4: 3, 5: 4}


@dataclass(slots=True)
class _Run:
    """Consecutive rows: their number, and their first and last time."""

    count: int = 0
    start: int = 0
    end: int = 0

    def extend(self, time: int) -> None:
        self.start = self.start if self.count else time
        self.count, self.end = self.count + 1, time


class _Images:
    """The images of one component of an entity."""

    def __init__(self, entity: str, name: str, timeline: Timeline) -> None:
        self.entity, self.name = entity, name
        self.timeline: dict[str, Any] = {"timeline": timeline.name, "timeline_type": timeline.kind.value}
        self._every = EVERY if timeline.kind.value != "sequence" else EVERY_ROWS
        self._is_clock = timeline.kind.value != "sequence"
        self._digest = 0
        self._run = self._longest = _Run()
        self._next: int | None = None
        self._blank = self._darkest = _Run()
        self._count = self._looked_at = 0
        self._colour = ""

    def add(self, images: Iterator[memoryview], forms: list[Any], times: npt.NDArray[np.int64]) -> None:
        """Take images with their formats and times."""
        for row, (image, time) in enumerate(zip(images, times.tolist(), strict=True)):
            if not len(image):
                continue
            self._count += 1
            self._compare(image, time)
            if self._next is None or time >= self._next:
                self._look(image, forms[row], time)
                self._next = time + self._every

    def _compare(self, image: memoryview, time: int) -> None:
        digest = xxhash.xxh3_64_intdigest(image)
        if digest != self._digest:
            self._digest, self._run = digest, _Run()
        self._run.extend(time)
        if self._run.count >= self._longest.count:
            self._longest = self._run

    def _look(self, image: memoryview, form: Any, time: int) -> None:
        colour = _colour_of(image, form, self.name)
        if colour is None:
            return
        self._looked_at += 1
        if not colour:
            self._blank = _Run()
            return
        self._blank.extend(time)
        if self._blank.count >= self._darkest.count:
            self._darkest, self._colour = self._blank, colour

    def findings(self) -> Iterator[Finding]:
        run = self._longest
        if run.count >= FROZEN and (run.end - run.start >= FROZEN_TIME or not self._is_clock):
            place = {**self.timeline, "start": run.start, "end": run.end}
            value = f"{run.count:,} equal images in a row"
            yield Finding("frozen-camera", self.entity, self.name, **place, value=value, expected="noise")
        dark = self._darkest
        if dark.count >= 2 or (0 < dark.count == self._looked_at and self._count >= FROZEN):
            place = {**self.timeline, "start": dark.start, "end": dark.end}
            value = f"{self._colour} in {dark.count:,} of {self._looked_at:,} examined images"
            yield Finding("blank-camera", self.entity, self.name, **place, value=value)


def _colour_of(image: memoryview, form: Any, name: str) -> str | None:
    """Return the colour of an image of one colour, "" for other images, and None for those that are not decoded."""
    try:
        if name == "EncodedImage:blob":
            return one_colour(_decoded(image))
        if name not in _COLOUR or not isinstance(form, dict) or form.get("pixel_format") is not None:
            return None
        channels = _CHANNELS.get(form.get("color_model") or 1, 1)
        if (form.get("channel_datatype") or 6) != 6:
            return None
        return one_colour(np.frombuffer(image, np.uint8).reshape(-1, channels))
    except Exception:  # noqa: BLE001 (pictures may come from anybody; what cannot be decoded is for `verify`)
        return None


def _decoded(image: memoryview) -> npt.NDArray[np.uint8]:
    from PIL import Image

    with warnings.catch_warnings(), Image.open(io.BytesIO(image)) as picture:
        warnings.simplefilter("ignore")
        if picture.width * picture.height > MAX_FRAME_PIXELS:
            raise ValueError("too large to examine")
        picture.draft("RGB", (64, 64))  # a JPEG is decoded smaller, which takes a tenth of the time
        return np.asarray(picture.convert("RGB")).reshape(-1, 3)


def one_colour(pixels: npt.NDArray[np.uint8]) -> str:
    """Return the colour of pixels ``(n, channels)`` that are all alike, else "".

    >>> one_colour(np.zeros((4, 3), np.uint8)), one_colour(np.eye(3, dtype=np.uint8) * 99)
    ('black', '')
    """
    pixels = pixels[:, :3]
    if not len(pixels) or int((pixels.max(axis=0) - pixels.min(axis=0)).max()) > ONE_COLOUR:
        return ""
    middle = np.median(pixels, axis=0).astype(int).tolist()
    return "black" if max(middle) <= 16 else f"all {tuple(middle) if len(middle) > 1 else middle[0]}"


@dataclass(slots=True)
class _Video:
    """The samples of a video stream."""

    entity: str
    timeline: dict[str, Any]
    is_clock: bool
    codec: int | None = None
    count: int = 0
    first: int = 0
    last: int = 0
    key: int | None = None
    key_row: int = 0
    starts_with_key: bool = True
    widest: tuple[int, int, int] = (0, 0, 0)
    frames: list[tuple[int, bytes]] = field(default_factory=list)

    def add(self, sample: memoryview, time: int) -> None:
        if not self.count:
            self.first = time
        is_key = self._is_key(sample)
        if not self.count:
            self.starts_with_key = is_key
        if is_key:
            self._end_group(time)
            self.key, self.key_row = time, self.count
            is_due = not self.frames or time >= self.frames[-1][0] + (EVERY if self.is_clock else EVERY_ROWS)
            if is_due and len(self.frames) < _MOST_FRAMES and len(sample) <= _MOST_SAMPLE:
                self.frames.append((time, bytes(sample)))
        self.count, self.last = self.count + 1, time

    def _is_key(self, sample: memoryview) -> bool:
        try:
            return detect_gop_start(bytes(sample), self.codec)
        except ValueError:
            return False

    def _end_group(self, time: int) -> None:
        if self.key is not None and time - self.key > self.widest[0]:
            self.widest = (time - self.key, self.key, time)

    def findings(self) -> Iterator[Finding]:
        if not self.count:
            return
        self._end_group(self.last)
        if self.key is None:
            place = {**self.timeline, "start": self.first, "end": self.last}
            yield Finding("video-keyframes", self.entity, **place, value=f"none in {self.count:,} samples")
            return
        if not self.starts_with_key:
            place = {**self.timeline, "start": self.first, "end": self.first}
            yield Finding("video-start", self.entity, **place, value="another frame", expected="a key frame")
        if self.is_clock and self.widest[0] > MOST_APART:
            span, start, end = self.widest
            said: dict[str, Any] = {
                "value": f"{span / SECOND:.4g} s apart",
                "expected": f"at most {MOST_APART / SECOND:.0f} s",
            }
            yield Finding("video-keyframes", self.entity, **self.timeline, start=start, end=end, **said)
        yield from self._blank()

    def _blank(self) -> Iterator[Finding]:
        colours = [(time, self._colour_of(sample)) for time, sample in self.frames] if has_video_extra() else []
        run, longest, seen = _Run(), _Run(), ""
        for time, colour in colours:
            if not colour:
                run = _Run()
                continue
            run.extend(time)
            if run.count >= longest.count:
                longest, seen = run, colour
        if longest.count >= 2 or 0 < longest.count == len(colours):
            place = {**self.timeline, "start": longest.start, "end": longest.end}
            value = f"{seen} in {longest.count:,} of {len(colours):,} examined key frames"
            yield Finding("blank-camera", self.entity, "VideoStream:sample", **place, value=value)

    def _colour_of(self, sample: bytes) -> str:
        track = VideoTrack(self.codec or 0, 0, 0, Fraction(1, SECOND))
        try:
            frames = list(decode(track, [VideoSample(0, 0, True, sample)], step=4, threads=1))
        except ChunkmillError:
            return ""  # `verify` finds what cannot be decoded
        return one_colour(frames[0].image.reshape(-1, 3)) if frames else ""


class CameraChecks:
    """The images and videos of a recording."""

    def __init__(self) -> None:
        self._images: dict[tuple[str, str], _Images] = {}
        self._videos: dict[str, _Video] = {}
        self._codecs: dict[str, int] = {}
        self._forms: dict[tuple[str, str], Any] = {}

    def add(self, data: ChunkData) -> None:
        """Take the images and samples of a chunk."""
        columns = {c.descriptor.component: c.values for c in data.components}
        self._note_codec(data.entity_path, columns)
        for name in _COLOUR.values():
            if name in columns and columns[name].null_count < len(columns[name]):
                self._forms[data.entity_path, name] = next(
                    (form[0] for form in columns[name].slice(0, 1).to_pylist() if form), None
                )
        if not data.timelines:
            return
        clock = next((t for t in data.timelines if t.kind.value != "sequence"), data.timelines[0])
        for name, values in columns.items():
            if name in _IMAGES:
                self._add_images(data.entity_path, name, values, columns, clock)
            elif name == "VideoStream:sample":
                self._add_samples(data.entity_path, values, clock)

    def _note_codec(self, entity: str, columns: dict[str, pa.ListArray]) -> None:
        codec = columns.get("VideoStream:codec")
        if codec is not None and len(codec.flatten()):
            self._codecs[entity] = int(codec.flatten()[-1].as_py())

    def _add_images(
        self, entity: str, name: str, values: pa.ListArray, columns: dict[str, pa.ListArray], clock: Timeline
    ) -> None:
        blobs, rows = _single(values)
        if blobs is None:
            return
        key = (entity, name)
        images = self._images.get(key)
        if images is None:
            images = self._images[key] = _Images(entity, name, clock)
        form = _COLOUR.get(name, "")
        last = self._forms.get((entity, form))
        given = columns[form].take(pa.array(rows)).to_pylist() if form in columns else [None] * len(rows)
        forms = []
        for cell in given:
            last = cell[0] if cell else last
            forms.append(last)
        images.add(blobs, forms, clock.ticks[rows])

    def _add_samples(self, entity: str, values: pa.ListArray, clock: Timeline) -> None:
        blobs, rows = _single(values)
        codec = self._codecs.get(entity)
        if blobs is None or codec not in DETECTORS:
            return
        video = self._videos.get(entity)
        if video is None:
            names = {"timeline": clock.name, "timeline_type": clock.kind.value}
            video = self._videos[entity] = _Video(entity, names, clock.kind.value != "sequence", codec)
        for sample, time in zip(blobs, clock.ticks[rows].tolist(), strict=True):
            video.add(sample, time)

    def findings(self) -> Iterator[Finding]:
        """The faults of all cameras."""
        for images in self._images.values():
            yield from images.findings()
        for video in self._videos.values():
            yield from video.findings()


def _single(values: pa.ListArray) -> tuple[Iterator[memoryview] | None, npt.NDArray[np.int64]]:
    """The bytes of each row with exactly one blob, not copied, and these rows; None without such rows."""
    rows = np.flatnonzero(np.asarray(pc.fill_null(pc.list_value_length(values), 0)) == 1)
    blobs = values.take(pa.array(rows)).flatten() if len(rows) < len(values) else values.flatten()
    if blobs.null_count or not len(blobs):
        return None, rows
    if pa.types.is_list(blobs.type) and blobs.type.value_type == pa.uint8():
        data, offsets = memoryview(blobs.values.buffers()[1] or b""), blobs.offsets.to_numpy() + blobs.values.offset
    elif pa.types.is_binary(blobs.type):
        _, ends, content = blobs.buffers()
        data = memoryview(content or b"")
        offsets = np.frombuffer(ends, np.int32)[blobs.offset : blobs.offset + len(blobs) + 1]
    else:
        return None, rows
    pieces = pairwise(offsets.tolist())
    return (data[begin:end] for begin, end in pieces), rows
