"""What the columns of a video stream hold, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...chunk import ChunkData

SAMPLE = "VideoStream:sample"
CODEC = "VideoStream:codec"
IS_KEYFRAME = "VideoStream:is_keyframe"


def column(data: ChunkData, component: str) -> pa.ListArray | None:
    """The values of a component, None where the chunk has no such column."""
    return next((c.values for c in data.components if c.descriptor.component == component), None)


def samples(values: pa.ListArray) -> Iterator[tuple[int, bytes]]:
    """Each row that has a sample, with its bytes.

    Raises ``ValueError`` where the column holds something else than bytes.
    """
    rows, first = first_values(values)
    read = _byte_reader(values.values)
    for row, index in zip(rows.tolist(), first.tolist(), strict=True):
        sample = read(index)
        if sample:
            yield row, sample


def first_values(values: pa.ListArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows that hold a value, and where in ``values.values`` the first one of each lies."""
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ends = np.frombuffer(values.buffers()[1], dtype=np.int32, count=len(values) + 1, offset=4 * values.offset)
    there = ends[1:] > ends[:-1]
    if values.null_count:
        there &= values.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(there).astype(np.int64)
    return rows, ends[rows].astype(np.int64)


def _byte_reader(blobs: pa.Array) -> Callable[[int], bytes | None]:
    datatype = blobs.type
    if pa.types.is_binary(datatype) or pa.types.is_large_binary(datatype):
        return lambda index: blobs[index].as_py()
    if pa.types.is_list(datatype) and datatype.value_type.bit_width == 8 and pa.types.is_integer(datatype.value_type):
        octets = blobs.values
        buffer = octets.buffers()[1]
        flat = np.frombuffer(buffer if buffer is not None else b"", dtype=np.uint8)[octets.offset :]
        ends = np.frombuffer(blobs.buffers()[1] or b"", dtype=np.int32)[blobs.offset :]
        if not blobs.null_count:
            return lambda index: flat[ends[index] : ends[index + 1]].tobytes()
        there = blobs.is_valid().to_numpy(zero_copy_only=False)
        return lambda index: flat[ends[index] : ends[index + 1]].tobytes() if there[index] else None
    raise ValueError(f"video samples are stored as {datatype}, not as bytes")
