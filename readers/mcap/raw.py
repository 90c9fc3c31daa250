"""Messages as the bytes they are: the ``raw`` decoder."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ...engine.chunk import ComponentDescriptor
from .decoding.decoded import Decoded
from .decoding.gather import gather, offsets_of

RAW_DESCRIPTOR: Final = ComponentDescriptor(
    "McapMessage:data", archetype="rerun.archetypes.McapMessage", component_type="rerun.components.Blob"
)
RAW_TYPE: Final = pa.list_(pa.field("item", pa.uint8(), nullable=False))


class RawDecoder:
    """Gives each message as one blob, ``list<uint8>``; every message is good."""

    descriptor = RAW_DESCRIPTOR
    datatype = RAW_TYPE

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """Copy messages ``data[starts[i]:ends[i]]`` (at most 2 GiB together) into one column."""
        lengths = ends - starts
        payload = gather(data, starts, lengths)
        bytes_ = pa.Array.from_buffers(pa.uint8(), len(payload), [None, pa.py_buffer(payload)])
        offsets = pa.py_buffer(offsets_of(lengths))
        values = pa.Array.from_buffers(RAW_TYPE, len(starts), [None, offsets], children=[bytes_])
        return Decoded(values, np.empty(0, np.int64), [])
