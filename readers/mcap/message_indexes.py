"""Message indexes compared with the messages of their chunks, as other readers find messages only by indexes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .file import McapFile
from .records import HEAD, Block, MessageHeads, Op

_PAIR: Final = 16
_HEAD: Final = 6
_KEPT: Final = 1000


Times = npt.NDArray[np.uint64]


def indexed_times(data: bytes) -> Iterator[tuple[int, Times]]:
    """Yield the channel and log times of each MessageIndex record in ``data``, which has whole, consecutive records."""
    at = 0
    while at + HEAD.size + _HEAD <= len(data):
        opcode, length = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + length]
        size = int.from_bytes(body[2:_HEAD], "little")
        if opcode == Op.MESSAGE_INDEX and size % _PAIR == 0 and size <= len(body) - _HEAD:
            yield int.from_bytes(body[:2], "little"), np.frombuffer(body, "<u8", size // 8, _HEAD)[::2]
        at += HEAD.size + length


def times_behind(file: McapFile, at: int, end: int) -> Iterator[Times]:
    """Return the log times in the MessageIndex records from ``at`` on, up to another record or to ``end``."""
    while at < end:
        opcode, length = file.head_at(at, end)
        if opcode != Op.MESSAGE_INDEX:
            return
        for _, times in indexed_times(file.read_at(at, HEAD.size + length, what="a message index")):
            yield times
        at += HEAD.size + length


class _Index(NamedTuple):
    """A MessageIndex record: its place in the file, its channel, and log times and offsets in the chunk (u64)."""

    place: int
    channel: int
    times: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.uint64]


class IndexComparison:
    """Compares the indexes after each chunk with the chunk's messages.

    ``faults`` has the place in the file and the fault of each wrong record, at most the first 1,000.
    """

    def __init__(self) -> None:
        self.faults: list[tuple[int, str]] = []
        self._indexes: dict[int, list[_Index]] = {}
        self._unread: set[int] = set()

    def take(self, chunk: int, place: int, body: bytes) -> None:
        """Keep the MessageIndex record at ``place``, which follows the chunk at ``chunk``."""
        size = int.from_bytes(body[2:_HEAD], "little")
        if len(body) < _HEAD or size % _PAIR or size > len(body) - _HEAD:
            self._unread.add(chunk)
            self._fault(
                place, f"a MessageIndex record is malformed: it has {len(body):,} bytes, but {size:,} bytes of entries"
            )
            return
        pairs = np.frombuffer(body, "<u8", size // 8, _HEAD).reshape(-1, 2)
        index = _Index(place, int.from_bytes(body[:2], "little"), pairs[:, 0], pairs[:, 1])
        self._indexes.setdefault(chunk, []).append(index)

    def compare(self, block: Block, messages: MessageHeads) -> None:
        """Compare the indexes of the chunk in ``block`` with the messages in it."""
        indexes = self._indexes.pop(block.offset, [])
        if not indexes:
            return
        offsets = (messages.offsets - block.begin).astype(np.uint64)
        channels, times = messages.heads["channel"], messages.heads["log_time"]
        indexed_offsets = np.concatenate([index.offsets for index in indexes])
        order = np.argsort(indexed_offsets, kind="stable")
        named = np.repeat(np.array([i.channel for i in indexes], np.uint16), [len(i.times) for i in indexes])
        if (
            np.array_equal(indexed_offsets[order], offsets)
            and np.array_equal(named[order], channels)
            and np.array_equal(np.concatenate([index.times for index in indexes])[order], times)
        ):
            return
        for index in indexes:
            self._compare(index, offsets, channels, times)
        left = ~np.isin(offsets, indexed_offsets)
        for channel, count in zip(*np.unique(channels[left], return_counts=True), strict=True):
            if block.offset not in self._unread:
                self._fault(
                    block.offset, f"the message indexes of a chunk leave out {_messages(count)} of channel {channel}"
                )

    def _compare(
        self,
        index: _Index,
        offsets: npt.NDArray[np.uint64],
        channels: npt.NDArray[np.uint16],
        times: npt.NDArray[np.uint64],
    ) -> None:
        """Note the faults of one record; ``offsets``, ``channels`` and ``times`` are those of the messages."""
        at = np.minimum(np.searchsorted(offsets, index.offsets), max(len(offsets) - 1, 0))
        matching = np.zeros(len(index.offsets), np.bool_)
        if len(offsets):
            matching = (offsets[at] == index.offsets) & (channels[at] == index.channel)
        wrong: list[str] = []
        if missing := int((~matching).sum()):
            first = int(index.offsets[~matching][0])
            wrong.append(
                f"lists {_messages(missing)} missing from the chunk, the first at byte {first:,} of the chunk's records"
            )
        if len(offsets) and (late := matching & (times[at] != index.times)).any():
            first = int(np.flatnonzero(late)[0])
            wrong.append(
                f"has wrong log times of {_messages(late.sum())}, first {int(index.times[first]):,} instead of"
                f" {int(times[at][first]):,}"
            )
        if twice := len(index.offsets) - len(np.unique(index.offsets)):
            wrong.append(f"lists {_messages(twice)} more than once")
        if wrong:
            self._fault(index.place, f"the message index of channel {index.channel} {'; it '.join(wrong)}")

    def _fault(self, place: int, what: str) -> None:
        if len(self.faults) < _KEPT:
            self.faults.append((place, what))


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"
