"""``McapReader``, and its source of chunks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np

from ...engine.chunk import (
    Chunk,
    ComponentColumnDescriptor,
    IndexColumnDescriptor,
    Origin,
    Schema,
    TimelineKind,
    parse_entity_path,
)
from ...engine.errors import ReadWarning, SourceMissingError, UnmatchedWarning, UsageError
from ...engine.limits import MIB, SPLIT_BYTES
from ...engine.locations import Location, exists, located, reading_location
from ...engine.markup import panel, panel_or_error
from ...engine.spark import in_task
from ...engine.storage import is_url
from ...engine.stream import Source
from ...engine.units import counted, size, utc_time
from ..recording_file import FrameReader
from .decoders import (
    DECODERS,
    LOG_TIME,
    PUBLISH_TIME,
    ChannelOutput,
    McapOptions,
    choose,
    compile_decoder,
    entities_of,
    file_decoders,
    reads_records,
    runs,
    stamp_in,
)
from .file import McapFile, McapLayout, Summary, read_layout
from .file_level import NO_FACTS, FileFacts, MessageIndex, MessageSurvey, facts_of
from .plan import (
    SplitPiece,
    behind,
    indexed_pieces,
    no_message,
    no_topic,
    plan_splits,
    says_all_channels,
    whole,
    why_nothing,
)
from .records import Channel, Op, Registry, damaged
from .section import (
    NOWHERE,
    McapSplit,
    MessageGroup,
    MessageSection,
    Places,
    SectionIndex,
    SectionReader,
    Tally,
    TimeRange,
    checked_range,
)

if TYPE_CHECKING:
    from ...engine.chunk import TimeBounds
    from ...engine.stream import FrameRequest, LazyChunkStream, RecordSource
    from .info import McapInfo
    from .recovery import McapRecoveryReport, Rescue

_SHORT_LOG_TIME: Final = "log_time"
_MOST_THREADS: Final = 4
_LEAST_FOR_THREADS: Final = 2 * MIB
"""A split of fewer bytes is read without threads: starting these would take some tenths of its few milliseconds."""

_NO_END: Final = 2**64
_LATEST: Final = 2**63 - 1


class SplitReading:
    """Reads one split once, in three steps: :meth:`before`, :meth:`messages`, :meth:`after`.

    ``facts`` are the summary's facts; ``wants`` is true for the entities in use. ``index`` finds messages of other
    splits.
    """

    def __init__(
        self,
        file: McapFile,
        split: McapSplit,
        facts: FileFacts,
        options: McapOptions,
        wants: Callable[[str], bool],
        index: MessageIndex | None = None,
    ) -> None:
        self._index = index
        self._file = file
        self._split = split
        self._facts = facts
        self._options = options
        self._wants = wants
        self.registry = Registry(file.path, facts.channels.values(), facts.schemas.values())
        self._survey = MessageSurvey()
        made = [d(self.registry, options.selects) for d in file_decoders(options.decoders)]
        self._decoders = {decoder.name: decoder for decoder in made}
        self._outputs: dict[int, ChannelOutput | None] = {}
        self._chosen = False

    def before(self) -> Iterator[Chunk]:
        """Yield the chunks about the file that are made from its summary."""
        yield from self._file_level(self._split.before, self._facts)

    def messages(self, section: MessageSection) -> Iterator[Chunk]:
        """Yield the chunks of the messages in ``section``."""
        split, times = self._split, self._options.times
        late = [self._decoders[name] for name in split.after]
        surveys = any(not decoder.looks_at_messages for decoder in late)
        looking = [decoder for decoder in late if decoder.looks_at_messages and split.is_whole]
        for group in section.groups():
            if surveys:
                self._survey.add(group.messages)
            for decoder in looking:
                decoder.add(*group)
            if times is not None:
                group = MessageGroup(group.arena, group.messages.at(times.holds(group.messages.heads["log_time"])))
            if len(group.messages.heads):
                self._chosen = True
                yield from self._messages(group)
            del group  # so that the next group can reuse its arena

    def after(self, section: MessageSection) -> Iterator[Chunk]:
        """Yield the chunks about the file made by reading ``section``, and robots. Warns of undecodable messages."""
        outputs = [output for output in self._outputs.values() if output is not None]
        for output in outputs:
            output.warn(path=self._file.path)
        if clamped := sum(output.clamped for output in outputs):
            warnings.warn(
                f"{self._file.path}: {counted(clamped, 'log or publish time')} beyond 2^63 ns, clamped to the latest "
                f"time of a timeline ({utc_time(_LATEST / 1e9, 'seconds')})",
                ReadWarning,
                stacklevel=2,
            )
        tally = section.tally
        facts = self._survey.facts(self.registry, tally.chunks.total(), tally.attachments, tally.metadata)
        yield from self._file_level(self._split.after, facts)

    def warn_of_nothing(self, tally: Tally) -> None:
        """Warn if the options selected no message of the whole file, unless its summary already proved that."""
        topics = sorted({channel.topic for channel in self.registry.channels.values()})
        if not self._options.reads_messages or not (tally.messages or tally.skipped):
            return
        if topics and not any(map(self._options.selects, topics)):
            warnings.warn(f"{self._file.path}: {no_topic(self._options, topics)}", UnmatchedWarning, stacklevel=2)
        elif self._options.times is not None and not self._chosen:
            warnings.warn(f"{self._file.path}: {no_message(self._options.times)}", ReadWarning, stacklevel=2)

    def _file_level(self, names: tuple[str, ...], facts: FileFacts) -> Iterator[Chunk]:
        for decoder in (self._decoders[name] for name in names):
            if decoder.entity is None or self._wants(decoder.entity):
                if not self._split.is_whole and self._index is not None:
                    decoder.look_up(self._index)
                chunks = decoder.chunks(self._file, facts)
                yield from (chunk for chunk in chunks if self._wants(chunk.entity_path))

    def _messages(self, group: MessageGroup) -> Iterator[Chunk]:
        for run in runs(group.messages, lambda channel_id: self._output_of(channel_id) is not None):
            output = self._output_of(run.channel_id)
            if output is not None:
                yield from output.chunks(group.arena, run)

    def _output_of(self, channel_id: int) -> ChannelOutput | None:
        if channel_id not in self._outputs:
            self._outputs[channel_id] = self._output(channel_id)
        return self._outputs[channel_id]

    def _output(self, channel_id: int) -> ChannelOutput | None:
        channel = self.registry.channel(channel_id, offset=self._split.start)
        schema = self.registry.schema_of(channel)
        choice = choose(channel, schema, self._options)
        if choice is None:
            return None
        entities = entities_of(choice.lenses, parse_entity_path(channel.topic))
        if not any(self._wants(entity) for entity in entities):
            return None
        decoder = compile_decoder(channel, schema, choice.row, self._options, path=self._file.path)
        stamp = stamp_in(decoder, choice.row, self._options)
        return ChannelOutput(channel, decoder, self._options, choice.lenses, stamp)


class _Shared(NamedTuple):
    """The part of the summary that every split needs: facts on the file, and its numbers of chunks and messages."""

    facts: FileFacts
    chunks: int
    messages: int


class McapSource(Source[McapSplit]):
    """The chunks of one MCAP file.

    Guarantee: every message of a selected topic (and time) is exactly one row. Order: first the chunks about the file
    from its summary; then messages by split, in a split by groups of MCAP chunks of about 32 MiB, and in a group by
    channel id, then by log time; then the chunks about the file that need a full read; then robots. It is the same for
    every run over the same bytes. If the summary proves that the options select no message, ``nothing`` is a warning
    with the reason.

    Sources for other containers of channels with messages derive from this class. They override the methods from
    :meth:`open` to :meth:`rescue`, which open, divide and read a file.
    """

    reader: ClassVar[str] = "McapReader"

    def __init__(self, path: str, options: McapOptions | None = None) -> None:
        self.path = path
        self.options = options or McapOptions()
        self._shared: _Shared | None = None
        self._version: str | None = None
        self._size: int | None = None
        self._wanted: Callable[[str], bool] | None = None
        self.nothing: ReadWarning | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def describe(self) -> str:
        """``McapReader(drive.mcap)``."""
        return f"{self.reader}({self.path})"

    def paths(self) -> Sequence[str]:
        """The file that is read."""
        return [self.path]

    def narrowed(self, wanted: Callable[[str], bool]) -> Self:
        """Return the source without topics of unused entities, whose messages are not decoded."""
        return self._with(self.options, wanted)

    def open(self, version: str | None = None, *, unwrap: bool = True, stored_size: int | None = None) -> McapFile:
        """Open the file; if given, in this version. ``unwrap``: decompress a file that is compressed as a whole."""
        return McapFile(self.path, version, unwrap=unwrap, stored_size=stored_size)

    def layout(self, file: Any) -> McapLayout:
        """The parts of the file, and its index. Raises ``ReadError`` if the file is cut or damaged."""
        return read_layout(file)

    def plan(self, file: Any, layout: McapLayout, unwanted: Places) -> list[McapSplit]:
        """The parts that tasks read."""
        return plan_splits(file, layout, self.options, unwanted)

    def chunk_pieces(self, file: Any, layout: McapLayout) -> list[SplitPiece] | None:
        """All chunks of the file with their numbers of messages; None if the index does not have them."""
        return indexed_pieces(file, layout, self.options)

    def records(self) -> Sequence[RecordSource]:
        """The messages of the file as stored."""
        from .copying import McapRecords

        return [McapRecords(self)]

    def check_counts(self, section: MessageSection, layout: McapLayout, split: McapSplit) -> None:
        """Compare the chunks and messages of the whole file with its summary. Raises ``ReadError``."""
        _check_counts(section, _share(layout), split, self.path)

    def section(self, file: Any, split: McapSplit, registry: Registry, *, threads: int = 1) -> MessageSection:
        """Return a reader for the records of a split."""
        wanted = [d.name for d in file_decoders(self.options.decoders) if d.entity and self._wants(d.entity)]
        checks = not reads_records(Op.ATTACHMENT, wanted)
        return SectionReader(file, split, registry, check_attachments=checks, threads=threads)

    def why_nothing(self, file: Any, layout: McapLayout) -> ReadWarning | None:
        """Return why the options select no message of the file, or None if the index does not prove that."""
        return why_nothing(file, layout, self.options)

    def unwanted(self, summary: Summary | None) -> Places:
        """The places of the chunks to leave out, by the summary.

        A stream reads all chunks of a local file, so that damaged chunks are noticed.
        """
        return self.without_wanted(summary) if self.options.values or is_url(self.path) else NOWHERE

    def rescue(self, file: Any) -> Rescue:
        """Return the reader for a damaged file."""
        from .recovery import plan_salvage

        return plan_salvage(file, self.options)

    def undivided(self) -> Sequence[McapSplit] | None:
        """Return an object in a store as one split, which its task plans."""
        return [self._unplanned(0)] if is_url(self.path) else None

    def _unplanned(self, size: int) -> McapSplit:
        return McapSplit(PurePath(self.path).name, size, 0, 0, is_planned=False)

    def splits(self) -> Sequence[McapSplit]:
        """Return runs of MCAP chunks of about 64 MiB uncompressed.

        A file without a usable index, or compressed as a whole, is one split; so is a damaged file in a recovery.
        """
        with self.open(unwrap=False) as file:
            self._version, self._size = file.version, file.stored_size
            if self.options.recover or file.is_wrapped:
                return [self._unplanned(file.size)]
            layout = self.layout(file)
            self._shared = _share(layout)
            self.nothing = self.why_nothing(file, layout)
            return self.plan(file, layout, self.unwanted(layout.summary))

    def read(self, split: McapSplit) -> Iterator[Chunk]:
        """Yield the chunks of one split. Warns (``ReadWarning``) of messages that could not be decoded and stay raw."""
        with self.open(self._version, unwrap=not split.is_planned, stored_size=self._size) as file:
            if self.options.recover:
                yield from self._recovered(file)
                return
            shared = self._shared
            if shared is None or not split.is_planned:
                layout = self.layout(file)
                shared = _share(layout)
                unwanted = self.unwanted(layout.summary)
                split = split if split.is_planned else whole(file, layout, self.options, unwanted)
            file.expect(*split.ranges())
            reading = self._reading(file, split, shared.facts)
            section = self.section(file, split, reading.registry, threads=_threads(split))
            yield from reading.before()
            yield from reading.messages(section)
            if split.is_whole:
                _check_counts(section, shared, split, self.path)
            yield from reading.after(section)
            if split.is_whole and self.nothing is None and not self.options.values:
                reading.warn_of_nothing(section.tally)

    def projected(self, request: FrameRequest) -> Self:
        """Return the source for a frame, without unused fields and without messages outside the frame's times."""
        return self._with(narrower(self.options, request), self._wanted)

    def _with(self, options: McapOptions, wanted: Callable[[str], bool] | None) -> Self:
        narrowed = type(self)(self.path, options)
        vars(narrowed).update(_shared=self._shared, _version=self._version, _size=self._size, _wanted=wanted)
        return narrowed

    def _reading(self, file: McapFile, split: McapSplit, facts: FileFacts) -> SplitReading:
        return SplitReading(file, split, facts, self.options, self._wants, SectionIndex(self, file))

    def without_wanted(self, summary: Summary | None) -> Places:
        """The places of the chunks without wanted messages, by the channels in the summary."""
        if summary is None or not says_all_channels(summary):
            return NOWHERE
        registry = Registry(self.path, summary.channels, summary.schemas)
        wanted = {
            channel.id
            for channel in summary.channels
            if (choice := choose(channel, registry.schema_of(channel), self.options)) is not None
            and any(map(self._wants, entities_of(choice.lenses, parse_entity_path(channel.topic))))
        }
        ids = ((entry, np.frombuffer(entry.channel_ids, "<u2").tolist()) for entry in summary.chunks)
        return {entry.offset: behind(entry) for entry, channels in ids if channels and wanted.isdisjoint(channels)}

    def columns(self) -> tuple[Schema, frozenset[Origin]] | None:
        """The columns of the messages, by the summary; None if it is incomplete, or lenses make other columns."""
        if self.options.recover or not self.options.values:
            return None
        with self.open() as file:
            summary = self.layout(file).summary
        if summary is None or not says_all_channels(summary):
            return None
        registry = Registry(self.path, summary.channels, summary.schemas)
        return message_columns(registry, summary.channels, self.options, self._wants, self.path)

    def entities(self) -> set[str] | None:
        """The entities of all messages and of the file, by the summary; None if it is incomplete."""
        if self.options.recover:
            return None
        with self.open(unwrap=False) as file:
            summary = None if file.is_wrapped else self.layout(file).summary
        if summary is None or not says_all_channels(summary):
            return None
        registry = Registry(self.path, summary.channels, summary.schemas)
        entities = {parse_entity_path(channel.topic) for channel in summary.channels}
        for decoder in file_decoders(self.options.decoders):
            if decoder.entity is not None:
                entities.add(decoder.entity)
            elif decoder.has_messages(summary, self.options.selects):
                return None  # its entities are in the messages
        for channel in summary.channels:
            choice = choose(channel, registry.schema_of(channel), self.options)
            if choice is not None:
                entities |= entities_of(choice.lenses, parse_entity_path(channel.topic))
        return entities

    def info(self, *, timing: bool = False) -> McapInfo:
        """Describe the file; reads its summary, or the whole file if it has none.

        With ``timing``, rates and gaps of the channels are added, and the message indexes are read for them.
        """
        with self.open() as file:
            return self.describe_file(file, timing=timing)

    def describe_file(self, file: Any, *, timing: bool) -> McapInfo:
        """Describe the open file; see :meth:`info`."""
        from .info import describe_file

        return describe_file(file, timing=timing)

    def recovery_report(self) -> McapRecoveryReport:
        """Report the recoverable and the lost parts of the file. This reads all of it, and decodes nothing."""
        with self.open() as file:
            salvage = self.rescue(file)
            registry = Registry(self.path, salvage.facts.channels.values(), salvage.facts.schemas.values())
            section = salvage.section(file, registry)
            for _ in section.groups():
                pass
            salvage.finish(file, section)
            return salvage.report

    def _recovered(self, file: McapFile) -> Iterator[Chunk]:
        salvage = self.rescue(file)
        file.expect((salvage.split.start, salvage.split.end))
        reading = self._reading(file, salvage.split, salvage.facts)
        section = salvage.section(file, reading.registry)
        yield from reading.before()
        yield from reading.messages(section)
        salvage.finish(file, section)
        yield from reading.after(section)
        if not salvage.report.is_whole:
            warnings.warn(str(salvage.report), ReadWarning, stacklevel=2)

    def _wants(self, entity_path: str) -> bool:
        return self._wanted is None or self._wanted(entity_path)


def _threads(split: McapSplit) -> int:
    """The number of chunks to decompress at once; 1 for small files, and in tasks, which use the cores together."""
    is_small = split.end - split.start < _LEAST_FOR_THREADS
    return 1 if is_small or in_task() else min(_MOST_THREADS, os.cpu_count() or 1)


def message_entities(
    registry: Registry, channel: Channel, options: McapOptions, wants: Callable[[str], bool]
) -> set[str]:
    """The entities that a channel's messages may have; empty if none of them is wanted."""
    choice = choose(channel, registry.schema_of(channel), options)
    entities = set() if choice is None else entities_of(choice.lenses, parse_entity_path(channel.topic))
    return entities if any(map(wants, entities)) else set()


def message_columns(
    registry: Registry, channels: Iterable[Channel], options: McapOptions, wants: Callable[[str], bool], path: str
) -> tuple[Schema, frozenset[Origin]] | None:
    """The columns of some channels' messages, as for :meth:`McapSource.columns`."""
    found = []
    for channel in channels:
        entity, schema = parse_entity_path(channel.topic), registry.schema_of(channel)
        choice = choose(channel, schema, options)
        if choice is None or not wants(entity):
            continue
        if choice.lenses:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reading the messages gives the same warnings
            decoder = compile_decoder(channel, schema, choice.row, options, path=path)
        d = decoder.descriptor
        found.append(
            ComponentColumnDescriptor(entity, d.component, d.archetype, d.component_type, False, decoder.column)
        )
    kind = TimelineKind(options.timeline_type)
    indexes = [IndexColumnDescriptor(name, kind) for name in (LOG_TIME, PUBLISH_TIME)]
    return Schema(indexes if found else (), found), frozenset((c.entity_path, c.component) for c in found)


def narrower(options: McapOptions, request: FrameRequest) -> McapOptions:
    """The options for a frame: only the fields that it needs, and only messages within its times."""
    bounds = request.bounds
    if options.values and request.columns is not None:
        options = replace(options, columns=request.columns)
    if bounds is not None and not bounds.is_open and bounds.timeline in (LOG_TIME, _SHORT_LOG_TIME):
        options = replace(options, times=_narrower(options, bounds))
    return options


def _narrower(options: McapOptions, bounds: TimeBounds) -> TimeRange:
    """The range of log times, as the writer wrote them, in both the reader's range and a frame's bounds."""
    start = 0 if bounds.start is None else max(bounds.start - options.offset_ns, 0)
    end = _NO_END if bounds.end is None or bounds.end >= _LATEST else max(bounds.end - options.offset_ns, 0)
    if options.times is not None:
        start, end = max(start, options.times.start), min(end, options.times.end)
    return TimeRange(start, max(start, end))


def _share(layout: McapLayout) -> _Shared:
    summary = layout.summary
    if summary is None:
        return _Shared(NO_FACTS, 0, 0)
    statistics = summary.statistics
    chunks = len({entry.offset for entry in summary.chunks})
    if statistics is None:
        return _Shared(facts_of(summary), chunks, 0)
    return _Shared(facts_of(summary), max(chunks, statistics.chunk_count), statistics.message_count)


def _check_counts(reader: MessageSection, shared: _Shared, split: McapSplit, path: str) -> None:
    """Compare the chunks and messages of the whole file with the counts of its summary."""
    tally = reader.tally
    for what, count, declared in (
        ("chunks", tally.chunks.total(), shared.chunks),
        ("messages", tally.messages, 0 if tally.skipped else shared.messages),
    ):
        if count < declared:
            why = f"the summary counts {declared:,} {what}, but there are {count:,}"
            raise damaged(why, path=path, offset=split.end)


class McapReader(FrameReader):
    """Read chunks from an MCAP file.

    Every message becomes one row at the entity of its topic, on the timelines ``message_log_time`` and
    ``message_publish_time``. CRCs are checked; a damaged file raises ``ReadError`` while it is read. Files without
    index or summary are read, too.

    Parameters
    ----------
    path
        The file, or the URL of an object (``s3://``, ``gs://``, ``abfs://``). It must exist; it is opened when the
        stream runs.
    timeline_type
        Whether times are wall-clock times, ``"timestamp"`` (or ``"timestamp_ns"``), or ``"duration"`` (or
        ``"duration_ns"``); both in ns.
    timestamp_offset_ns
        An offset for every timestamp, saturating; it does not apply to durations.
    decoders
        Identifiers of the decoders to use, from :meth:`available_decoders`; by default all of them. ``ros2_reflection``
        decodes messages of ROS 2 (CDR with ``ros2msg``, ``ros2idl`` or ``omgidl``) and ROS 1 to structs. ``protobuf``
        does the same for protobuf, FlatBuffers, and JSON and CBOR with or without a JSON Schema. ``raw`` is for the
        channels of no other decoder. If a decoder cannot read a message or a channel, it is kept as raw bytes, with a
        ``ReadWarning``.
    include_topic_regex
        Only topics that match one of these RE2 patterns are read. Patterns are not anchored.
    exclude_topic_regex
        Topics that match one of these patterns are skipped, after the includes are applied.
    start_time_ns, end_time_ns
        Only messages at or after the start and before the end are read, by their log time in ns as the writer wrote it.
        Chunks of the file outside this range are not decompressed. Data about the whole file (statistics, schemas,
        metadata, attachments, robots) is not affected.
    recover
        Read the recoverable parts of a damaged file, in one split. A ``ReadWarning``, and :meth:`recovery_report`,
        report the loss.

    Raises
    ------
    FileNotFoundError
        There is no such file (``SourceMissingError``).
    ValueError
        The timeline type, decoder or pattern is invalid, or the range of times ends before it starts (``UsageError``).
    TypeError, OverflowError
        An offset or a time is not an integer, or does not fit into 64 bits.
    """

    frame_index = _SHORT_LOG_TIME
    source_type: ClassVar[type[McapSource]] = McapSource
    """The class of the source from :meth:`source`."""

    _kind: ClassVar[str] = "MCAP"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeline_type: Literal["timestamp", "duration", "timestamp_ns", "duration_ns"] = "timestamp",
        timestamp_offset_ns: int | None = None,
        decoders: Iterable[str] | None = None,
        include_topic_regex: Iterable[str] | None = None,
        exclude_topic_regex: Iterable[str] | None = None,
        start_time_ns: int | None = None,
        end_time_ns: int | None = None,
        recover: bool = False,
    ) -> None:
        self._path = reading_location(path)
        self._options = McapOptions.checked(
            timeline_type,
            timestamp_offset_ns,
            decoders,
            include_topic_regex,
            exclude_topic_regex,
            start_time_ns,
            end_time_ns,
            recover,
        )
        if not exists(self._path):
            raise SourceMissingError(f"{self._kind} file not found", path=str(self._path))

    @property
    def path(self) -> Location:
        """The path of the file, or the URL of the object."""
        return self._path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path})"

    def _repr_html_(self) -> str:
        return panel_or_error(repr(self), self._panel)

    def _panel(self) -> str:
        source = self.source()
        with source.open() as file:
            if source.layout(file).summary is None and file.stored_size > SPLIT_BYTES:
                return panel(repr(self), [size(file.stored_size), "without a summary: info() reads the whole file"])
            return source.describe_file(file, timing=True).panel(repr(self))

    @staticmethod
    def available_decoders() -> list[str]:
        """All decoder identifiers, sorted.

        >>> McapReader.available_decoders()[:3]
        ['attachments', 'foxglove', 'metadata']
        """
        return list(DECODERS)

    def source(self, *, start_time_ns: int | None = None, end_time_ns: int | None = None) -> McapSource:
        """Return the file as a source for a pipeline. The arguments are as for :meth:`stream`."""
        options = self._options
        if start_time_ns is not None or end_time_ns is not None:
            options = replace(options, times=checked_range(start_time_ns, end_time_ns))
        return self.source_type(str(located(self._path)), options)

    def stream(self, *, start_time_ns: int | None = None, end_time_ns: int | None = None) -> LazyChunkStream:
        """A lazy stream of the file's chunks; each call reads the file again.

        If a start or an end is given, both replace the times of the reader, for this stream only.

        Order: first the chunks about the file from its summary. Then messages, in pieces of about 32 MiB in file order,
        and within a piece by channel, then by log time. Then the chunks about the file that need a full read, then
        robots. The order is the same on any number of cores.
        """
        from ...engine.stream import LazyChunkStream

        source = self.source(start_time_ns=start_time_ns, end_time_ns=end_time_ns)
        return LazyChunkStream.from_source(source)

    def values(self) -> LazyChunkStream:
        """A lazy stream of the decoded messages, one struct each, for frames.

        Decoders that map messages to archetypes (``foxglove``, ``ros2msg``) or decode data about the file are left out,
        unless the reader was given decoders. A message that cannot be decoded is null, and a ``ReadWarning`` gives the
        number of such messages. Order as for :meth:`stream`.
        """
        from ...engine.stream import LazyChunkStream

        return LazyChunkStream.from_source(self.source_type(str(located(self._path)), self._options.of_values()))

    @property
    def topics(self) -> list[str]:
        """Return all topics of the file, sorted, including those that the reader leaves out. Raises ``ReadError``.

        Only the summary is read, if there is one, or else the whole file. :meth:`info` also has schemas, encodings and
        counts.
        """
        return sorted({channel.topic for channel in self.source().info().channels})

    def time_bounds(self) -> tuple[int, int]:
        """Return the first and last log time of all messages, in ns as the writer wrote them; see :meth:`info`.

        Raises ``UsageError`` (a ``ValueError``) if the file has no message.
        """
        info = self.source().info()
        if info.start_time is None or info.end_time is None:
            raise UsageError("the file has no messages, and no times", path=str(self._path))
        return info.start_time, info.end_time

    def recovery_report(self) -> McapRecoveryReport:
        """Report the recoverable and the lost parts of a damaged file.

        This reads the whole file, without decoding messages.
        """
        return self.source().recovery_report()

    def info(self, *, timing: bool = False) -> McapInfo:
        """Describe the file: channels, schemas, counts, times, compression. Messages are not decoded.

        With ``timing``, this also returns the rate and the largest gap of each channel, from the message indexes.
        """
        return self.source().info(timing=timing)
