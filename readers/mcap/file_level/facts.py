"""What is known of a file as a whole, from its summary or from having read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from mcap.records import Statistics

from ..layout import Summary
from ..records import Place
from ..registry import Channel, Registry, Schema
from ..scan import Found


class FileFacts(NamedTuple):
    """``filled`` are the ids of the channels that have messages. ``statistics`` may be missing."""

    statistics: Statistics | None
    channels: Mapping[int, Channel]
    schemas: Mapping[int, Schema]
    filled: frozenset[int]
    attachments: tuple[Place, ...]
    metadata: tuple[Place, ...]


NO_FACTS = FileFacts(None, {}, {}, frozenset(), (), ())


def facts_of(summary: Summary) -> FileFacts:
    """What a summary tells."""
    return FileFacts(
        summary.statistics,
        {c.id: c for c in summary.channels},
        {s.id: s for s in summary.schemas},
        _filled(summary),
        tuple(Place(a.offset, a.length) for a in summary.attachments),
        tuple(Place(m.offset, m.length) for m in summary.metadata),
    )


@dataclass(slots=True)
class Survey:
    """Counts the messages of a file by channel, and keeps the first and the last log time (ns)."""

    counts: Counter[int] = field(default_factory=Counter)
    start_time: int | None = None
    end_time: int | None = None

    def add(self, found: Found) -> None:
        """Take in some messages, at least one."""
        ids, numbers = np.unique(found.heads["channel"], return_counts=True)
        self.counts.update(dict(zip(ids.tolist(), numbers.tolist(), strict=True)))
        times = found.heads["log_time"]
        first, last = int(times.min()), int(times.max())
        self.start_time = first if self.start_time is None else min(first, self.start_time)
        self.end_time = last if self.end_time is None else max(last, self.end_time)

    def facts(
        self, registry: Registry, chunks: int, attachments: Sequence[Place], metadata: Sequence[Place]
    ) -> FileFacts:
        """What the records met on the way tell."""
        made = Statistics(
            message_count=self.counts.total(),
            schema_count=len(registry.schemas),
            channel_count=len(registry.channels),
            attachment_count=len(attachments),
            metadata_count=len(metadata),
            chunk_count=chunks,
            message_start_time=self.start_time or 0,
            message_end_time=self.end_time or 0,
            channel_message_counts=dict(self.counts),
        )
        return FileFacts(
            made, registry.channels, registry.schemas, frozenset(self.counts), tuple(attachments), tuple(metadata)
        )


def _filled(summary: Summary) -> frozenset[int]:
    counts = summary.statistics.channel_message_counts if summary.statistics is not None else {}
    if counts:
        return frozenset(id_ for id_, count in counts.items() if count)
    return frozenset(_indexed(summary))


def counts_are_known(summary: Summary) -> bool:
    """Whether the summary says which channels have messages."""
    statistics = summary.statistics
    if statistics is not None and (statistics.channel_message_counts or not statistics.message_count):
        return True
    return bool(summary.chunks) and all(entry.channel_ids for entry in summary.chunks)


def counted_channels(summary: Summary) -> set[int]:
    """The ids of the channels that the summary counts messages of."""
    counts = summary.statistics.channel_message_counts if summary.statistics is not None else {}
    return set(counts) | _indexed(summary)


def _indexed(summary: Summary) -> set[int]:
    ids = np.frombuffer(b"".join(entry.channel_ids for entry in summary.chunks), "<u2")
    return {int(i) for i in np.unique(ids)}
