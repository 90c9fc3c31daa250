"""How a cut or damaged file is read: what its summary still tells, and what its sections give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from ....engine.errors import ReadError
from ....engine.limits import MIB
from ..decoders import file_decoders
from ..file import McapFile
from ..file_level import NO_FACTS, FileFacts, check_place, facts_of, read_attachment, read_metadata
from ..layout import Layout, check_beginning, read_layout
from ..options import McapOptions
from ..plan import whole
from ..records import ATTACHMENT, DATA_END_SIZE, HEAD, HEADER, MAGIC, Place
from ..registry import Registry
from ..split import McapSplit
from .section import McapRecoveryReport, RecoveringSection


class Salvage(NamedTuple):
    """How a file is read: its records in ``split``, with what its summary tells, if it can be believed."""

    split: McapSplit
    facts: FileFacts
    layout: Layout | None
    report: McapRecoveryReport

    def section(self, file: McapFile, registry: Registry) -> RecoveringSection:
        """A reader of the records; it fills the report."""
        summary = self.layout.summary if self.layout is not None else None
        index = [entry.offset for entry in summary.chunks] if summary is not None else []
        return RecoveringSection(file, self.split, registry, self.report, index=index)

    def finish(self, file: McapFile, section: RecoveringSection) -> None:
        """Complete the report when all records were read."""
        report, tally = self.report, section.tally
        report.chunks, report.messages = tally.chunks.total(), tally.messages
        layout = self.layout
        if layout is None:
            return
        statistics = layout.summary.statistics if layout.summary is not None else None
        if statistics is not None and not tally.skipped:
            report.lost_messages = max(report.lost_messages, statistics.message_count - tally.messages, 0)
        if layout.data_crc and report.is_whole and _crc(file, layout) != layout.data_crc:
            report.doubted(layout.data_start, "the CRC of the data section does not match its data")


def plan_salvage(file: McapFile, options: McapOptions) -> Salvage:
    """Look at both ends of ``file``. Raises ``ReadError`` only where it is no MCAP at all."""
    check_beginning(file)
    report = McapRecoveryReport(file.path, file.size)
    try:
        layout = read_layout(file)
    except ReadError as error:
        if error.transient:
            raise
        report.reason = error.message
        return Salvage(_without_summary(file, options, report), NO_FACTS, None, report)
    summary = layout.summary
    facts = _sound(file, facts_of(summary), report) if summary is not None else NO_FACTS
    split = whole(file, layout, options)
    return Salvage(_unchecked(split, layout), facts, layout, report)


def recovery_report(file: McapFile, options: McapOptions) -> McapRecoveryReport:
    """Read the whole file without decoding its messages, and say what can be recovered of it."""
    salvage = plan_salvage(file, options)
    registry = Registry(file.path, salvage.facts.channels.values(), salvage.facts.schemas.values())
    section = salvage.section(file, registry)
    for _ in section.groups():
        pass
    salvage.finish(file, section)
    return salvage.report


def _unchecked(split: McapSplit, layout: Layout) -> McapSplit:
    return McapSplit(
        split.label,
        split.size,
        split.start,
        layout.data_end if split.is_whole else split.end,
        times=split.times,
        before=split.before,
        after=split.after,
        is_whole=True,
    )


def _without_summary(file: McapFile, options: McapOptions, report: McapRecoveryReport) -> McapSplit:
    after = tuple(d.name for d in file_decoders(options.decoders))
    start = len(MAGIC)
    try:
        opcode, length = file.head_at(start, file.size)
        if opcode == HEADER:
            start += HEAD.size + length
    except ReadError as error:
        report.lost(start, error.message)
    return McapSplit(PurePath(file.path).name, file.size, start, file.size, after=after, is_whole=True)


def _sound(file: McapFile, facts: FileFacts, report: McapRecoveryReport) -> FileFacts:
    """The facts without the attachments and metadata records that cannot be read."""
    return facts._replace(
        attachments=tuple(_readable(file, facts.attachments, _check_attachment, report)),
        metadata=tuple(_readable(file, facts.metadata, _check_metadata, report)),
    )


def _readable(
    file: McapFile, places: Iterable[Place], check: Callable[[McapFile, Place], None], report: McapRecoveryReport
) -> Iterator[Place]:
    for place in places:
        try:
            check(file, place)
        except ReadError as error:
            report.lost(place.offset, error.message)
        else:
            yield place


def _check_attachment(file: McapFile, place: Place) -> None:
    check_place(file, place, ATTACHMENT)
    read_attachment(file, place.offset, place.length - HEAD.size).check(file)


def _check_metadata(file: McapFile, place: Place) -> None:
    read_metadata(file, place)


def _crc(file: McapFile, layout: Layout) -> int:
    """The CRC-32 of everything before the DataEnd record."""
    crc, end = 0, layout.data_end - DATA_END_SIZE
    for begin in range(0, end, MIB):
        crc = crc32(file.read_at(begin, min(MIB, end - begin), what="the data section"), crc)
    return crc
