"""The chunks of one split: of the file level, of its messages, of robots."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...engine.chunk import Chunk, parse_entity_path
from .emit import ChannelOutput, runs
from .file import McapFile
from .file_level import FileFacts, Survey, file_level_chunks
from .mapping import entities_of
from .options import McapOptions
from .registry import Registry
from .section import Group, SectionReader
from .selection import decoder_for, kind_for, lenses_for
from .split import McapSplit
from .urdf import Descriptions
from .urdf.indexed import indexed_descriptions


class SplitReading:
    """Reads one split once, in three steps that follow each other: :meth:`before`, :meth:`messages`, :meth:`after`.

    ``facts`` are what the summary tells, ``wants`` says at which entities somebody will look.
    """

    def __init__(
        self,
        file: McapFile,
        split: McapSplit,
        facts: FileFacts,
        options: McapOptions,
        wants: Callable[[str], bool],
    ) -> None:
        self._file = file
        self._split = split
        self._facts = facts
        self._options = options
        self._wants = wants
        self.registry = Registry(file.path, facts.channels.values(), facts.schemas.values())
        self._survey = Survey()
        self._descriptions = Descriptions(self.registry, options)
        self._outputs: dict[int, ChannelOutput | None] = {}

    def before(self) -> Iterator[Chunk]:
        """What the summary tells of the file."""
        yield from self._file_level(self._split.before, self._facts)

    def messages(self, section: SectionReader) -> Iterator[Chunk]:
        """The messages that ``section`` finds."""
        split, times = self._split, self._options.times
        surveys = bool(set(split.after) - {"urdf"})
        collects = split.is_whole and "urdf" in split.after
        for group in section.groups():
            if surveys:
                self._survey.add(group.found)
            if collects:
                self._descriptions.add(*group)
            if times is not None:
                group = Group(group.arena, group.found.at(times.holds(group.found.heads["log_time"])))
            if len(group.found.heads):
                yield from self._messages(group)
            del group  # so that its arena can be taken for the next one

    def after(self, section: SectionReader) -> Iterator[Chunk]:
        """What reading ``section`` has told of the file, and robots. Warns of what could not be decoded."""
        for output in self._outputs.values():
            if output is not None:
                output.warn(path=self._file.path)
        tally = section.tally
        facts = self._survey.facts(self.registry, tally.chunks.total(), tally.attachments, tally.metadata)
        yield from self._file_level(self._split.after, facts)
        if "urdf" in self._split.after:
            if not self._split.is_whole:
                indexed_descriptions(self._file, self._descriptions, self.registry)
            robots = self._descriptions.chunks(path=self._file.path)
            yield from (chunk for chunk in robots if self._wants(chunk.entity_path))

    def _file_level(self, decoders: tuple[str, ...], facts: FileFacts) -> Iterator[Chunk]:
        yield from file_level_chunks(self._file, decoders, facts, self._options, self._wants)

    def _messages(self, group: Group) -> Iterator[Chunk]:
        for run in runs(group.found):
            if run.channel_id not in self._outputs:
                self._outputs[run.channel_id] = self._output(run.channel_id)
            output = self._outputs[run.channel_id]
            if output is not None:
                yield from output.chunks(group.arena, run)

    def _output(self, channel_id: int) -> ChannelOutput | None:
        channel = self.registry.channel(channel_id, offset=self._split.start)
        schema = self.registry.schema_of(channel)
        kind = kind_for(channel, schema, self._options)
        if kind is None:
            return None
        lenses = lenses_for(channel, schema, kind, self._options)
        entities = entities_of(lenses, parse_entity_path(channel.topic))
        if not any(self._wants(entity) for entity in entities):
            return None
        decoder = decoder_for(channel, schema, kind, self._options, path=self._file.path)
        return ChannelOutput(channel, decoder, self._options, lenses)
