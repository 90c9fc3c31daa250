"""An MCAP file as a source of chunks: of the file as a whole, and of messages, each by the decoder that takes it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Final, NamedTuple

from ...engine.chunk import Chunk, parse_entity_path
from ...engine.errors import ReadError, ReadWarning
from ...lenses import DeriveLens
from .decoders import MEANINGS, MESSAGE_DECODERS, PROTOBUF, RAW, ROS2, MessageRow, file_decoders, reads_records
from .decoding import MessageDecoder, SchemaError
from .decoding.gather import RawDecoder
from .emit import ChannelOutput, runs
from .file import McapFile
from .file_level import NO_FACTS, FileFacts, Survey, facts_of
from .info import McapInfo, describe_file
from .layout import Layout, read_layout
from .mapping import entities_of
from .options import McapOptions
from .plan import plan_splits, whole
from .records import ATTACHMENT, DAMAGED_HINT
from .recovering import McapRecoveryReport, plan_salvage, recovery_report
from .registry import Channel, Registry, Schema
from .section import Group, SectionReader
from .split import McapSplit


class _SplitReading:
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
        made = [d(self.registry, options.selects) for d in file_decoders(options.decoders)]
        self._decoders = {decoder.name: decoder for decoder in made}
        self._outputs: dict[int, ChannelOutput | None] = {}

    def before(self) -> Iterator[Chunk]:
        """What the summary tells of the file."""
        yield from self._file_level(self._split.before, self._facts)

    def messages(self, section: SectionReader) -> Iterator[Chunk]:
        """The messages that ``section`` finds."""
        split, times = self._split, self._options.times
        late = [self._decoders[name] for name in split.after]
        surveys = any(not decoder.looks_at_messages for decoder in late)
        looking = [decoder for decoder in late if decoder.looks_at_messages and split.is_whole]
        for group in section.groups():
            if surveys:
                self._survey.add(group.found)
            for decoder in looking:
                decoder.add(*group)
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

    def _file_level(self, names: tuple[str, ...], facts: FileFacts) -> Iterator[Chunk]:
        for decoder in (self._decoders[name] for name in names):
            if decoder.entity is None or self._wants(decoder.entity):
                if not self._split.is_whole:
                    decoder.look_up(self._file)
                chunks = decoder.chunks(self._file, facts)
                yield from (chunk for chunk in chunks if self._wants(chunk.entity_path))

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
        kind = _kind_for(channel, schema, self._options)
        if kind is None:
            return None
        lenses = _lenses_for(channel, schema, kind, self._options)
        entities = entities_of(lenses, parse_entity_path(channel.topic))
        if not any(self._wants(entity) for entity in entities):
            return None
        decoder = _decoder_for(channel, schema, kind, self._options, path=self._file.path)
        return ChannelOutput(channel, decoder, self._options, lenses)


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
            reading = _SplitReading(file, split, shared.facts, self.options, self._wants)
            wanted = [d.name for d in file_decoders(self.options.decoders) if d.entity and self._wants(d.entity)]
            are_read = reads_records(ATTACHMENT, wanted)
            section = SectionReader(file, split, reading.registry, check_attachments=not are_read)
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
        reading = _SplitReading(file, salvage.split, salvage.facts, self.options, self._wants)
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
        return _Shared(NO_FACTS, 0, 0)
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


_ROWS: Final = {(row.schema_encoding, row.message_encoding): row for row in MESSAGE_DECODERS}


def _kind_for(channel: Channel, schema: Schema | None, options: McapOptions) -> str | None:
    """The decoder that claims ``channel`` under ``options``; None when nothing is to come out of it."""
    if not options.selects(channel.topic):
        return None
    row = _row_of(channel, schema)
    if row is not None and (row.decoder in options.decoders or _lenses_for(channel, schema, row.decoder, options)):
        return row.decoder
    return RAW if RAW in options.decoders else None


def _lenses_for(channel: Channel, schema: Schema | None, kind: str, options: McapOptions) -> tuple[DeriveLens, ...]:
    """What makes the decoded messages of a channel into what they mean; nothing where they stay structs."""
    if schema is None:
        return ()
    known = (meaning for name, meaning in MEANINGS.items() if name in options.decoders)
    return next(filter(None, (meaning(kind, schema.name, channel.topic, options.decoders) for meaning in known)), ())


def _decoder_for(
    channel: Channel, schema: Schema | None, kind: str, options: McapOptions, *, path: str
) -> MessageDecoder:
    """Compile the decoder of a channel. A definition that cannot be used gives raw bytes and one ``ReadWarning``."""
    row = _row_of(channel, schema)
    if kind == RAW or row is None:
        if options.decoders & {ROS2, PROTOBUF}:
            _warn_of_encoding(channel, schema, path)
        return RawDecoder()
    name, data = ("", b"") if schema is None else (schema.name, schema.data)
    try:
        return _compiled(row, name, data)
    except SchemaError as error:
        _warn(f"{path}: topic {channel.topic}: the schema {name} cannot be used: {error}")
        return RawDecoder()


def _row_of(channel: Channel, schema: Schema | None) -> MessageRow | None:
    encoding = "" if schema is None else schema.encoding
    return _ROWS.get((encoding, channel.message_encoding.lower())) or _ROWS.get((encoding, None))


def _warn_of_encoding(channel: Channel, schema: Schema | None, path: str) -> None:
    if schema is None and channel.schema_id:
        _warn(f"{path}: topic {channel.topic}: its schema, number {channel.schema_id}, is not in the file")
    elif schema is not None and schema.encoding == "ros2msg" and channel.message_encoding.lower() != "cdr":
        _warn(
            f"{path}: topic {channel.topic}: its schema {schema.name} is of ROS 2, but its messages are encoded as"
            f" {channel.message_encoding!r}, not as CDR"
        )


def _warn(text: str) -> None:
    warnings.warn(f"{text}; its messages come out as raw bytes", ReadWarning, stacklevel=3)


@lru_cache(maxsize=256)
def _compiled(row: MessageRow, name: str, data: bytes) -> MessageDecoder:
    return row.compile(name, data)
