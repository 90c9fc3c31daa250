"""The messages of an MCAP, bag or database as stored, for writers that copy them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...engine.chunk import parse_entity_path
from ...engine.errors import ReadError, ReadWarning
from ...engine.limits import MIB
from ...engine.stream import (
    CompressedChunk,
    Extra,
    ExtraPlace,
    RecordChannel,
    RecordFacts,
    RecordOutline,
    Records,
    RecordSchema,
    RecordSource,
    RecordUnit,
)
from .decoders import choose, entities_of
from .file_level import Attachments, MetadataRecords, check_place, read_attachment, read_metadata
from .plan import behind, whole
from .records import (
    CHUNK_HEAD_MAX,
    HEAD,
    MESSAGE_FIXED,
    Channel,
    ChunkIndexEntry,
    McapSchema,
    Op,
    RecordPlace,
    Registry,
    parse_chunk_head,
)
from .section import McapSplit, MessageGroup, MessageSection

if TYPE_CHECKING:
    from .decoders import McapOptions
    from .file import McapFile, McapLayout, Summary

_STEP: Final = MIB
_LATEST: Final = 2**64 - 1
_INDEX_HEAD: Final = 6
_PAIR: Final = 16


def record_channel(channel: Channel, schema: McapSchema | None) -> RecordChannel:
    """Return a channel with its schema."""
    own = None if schema is None else RecordSchema(schema.name, schema.encoding, schema.data)
    return RecordChannel(channel.topic, channel.message_encoding, own, channel.metadata)


def record_entities(channel: RecordChannel, options: McapOptions) -> set[str]:
    """Return the entities of a channel's messages; none if the options leave the channel out."""
    schema = None if channel.schema is None else McapSchema(1, *channel.schema)
    choice = choose(Channel(0, channel.topic, channel.message_encoding, 1, channel.metadata), schema, options)
    return set() if choice is None else entities_of(choice.lenses, parse_entity_path(channel.topic))


class ChosenMessages:
    """Turns groups of messages into records: only messages that the options choose, with a registry's channels."""

    def __init__(
        self, path: str, registry: Registry, options: McapOptions, facts: RecordFacts, *, framed: bool
    ) -> None:
        self._path = path
        self._registry = registry
        self._options = options
        self._facts = facts
        self._framed = framed
        self._chosen: dict[int, bool] = {}

    def of(self, group: MessageGroup) -> Records | None:
        """Return the chosen messages of a group, or None."""
        options, heads = self._options, group.messages.heads
        ids = np.unique(heads["channel"])
        for id_ in ids.tolist():
            if id_ not in self._chosen:
                self._chosen[id_] = self._take(id_)
        which = np.isin(heads["channel"], [i for i in ids.tolist() if self._chosen[i]])
        if options.times is not None:
            which &= options.times.holds(heads["log_time"])
        if not which.any():
            return None
        starts = group.messages.offsets + (HEAD.size + MESSAGE_FIXED)
        lengths = heads["length"].astype(np.int64) - MESSAGE_FIXED
        records = Records(group.arena, starts, lengths, heads, self._framed).at(which)
        return records if not options.offset_ns else _moved(records, options.offset_ns, self._path)

    def take_all(self) -> None:
        """Add the channels of the registry that have no messages."""
        for id_ in self._registry.channels:
            if id_ not in self._chosen:
                self._chosen[id_] = self._take(id_)

    def _take(self, id_: int) -> bool:
        channel = self._registry.channel(id_, offset=None)
        schema = self._registry.schema_of(channel)
        if choose(channel, schema, self._options) is None:
            return False
        self._facts.channels[id_] = record_channel(channel, schema)
        self._facts.schema_ids[id_] = channel.schema_id
        return True


def _moved(records: Records, offset: int, path: str) -> Records:
    """Return messages with an offset added to their times. Warns if times saturate."""
    heads = records.heads.copy()
    saturated = 0
    for name in ("log_time", "publish_time"):
        times = heads[name]
        if offset < 0:
            late = times < np.uint64(-offset)
            heads[name] = np.where(late, np.uint64(0), times - np.uint64(-offset))
        else:
            late = times > np.uint64(_LATEST - offset)
            heads[name] = np.where(late, np.uint64(_LATEST), times + np.uint64(offset))
        saturated += int(late.sum())
    if saturated:
        warnings.warn(
            f"{path}: with the offset, {saturated:,} timestamps exceed the valid range and are clamped",
            ReadWarning,
            stacklevel=2,
        )
    return records._replace(heads=heads, framed=False)


class McapRecords(RecordSource):
    """The messages of one MCAP or bag; ``framed`` for MCAPs, whose records already have heads."""

    def __init__(self, source: Any, *, framed: bool = True) -> None:
        self.path = source.path
        self._source = source
        self._framed = framed
        self._version: str | None = None
        self._known: tuple[tuple[Channel, ...], tuple[McapSchema, ...]] = ((), ())

    @property
    def _options(self) -> McapOptions:
        options: McapOptions = self._source.options
        return options

    def outline(self) -> RecordOutline:
        """Describe the file by its index: one unit for each chunk, or one for the whole file."""
        source, options = self._source, self._options
        with source.open(unwrap=False) as file:
            self._version = file.version
            if options.recover or file.is_wrapped:
                unplanned = McapSplit(file.path, file.size, 0, 0, is_planned=False)
                return RecordOutline(None, RecordFacts(), (RecordUnit(unplanned, file.size),), False)
            layout = source.layout(file)
            summary = layout.summary
            units = None if summary is None else self._units(file, layout, summary)
            if units is None or summary is None:
                split = whole(file, layout, replace(options, times=None))
                return RecordOutline(layout.profile, RecordFacts(), (RecordUnit(split, file.size),), False)
        self._known = (summary.channels, summary.schemas)
        registry = Registry(self.path, *self._known)
        facts = RecordFacts(
            schemas={schema.id: RecordSchema(*schema[1:]) for schema in summary.schemas},
            attachments=[ExtraPlace(a.offset, a.length) for a in summary.attachments],
            metadata=[ExtraPlace(m.offset, m.length) for m in summary.metadata],
        )
        ChosenMessages(self.path, registry, options, facts, framed=self._framed).take_all()
        return RecordOutline(layout.profile, facts, tuple(units), True)

    def _units(self, file: McapFile, layout: McapLayout, summary: Summary) -> list[RecordUnit] | None:
        """A unit for each chunk; None if the index cannot locate all messages, attachments and metadata."""
        if not (Attachments.is_told_by(summary) and MetadataRecords.is_told_by(summary)):
            return None
        pieces = self._source.chunk_pieces(file, layout)
        entries = {entry.offset: entry for entry in summary.chunks}
        if pieces is None or any(piece.offset not in entries for piece in pieces):
            return None
        units = []
        for piece in pieces:
            entry = entries[piece.offset]
            if not piece.is_wanted or not piece.messages:
                continue
            is_unknown = entry.start_time == entry.end_time == 0 or entry.start_time > entry.end_time
            is_unknown = is_unknown or self._options.offset_ns != 0
            split = McapSplit(file.path, entry.length, entry.offset, behind(entry), chunks=1, messages=piece.messages)
            start, end = (None, None) if is_unknown else (entry.start_time, entry.end_time)
            units.append(RecordUnit(split, entry.uncompressed_size, start, end))
        return units

    def read(self, units: Sequence[RecordUnit], facts: RecordFacts) -> Iterator[tuple[int, Records]]:
        """Yield the messages of ``units`` in order, each with the position of its unit in ``units``."""
        source = self._source
        splits: list[McapSplit] = [unit.split for unit in units]
        with source.open(self._version, unwrap=not splits[0].is_planned) as file:
            if splits[0].is_whole or not splits[0].is_planned:
                yield from ((0, records) for records in self._whole(file, splits[0], facts))
                return
            registry = Registry(self.path, *self._known)
            chosen = ChosenMessages(self.path, registry, self._options, facts, framed=self._framed)
            at = 0
            while at < len(splits):
                end = at + 1
                while end < len(splits) and splits[end].start == splits[end - 1].end:
                    end += 1
                yield from self._run(file, splits[at:end], at, registry, chosen)
                at = end

    def _run(
        self, file: McapFile, splits: list[McapSplit], first: int, registry: Registry, chosen: ChosenMessages
    ) -> Iterator[tuple[int, Records]]:
        """Yield the messages of consecutive chunks."""
        joined = replace(
            splits[0],
            end=splits[-1].end,
            chunks=len(splits),
            messages=sum(split.messages or 0 for split in splits),
        )
        ends = np.array(list(accumulate(split.messages or 0 for split in splits)))
        file.expect((joined.start, joined.end))
        done = 0
        for group in self._source.section(file, joined, registry).groups():
            count = len(group.messages.offsets)
            borders = ends[(ends > done) & (ends < done + count)] - done
            for begin, end in zip([0, *borders.tolist()], [*borders.tolist(), count], strict=True):
                place = first + int(np.searchsorted(ends, done + begin, "right"))
                part = MessageGroup(group.arena, type(group.messages)(*(a[begin:end] for a in group.messages)))
                records = chosen.of(part)
                if records is not None:
                    yield place, records
            done += count
            del group  # so that the next group can reuse its arena

    def _whole(self, file: McapFile, split: McapSplit, facts: RecordFacts) -> Iterator[Records]:
        """Yield the messages of a file that is read from front to end."""
        source, options = self._source, self._options
        if options.recover:
            salvage = source.rescue(file)
            registry = Registry(self.path, salvage.facts.channels.values(), salvage.facts.schemas.values())
            section: MessageSection = salvage.section(file, registry)
        else:
            layout = source.layout(file)
            summary = layout.summary
            registry = Registry(self.path, *((summary.channels, summary.schemas) if summary is not None else ()))
            split = split if split.is_planned else whole(file, layout, replace(options, times=None))
            section = source.section(file, split, registry)
        chosen = ChosenMessages(self.path, registry, options, facts, framed=self._framed)
        for group in section.groups():
            records = chosen.of(group)
            if records is not None:
                yield records
            del group
        if options.recover:
            salvage.finish(file, section)
            if not salvage.report.is_whole:
                warnings.warn(str(salvage.report), ReadWarning, stacklevel=2)
        else:
            source.check_counts(section, layout, split)
        chosen.take_all()
        facts.attachments += [ExtraPlace(*place) for place in section.tally.attachments]
        facts.metadata += [ExtraPlace(*place) for place in section.tally.metadata]

    def entities(self, channel: RecordChannel) -> set[str]:
        """Return the entities of a channel's messages."""
        return record_entities(channel, self._options)

    def stored(self) -> list[CompressedChunk] | None:
        """Return the chunks of an MCAP, if all messages are chosen, and each chunk has a CRC and its indexes."""
        options = self._options
        if not self._framed or options.times is not None or options.offset_ns or options.recover:
            return None
        with self._source.open(self._version, unwrap=False) as file:
            summary = None if file.is_wrapped else self._source.layout(file).summary
            if summary is None:
                return None
            registry = Registry(self.path, summary.channels, summary.schemas)
            schemas = [(channel, registry.schema_of(channel)) for channel in summary.channels]
            if any((c.schema_id and s is None) or choose(c, s, options) is None for c, s in schemas):
                return None
            file.peek((entry.end, entry.index_length) for entry in summary.chunks)
            ids = {channel.id for channel in summary.channels}
            chunks = []
            for entry in summary.chunks:
                chunk = self._stored(file, entry) if _is_as_indexed(file, entry) else None
                if chunk is None or not {channel for channel, _, _ in chunk.indexes} <= ids:
                    return None
                chunks.append(chunk)
            return chunks

    def _stored(self, file: McapFile, entry: ChunkIndexEntry) -> CompressedChunk | None:
        indexes = []
        at, end = entry.end, behind(entry)
        while at < end:
            opcode, length = file.head_at(at, end)
            body = file.read_at(at + HEAD.size, min(length, _INDEX_HEAD), what="a message index")
            size = int.from_bytes(body[2:], "little")
            if opcode != Op.MESSAGE_INDEX or length != _INDEX_HEAD + size or size % _PAIR:
                return None
            indexes.append((int.from_bytes(body[:2], "little"), at - entry.offset, size // _PAIR))
            at += HEAD.size + length
        return CompressedChunk(
            entry.offset,
            entry.length,
            entry.index_length,
            entry.start_time,
            entry.end_time,
            entry.compression,
            entry.compressed_size,
            entry.uncompressed_size,
            tuple(indexes),
        )

    def extras(self, facts: RecordFacts, entities: Callable[[str], bool]) -> Iterator[Extra]:
        """Yield attachments, with checked CRCs, and metadata, in file order."""
        names = self._options.decoders
        attachments = facts.attachments if Attachments.name in names and entities(Attachments.entity) else []
        metadata = facts.metadata if MetadataRecords.name in names and entities(MetadataRecords.entity) else []
        if not attachments and not metadata:
            return
        with self._source.open(self._version) as file:
            for place in attachments:
                with self._sparing():
                    check_place(file, RecordPlace(*place), Op.ATTACHMENT)
                    head = read_attachment(file, place.offset, place.length - HEAD.size)
                    head.check(file)
                    figures = (head.name, head.log_time, head.create_time, head.size, head.media_type)
                    yield Extra(True, place.length, _pieces(file, place), *figures)
            for place in metadata:
                with self._sparing():
                    record = read_metadata(file, RecordPlace(*place))
                    yield Extra(False, place.length, _pieces(file, place), record.name)

    @contextmanager
    def _sparing(self) -> Iterator[None]:
        """In a recovery, warn of a damaged record and leave it out."""
        try:
            yield
        except ReadError as error:
            if not self._options.recover:
                raise
            warnings.warn(f"{error}; it is left out", ReadWarning, stacklevel=3)


def _is_as_indexed(file: McapFile, entry: ChunkIndexEntry) -> bool:
    """Return whether a chunk has a CRC and agrees with its entry in the index."""
    opcode, length = file.head_at(entry.offset, file.size)
    body = file.read_up_to(entry.offset + HEAD.size, min(length, CHUNK_HEAD_MAX))
    if opcode != Op.CHUNK or length + HEAD.size != entry.length:
        return False
    head = parse_chunk_head(body, length, path=file.path, offset=entry.offset)
    stored = (head.start_time, head.end_time, head.compression, head.size, head.uncompressed_size)
    indexed = (entry.start_time, entry.end_time, entry.compression, entry.compressed_size, entry.uncompressed_size)
    return head.crc != 0 and stored == indexed


def _pieces(file: Any, place: ExtraPlace) -> Iterator[bytes]:
    end = place.offset + place.length
    for at in range(place.offset, end, _STEP):
        yield file.read_at(at, min(_STEP, end - at), what="a record")
