"""Images as bytes of JPEG and PNG: what they are, their pixels, and raw pixels made into PNG. By Pillow."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import MissingExtraError, ReadError, UnsupportedError, extra_command
from ..limits import MAX_CHUNK_UNCOMPRESSED, check_limit

if TYPE_CHECKING:
    from PIL.Image import Image

_KINDS: Final = ("JPEG", "PNG")
_JPEG: Final = b"\xff\xd8\xff"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_ENDS: Final = {_JPEG: b"\xff\xd9", _PNG: b"IEND"}
_HINT: Final = "Images are taken as JPEG and PNG, and raw pixels as RGB, BGR and grey of 8 bits."

_MODELS: Final = {1: "L", 2: "RGB", 3: "RGBA", 4: "BGR", 5: "BGRA"}
"""Rerun's color models, by their numbers."""
_U8: Final = 6
"""Rerun's channel datatype of 8 bits without a sign."""


def picture_size(data: bytes, path: str) -> tuple[int, int, int]:
    """Return height, width and channels of a JPEG or PNG, by its header; it must have an end, too.

    Raises
    ------
    UnsupportedError
        It is neither.
    ReadError
        It is cut, damaged or too large.
    """
    end = next((end for start, end in _ENDS.items() if data.startswith(start)), None)
    if end is None:
        raise UnsupportedError(f"an image begins with {data[:8].hex(' ')}", path=path, offset=0, hint=_HINT)
    if end not in data[-65_536:]:
        raise ReadError(f"an image of {len(data):,} bytes has no end", path=path, hint="It is cut; leave it out.")
    with _opened(data, path) as image:
        return image.height, image.width, 1 if image.mode in ("L", "1", "I", "I;16") else 3


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
        The format is none that is taken.
    ReadError
        There are fewer pixels than it says.
    """
    width, height = given.get("width"), given.get("height")
    model = _MODELS.get(given.get("color_model") or 0)
    is_plain = given.get("pixel_format") is None and given.get("channel_datatype") in (_U8, None)
    if not is_plain or model is None or not isinstance(width, int) or not isinstance(height, int):
        raise UnsupportedError(f"an image of the format {dict(given)}", path=path, hint=_HINT)
    channels = len(model)
    check_limit(width * height * channels, len(raw), path=path, offset=None, what="the size of an image")
    shape = (height, width, channels)
    values = np.frombuffer(raw, np.uint8, width * height * channels).reshape(shape)
    if model.startswith("BGR"):
        values = values[..., [2, 1, 0]]
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(values[..., :3] if channels > 1 else values[..., 0]).save(out, "PNG", compress_level=1)
    return out.getvalue()


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
