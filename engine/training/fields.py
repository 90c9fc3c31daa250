"""Fields of samples, the times at which samples are taken, and decoders of values."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import MissingExtraError, ReadWarning, UsageError, extra_command
from ..video import CODECS, FrameOutput
from .pixels import Crop, check_part, check_within, cut, raw_pixels, raw_planes, scaled
from .plan import Integers

if TYPE_CHECKING:
    from ...lenses import Selector

Fill = Literal["error", "skip", "nan", "none"]
Edges = Literal["pad", "trim"]
Decoded = npt.NDArray[Any]

VIDEO_CODECS: Final = {**CODECS, "avc": CODECS["h264"], "h265": CODECS["hevc"]}
"""Rerun's codec numbers, by the codecs' names."""


_TOLERANCE: Final = 1_000
"""How many nanoseconds before its time a value becomes valid."""


@dataclass(frozen=True)
class FixedRateSampling:
    """A sample every ``1 / rate_hz`` seconds from the beginning of each segment, on an index of times.

    Each time is rounded to a nanosecond independently, so that the times of a long segment do not drift.

    Raises ``ValueError`` for a rate that is not positive.
    """

    rate_hz: float
    tolerance: ClassVar[int] = _TOLERANCE

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate_hz) and self.rate_hz > 0):
            raise UsageError(f"rate_hz: expected a positive number, got {self.rate_hz}")

    def times(self, first: int, last: int) -> Integers:
        """Return the times of samples between two times, in nanoseconds.

        >>> FixedRateSampling(30).times(0, 100_000_000).tolist()
        [0, 33333333, 66666667, 100000000]
        """
        count = int((last - first) * self.rate_hz / 1e9) + 2
        grid = first + np.rint(np.arange(count) * (1e9 / self.rate_hz)).astype(np.int64)
        times: Integers = np.minimum(grid[grid <= last + 1], last)  # recorders round down, too
        return times


@dataclass(frozen=True)
class RowSampling:
    """A sample at each time at which a component has a value, such as ``/camera:VideoStream:sample``."""

    path: str
    tolerance: ClassVar[int] = _TOLERANCE


class Decoder(Protocol):
    """Converts the values of a component to arrays."""

    def decode(self, values: pa.ListArray, rows: Integers) -> Decoded | list[Decoded | None]:
        """Return the values of rows: an array of shape ``(n, ...)``, or a list with an array or None for each row."""
        ...


@dataclass(frozen=True)
class NumericDecoder:
    """Numbers, such as joints or poses: all values of a row, with shape ``(d,)``.

    Parameters
    ----------
    dtype
        The type of the returned numbers, such as ``float32``. None: the stored type.

    Raises
    ------
    ValueError
        ``dtype`` is not a type of numbers.
    """

    dtype: str | None = None

    def __post_init__(self) -> None:
        try:
            is_number = self.dtype is None or np.dtype(self.dtype).kind in "biuf"
        except TypeError:
            is_number = False
        if not is_number:
            raise UsageError(f"dtype: expected a type of numbers, such as float32, got {self.dtype!r}")

    def decode(self, values: pa.ListArray, rows: Integers) -> Decoded | list[Decoded | None]:
        """Return the numbers of rows as one array, or as a list if rows have different counts or no values."""
        flat, ends, has_null = flat_numbers(values)
        if self.dtype is not None:
            flat = flat.astype(self.dtype, copy=False)
        widths = np.diff(ends)[rows]
        if len(rows) and widths[0] > 0 and bool((widths == widths[0]).all()) and not has_null[rows].any():
            whole: Decoded = flat[ends[rows][:, None] + np.arange(widths[0])]
            return whole
        decoded: list[Decoded | None] = []
        for row in rows.tolist():
            low, high = int(ends[row]), int(ends[row + 1])
            decoded.append(flat[low:high].copy() if low < high and not has_null[row] else None)
        return decoded


def flat_numbers(values: pa.Array) -> tuple[Decoded, Integers, npt.NDArray[np.bool_]]:
    """Return all numbers in nested lists, the bounds of each row's numbers, and which rows have a null."""
    ends: Integers = np.arange(len(values) + 1)
    has_null = np.zeros(len(values), np.bool_)
    inner: pa.Array = values
    while True:
        kind = inner.type
        if inner.null_count:
            before = np.concatenate([[0], np.cumsum(inner.is_null().to_numpy(zero_copy_only=False))])
            has_null |= np.diff(before[ends]) > 0
        if pa.types.is_fixed_size_list(kind):
            ends = (ends + inner.offset) * kind.list_size
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            ends = np.asarray(inner.offsets).astype(np.int64)[ends]
        else:
            break
        inner = inner.values
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise UsageError(f"a component of {kind} has no numbers", hint="Choose one of its fields by `select`.")
    if inner.null_count:
        inner = pc.fill_null(inner, pa.scalar(0).cast(kind))
    return inner.to_numpy(zero_copy_only=False), ends, has_null


@dataclass(frozen=True)
class TextDecoder:
    """Text, such as a task: one ``str`` per row."""

    def decode(self, values: pa.ListArray, rows: Integers) -> list[Decoded | None]:
        """Return the first text of each row."""
        texts = [(values[row].as_py() or [None])[0] for row in rows.tolist()]
        return [None if text is None else np.array(str(text), dtype=object) for text in texts]


_MODES: Final = {"1": "L", "P": "RGB", "PA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB"}
"""The target modes for pictures with palettes, or with colours other than RGB."""


@dataclass(frozen=True)
class ImageDecoder:
    """Pictures of shape ``(channels, height, width)``, as ``uint8`` or with the type of the pixels.

    For ``EncodedImage:blob``: JPEG, PNG and the other formats of Pillow. For ``Image:buffer``, ``DepthImage:buffer``
    and ``SegmentationImage:buffer``: all pixel formats, colour models and datatypes of Rerun's ``ImageFormat``, which
    is also read. One and four channels stay. BGR, YUV and Bayer patterns become RGB.

    Parameters
    ----------
    size
        The height and width of scaled pictures. JPEG is decoded directly at a smaller size. Distances and classes take
        the nearest pixel.
    crop
        Top, left, height and width of the part to keep, before scaling.
    output_format
        ``rgb``, or ``yuv420p``: the unconverted planes of YUV 4:2:0 images, as a :class:`Yuv420Frame`.

    Raises
    ------
    ValueError
        An argument is invalid.

    Examples
    --------
    >>> ImageDecoder(size=(96, 128), crop=(0, 80, 480, 480)).size
    (96, 128)
    """

    size: tuple[int, int] | None = None
    crop: Crop | None = None
    output_format: FrameOutput = "rgb"

    def __post_init__(self) -> None:
        check_part(self.size, self.crop, self.output_format)

    def decode(self, values: pa.ListArray, rows: Integers) -> list[Decoded | None]:
        """Return the picture of each row. Raises ``ValueError`` for bytes that are not a picture."""
        if self.output_format != "rgb":
            raise UsageError("pictures in files have no YUV planes", hint="Remove output_format from the decoder.")
        return [None if blob is None else self._picture(blob) for blob in blobs_of(values, rows)]

    def decode_raw(
        self, values: pa.ListArray, rows: Integers, formats: Sequence[Mapping[str, Any] | None], *, blends: bool
    ) -> list[Any]:
        """Return the image of each row, by its format. Raises ``ValueError`` for bytes that do not fit the format."""
        pairs = zip(blobs_of(values, rows), formats, strict=True)
        return [None if blob is None or form is None else self._image(blob, form, blends) for blob, form in pairs]

    def _image(self, blob: memoryview, form: Mapping[str, Any], blends: bool) -> Any:
        if self.output_format == "rgb":
            pixels = scaled(cut(raw_pixels(blob, form), self.crop), self.size, blends=blends)
            return pixels.transpose(2, 0, 1).copy()
        y, uv, color_range = raw_planes(blob, form)
        y, uv = cut(y, self.crop), uv.transpose(1, 2, 0)
        if self.crop is not None:
            top, left, height, width = (-(-some // 2) for some in self.crop)
            uv = cut(uv, (top, left, height, width))
        if self.size is not None:
            y = scaled(y[..., None], self.size)[..., 0]
            sides = (-(-self.size[0] // 2), -(-self.size[1] // 2))
            uv = np.concatenate([scaled(uv[..., i : i + 1], sides) for i in range(2)], 2)
        return yuv420_frame(y, uv.transpose(2, 0, 1), "bt601", color_range)

    def _picture(self, blob: memoryview) -> Decoded:
        try:
            from PIL import Image
        except ImportError as error:
            raise MissingExtraError("pictures need the package Pillow", hint=extra_command("training")) from error
        try:
            with Image.open(io.BytesIO(blob)) as opened:
                whole = opened.size
                if self.crop is not None:
                    check_within(self.crop, whole[1], whole[0])
                top, left, height, width = self.crop or (0, 0, whole[1], whole[0])
                box: tuple[float, float, float, float] = (left, top, left + width, top + height)
                if self.size is not None:
                    least = (self.size[1] * whole[0] // width, self.size[0] * whole[1] // height)
                    opened.draft("RGB", least)
                    across, down = opened.size[0] / whole[0], opened.size[1] / whole[1]
                    box = (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
                image: Image.Image = opened.convert(_MODES[opened.mode]) if opened.mode in _MODES else opened
                if image.size == whole and self.crop is not None:
                    image = image.crop((left, top, left + width, top + height))
                    box = (0, 0, width, height)
                if self.size is not None and (image.size, box) != (self.size[::-1], (0, 0, *self.size[::-1])):
                    image = image.resize(self.size[::-1], box=box)
                pixels = np.asarray(image)
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"{len(blob)} bytes are not an image: {error}") from error
        if pixels.ndim == 2:
            return pixels[None].copy()
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def yuv420_frame(y: Decoded, uv: Decoded, color_space: str, color_range: str) -> Any:
    """Return planes as a :class:`Yuv420Frame`, which needs torch."""
    import torch

    from .yuv import Yuv420Frame

    planes = torch.from_numpy(y[None].copy()), torch.from_numpy(uv.copy())
    return Yuv420Frame(*planes, color_space, color_range)  # type: ignore[arg-type]


@dataclass(frozen=True)
class VideoFrameDecoder:
    """Frames of a ``VideoStream``: RGB as ``uint8`` of shape ``(3, height, width)``, or their YUV planes.

    Supports H.264, H.265, AV1, VP8 and VP9. Key frames are detected from the bytes; ``is_keyframe`` is not needed.

    Parameters
    ----------
    threads
        The number of threads that decode one stream. None: the number of cores, at most 4.
    codec
        The codec, such as ``h264``, for recordings without ``VideoStream:codec``. A recording with another codec is an
        error.
    thread_count
        The same as ``threads``, by Rerun's name; 0 is None.
    max_decoder_sessions, window_storage
        Accepted for scripts written for Rerun, but without effect, with a warning.
    output_format
        ``rgb``, or ``yuv420p``: half the bytes, as a :class:`Yuv420Frame`, unconverted if the video has this format.
    size
        The height and width of scaled frames.
    crop
        Top, left, height and width of the part to keep, before scaling. The decoding process crops and scales, so that
        only these pixels are copied.

    Raises
    ------
    ValueError
        There is no such codec, or an argument is invalid.

    Examples
    --------
    >>> VideoFrameDecoder(size=(224, 224), crop=(0, 80, 480, 480)).output_format
    'rgb'
    """

    threads: int | None = 1
    codec: str | None = None
    thread_count: int | None = None
    max_decoder_sessions: int | None = None
    window_storage: Literal["copy", "view"] = "copy"
    output_format: FrameOutput = "rgb"
    size: tuple[int, int] | None = None
    crop: Crop | None = None

    def __post_init__(self) -> None:
        if self.codec is not None and self.codec.lower() not in VIDEO_CODECS:
            raise UsageError(f"codec: expected one of {', '.join(VIDEO_CODECS)}, got {self.codec!r}")
        for name in ("thread_count", "max_decoder_sessions"):
            if (getattr(self, name) or 0) < 0:
                raise UsageError(f"{name}: expected 0 or more, got {getattr(self, name)}")
        if self.window_storage not in ("copy", "view"):
            raise UsageError(f"window_storage: expected copy or view, got {self.window_storage!r}")
        check_part(self.size, self.crop, self.output_format)
        if self.thread_count is not None:
            object.__setattr__(self, "threads", self.thread_count or None)
        if self.max_decoder_sessions is not None:
            _warn_of_argument("max_decoder_sessions", "groups of pictures are always decoded one by one")
        if self.window_storage == "view":
            _warn_of_argument("window_storage='view'", "each window is always a copy of its frames")


def _warn_of_argument(argument: str, reason: str) -> None:
    warnings.warn(ReadWarning(f"{argument} has no effect here: {reason}"), stacklevel=4)


def blobs_of(values: pa.ListArray, rows: Integers) -> list[memoryview | None]:
    """Return the bytes of the first value of each row, uncopied; None if there is none."""
    starts = np.asarray(values.offsets).astype(np.int64)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    inner = values.values
    kind = inner.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        ends, octets = np.asarray(inner.offsets).astype(np.int64), inner.values
        data = np.frombuffer(octets.buffers()[1] or b"", np.uint8)[octets.offset :]
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        width = np.int64 if pa.types.is_large_binary(kind) else np.int32
        ends = np.frombuffer(inner.buffers()[1] or b"", width)[inner.offset :].astype(np.int64)
        data = np.frombuffer(inner.buffers()[2] or b"", np.uint8)
    else:
        raise UsageError(f"a component of {kind} has no bytes of pictures or video")
    view = memoryview(data.data)
    blobs: list[memoryview | None] = []
    for row in rows.tolist():
        first = starts[row]
        has_value = valid[row] and starts[row + 1] > first
        blobs.append(view[ends[first] : ends[first + 1]] if has_value else None)
    return blobs


@dataclass(frozen=True)
class Field:
    """One field of a sample.

    Parameters
    ----------
    path
        The column: ``/entity:Archetype:component``.
    decode
        The decoder, which converts values to arrays.
    select
        A selector, or its text, that is applied to the column first.
    window
        Offsets of the values from the sample's time: seconds, or steps of a sequence index. The field then has the
        shape ``(len(window), ...)``.
    max_staleness
        The largest age of a value, in the same unit. An older value counts as missing.
    fill
        If the field has no value in a sample: ``error`` raises; ``skip`` skips and counts the sample; ``nan`` fills
        floating-point numbers; ``none`` gives None, for your own collate. The default is ``error``, or ``skip`` in the
        datasets with Rerun's names.
    edges
        For offsets beyond the ends of a segment: ``pad`` repeats the value at the end, and adds a mask
        ``<name>_is_pad`` to the sample; ``trim`` takes no samples there. The default is ``pad``, or ``trim`` in the
        datasets with Rerun's names.

    Raises
    ------
    ValueError
        The window is empty, or a number is not finite.
    """

    path: str
    decode: Any
    select: Selector | str | None = None
    window: Sequence[float] | None = None
    max_staleness: float | None = None
    fill: Fill | None = None
    edges: Edges | None = None

    def __post_init__(self) -> None:
        if self.window is not None:
            object.__setattr__(self, "window", tuple(self.window))
            if not self.window or not all(math.isfinite(offset) for offset in self.window):
                raise UsageError(f"window of {self.path}: expected finite offsets, at least one, got {self.window!r}")
        if self.max_staleness is not None and not 0 <= self.max_staleness < math.inf:
            raise UsageError(f"max_staleness of {self.path}: expected 0 or more, got {self.max_staleness!r}")
        if self.select is not None and isinstance(self.decode, VideoFrameDecoder):
            raise UsageError(f"select of {self.path}: a selector cannot be applied to video")
        if self.fill not in (None, *_FILLS):
            raise UsageError(f"fill of {self.path}: expected one of {', '.join(_FILLS)}, got {self.fill!r}")
        if self.edges not in (None, *_EDGES):
            raise UsageError(f"edges of {self.path}: expected one of {', '.join(_EDGES)}, got {self.edges!r}")

    @property
    def selector(self) -> Selector | None:
        """The selector, if any."""
        if not isinstance(self.select, str):
            return self.select
        from ...lenses import Selector

        return Selector(self.select)

    def offsets(self, *, is_time: bool) -> Integers:
        """The offsets in units of the index (nanoseconds or steps). Raises ``ValueError`` for fractions of a step."""
        return np.array([ticks_of(offset, self.path, is_time=is_time) for offset in self.window or (0,)], np.int64)


_FILLS: Final = ("error", "skip", "nan", "none")
_EDGES: Final = ("pad", "trim")


def ticks_of(value: float, path: str, *, is_time: bool) -> int:
    """Return seconds in nanoseconds, or steps unchanged.

    >>> ticks_of(0.5, "/arm", is_time=True)
    500000000
    """
    if is_time:
        return round(value * 1e9)
    if int(value) != value:
        raise UsageError(f"{path}: a sequence index has whole steps, got {value!r}")
    return int(value)
