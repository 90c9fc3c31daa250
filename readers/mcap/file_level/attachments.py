"""The decoder ``attachments``: all attachments of a file as one chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ....engine.chunk import Chunk, ComponentDescriptor
from ....engine.errors import ReadError
from ....engine.limits import MAX_ATTACHMENTS
from ..attachment import Attachment, read_attachment
from ..file import McapFile
from ..records import ATTACHMENT, HEAD, Place
from .places import check_place
from .static import ATTACHMENTS_ENTITY, BLOB, PAIRS, pairs, static_chunk


def attachments_chunk(file: McapFile, places: Sequence[Place]) -> Chunk | None:
    """One row with one instance for each attachment, in the order of ``places``; None when there are none.

    The data of all of them is in memory once. Raises ``ReadError`` when it is more than ``MAX_ATTACHMENTS``, and where
    a CRC does not match.
    """
    if not places:
        return None
    heads = []
    for place in places:
        check_place(file, place, ATTACHMENT)
        heads.append(read_attachment(file, place.offset, place.length - HEAD.size))
    data = np.empty(_checked_size(file, heads), np.uint8)
    at = 0
    for head in heads:
        head.read_into(file, data[at : at + head.size])
        at += head.size
    return static_chunk(
        ATTACHMENTS_ENTITY,
        [
            (_described("data", "Blob"), _blobs(data, heads)),
            (_described("media_type", "MediaType"), pa.array([head.media_type for head in heads], pa.string())),
            (_described("metadata", "KeyValuePairs"), pa.array([_pairs(head) for head in heads], PAIRS)),
        ],
    )


def _checked_size(file: McapFile, heads: Sequence[Attachment]) -> int:
    total = sum(head.size for head in heads)
    if total > MAX_ATTACHMENTS:
        raise ReadError(
            f"its attachments have {total:,} bytes together, more than the {MAX_ATTACHMENTS:,} that are read",
            path=file.path,
            offset=heads[0].offset,
            hint='Read the file without them: leave "attachments" out of decoders=.',
        )
    return total


def _blobs(data: np.ndarray, heads: Sequence[Attachment]) -> pa.Array:
    borders = np.cumsum([0, *(head.size for head in heads)], dtype=np.int32)
    values = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
    return pa.Array.from_buffers(BLOB, len(heads), [None, pa.py_buffer(borders)], children=[values])


def _pairs(head: Attachment) -> list[dict[str, str]]:
    return pairs(
        {
            "name": head.name,
            "media_type": head.media_type,
            "log_time": str(head.log_time),
            "create_time": str(head.create_time),
            "data_size": str(head.size),
            "offset": str(head.offset),
        }
    )


def _described(name: str, component_type: str) -> ComponentDescriptor:
    return ComponentDescriptor(name, archetype="McapAttachment", component_type=f"rerun.components.{component_type}")
