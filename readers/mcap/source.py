"""An MCAP file as a source of chunks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from ...engine.chunk import Chunk
from ...engine.errors import ReadError, ReadWarning
from .file import McapFile
from .file_level import FileFacts, facts_of
from .file_level.facts import NOTHING
from .file_level.static import ATTACHMENTS_ENTITY
from .info import McapInfo, describe_file
from .layout import Layout, read_layout
from .options import McapOptions
from .plan import plan_splits, whole
from .reading import SplitReading
from .records import DAMAGED_HINT
from .recovering import McapRecoveryReport, plan_salvage, recovery_report
from .section import SectionReader
from .split import McapSplit


class _Shared(NamedTuple):
    """What every split needs of the summary: what it tells of the file, and how many chunks and messages it counts."""

    facts: FileFacts
    chunks: int
    messages: int


class McapSource:
    """The chunks of one MCAP file.

    Guarantee: every message of a selected topic (and time) is one row, once. Order: chunks of the file level as far as
    the summary tells them; messages by split, within it by groups of MCAP chunks of about 32 MiB, within these by
    channel id, then by log time; what of the file level only reading tells; robots. The same for every run over the
    same bytes.
    """

    def __init__(self, path: str, options: McapOptions | None = None) -> None:
        self.path = path
        self.options = options or McapOptions()
        self._shared: _Shared | None = None
        self._version: str | None = None
        self._wanted: Callable[[str], bool] | None = None

    def __repr__(self) -> str:
        return f"McapSource({self.path!r})"

    def describe(self) -> str:
        """``McapReader(drive.mcap)``."""
        return f"McapReader({self.path})"

    def paths(self) -> Sequence[str]:
        """The file that is read."""
        return [self.path]

    def narrowed(self, wanted: Callable[[str], bool]) -> McapSource:
        """The same file without the topics at whose entities nobody will look: their messages are not decoded."""
        narrowed = McapSource(self.path, self.options)
        narrowed._shared, narrowed._version, narrowed._wanted = self._shared, self._version, wanted
        return narrowed

    def splits(self) -> Sequence[McapSplit]:
        """Runs of MCAP chunks of about 64 MiB uncompressed.

        One for a file without a usable index, for one that is compressed as a whole, and when a damaged file is to be
        recovered.
        """
        with McapFile(self.path, unwrap=False) as file:
            self._version = file.version
            if self.options.recover or file.is_wrapped:
                return [McapSplit(PurePath(self.path).name, file.size, 0, 0, is_planned=False)]
            layout = read_layout(file)
            self._shared = _share(layout)
            return plan_splits(file, layout, self.options)

    def read(self, split: McapSplit) -> Iterator[Chunk]:
        """The chunks of one split. Warns (``ReadWarning``) of what could not be decoded and comes out raw."""
        with McapFile(self.path, self._version) as file:
            if self.options.recover:
                yield from self._recovered(file)
                return
            shared = self._shared
            if shared is None or not split.is_planned:
                layout = read_layout(file)
                shared = _share(layout)
                split = split if split.is_planned else whole(file, layout, self.options)
            file.expect(split.start, split.end)
            reading = SplitReading(file, split, shared.facts, self.options, self._wants)
            emitted = "attachments" in self.options.decoders and self._wants(ATTACHMENTS_ENTITY)
            section = SectionReader(file, split, reading.registry, check_attachments=not emitted)
            yield from reading.before()
            yield from reading.messages(section)
            if split.is_whole:
                _check_counts(section, shared, split, self.path)
            yield from reading.after(section)

    def info(self, *, timing: bool = False) -> McapInfo:
        """What is in the file; reads its summary, and all of it only when there is none.

        With ``timing`` it also tells rates and gaps of the channels, and reads the message indexes for that.
        """
        with McapFile(self.path) as file:
            return describe_file(file, timing=timing)

    def recovery_report(self) -> McapRecoveryReport:
        """What can be recovered of the file, and what is lost; reads all of it, and decodes nothing."""
        with McapFile(self.path) as file:
            return recovery_report(file, self.options)

    def _recovered(self, file: McapFile) -> Iterator[Chunk]:
        salvage = plan_salvage(file, self.options)
        file.expect(salvage.split.start, salvage.split.end)
        reading = SplitReading(file, salvage.split, salvage.facts, self.options, self._wants)
        section = salvage.section(file, reading.registry)
        yield from reading.before()
        yield from reading.messages(section)
        salvage.finish(file, section)
        yield from reading.after(section)
        if not salvage.report.is_whole:
            warnings.warn(str(salvage.report), ReadWarning, stacklevel=2)

    def _wants(self, entity_path: str) -> bool:
        return self._wanted is None or self._wanted(entity_path)


def _share(layout: Layout) -> _Shared:
    summary = layout.summary
    if summary is None:
        return _Shared(NOTHING, 0, 0)
    statistics = summary.statistics
    chunks = len({entry.offset for entry in summary.chunks})
    if statistics is None:
        return _Shared(facts_of(summary), chunks, 0)
    return _Shared(facts_of(summary), max(chunks, statistics.chunk_count), statistics.message_count)


def _check_counts(reader: SectionReader, shared: _Shared, split: McapSplit, path: str) -> None:
    """Compare what was found in the whole file with what its summary counts."""
    tally = reader.tally
    for what, found, declared in (
        ("chunks", tally.chunks.total(), shared.chunks),
        ("messages", tally.messages, 0 if tally.skipped else shared.messages),
    ):
        if found < declared:
            why = f"the summary counts {declared:,} {what} and {found:,} are there"
            raise ReadError(why, path=path, offset=split.end, hint=DAMAGED_HINT)
