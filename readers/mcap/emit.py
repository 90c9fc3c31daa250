"""Messages of one channel in, chunks out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...engine.chunk import Chunk, parse_entity_path
from ...engine.errors import ReadWarning
from ...engine.limits import MIB
from ...engine.task_context import DECODE, phase, timed
from ...lenses import DeriveLens
from .decoding.decoded import Decoded, MessageDecoder
from .decoding.gather import RawDecoder
from .mapping import LOG_TIME, PUBLISH_TIME, Mapping, shifted
from .options import McapOptions
from .records import HEAD, MESSAGE_FIXED
from .registry import Channel
from .scan import Bytes, Found, Ints

CHUNK_BYTES: Final = 15 * MIB // 8
"""Bytes that one chunk should hold, of columns or of message data, whichever are more; a single larger message makes
a larger chunk.

A little less than the 2 MiB to which stores are compacted, so that what decoding adds does not have them cut again.
"""

_MOST_SHRUNK: Final = 1 / 4
"""Messages that make chunks of less than this part of their size are not taken together beyond it."""

CHUNK_ROWS: Final = 65_536
"""Most rows of one chunk."""

_LATEST: Final = 2**63 - 1

Times = npt.NDArray[np.uint64]


class ChannelRun(NamedTuple):
    """Messages of one channel in the arena: where their data begins and ends, and their times (ns)."""

    channel_id: int
    starts: Ints
    ends: Ints
    log_times: Times
    publish_times: Times

    def take(self, rows: slice | Ints) -> ChannelRun:
        """The run with only these rows."""
        return ChannelRun(
            self.channel_id, self.starts[rows], self.ends[rows], self.log_times[rows], self.publish_times[rows]
        )


def runs(found: Found) -> Iterator[ChannelRun]:
    """The messages by channel (ascending ids), each sorted by log time, publish time and place in the file."""
    heads = found.heads
    if not len(heads):
        return
    channels = np.ascontiguousarray(heads["channel"])
    order = np.argsort(channels, kind="stable")
    borders = np.flatnonzero(np.diff(channels[order])) + 1
    starts = found.offsets + HEAD.size + MESSAGE_FIXED
    ends = found.offsets + HEAD.size + heads["length"].astype(np.int64)
    for rows in np.split(order, borders):
        run = ChannelRun(
            int(channels[rows[0]]), starts[rows], ends[rows], heads["log_time"][rows], heads["publish_time"][rows]
        )
        yield _sorted(run)


def pieces(run: ChannelRun, size: int = CHUNK_BYTES) -> Iterator[ChannelRun]:
    """Cut a run into the fewest equal pieces that keep to ``CHUNK_ROWS`` and about to ``size`` bytes."""
    if int((run.ends - run.starts).sum()) / size + len(run.starts) / CHUNK_ROWS < 1:
        yield run
        return
    fill = np.cumsum(np.maximum((run.ends - run.starts) / size, 1 / CHUNK_ROWS))
    count = int(fill[-1]) + 1
    cuts = np.searchsorted(fill, fill[-1] * np.arange(1, count) / count) + 1
    borders = np.unique(np.concatenate(([0], cuts, [len(fill)]))).tolist()
    for begin, end in pairwise(borders):
        yield run.take(slice(begin, end))


class ChannelOutput:
    """Makes chunks of one channel's messages, and keeps count of those that could not be decoded.

    Every message becomes one row: of the decoded component or, where it could not be decoded, of ``McapMessage:data``
    at the same entity, in a chunk behind that of its neighbours.
    """

    def __init__(
        self, channel: Channel, decoder: MessageDecoder, options: McapOptions, lenses: Sequence[DeriveLens] = ()
    ) -> None:
        self._channel = channel
        self._entity_path = parse_entity_path(channel.topic)
        self._decoder = decoder
        self._options = options
        self._mapping = Mapping(lenses, options) if lenses else None
        self._bad = 0
        self._first_reason = ""
        self._piece_bytes: int | None = None

    def chunks(self, arena: Bytes, run: ChannelRun) -> Iterator[Chunk]:
        """The chunks of ``run``, whose messages lie in ``arena``."""
        if self._piece_bytes is None:
            first = next(pieces(run))
            yield from self._measured(arena, first)
            run = run.take(slice(len(first.starts), None))
        if len(run.starts):
            first, *others = pieces(run, self._piece_bytes or CHUNK_BYTES)
            yield from self._measured(arena, first) if others else self._piece(arena, first)
            for piece in others:
                yield from self._piece(arena, piece)

    def _measured(self, arena: Bytes, piece: ChannelRun) -> Iterator[Chunk]:
        """The chunks of a piece, by which the next run is cut so that the largest of them hold ``CHUNK_BYTES``."""
        largest = 0
        for chunk in self._piece(arena, piece):
            largest = max(largest, chunk.byte_size)
            yield chunk
        size = int((piece.ends - piece.starts).sum())
        shrunk = min(max(largest / size, _MOST_SHRUNK), 1) if largest and size else 1
        self._piece_bytes = int(CHUNK_BYTES / shrunk)

    def _piece(self, arena: Bytes, piece: ChannelRun) -> Iterator[Chunk]:
        data, piece = _released(arena, piece)
        with phase(DECODE):
            decoded = self._decoder.decode(data, piece.starts, piece.ends)
        if len(decoded.bad) + len(decoded.values) != len(piece.starts):
            raise AssertionError(f"{self._decoder.descriptor} gave {len(decoded.values)} of {len(piece.starts)} rows")
        if not len(decoded.bad):
            yield from self._mapped(self._chunk(self._decoder, decoded.values, piece))
            return
        yield from self._parted(data, piece, decoded)

    def warn(self, *, path: str) -> None:
        """Say, once, how many messages could not be decoded, if any."""
        if self._bad:
            warnings.warn(
                f"{path}: topic {self._channel.topic}: {self._bad} messages could not be decoded and come out as raw"
                f" bytes; the first: {self._first_reason}",
                ReadWarning,
                stacklevel=2,
            )
        if self._mapping is not None and self._mapping.unmapped:
            warnings.warn(
                f"{path}: topic {self._channel.topic}: {self._mapping.unmapped} messages could not be shown as what"
                f" their type means and come out as they were decoded; the first: {self._mapping.reason}",
                ReadWarning,
                stacklevel=2,
            )

    def _mapped(self, chunk: Chunk) -> Iterator[Chunk]:
        return iter((chunk,)) if self._mapping is None else timed(self._mapping.chunks(chunk), DECODE)

    def _parted(self, data: Bytes, piece: ChannelRun, decoded: Decoded) -> Iterator[Chunk]:
        self._first_reason = self._first_reason or decoded.reasons[0]
        self._bad += len(decoded.bad)
        good = np.delete(np.arange(len(piece.starts)), decoded.bad)
        if len(good):
            yield from self._mapped(self._chunk(self._decoder, decoded.values, piece.take(good)))
        bad = piece.take(decoded.bad)
        raw = RawDecoder()
        yield self._chunk(raw, raw.decode(data, bad.starts, bad.ends).values, bad)

    def _chunk(self, decoder: MessageDecoder, values: pa.Array, run: ChannelRun) -> Chunk:
        timelines = {
            LOG_TIME: _times(run.log_times, self._options),
            PUBLISH_TIME: _times(run.publish_times, self._options),
        }
        return Chunk.build(self._entity_path, timelines, [(decoder.descriptor, _one_each(decoder, values))])


def _sorted(run: ChannelRun) -> ChannelRun:
    log, publish = run.log_times, run.publish_times
    later = log[1:] > log[:-1]
    if (later | ((log[1:] == log[:-1]) & (publish[1:] >= publish[:-1]))).all():
        return run
    return run.take(np.lexsort((publish, log)))


def _released(arena: Bytes, piece: ChannelRun) -> tuple[Bytes, ChannelRun]:
    """A single message on its own, so that a chunk that refers to it does not keep the whole arena in memory."""
    if len(piece.starts) != 1:
        return arena, piece
    data = arena[piece.starts[0] : piece.ends[0]].copy()
    return data, piece._replace(starts=np.zeros(1, np.int64), ends=np.array([len(data)]))


def _times(values: Times, options: McapOptions) -> pa.Array:
    """Nanoseconds as the reader's time type. Those beyond i64, and sums with the offset, become the latest there is."""
    times = shifted(np.minimum(values, np.uint64(_LATEST)).astype(np.int64), options)
    return pa.Array.from_buffers(options.time_type, len(times), [None, pa.py_buffer(times)])


def _one_each(decoder: MessageDecoder, values: pa.Array) -> pa.Array:
    """A list column with one instance in each row."""
    item = pa.field("item", values.type, nullable=not isinstance(decoder, RawDecoder))
    offsets = pa.py_buffer(np.arange(len(values) + 1, dtype=np.int32))
    return pa.Array.from_buffers(pa.list_(item), len(values), [None, offsets], children=[values])
