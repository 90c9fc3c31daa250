"""Datasets of pictures as archetypes: pixels as ``Image`` or ``DepthImage``, padded files as ``EncodedImage``."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ...engine.chunk import ComponentDescriptor
from ...engine.errors import ReadError, UsageError
from ..parquet import one_each
from .file import Dataset

_COLOURS: Final = {1: "mono", 3: "rgb", 4: "rgba"}
_DEPTHS: Final = {"uint16": "16UC1", "float32": "32FC1", "float64": "64FC1"}
_FORMAT: Final = pa.struct(
    [
        pa.field("width", pa.uint32(), nullable=False),
        pa.field("height", pa.uint32(), nullable=False),
        pa.field("pixel_format", pa.uint8()),
        pa.field("color_model", pa.uint8()),
        pa.field("channel_datatype", pa.uint8()),
    ]
)
_NUMBERS: Final[dict[str, tuple[int | None, int]]] = {
    "mono8": (1, 6),
    "rgb8": (2, 6),
    "rgba8": (3, 6),
    "rgb16": (2, 8),
    "rgba16": (3, 8),
    "16UC1": (None, 8),
    "32FC1": (None, 34),
    "64FC1": (None, 35),
}
"""Rerun's numbers of a colour model and of the datatype of a channel."""
_TYPES: Final = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp"}
"""Media types by the first bytes of a file."""
_UNFIT: Final = (
    "Images are datasets of uint8 or uint16 in the shape (rows, height, width) or (rows, height, width, 1, 3 or 4), of "
    "floats in (rows, height, width), or of uint8 in (rows, bytes) with a JPEG, PNG or WebP in each row."
)

_FILE: Final = (("blob", "Blob"), ("media_type", "MediaType"))

Columns = list[tuple[ComponentDescriptor, pa.Array]]


class ImageLayout(NamedTuple):
    """The layout of a dataset of pictures: the encoding of its pixels, or "" for files, and its width and height."""

    encoding: str = ""
    width: int = 0
    height: int = 0
    is_depth: bool = False

    @classmethod
    def of(cls, dataset: Dataset, path: str) -> ImageLayout:
        """Return the layout of a dataset of pictures. Raises ``UsageError`` for one that has none."""
        dtype, shape = dataset.dtype, dataset.shape
        if dtype == "uint8" and len(shape) == 2:
            return cls()
        if dtype in ("uint8", "uint16") and (len(shape) == 3 or (len(shape) == 4 and shape[3] in _COLOURS)):
            colours = _COLOURS[shape[3] if len(shape) == 4 else 1]
            if colours == "mono" and dtype == "uint16":
                return cls(_DEPTHS[dtype], shape[2], shape[1], is_depth=True)
            return cls(f"{colours}{8 * np.dtype(dtype).itemsize}", shape[2], shape[1])
        if dtype in _DEPTHS and (len(shape) == 3 or shape[3:] == (1,)):
            return cls(_DEPTHS[dtype], shape[2], shape[1], is_depth=True)
        raise UsageError(f"{dataset.path}: {dtype} in the shape {list(shape)} shows no images", path=path, hint=_UNFIT)

    def columns(self, values: pa.Array, dataset: Dataset, path: str, first_row: int) -> Columns:
        """Return the components of rows, the first of which is ``first_row``. Raises ``ReadError``."""
        rows = len(values)
        if not self.encoding:
            blobs, types = _files(values, dataset, path, first_row)
            blob, media_type = (_descriptor("EncodedImage", *names) for names in _FILE)
            return [(blob, one_each(blobs, nullable=True)), (media_type, types)]
        flat = values.flatten()
        size = dataset.row_bytes
        pixels = pa.Array.from_buffers(
            pa.uint8(), rows * size, [None, flat.buffers()[1]], offset=flat.offset * dataset.item
        )
        ends = pa.array(np.arange(rows + 1, dtype=np.int64) * size, pa.int32())
        buffers = pa.ListArray.from_arrays(ends, pixels)
        widths, heights = (pa.array(np.full(rows, number, np.uint32)) for number in (self.width, self.height))
        codes = [pa.array([number] * rows, pa.uint8()) for number in (None, *_NUMBERS[self.encoding])]
        formats = pa.StructArray.from_arrays([widths, heights, *codes], fields=list(_FORMAT))
        archetype = "DepthImage" if self.is_depth else "Image"
        return [
            (_descriptor(archetype, "buffer", "ImageBuffer"), one_each(buffers, nullable=True)),
            (_descriptor(archetype, "format", "ImageFormat"), one_each(formats, nullable=True)),
        ]


def _descriptor(archetype: str, field: str, kind: str) -> ComponentDescriptor:
    return ComponentDescriptor(f"{archetype}:{field}", f"rerun.archetypes.{archetype}", f"rerun.components.{kind}")


def _files(values: pa.Array, dataset: Dataset, path: str, first_row: int) -> tuple[pa.Array, pa.Array]:
    """The files in rows, without the zeros behind them, as lists of bytes, and their media types."""
    rows = np.frombuffer(values.flatten().buffers()[1], np.uint8)[values.offset * dataset.row_bytes :]
    rows = rows[: len(values) * dataset.row_bytes].reshape(len(values), -1)
    sizes = dataset.shape[1] - np.argmax(rows[:, ::-1] != 0, axis=1)
    types: list[str] = []
    for number, row in enumerate(rows):
        head = row[:4].tobytes()
        kind = next((name for begin, name in _TYPES.items() if head.startswith(begin)), None)
        if kind is None:
            raise ReadError(
                f"{dataset.path}: row {first_row + number:,} is no JPEG, PNG or WebP: it begins with {head.hex(' ')}",
                path=path,
                hint="Leave the dataset out of the images; its rows are read as numbers then.",
            )
        types.append(kind)
    kept = np.arange(rows.shape[1]) < sizes[:, None]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(rows[kept])), one_each(pa.array(types), nullable=True)
