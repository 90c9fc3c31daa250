"""An MCAP file as a source of chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...engine.chunk import Chunk, parse_entity_path
from ...engine.errors import ReadError
from .emit import ChannelOutput, runs
from .file import McapFile
from .file_level import FileFacts, Survey, facts_of, file_level_chunks
from .file_level.facts import NOTHING
from .file_level.static import ATTACHMENTS_ENTITY
from .info import McapInfo, describe_file
from .layout import Layout, read_layout
from .mapping import entities_of
from .options import McapOptions
from .plan import plan_splits
from .records import DAMAGED_HINT
from .registry import Registry
from .section import Group, SectionReader
from .selection import decoder_for, kind_for, lenses_for
from .split import McapSplit
from .urdf import Descriptions
from .urdf.indexed import indexed_descriptions


class _Shared(NamedTuple):
    """What every split needs of the summary: what it tells of the file, and how many chunks and messages it counts."""

    facts: FileFacts
    chunks: int
    messages: int


class McapSource:
    """The chunks of one MCAP file.

    Guarantee: every message of a selected topic (and time) is one row, once. Order: chunks of the file level as far as
    the summary tells them; messages by split, within it by groups of MCAP chunks of about 16 MiB, within these by
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
        """Runs of MCAP chunks of about 64 MiB uncompressed; one for a file without a usable index."""
        with McapFile(self.path) as file:
            layout = read_layout(file)
            self._shared, self._version = _share(layout), file.version
            return plan_splits(file, layout, self.options)

    def read(self, split: McapSplit) -> Iterator[Chunk]:
        """The chunks of one split. Warns (``ReadWarning``) of what could not be decoded and comes out raw."""
        with McapFile(self.path, self._version) as file:
            file.expect(split.start, split.end)
            shared = self._shared or _share(read_layout(file))
            facts = shared.facts
            yield from file_level_chunks(file, split.before, facts, self.options, self._wants)
            registry = Registry(self.path, facts.channels.values(), facts.schemas.values())
            emitted = "attachments" in self.options.decoders and self._wants(ATTACHMENTS_ENTITY)
            reader = SectionReader(file, split, registry, check_attachments=not emitted)
            survey, descriptions = Survey(), Descriptions(registry, self.options)
            outputs: dict[int, ChannelOutput | None] = {}
            for group in reader.groups():
                if split.is_whole and split.after:
                    survey.add(group.found)
                    descriptions.add(*group)
                yield from self._messages(group, registry, split, outputs)
            if split.is_whole:
                _check_counts(reader, shared, split, self.path)
            for output in outputs.values():
                if output is not None:
                    output.warn(path=self.path)
            tally = reader.tally
            found = survey.facts(registry, tally.chunks.total(), tally.attachments, tally.metadata)
            yield from file_level_chunks(file, split.after, found, self.options, self._wants)
            if "urdf" in split.after:
                if not split.is_whole:
                    indexed_descriptions(file, descriptions, registry)
                yield from (c for c in descriptions.chunks(path=self.path) if self._wants(c.entity_path))

    def info(self) -> McapInfo:
        """What is in the file; reads its summary, and all of it only when there is none."""
        with McapFile(self.path) as file:
            return describe_file(file)

    def _messages(
        self, group: Group, registry: Registry, split: McapSplit, outputs: dict[int, ChannelOutput | None]
    ) -> Iterator[Chunk]:
        """The chunks of some messages; ``outputs`` keeps what makes them, by channel."""
        times = self.options.times
        found = group.found if times is None else group.found.at(times.holds(group.found.heads["log_time"]))
        for run in runs(found) if len(found.heads) else ():
            if run.channel_id not in outputs:
                outputs[run.channel_id] = self._output(run.channel_id, registry, split)
            output = outputs[run.channel_id]
            if output is not None:
                yield from output.chunks(group.arena, run)

    def _wants(self, entity_path: str) -> bool:
        return self._wanted is None or self._wanted(entity_path)

    def _output(self, channel_id: int, registry: Registry, split: McapSplit) -> ChannelOutput | None:
        channel = registry.channel(channel_id, offset=split.start)
        schema = registry.schema_of(channel)
        kind = kind_for(channel, schema, self.options)
        if kind is None:
            return None
        lenses = lenses_for(channel, schema, kind, self.options)
        entities = entities_of(lenses, parse_entity_path(channel.topic))
        if self._wanted is not None and not any(self._wanted(entity) for entity in entities):
            return None
        decoder = decoder_for(channel, schema, kind, self.options, path=self.path)
        return ChannelOutput(channel, decoder, self.options, lenses)


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
