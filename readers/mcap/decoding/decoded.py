"""What a message decoder is and gives back."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ....engine.chunk import ComponentDescriptor

_LARGEST_BATCH: Final = (1 << 31) - 1


class SchemaError(ValueError):
    """A message definition that cannot be used; the text says why. The channel's messages stay raw bytes."""


class Decoded(NamedTuple):
    """Many messages of one channel as one column.

    ``values`` has one element per good message, in order. ``bad`` are the indices (int64, ascending) of the messages
    that could not be decoded, ``reasons`` one text for each of them.
    """

    values: pa.Array
    bad: np.ndarray
    reasons: list[str]


class MessageDecoder(Protocol):
    """Decodes messages of one definition, many at a time."""

    @property
    def descriptor(self) -> ComponentDescriptor:
        """The component that the messages become, ``sensor_msgs.msg.Imu:message``."""
        ...

    @property
    def datatype(self) -> pa.DataType:
        """The type of one message."""
        ...

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """Decode messages that lie in ``data`` (uint8, 1-D): message ``i`` is ``data[starts[i]:ends[i]]``.

        ``starts`` and ``ends`` are int64 of equal length. Nothing outside a message's own bytes is read for it. A
        damaged message never raises: it is reported in :attr:`Decoded.bad`. At most 2 GiB of messages per call.
        """
        ...


def in_order(pieces: list[tuple[np.ndarray, pa.Array]], datatype: pa.DataType) -> pa.Array:
    """Join arrays of messages, each given with the messages' indices (int64), by ascending index."""
    if not pieces:
        return pa.array([], datatype)
    if len(pieces) == 1:
        return pieces[0][1]
    indices = np.concatenate([indices for indices, _ in pieces])
    values = pa.concat_arrays([array for _, array in pieces])
    rank = np.argsort(indices)
    return values if bool((rank == np.arange(len(rank))).all()) else values.take(pa.array(rank))


def check_batch(starts: np.ndarray, ends: np.ndarray) -> None:
    """Refuse more than a list array can hold: raises ``ValueError`` for messages of 2 GiB together."""
    if int((ends - starts).sum()) > _LARGEST_BATCH:
        raise ValueError("more than 2 GiB of messages in one call")


def decoded_of(pieces: list[tuple[np.ndarray, pa.Array]], datatype: pa.DataType, faults: dict[int, str]) -> Decoded:
    """What was decoded, in order; ``faults`` has the reason for each message that was not."""
    bad = np.array(sorted(faults), np.int64)
    return Decoded(in_order(pieces, datatype), bad, [faults[index] for index in bad.tolist()])
