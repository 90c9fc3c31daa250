"""Raw images in Rerun's formats: planes of colours, packed colours, sensor patterns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..chunk import IMAGE_FORMAT
from ..errors import UsageError
from ..limits import MAX_FRAME_PIXELS

Pixels = npt.NDArray[Any]

Crop = tuple[int, int, int, int]
"""The part of a picture to keep: top, left, height and width."""

FORMATS: Final = {f"{name}:buffer": f"{name}:format" for name in ("Image", "DepthImage", "SegmentationImage")}
"""The format component for each component with pixels."""

WEIGHTS: Final = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
"""The weights of red and blue in the brightness."""

RANGES: Final = {"limited": (16.0, 219.0, 224.0), "full": (0.0, 255.0, 255.0)}
"""The value of black, and the sizes of the ranges of brightness and colour."""

_TYPES: Final = {
    6: "u1", 7: "i1", 8: "<u2", 9: "<i2", 10: "<u4", 11: "<i4", 12: "<u8", 13: "<i8", 33: "<f2", 34: "<f4", 35: "<f8",
}  # fmt: skip
_CHANNELS: Final = {1: (0,), 2: (0, 1, 2), 3: (0, 1, 2, 3), 4: (2, 1, 0), 5: (2, 1, 0, 3)}


class _Yuv(NamedTuple):
    """A layout of brightness and colour: how many columns and rows of pixels share a colour."""

    columns: int
    rows: int
    is_packed: bool
    color_range: str


_YUV: Final = {
    20: _Yuv(2, 2, False, "limited"),
    26: _Yuv(2, 2, True, "limited"),
    27: _Yuv(2, 1, True, "limited"),
    39: _Yuv(1, 1, False, "limited"),
    40: _Yuv(1, 1, False, "full"),
    44: _Yuv(2, 2, False, "full"),
    49: _Yuv(2, 1, False, "limited"),
    50: _Yuv(2, 1, False, "full"),
}
_GREY: Final = {30: "full", 41: "limited"}
_RED_AT: Final = {128: (0, 0), 129: (1, 1), 130: (1, 0), 131: (0, 1)}
"""The row and column of a pattern's first red pixel."""


class YuvPlanes(NamedTuple):
    """Brightness, colour (U and V, of shape ``(2, rows, columns)``), and the range of their numbers."""

    y: Pixels
    uv: Pixels
    color_range: str


def raw_pixels(data: memoryview, form: Mapping[str, Any]) -> Pixels:
    """Return an image in one of Rerun's formats as ``(height, width, channels)``.

    RGB, RGBA and one channel stay as they are. BGR, YUV (as BT.601, like in Rerun) and sensor patterns become RGB; a
    pattern's missing colours are means of neighbours. Raises ``ValueError`` for another number of bytes.

    >>> raw_pixels(memoryview(bytes([1, 2, 3])), {"width": 1, "height": 1, "color_model": 4}).tolist()
    [[[3, 2, 1]]]
    """
    width, height, kind = _sides(form)
    if kind in _YUV:
        return _rgb(_yuv(data, kind, width, height), width, height)
    if kind in _GREY:
        grey = _sized(data, np.dtype(np.uint8), (height, width, 1))
        black, most, _ = RANGES[_GREY[kind]]
        return grey if not black else _bytes((grey - black) * (255 / most))
    if kind in _RED_AT:
        return _mosaic(_sized(data, np.dtype(np.uint8), (height, width)), *_RED_AT[kind])
    if kind is not None:
        raise UsageError(f"the pixel format {kind} is not known")
    model, number = form.get("color_model") or 1, form.get("channel_datatype") or 6
    if model not in _CHANNELS or number not in _TYPES:
        raise UsageError(f"the color model {model} with channels of datatype {number} is not known")
    places = _CHANNELS[model]
    pixels = _sized(data, np.dtype(_TYPES[number]), (height, width, len(places)))
    return pixels if places == tuple(range(len(places))) else pixels[..., list(places)]


def raw_planes(data: memoryview, form: Mapping[str, Any]) -> YuvPlanes:
    """Return the planes of an image in YUV 4:2:0. Raises ``ValueError`` for another format."""
    width, height, kind = _sides(form)
    if kind not in _YUV or (_YUV[kind].columns, _YUV[kind].rows) != (2, 2):
        shown = {name: form.get(name) for name in IMAGE_FORMAT.names if form.get(name) is not None}
        raise UsageError(f"an image of {shown} is not YUV 4:2:0", hint='Use output_format="rgb" for other formats.')
    return _yuv(data, kind, width, height)


def _sides(form: Mapping[str, Any]) -> tuple[int, int, int | None]:
    width, height = int(form["width"]), int(form["height"])
    if not (width and height) or width * height > MAX_FRAME_PIXELS:
        raise ValueError(f"an image of {width} x {height} pixels is empty or too large")
    return width, height, form.get("pixel_format")


def _sized(data: memoryview, kind: np.dtype[Any], shape: tuple[int, ...]) -> Pixels:
    expected = int(np.prod(shape)) * kind.itemsize
    if len(data) != expected:
        raise ValueError(f"an image of {shape[1]} x {shape[0]} pixels has {len(data):,} bytes, not {expected:,}")
    return np.frombuffer(data, kind).reshape(shape)


def _yuv(data: memoryview, kind: int, width: int, height: int) -> YuvPlanes:
    columns, rows, is_packed, color_range = _YUV[kind]
    if width % columns or height % rows:
        raise ValueError(
            f"{width} x {height} pixels do not divide into blocks of {columns} x {rows}, which share a colour"
        )
    count, half = width * height, (height // rows, width // columns)
    flat = _sized(data, np.dtype(np.uint8), (1, count + 2 * half[0] * half[1]))[0]
    if rows == 1 and is_packed:
        whole = flat.reshape(height, width // 2, 4)
        y = whole[..., ::2].reshape(height, width)
        return YuvPlanes(y, np.stack([whole[..., 1], whole[..., 3]]), color_range)
    y, colour = flat[:count].reshape(height, width), flat[count:]
    uv = colour.reshape(*half, 2).transpose(2, 0, 1) if is_packed else colour.reshape(2, *half)
    return YuvPlanes(y, uv, color_range)


def _rgb(planes: YuvPlanes, width: int, height: int) -> Pixels:
    black, brightness, colour = RANGES[planes.color_range]
    y = (planes.y.astype(np.float32) - black) / brightness
    uv = (planes.uv.astype(np.float32) - 128) / colour
    u, v = uv.repeat(height // uv.shape[1], 1).repeat(width // uv.shape[2], 2)
    of_red, of_blue = WEIGHTS["bt601"]
    red, blue = y + 2 * (1 - of_red) * v, y + 2 * (1 - of_blue) * u
    green = (y - of_red * red - of_blue * blue) / (1 - of_red - of_blue)
    return _bytes(np.stack([red, green, blue], -1) * 255)


def _bytes(values: Pixels) -> Pixels:
    made: Pixels = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return made


def _mosaic(raw: Pixels, row: int, column: int) -> Pixels:
    """Return the colours of a sensor pattern, given the row and column of its first red pixel."""
    height, width = raw.shape
    if height < 2 or width < 2:
        raise ValueError(f"a pattern of {width} x {height} pixels lacks a colour")
    wide = np.pad(raw.astype(np.float32), 1, mode="reflect")
    above, below, left, right = wide[:-2, 1:-1], wide[2:, 1:-1], wide[1:-1, :-2], wide[1:-1, 2:]
    beside, upright = (left + right) / 2, (above + below) / 2
    corners = (wide[:-2, :-2] + wide[:-2, 2:] + wide[2:, :-2] + wide[2:, 2:]) / 4
    of_red_rows = (np.arange(height) % 2 == row)[:, None]
    of_red_columns = (np.arange(width) % 2 == column)[None]
    is_red, is_blue = of_red_rows & of_red_columns, ~of_red_rows & ~of_red_columns
    red = np.where(is_red, raw, np.where(is_blue, corners, np.where(of_red_rows, beside, upright)))
    blue = np.where(is_blue, raw, np.where(is_red, corners, np.where(of_red_rows, upright, beside)))
    green = np.where(is_red | is_blue, (beside + upright) / 2, raw)
    return _bytes(np.stack([red, green, blue], -1))


# --- parts of pictures


def check_part(size: tuple[int, int] | None, crop: Crop | None, output: str) -> None:
    """Raise ``ValueError`` for an invalid size, part or output."""
    for name, given, count in (("size", size, 2), ("crop", crop, 4)):
        least = 0 if name == "crop" else 1
        if given is not None and not (
            len(given) == count
            and all(isinstance(some, int | np.integer) and least <= some < 1 << 16 for some in given)
            and all(some > 0 for some in given[-2:])
        ):
            what = "height and width" if name == "size" else "top, left, height and width"
            raise UsageError(f"{name}: expected {what}, got {given!r}")
    if output not in ("rgb", "yuv420p"):
        raise UsageError(f"output_format: expected rgb or yuv420p, got {output!r}")
    if output == "yuv420p" and crop is not None and (crop[0] % 2 or crop[1] % 2):
        raise UsageError(f"crop: top and left must be even, because four pixels share a colour, got {crop!r}")


def cut(pixels: Pixels, crop: Crop | None) -> Pixels:
    """Return the part of a picture ``(height, width, ...)``. Raises ``ValueError`` if the part is not within it."""
    if crop is None:
        return pixels
    top, left, height, width = crop
    check_within(crop, *pixels.shape[:2])
    return pixels[top : top + height, left : left + width]


def check_within(crop: Crop, height: int, width: int) -> None:
    """Raise ``ValueError`` if a part is not within a picture."""
    top, left, rows, columns = crop
    if top + rows > height or left + columns > width:
        raise UsageError(
            f"the crop ends at {top + rows} x {left + columns} (height x width), but a picture has {height} x {width}",
            hint="Give a crop within all pictures.",
        )


def scaled(pixels: Pixels, size: tuple[int, int] | None, *, blends: bool = True) -> Pixels:
    """Return a picture ``(height, width, channels)`` in another size.

    With ``blends``, colours of 8 bits are blended. Other numbers, such as distances, take the nearest pixel.
    """
    height, width = pixels.shape[:2]
    if size is None or size == (height, width):
        return pixels
    if blends and pixels.dtype == np.uint8 and pixels.shape[2] in (1, 3, 4):
        from PIL import Image

        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
        blended: Pixels = np.asarray(image.resize(size[::-1])).reshape(*size, pixels.shape[2])
        return blended
    rows = ((np.arange(size[0]) + 0.5) * (height / size[0])).astype(np.int64)
    columns = ((np.arange(size[1]) + 0.5) * (width / size[1])).astype(np.int64)
    nearest: Pixels = pixels[rows[:, None], columns[None]]
    return nearest
