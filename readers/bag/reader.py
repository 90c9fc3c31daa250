"""``BagReader``, and its source of chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...engine.errors import ReadWarning
from ...engine.limits import MAX_INDEXED_TIMES, SPLIT_BYTES
from ..mcap.file import McapLayout, Summary
from ..mcap.file_level import MessageSurvey
from ..mcap.info import McapInfo, TimeCollector, described_channels
from ..mcap.plan import SplitPiece, behind, cut, whole, why_nothing
from ..mcap.reader import McapReader, McapSource
from ..mcap.records import Registry
from ..mcap.section import NOWHERE, McapSplit, Places
from .records import BagFile, BagOp, connection_id, read_layout
from .recovery import BagSalvage, plan_salvage
from .section import ENTRY, BagSection, times_of

if TYPE_CHECKING:
    from ...engine.stream import RecordSource


class BagSource(McapSource):
    """The chunks of one bag.

    Guarantee, as for :class:`McapSource`: every message of a selected topic (and time) becomes exactly one row, in the
    same order in every run over the same bytes. Chunks that have no such messages according to the index are not read.
    """

    reader = "BagReader"

    def open(
        self,
        version: str | None = None,
        *,
        unwrap: bool = True,  # noqa: ARG002 (no bag is wrapped)
        stored_size: int | None = None,
    ) -> BagFile:
        """Open the bag; if given, check its version."""
        return BagFile(self.path, version, stored_size)

    def layout(self, file: BagFile) -> McapLayout:
        """Return the parts of the bag, and its index as the summary of an MCAP. Raises ``ReadError``."""
        return read_layout(file)

    def plan(self, file: BagFile, layout: McapLayout, unwanted: Places) -> list[McapSplit]:
        """Return runs of chunks with about ``SPLIT_BYTES`` uncompressed bytes each; one run if there is no index."""
        summary = layout.summary
        if summary is None or sum(entry.uncompressed_size for entry in summary.chunks) <= SPLIT_BYTES:
            return [whole(file, layout, self.options, unwanted)]
        return cut(file, layout, self.options, _pieces(file, summary, unwanted), unwanted)

    def chunk_pieces(self, file: BagFile, layout: McapLayout) -> list[SplitPiece] | None:
        """Return all chunks of the bag with their numbers of messages, or None without an index."""
        return None if layout.summary is None else _pieces(file, layout.summary, NOWHERE)

    def records(self) -> Sequence[RecordSource]:
        """Return the stored messages of the bag, in the form of ROS 1 messages in an MCAP."""
        from ..mcap.copying import McapRecords

        return [McapRecords(self, framed=False)]

    def section(self, file: BagFile, split: McapSplit, registry: Registry, *, threads: int = 1) -> BagSection:
        """Return a reader for the records of a split."""
        return BagSection(file, split, registry, threads=threads)

    def why_nothing(self, file: BagFile, layout: McapLayout) -> ReadWarning | None:
        """Return the reason why the options select no message, or None if the index does not prove this."""
        return why_nothing(file, layout, self.options, zero_is_told=True)

    def unwanted(self, summary: Summary | None) -> Places:
        """Return the places of chunks without selected messages, which need not be read, as there are no checksums."""
        times = self.options.times
        if summary is None or times is None:
            return self.without_wanted(summary)
        outside = {e.offset: behind(e) for e in summary.chunks if e.start_time >= times.end or e.end_time < times.start}
        return {**self.without_wanted(summary), **outside}

    def rescue(self, file: BagFile) -> BagSalvage:
        """Return the reader for a damaged bag."""
        return plan_salvage(file, self.options)

    def describe_file(self, file: BagFile, *, timing: bool) -> BagInfo:
        """Describe the open bag; see :meth:`BagReader.info`."""
        layout = self.layout(file)
        summary = layout.summary
        if summary is None:
            return self._scanned(file, layout)
        statistics = summary.statistics
        assert statistics is not None
        counts = statistics.channel_message_counts
        timings = _indexed_times(file, summary).timings(counts) if timing else {}
        has_some = statistics.message_count > 0
        return BagInfo(
            path=file.path,
            bytes=file.size,
            profile=layout.profile,
            library=layout.library,
            channels=described_channels(
                {c.id: c for c in summary.channels}, {s.id: s for s in summary.schemas}, counts, timings
            ),
            messages=statistics.message_count,
            start_time=statistics.message_start_time if has_some else None,
            end_time=statistics.message_end_time if has_some else None,
            chunks=len(summary.chunks),
            uncompressed_bytes=sum(entry.uncompressed_size for entry in summary.chunks),
            compressed_bytes=sum(entry.compressed_size for entry in summary.chunks),
            compression=dict(Counter(entry.compression for entry in summary.chunks)),
            attachments=0,
            metadata=0,
            scanned=False,
        )

    def _scanned(self, file: BagFile, layout: McapLayout) -> BagInfo:
        """Describe a bag without an index by reading all of it; nothing is decoded."""
        registry = Registry(file.path)
        survey, collector = MessageSurvey(), TimeCollector()
        section = BagSection(file, whole(file, layout, self.options), registry)
        for group in section.groups():
            survey.add(group.messages)
            collector.add_found(group.messages)
        tally = section.tally
        return BagInfo(
            path=file.path,
            bytes=file.size,
            profile=layout.profile,
            library=layout.library,
            channels=described_channels(
                registry.channels, registry.schemas, survey.counts, collector.timings(survey.counts)
            ),
            messages=tally.messages,
            start_time=survey.start_time,
            end_time=survey.end_time,
            chunks=tally.chunks.total(),
            uncompressed_bytes=tally.uncompressed,
            compressed_bytes=tally.compressed,
            compression=dict(tally.chunks),
            attachments=0,
            metadata=0,
            scanned=True,
        )


def _pieces(file: BagFile, summary: Summary, unwanted: Places) -> list[SplitPiece]:
    return [
        SplitPiece(e.offset, behind(e), e.uncompressed_size, file.counts[e.offset], e.offset not in unwanted)
        for e in summary.chunks
    ]


def _indexed_times(file: BagFile, summary: Summary) -> TimeCollector:
    """The times in the index records after the chunks. It reads nothing else of the bag."""
    collector = TimeCollector()
    if sum(entry.index_length for entry in summary.chunks) // ENTRY.itemsize > MAX_INDEXED_TIMES:
        return collector
    file.peek((entry.end, entry.index_length) for entry in summary.chunks)
    for entry in summary.chunks:
        at, end = entry.end, entry.end + entry.index_length
        while at < end:
            record = file.record_at(at, end)
            if record.op == BagOp.INDEX and record.size % ENTRY.itemsize == 0:
                entries = np.frombuffer(file.read_at(record.data_at, record.size, what="an index record"), ENTRY)
                collector.add(connection_id(record, path=file.path), times_of(entries))
            at = record.end
    return collector


class BagInfo(McapInfo):
    """The description of a bag's content, from :meth:`BagReader.info`. The fields are those of :class:`McapInfo`.

    Connections are its channels. ``scanned`` is true if the bag has no index, so all of it was read.
    """

    __slots__ = ()
    kind: ClassVar[str] = "bag"


class BagReader(McapReader):
    """Read chunks from a ROS 1 bag of version 2.0 (``.bag``; its chunks may be plain, bz2 or lz4).

    The chunks are those of :class:`McapReader` for the same messages in an MCAP. Every message becomes one row at the
    entity of its topic. A bag stores one time per message, the time of receipt. It is both ``message_log_time`` and
    ``message_publish_time``. The messages of all connections of a topic become rows of one entity. A bag without an
    index, such as one from an interrupted recorder (``.bag.active``), is read from start to end. Reading a truncated or
    damaged bag raises ``ReadError``; an encrypted bag or a bag of version 1 raises ``UnsupportedError``.

    Parameters
    ----------
    path
        The bag, or the URL of an object (``s3://``, ``gs://``, ``abfs://``). It must exist; it is opened when the
        stream runs.
    timeline_type, timestamp_offset_ns, decoders, include_topic_regex, exclude_topic_regex, start_time_ns, end_time_ns
        As for :class:`McapReader`. The bag's chunks that have no messages of these topics and times are not read.
    recover
        Read the recoverable parts of a truncated or damaged bag, in one split. A ``ReadWarning`` and
        :meth:`recovery_report` report the loss. A bag has no checksums, except in bz2 and lz4 chunks.

    Raises
    ------
    FileNotFoundError
        There is no such file (``SourceMissingError``).
    ValueError
        The timeline type, decoder or pattern is invalid, or the range of times ends before it starts (``UsageError``).
    TypeError, OverflowError
        An offset or a time is not an integer, or does not fit into 64 bits.
    """

    source_type = BagSource
    _kind = "bag"
