"""One part of an MCAP file that a task reads by itself."""

from __future__ import annotations

from dataclasses import dataclass

from ...engine.stream import Split
from .times import TimeRange


@dataclass(frozen=True, slots=True)
class McapSplit(Split):
    """A run of records of the data section, from one byte to another.

    ``chunks`` and ``messages`` are the numbers of Chunk and Message records to be found there, None where only reading
    tells; chunks that are skipped count, their messages don't. ``check_data_crc``: the split is the whole data section,
    and its CRC is to be compared with the writer's. ``times``: chunks that do not overlap this range are skipped.
    ``before`` and ``after`` name the decoders of the file level whose chunks come ahead of the split's messages and
    behind them. ``is_whole``: there is no other split. Where ``is_planned`` is false nothing else is known yet: who
    reads the split has to plan it.
    """

    start: int
    end: int
    chunks: int | None = None
    messages: int | None = None
    check_data_crc: bool = False
    times: TimeRange | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    is_whole: bool = False
    is_planned: bool = True
