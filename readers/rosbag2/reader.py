"""``Rosbag2Reader``, and its source of chunks."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import pyarrow as pa

from ...engine.chunk import Chunk, Origin, Schema
from ...engine.errors import ReadError, ReadWarning, SourceMissingError, UnmatchedWarning, UsageError
from ...engine.limits import SPLIT_BYTES, check_limit
from ...engine.locations import Location, exists, located, reading_location
from ...engine.stream import RecordFacts, RecordOutline, Records, RecordSource, RecordUnit, Source, Split
from ..mcap.copying import ChosenMessages, record_entities
from ..mcap.decoders import RAW, McapOptions, file_decoders
from ..mcap.file import McapFile, Summary
from ..mcap.file_level import NO_FACTS, FileFacts, MessageSurvey, described, static_chunk
from ..mcap.info import ChannelInfo, McapInfo
from ..mcap.plan import no_topic
from ..mcap.reader import McapSource, SplitReading, message_columns, message_entities, narrower
from ..mcap.records import Channel, McapSchema, Registry
from ..mcap.robots import Robots
from ..mcap.section import McapSplit, MessageGroup, Tally, TimeRange
from ..recording_file import FrameReader
from .database import MAX_TOPICS, BagDatabase, LocalCopy, RowRange
from .definitions import TypeDefinitions, checked_types
from .folder import BagFiles, bag_files, is_bag

if TYPE_CHECKING:
    from ...engine.stream import FrameRequest, LazyChunkStream, RecordChannel

_OF_FILES: Final = frozenset({"recording_info", "stats"})
"""Decoders of facts about one MCAP, which are wrong for a recording of several MCAPs."""


class _Database(NamedTuple):
    """One file of a recording: its openable file, its version, its rows, and its channels by topic id."""

    local: LocalCopy
    version: tuple[int, int]
    rows: RowRange | None
    channels: Mapping[int, int]


class _Bag(NamedTuple):
    """The databases of a recording as one: the channels of all databases, by name and type.

    ``untyped`` are the types without a definition, with their topics.
    """

    files: tuple[_Database, ...]
    channels: tuple[Channel, ...]
    schemas: tuple[McapSchema, ...]
    untyped: Mapping[str, tuple[str, ...]]

    def registry(self, path: str) -> Registry:
        """The channels and schemas by their numbers."""
        return Registry(path, self.channels, self.schemas)


@dataclass(frozen=True, slots=True)
class Rosbag2Split(Split):
    """Rows of one database, or of all databases if ``file`` is None; for an MCAP, one of the MCAP's splits.

    ``before`` and ``after`` are decoders of the whole recording, as for :class:`McapSplit`. ``is_first``: it gives
    warnings and facts about the whole recording. ``only_robots``: it only reads robot descriptions.
    """

    file: int | None
    rows: RowRange | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    is_first: bool = False
    only_robots: bool = False
    mcap: McapSplit | None = None


class _Rows:
    """The messages of some rows, in the form of an MCAP's section. ``only`` has the channels to read, None for all."""

    def __init__(
        self, files: Sequence[_Database], rows: RowRange | None, only: Collection[int] | None, times: TimeRange | None
    ) -> None:
        self._files = files
        self._rows = rows
        self._only = only
        self._times = times
        self.tally = Tally()

    def groups(self) -> Iterator[MessageGroup]:
        """Yield the groups of each file, in order."""
        for file in self._files:
            rows = self._rows or file.rows
            only = None if self._only is None else [t for t, channel in file.channels.items() if channel in self._only]
            if rows is None or only == []:
                continue
            _check_version(file)
            with BagDatabase(file.local) as database:
                for group in database.groups(rows, file.channels, only=only, times=self._times):
                    self.tally.messages += len(group.messages.heads)
                    yield group


class _Place(NamedTuple):
    """The path that decoders of the whole recording name in warnings."""

    path: str


class Rosbag2Source(Source[Rosbag2Split]):
    """The chunks of one recording of rosbag2.

    Guarantee: every message of a selected topic (and time) becomes exactly one row. Order: files, splits, and groups of
    about 32 MiB are in the order of writing; messages in a group are sorted by channel, then by time. Then come the
    chunks about the recording that need a full read, then robots. The order is the same in every run over the same
    bytes. A folder of MCAPs is read file by file, in the order of :class:`McapSource`.
    """

    def __init__(
        self,
        path: str,
        options: McapOptions | None = None,
        types: Sequence[str] = (),
        *,
        _files: BagFiles | None = None,
        _bag: _Bag | None = None,
        _wanted: Callable[[str], bool] | None = None,
    ) -> None:
        self.path = path
        self.options = options or McapOptions()
        self.types = tuple(types)
        self.nothing: ReadWarning | None = None
        self._files = _files
        self._bag = _bag
        self._facts: FileFacts | None = None
        self._mcaps: tuple[McapSource, ...] = ()
        self._wanted = _wanted

    def __repr__(self) -> str:
        return f"Rosbag2Source({self.path!r})"

    def describe(self) -> str:
        """One line for the plan, such as ``Rosbag2Reader(drive)``."""
        return f"Rosbag2Reader({self.path})"

    def paths(self) -> Sequence[str]:
        """Return the folder, or the file."""
        return [self.path]

    @property
    def files(self) -> BagFiles:
        """The files of the recording. Raises ``ReadError``."""
        if self._files is None:
            self._files = bag_files(located(self.path))
        return self._files

    @property
    def bag(self) -> _Bag:
        """The databases of the recording. Raises ``ReadError``."""
        if self._bag is None:
            self._bag = _joined([str(file) for file in self.files.files], self.types)
        return self._bag

    @property
    def is_mcap(self) -> bool:
        """Whether the storage is MCAP."""
        return self.files.storage == ".mcap"

    @property
    def mcaps(self) -> tuple[McapSource, ...]:
        """The MCAPs of a recording with this storage, each as a source."""
        if not self._mcaps:
            options = self.options
            if len(self.files.files) > 1:
                options = replace(options, decoders=options.decoders - _OF_FILES)
            sources = [McapSource(str(file), options) for file in self.files.files]
            self._mcaps = tuple(s if self._wanted is None else s.narrowed(self._wanted) for s in sources)
        return self._mcaps

    def narrowed(self, wanted: Callable[[str], bool]) -> Rosbag2Source:
        """Return the source without the topics of unused entities."""
        return self._copy(self.options, wanted)

    def projected(self, request: FrameRequest) -> Rosbag2Source:
        """Return the source for a frame, without unused fields and without messages outside the frame's times."""
        return self._copy(narrower(self.options, request), self._wanted)

    def _copy(self, options: McapOptions, wanted: Callable[[str], bool] | None) -> Rosbag2Source:
        return Rosbag2Source(self.path, options, self.types, _files=self._files, _bag=self._bag, _wanted=wanted)

    def splits(self) -> Sequence[Rosbag2Split]:
        """Return ranges of row ids of about 64 MiB per database, or the splits of MCAPs. Raises ``ReadError``."""
        if self.is_mcap:
            return self._mcap_splits()
        bag = self.bag
        decoders = file_decoders(self.options.decoders)
        self.nothing = self._no_topic(bag)
        pieces = [piece for i, file in enumerate(bag.files) for piece in _pieces(i, file)]
        if len(pieces) <= 1 or not self.options.reads_messages:
            names = tuple(decoder.name for decoder in decoders)
            size = sum(piece.size for piece in pieces)
            return [Rosbag2Split(Path(self.path).name, size, None, after=names, is_first=True)]
        early = tuple(d.name for d in decoders if not d.looks_at_messages)
        if early:
            self._facts = _facts_of(bag)
        pieces[0] = replace(pieces[0], before=early, is_first=True)
        late = tuple(d.name for d in decoders if d.looks_at_messages)
        if late and self._robots(bag):
            pieces.append(Rosbag2Split(f"{Path(self.path).name}, robots", 0, None, after=late, only_robots=True))
        return pieces

    def _mcap_splits(self) -> list[Rosbag2Split]:
        splits = [
            Rosbag2Split(split.label, split.size, i, mcap=split)
            for i, source in enumerate(self.mcaps)
            for split in source.splits()
        ]
        nothing = [source.nothing for source in self.mcaps]
        self.nothing = nothing[0] if nothing and all(nothing) else None
        if splits:
            splits[0] = replace(splits[0], is_first=True)
        return splits

    def read(self, split: Rosbag2Split) -> Iterator[Chunk]:
        """Yield the chunks of one split. Warns (``ReadWarning``) about messages that remain raw bytes."""
        if split.mcap is not None:
            assert split.file is not None
            if split.is_first:
                yield from self._start_of_mcaps()
            yield from self.mcaps[split.file].read(split.mcap)
            return
        bag, options = self.bag, self.options
        if split.is_first and options.reads_messages:
            self._warn_of_types(bag)
        if split.only_robots:
            options = replace(options, decoders=frozenset(split.after))
        whole = split.file is None
        inner = McapSplit(split.label, split.size, 0, 0, before=split.before, after=split.after, is_whole=whole)
        facts = (self._facts or _facts_of(bag)) if split.before else NO_FACTS
        facts = facts._replace(
            channels={channel.id: channel for channel in bag.channels},
            schemas={schema.id: schema for schema in bag.schemas},
        )
        # Its decoders only use messages and the path, as there is no MCAP.
        place = cast("McapFile", _Place(self.path))
        reading = SplitReading(place, inner, facts, options, self._wants)
        files = bag.files if split.file is None else bag.files[split.file : split.file + 1]
        times = None if split.after else options.times
        section = _Rows(files, split.rows, self._only(bag, split), times)
        yield from reading.before()
        yield from reading.messages(section)
        yield from reading.after(section)
        if whole and not split.only_robots and self.nothing is None and not options.values:
            reading.warn_of_nothing(section.tally)

    def _only(self, bag: _Bag, split: Rosbag2Split) -> frozenset[int] | None:
        """The channels whose messages SQLite must return; None for all."""
        if split.only_robots:
            return frozenset(self._robots(bag))
        if split.after:  # these decoders count all messages
            return None
        registry = bag.registry(self.path)
        chosen = (c for c in bag.channels if message_entities(registry, c, self.options, self._wants))
        only = frozenset(channel.id for channel in chosen)
        return None if len(only) == len(bag.channels) else only

    def _robots(self, bag: _Bag) -> list[int]:
        """The channels of robot descriptions."""

        def is_one(channel: Channel) -> bool:
            return Robots.has_messages(Summary((channel,), bag.schemas, (), None, (), ()), self.options.selects)

        return [channel.id for channel in bag.channels if is_one(channel)]

    def _start_of_mcaps(self) -> Iterator[Chunk]:
        """Yield the start time of a recording of several MCAPs, which no single MCAP has."""
        entity = "/__mcap_properties"
        name = "recording_info"
        if len(self.mcaps) < 2 or name not in self.options.decoders or self.options.recover or not self._wants(entity):
            return
        starts = [start for source in self.mcaps if (start := source.info().start_time) is not None]
        if starts:
            start = pa.array([min(min(starts), 2**63 - 1)], pa.int64())
            yield static_chunk(entity, [(described("RecordingInfo", "start_time", "Timestamp"), start)])

    def records(self) -> Sequence[RecordSource]:
        """Return the stored messages of the recording."""
        if self.is_mcap:
            return [record for source in self.mcaps for record in source.records()]
        return [Rosbag2Records(self)]

    def read_records(self, split: Rosbag2Split) -> Iterator[MessageGroup]:
        """Yield the messages in a range of rows."""
        assert split.file is not None
        files = self.bag.files[split.file : split.file + 1]
        return _Rows(files, split.rows, None, self.options.times).groups()

    def entities(self) -> set[str] | None:
        """Return the entities of all messages and of the recording, or None if this requires reading."""
        if self.is_mcap:
            each = [source.entities() for source in self.mcaps]
            own = {"/__mcap_properties"} if "recording_info" in self.options.decoders else set()
            return None if None in each else own.union(*filter(None, each))
        if any(d.looks_at_messages for d in file_decoders(self.options.decoders)) and self._robots(self.bag):
            return None
        registry = self.bag.registry(self.path)
        entities = {d.entity for d in file_decoders(self.options.decoders) if d.entity is not None}
        for channel in self.bag.channels:
            entities |= message_entities(registry, channel, self.options, lambda _: True)
        return entities

    def columns(self) -> tuple[Schema, frozenset[Origin]] | None:
        """Return the columns of the messages, or None if lenses change them, or if files may have different ones."""
        if self.is_mcap:
            return self.mcaps[0].columns() if len(self.mcaps) == 1 else None
        if not self.options.values:
            return None
        return message_columns(self.bag.registry(self.path), self.bag.channels, self.options, self._wants, self.path)

    def info(self) -> McapInfo:
        """Describe the recording like :meth:`McapReader.info`. Every row is read, without its data."""
        if self.is_mcap:
            return _joined_info(self.path, [source.info(timing=True) for source in self.mcaps])
        facts = _facts_of(self.bag)
        statistics = facts.statistics
        assert statistics is not None
        counts = statistics.channel_message_counts
        schemas = {schema.id: schema for schema in self.bag.schemas}
        channels = []
        for channel in self.bag.channels:
            schema = schemas.get(channel.schema_id)
            name = schema.name if schema is not None else dict(channel.metadata).get("type")
            encoding = schema.encoding if schema is not None else None
            count = counts.get(channel.id, 0)
            channels.append(ChannelInfo(channel.id, channel.topic, channel.message_encoding, name, encoding, count))
        filled = bool(statistics.message_count)
        size = sum(file.version[0] for file in self.bag.files)
        return McapInfo(
            path=self.path,
            bytes=size,
            profile="ros2",
            library="rosbag2 sqlite3",
            channels=tuple(channels),
            messages=statistics.message_count,
            start_time=statistics.message_start_time if filled else None,
            end_time=statistics.message_end_time if filled else None,
            chunks=0,
            uncompressed_bytes=size,
            compressed_bytes=size,
            compression={},
            attachments=0,
            metadata=0,
            scanned=True,
        )

    def _no_topic(self, bag: _Bag) -> ReadWarning | None:
        topics = sorted({channel.topic for channel in bag.channels})
        has_rows = any(file.rows is not None for file in bag.files)
        if not topics or not has_rows or not self.options.reads_messages or any(map(self.options.selects, topics)):
            return None
        return UnmatchedWarning(f"{self.path}: {no_topic(self.options, topics)}")

    def _warn_of_types(self, bag: _Bag) -> None:
        registry = bag.registry(self.path)
        wanted = {
            channel.topic
            for channel in bag.channels
            if self.options.decoders - {RAW} and message_entities(registry, channel, self.options, self._wants)
        }
        untyped = {name: [t for t in topics if t in wanted] for name, topics in bag.untyped.items()}
        names = [name for name, topics in untyped.items() if topics]
        if names:
            topics = sum(len(untyped[name]) for name in names)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            warnings.warn(
                f"{self.path}: the recording does not define {', '.join(names[:3])}{more}, so the messages of {topics} "
                "topics are kept as raw bytes; give the definitions with types= (--types): a distribution (humble), or "
                "a folder of .msg or .idl files (/opt/ros/humble/share)",
                ReadWarning,
                stacklevel=2,
            )

    def _wants(self, entity_path: str) -> bool:
        return self._wanted is None or self._wanted(entity_path)


class Rosbag2Records(RecordSource):
    """The messages of databases as stored."""

    def __init__(self, source: Rosbag2Source) -> None:
        self.path = source.path
        self._source = source

    def outline(self) -> RecordOutline:
        """Describe the databases: a unit for each range of rows."""
        bag, facts = self._source.bag, RecordFacts()
        self._chosen(facts).take_all()
        pieces = [piece for i, file in enumerate(bag.files) for piece in _pieces(i, file)]
        units = tuple(RecordUnit(piece, piece.size) for piece in pieces)
        return RecordOutline("ros2", facts, units, is_complete=True)

    def read(self, units: Sequence[RecordUnit], facts: RecordFacts) -> Iterator[tuple[int, Records]]:
        """Yield the messages in ranges of rows, in the order of the rows."""
        chosen = self._chosen(facts)
        for place, unit in enumerate(units):
            for group in self._source.read_records(unit.split):
                records = chosen.of(group)
                if records is not None:
                    yield place, records

    def entities(self, channel: RecordChannel) -> set[str]:
        """Return the entities of a channel's messages."""
        return record_entities(channel, self._source.options)

    def _chosen(self, facts: RecordFacts) -> ChosenMessages:
        registry = self._source.bag.registry(self.path)
        return ChosenMessages(self.path, registry, self._source.options, facts, framed=False)


def _pieces(number: int, file: _Database) -> list[Rosbag2Split]:
    """Cut a database into equal ranges of row ids, one for each 64 MiB."""
    if file.rows is None:
        return []
    low, high = file.rows
    size = max(file.version[0], 1)
    count = min(-(-size // SPLIT_BYTES), high - low + 1)
    borders = [low + (high - low + 1) * i // count for i in range(count + 1)]
    name = Path(file.local.path).name
    return [
        Rosbag2Split(
            name if count == 1 else f"{name} [{i + 1}/{count}]",
            size // count,
            number,
            RowRange(borders[i], borders[i + 1] - 1),
        )
        for i in range(count)
    ]


def _version_of(place: str) -> tuple[int, int]:
    status = Path(place).stat()
    return status.st_size, status.st_mtime_ns


def _check_version(file: _Database) -> None:
    if not file.local.is_copy and _version_of(file.local.place) != file.version:
        raise ReadError(
            "was replaced since it was opened",
            path=file.local.path,
            hint="Its size or modification time changed; read it after the recorder has finished.",
        )


def _joined(paths: Sequence[str], types: Sequence[str]) -> _Bag:
    """Read the topics of all databases, and number them: topics of equal name, type and definition share a channel."""
    definitions = TypeDefinitions(checked_types(types)) if types else None
    numbers: dict[tuple[str, str, str, tuple[str, bytes] | None], int] = {}
    schemas: dict[tuple[str, str, bytes], int] = {}
    channels: list[Channel] = []
    untyped: dict[str, dict[str, None]] = {}
    files = []
    for place in paths:
        local = LocalCopy(place)
        with BagDatabase(local) as database:
            topics, rows = database.topics(), database.row_ids()
        own: dict[int, int] = {}
        for topic in topics:
            definition = topic.definition
            if definitions is not None and (definition is None or not definition[1].strip()):
                definition = definitions.of(topic.type) or definition
            key = (topic.name, topic.type, topic.serialization, definition)
            if key not in numbers:
                schema_id = 0
                if definition is None:
                    untyped.setdefault(topic.type, {})[topic.name] = None
                else:
                    schema_id = schemas.setdefault((topic.type, *definition), len(schemas) + 1)
                numbers[key] = len(numbers) + 1
                check_limit(len(numbers), MAX_TOPICS, path=place, offset=None, what="the number of topics")
                metadata = () if schema_id else (("type", topic.type),)
                channels.append(Channel(numbers[key], topic.name, topic.serialization, schema_id, metadata))
            own[topic.id] = numbers[key]
        files.append(_Database(local, _version_of(local.place), rows, own))
    made = tuple(McapSchema(id_, name, encoding, data) for (name, encoding, data), id_ in schemas.items())
    return _Bag(tuple(files), tuple(channels), made, {name: tuple(topics) for name, topics in untyped.items()})


def _facts_of(bag: _Bag) -> FileFacts:
    """Count the messages of each channel. This reads every row, without its data."""
    survey = MessageSurvey()
    for file in bag.files:
        if file.rows is None:
            continue
        _check_version(file)
        with BagDatabase(file.local) as database:
            counted = database.counted()
        for topic, count in counted.counts.items():
            if topic not in file.channels:
                raise ReadError(
                    f"there are messages of topic {topic:,}, which is not in the table topics",
                    path=file.local.path,
                    hint="The file is damaged; copy it again.",
                )
            survey.counts[file.channels[topic]] += count
        starts = [t for t in (survey.start_time, counted.start_time) if t is not None]
        ends = [t for t in (survey.end_time, counted.end_time) if t is not None]
        survey.start_time, survey.end_time = min(starts, default=None), max(ends, default=None)
    return survey.facts(bag.registry(""), 0, (), ())


def _joined_info(path: str, infos: Sequence[McapInfo]) -> McapInfo:
    """Join the information on several MCAPs; channels with the same topic, type and encoding are one."""
    channels: dict[tuple[Any, ...], ChannelInfo] = {}
    for info in infos:
        for channel in info.channels:
            key = (channel.topic, channel.message_encoding, channel.schema, channel.schema_encoding)
            existing = channels.get(key)
            if existing is None:
                channels[key] = channel
            else:
                counts = (existing.count, channel.count)
                count = None if None in counts else sum(n for n in counts if n is not None)
                channels[key] = replace(existing, count=count, timing=None)
    messages = [info.messages for info in infos]
    compression: Counter[str] = sum((Counter(info.compression) for info in infos), Counter())
    return McapInfo(
        path=path,
        bytes=sum(info.bytes for info in infos),
        profile=infos[0].profile,
        library=infos[0].library,
        channels=tuple(channels.values()),
        messages=None if None in messages else sum(n for n in messages if n is not None),
        start_time=min((i.start_time for i in infos if i.start_time is not None), default=None),
        end_time=max((i.end_time for i in infos if i.end_time is not None), default=None),
        chunks=sum(info.chunks for info in infos),
        uncompressed_bytes=sum(info.uncompressed_bytes for info in infos),
        compressed_bytes=sum(info.compressed_bytes for info in infos),
        compression=compression,
        attachments=sum(info.attachments for info in infos),
        metadata=sum(info.metadata for info in infos),
        scanned=any(info.scanned for info in infos),
    )


class Rosbag2Reader(FrameReader):
    """Read chunks from a recording of rosbag2: a folder, or a single database (``.db3``).

    Every message becomes one row at the entity of its topic, as with :class:`McapReader`. A recording stores one time
    per message, which is both log time and publish time. The parts of a split recording are joined, with topics matched
    by name. If ``metadata.yaml`` is missing or unusable, the same information is taken from the files. If a recorder
    left a log or journal of a database, its changes are applied to a copy. The files are not changed.

    Parameters
    ----------
    path
        The folder or file. If the storage is MCAP, it can also be the URL of a prefix in an object store. It must
        exist; it is opened when the stream runs.
    types
        Definitions of types that the recording does not define; recordings of Foxy to Humble define none. Give folders
        of ``.msg`` or ``.idl`` files (``/opt/ros/humble/share``), or names of distributions (``humble``), which need
        the library rosbags (extra ``rosbag2``). Without a definition, messages are raw bytes, with a ``ReadWarning``.
    timeline_type, timestamp_offset_ns, decoders, include_topic_regex, exclude_topic_regex, start_time_ns, end_time_ns
        As for :class:`McapReader`.
    recover
        Read the intact parts of damaged MCAPs. Damaged databases are still refused.

    Raises
    ------
    FileNotFoundError
        There is no such folder or file (``SourceMissingError``).
    ValueError
        A type, timeline type, decoder or pattern is invalid (``UsageError``).
    """

    frame_index = "log_time"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        types: Iterable[str | os.PathLike[str]] | str | os.PathLike[str] = (),
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
        self._types = checked_types([types] if isinstance(types, (str, os.PathLike)) else list(types))
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
        is_folder = isinstance(self._path, Path) and self._path.is_dir()
        if not is_folder and not exists(self._path) and not is_bag(self._path):
            raise SourceMissingError("rosbag2 recording not found", path=str(self._path))

    @property
    def path(self) -> Location:
        """The path of the folder or file."""
        return self._path

    def __repr__(self) -> str:
        return f"Rosbag2Reader({self._path})"

    def source(self) -> Rosbag2Source:
        """Return the recording as a source for a pipeline."""
        return Rosbag2Source(str(located(self._path)), self._options, self._types)

    def stream(self) -> LazyChunkStream:
        """A lazy stream of the recording's chunks; each call reads it again. Order: see :class:`Rosbag2Source`."""
        from ...engine.stream import LazyChunkStream

        return LazyChunkStream.from_source(self.source())

    def values(self) -> LazyChunkStream:
        """A lazy stream of the decoded messages, one struct each; see :meth:`McapReader.values`."""
        from ...engine.stream import LazyChunkStream

        source = Rosbag2Source(str(located(self._path)), self._options.of_values(), self._types)
        return LazyChunkStream.from_source(source)

    @property
    def topics(self) -> list[str]:
        """Return all topics of the recording, sorted, including those left out by the reader. Raises ``ReadError``."""
        source = self.source()
        if source.is_mcap:
            return sorted({channel.topic for channel in source.info().channels})
        return sorted({channel.topic for channel in source.bag.channels})

    def time_bounds(self) -> tuple[int, int]:
        """Return the first and last time of all messages, in ns. Raises ``UsageError`` if there are no messages."""
        info = self.info()
        if info.start_time is None or info.end_time is None:
            raise UsageError("the recording has no messages, and no times", path=str(self._path))
        return info.start_time, info.end_time

    def info(self) -> McapInfo:
        """Describe the recording: topics, types, counts, times. Every row is read, but messages are not decoded."""
        return self.source().info()
