"""MCAP in the registry of formats: the options, the verification, and what ``inspect`` shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...engine.errors import ReadError
from ..recording_file import RecordingFile, option, recover_option

if TYPE_CHECKING:
    from ...engine.rrd import Verification
    from ...engine.stream import LazyChunkStream
    from ..inspection import EntitySummary, FileReport, OrderReport
    from .info import ChannelInfo, McapInfo
    from .reader import McapReader
    from .recovery import McapRecoveryReport

_CHOOSES_TOPICS = "choose topics of an MCAP or a bag"
_CHOOSES_TIMES = "choose log times of an MCAP or a bag"
_INDEX_HINT = (
    "chunkmill reads all messages, but readers that use the index miss some; rebuild the index with `mcap recover`."
)


def _regex(text: str) -> str:
    """Refuse invalid regular expressions before anything is read."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _nanoseconds(text: str) -> int:
    return _whole(text, -(2**63), 2**63)


def _log_time(text: str) -> int:
    return _whole(text, 0, 2**64)


def _whole(text: str, low: int, high: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number of nanoseconds") from None
    if not low <= number < high:
        raise ValueError(f"{text!r} is not between {low} and {high - 1} ns")
    return number


@dataclass(frozen=True)
class McapRecording(RecordingFile):
    """An MCAP file; its options are those of :class:`McapReader`, and ``topics``, which has whole topic names."""

    frame_index = "log_time"

    include_topic_regex: tuple[str, ...] = option(
        (),
        "MCAP, bag: topics to read; repeatable.",
        flag="--topics",
        metavar="REGEX",
        parse=_regex,
        refused=_CHOOSES_TOPICS,
    )
    exclude_topic_regex: tuple[str, ...] = option(
        (),
        "MCAP, bag: topics to leave out; repeatable.",
        flag="--exclude-topics",
        metavar="REGEX",
        parse=_regex,
        refused=_CHOOSES_TOPICS,
    )
    topics: tuple[str, ...] = option((), "MCAP, bag: names of the topics to read.")
    start_time_ns: int | None = option(
        None,
        "MCAP, bag: first log time to read, in nanoseconds.",
        flag="--start-time-ns",
        metavar="NS",
        parse=_log_time,
        refused=_CHOOSES_TIMES,
    )
    end_time_ns: int | None = option(
        None,
        "MCAP, bag: read messages before this log time, in nanoseconds.",
        flag="--end-time-ns",
        metavar="NS",
        parse=_log_time,
        refused=_CHOOSES_TIMES,
    )
    decoders: tuple[str, ...] = option(
        (), "MCAP, bag: a decoder to use; repeatable. Default: all.", flag="--decoder", metavar="NAME"
    )
    timeline_type: str = option(
        "timestamp",
        "MCAP, bag: whether times are wall-clock times or durations.",
        flag="--timeline-type",
        choices=("timestamp", "duration"),
    )
    timestamp_offset_ns: int | None = option(
        None,
        "MCAP, bag: offset added to every timestamp, in nanoseconds.",
        flag="--timestamp-offset-ns",
        metavar="NS",
        parse=_nanoseconds,
    )
    recover: bool = recover_option()

    def stream(self) -> LazyChunkStream:
        """The chunks of the file, as :class:`McapReader` reads it."""
        return self._reader().stream()

    def values(self) -> LazyChunkStream:
        """The decoded messages; see :meth:`McapReader.values`."""
        return self._reader().values()

    def reading_options(self) -> dict[str, Any]:
        """The options as arguments of the reader; topic names become patterns."""
        given = self.given()
        names = [f"^{re.escape(topic)}$" for topic in given.pop("topics", ())]
        if names:
            given["include_topic_regex"] = [*names, *self.include_topic_regex]
        return given

    def _reader_type(self) -> type[McapReader]:
        from .reader import McapReader

        return McapReader

    def _reader(self) -> McapReader:
        return self._reader_type()(self.path, **self.reading_options())

    def verify(self) -> Verification:
        """Verify records by the file's CRCs and message indexes by their chunks' messages, then decode every message.
        For a damaged file, verify only the records.
        """
        from ...engine.rrd import Findings
        from .decoders import McapOptions
        from .file import McapFile
        from .message_indexes import IndexComparison
        from .recovery import recovery_report

        findings, indexes = Findings(), IndexComparison()
        with findings.noting():
            with McapFile(str(self.path)) as file:
                report = recovery_report(file, McapOptions(), indexes)
            for offset, reason in indexes.faults:
                findings.fault(ReadError(reason, path=report.path, offset=offset, hint=_INDEX_HINT))
            if report.is_whole:
                findings.add(RecordingFile.verify(self))
            else:
                findings.count(chunks=report.chunks, rows=report.messages)
                for fault in faults_of(report):
                    findings.fault(fault)
        return findings.verification()

    def orders(self) -> tuple[OrderReport, ...]:
        """The topics whose messages, in file order, are not sorted by log or publish time."""
        from ..inspection import Orders
        from .file import McapFile
        from .info import message_times
        from .reader import McapReader

        if self._reader_type() is not McapReader:
            return RecordingFile.orders(self)
        orders = Orders()
        with McapFile(str(self.path)) as file:
            for topic, times in message_times(file):
                orders.add_times(topic, times)
        return tuple(orders.reports(None))

    def report(self) -> FileReport:
        """Report channels, counts, times and compression, from the summary if there is one."""
        info = self._reader_type().source_type(str(self.path)).info(timing=True)
        return report_of(info, _facts(info))


def report_of(info: McapInfo, facts: dict[str, str | float | bool]) -> FileReport:
    """Return the report on a described file, with some facts."""
    from ...engine.chunk import TimelineKind
    from ..inspection import FileReport, StoreReport, TimelineReport

    timeline = TimelineReport("message_log_time", TimelineKind.TIMESTAMP, info.start_time, info.end_time)
    topics = tuple(_topic(c) for c in sorted(info.channels, key=lambda c: (c.topic, c.id)))
    store = StoreReport("recording", None, None, (timeline,) if info.messages != 0 else (), topics)
    return FileReport(info.path, info.bytes, (store,), facts)


def faults_of(report: McapRecoveryReport) -> Iterator[ReadError]:
    """Return all faults of a file, with their places."""
    hint = "The file is damaged. Read the rest with recover=True, or with `chunkmill convert --recover`."
    places: list[tuple[int | None, str]] = [*report.damaged, *report.doubtful]
    if report.reason is not None:
        places.append((report.whole_until or None, report.reason))
    if report.lost_messages:
        places.append((None, f"{report.lost_messages:,} messages are missing"))
    for offset, reason in sorted(places, key=lambda place: place[0] or report.size):
        yield ReadError(reason, path=report.path, offset=offset, hint=hint)


def _topic(channel: ChannelInfo) -> EntitySummary:
    from ..inspection import EntitySummary

    return EntitySummary(
        channel.topic,
        channel.count,
        schema=channel.schema,
        encoding="/".join(e for e in (channel.message_encoding, channel.schema_encoding) if e),
        rate=channel.rate,
        largest_gap=channel.timing.largest_gap if channel.timing is not None else None,
    )


def _facts(info: McapInfo) -> dict[str, str | float | bool]:
    ratio = info.compression_ratio
    return {
        "profile": info.profile,
        "library": info.library,
        "chunks": info.chunks,
        "compression": ", ".join(f"{name or 'none'}" for name in sorted(info.compression)),
        "compression_ratio": 0.0 if ratio is None else round(ratio, 2),
        "uncompressed_bytes": info.uncompressed_bytes,
        "attachments": info.attachments,
        "metadata": info.metadata,
        "scanned": info.scanned,
    }
