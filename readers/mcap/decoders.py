"""The decoders of MCAP, each one row and one class, and the chunks that they make from one channel.

Decoders of the whole file are classes (:class:`FileDecoder`), in the order of their chunks. Decoders of messages are
rows by the encodings of schema and message, under Rerun's identifiers. Decoders of meanings make lenses for decoded
messages.
"""

from __future__ import annotations

import json
import re
import warnings
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import (
    Chunk,
    ChunkData,
    ComponentDescriptor,
    Projection,
    Timeline,
    TimelineKind,
    mint,
    parse_entity_path,
)
from ...engine.errors import LensError, ReadWarning, UsageError
from ...engine.limits import MIB
from ...engine.task_context import DECODE, phase, timed
from ...lenses import DeriveLens, LensOutput, LensSet, Selector
from ...lenses.ros2 import STAMP_TIMELINE, needs_reflection, ros2_lenses, stamp_of
from . import decoding
from .decoding import Decoded, MessageDecoder, RawDecoder, SchemaError, Surplus
from .file_level import Attachments, Counts, FileDecoder, MetadataRecords, RecordingInfo, Schemas
from .records import HEAD, MESSAGE_FIXED, Bytes, Channel, Ints, McapSchema, MessageHeads
from .robots import Robots
from .section import TimeRange, checked_integer, checked_range

FILE_DECODERS: Final[Mapping[str, type[FileDecoder]]] = {
    row.name: row for row in (Attachments, MetadataRecords, RecordingInfo, Schemas, Counts, Robots)
}
"""Decoders of the whole file; a range of times does not limit them."""

ROS2: Final = "ros2_reflection"
PROTOBUF: Final = "protobuf"
RAW: Final = "raw"
"""The identifiers of message decoders, in the order in which they claim channels."""


class MessageRow(NamedTuple):
    """A kind of messages: the decoder's identifier, the encodings of schema and messages, and the decoder's class.

    Encodings of messages are in lower case; None stands for any encoding. The class is loaded when a channel needs it.
    """

    decoder: str
    schema_encoding: str
    message_encoding: str | None
    kind: str

    def compile(self, name: str, data: bytes) -> MessageDecoder:
        """Return the decoder for a schema. Raises ``SchemaError``."""
        made: MessageDecoder = getattr(decoding, self.kind)(name, data)
        return made


MESSAGE_DECODERS: Final = (
    MessageRow(ROS2, "ros2msg", "cdr", "Ros2Decoder"),
    MessageRow(ROS2, "ros2idl", "cdr", "IdlDecoder"),
    MessageRow(ROS2, "omgidl", "cdr", "IdlDecoder"),
    MessageRow(ROS2, "ros1msg", "ros1", "Ros1Decoder"),
    MessageRow(PROTOBUF, "protobuf", None, "ProtobufDecoder"),
    MessageRow(PROTOBUF, "flatbuffer", "flatbuffer", "FlatBufferDecoder"),
    MessageRow(PROTOBUF, "jsonschema", "json", "JsonDecoder"),
    MessageRow(PROTOBUF, "", "json", "JsonDecoder"),
    MessageRow(PROTOBUF, "jsonschema", "cbor", "CborDecoder"),
    MessageRow(PROTOBUF, "", "cbor", "CborDecoder"),
)


def _ros_meaning(kind: str, type_name: str, topic: str, decoders: Collection[str]) -> tuple[DeriveLens, ...]:
    """Return the lenses of a ROS type. Types that Rerun's reader maps by lenses also need ``ros2_reflection``."""
    if kind != ROS2 or (needs_reflection(type_name) and ROS2 not in decoders):
        return ()
    return ros2_lenses(type_name, topic)


def _foxglove_meaning(kind: str, type_name: str, topic: str, decoders: Collection[str]) -> tuple[DeriveLens, ...]:
    del topic
    if kind not in decoders:
        return ()
    from ...lenses.foxglove import foxglove_lenses

    return foxglove_lenses(type_name)


Meaning = Callable[[str, str, str, Collection[str]], tuple[DeriveLens, ...]]
"""Returns the lenses for a message's decoder identifier, type and topic, and the chosen decoders."""

MEANINGS: Final[Mapping[str, Meaning]] = {"ros2msg": _ros_meaning, "foxglove": _foxglove_meaning}
"""Meanings of decoded messages; the first that knows a type takes it."""

DECODERS: Final = tuple(sorted({*FILE_DECODERS, *MEANINGS, *(row.decoder for row in MESSAGE_DECODERS), RAW}))
"""All decoder identifiers, sorted."""


def file_decoders(chosen: Collection[str]) -> list[type[FileDecoder]]:
    """Return the chosen decoders of the whole file, in the order of their chunks."""
    return [row for name, row in FILE_DECODERS.items() if name in chosen]


def reads_records(opcode: int, chosen: Collection[str]) -> bool:
    """Return whether a chosen decoder reads, and so checks, the records of ``opcode``."""
    return any(row.opcode == opcode for row in file_decoders(chosen))


_RE2_COMPLAINTS: Final = {
    "missing ]": "found unclosed character class",
    "missing )": "found open group without closing ')'",
    "unexpected )": "found closing ')' without matching '('",
    "no argument for repetition operator": "found a repetition operator with nothing to repeat",
    "invalid perl operator": "look-around is not supported",
}


@dataclass(frozen=True)
class McapOptions:
    """The options of :class:`McapReader`, checked and ready to pickle.

    ``offset_ns`` is added to every timestamp (0 for duration timelines). ``include`` and ``exclude`` are RE2
    patterns searched for in topics. ``times`` is the range of log times to read, None for all.

    With ``values``, chunks are for frames: a message that its decoder cannot read is null, and only the fields that
    ``columns`` need are decoded (None: all).
    """

    timeline_type: str = "timestamp"
    offset_ns: int = 0
    decoders: frozenset[str] = frozenset(DECODERS)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    times: TimeRange | None = None
    recover: bool = False
    values: bool = False
    columns: tuple[str, ...] | None = None

    @classmethod
    def checked(
        cls,
        timeline_type: str = "timestamp",
        timestamp_offset_ns: int | None = None,
        decoders: Iterable[str] | None = None,
        include_topic_regex: Iterable[str] | None = None,
        exclude_topic_regex: Iterable[str] | None = None,
        start_time_ns: int | None = None,
        end_time_ns: int | None = None,
        recover: bool = False,
    ) -> McapOptions:
        """Validate the arguments of the reader. Raises ``ValueError``, ``TypeError`` or ``OverflowError``."""
        if timeline_type not in ("timestamp", "duration", "timestamp_ns", "duration_ns"):
            raise UsageError(f'Invalid timeline_type: "{timeline_type}". Expected "timestamp" or "duration"')
        timeline_type = timeline_type.removesuffix("_ns")
        selected = DECODERS if decoders is None else tuple(decoders)
        for name in selected:
            if name not in DECODERS:
                valid = ", ".join(f'"{d}"' for d in DECODERS)
                raise UsageError(f'Unknown decoder: "{name}". Valid decoders: [{valid}]')
        given = 0 if timestamp_offset_ns is None else timestamp_offset_ns
        offset = checked_integer("timestamp_offset_ns", given, -(2**63), 2**63)
        return cls(
            timeline_type,
            offset if timeline_type == "timestamp" else 0,
            frozenset(selected),
            _checked_patterns("include", include_topic_regex),
            _checked_patterns("exclude", exclude_topic_regex),
            checked_range(start_time_ns, end_time_ns),
            bool(recover),
        )

    def selects(self, topic: str) -> bool:
        """Return whether the options select messages of ``topic``.

        >>> options = McapOptions.checked(include_topic_regex=["imu", "^/tf$"], exclude_topic_regex=["raw"])
        >>> [options.selects(t) for t in ("/imu/data", "/imu/raw", "/tf", "/tf_static")]
        [True, False, True, False]
        """
        if self.include and not any(_found(pattern, topic) for pattern in self.include):
            return False
        return not any(_found(pattern, topic) for pattern in self.exclude)

    def of_values(self) -> McapOptions:
        """Return the options for frames: messages as decoded, unless other decoders were chosen."""
        decoders = self.decoders
        if decoders == frozenset(DECODERS):
            decoders = decoders - FILE_DECODERS.keys() - MEANINGS.keys()
        return replace(self, decoders=decoders, values=True)

    @property
    def reads_messages(self) -> bool:
        """Return whether any decoder of messages is selected."""
        return bool(self.decoders - FILE_DECODERS.keys())

    @property
    def time_type(self) -> pa.DataType:
        """Arrow type of the timelines, ``timestamp[ns]`` or ``duration[ns]``."""
        return pa.timestamp("ns") if self.timeline_type == "timestamp" else pa.duration("ns")


def _checked_patterns(which: str, patterns: Iterable[str] | None) -> tuple[str, ...]:
    checked = tuple(patterns or ())
    for pattern in checked:
        try:
            _found(pattern, "")
        except pa.ArrowInvalid as error:
            why = _complaint(str(error), pattern)
            raise UsageError(f'Invalid {which} topic regex "{pattern}": {why}') from error
    return checked


def _complaint(text: str, pattern: str) -> str:
    reason = re.sub(r"^Invalid regular expression: ", "", text)
    if re.search(r"\\[1-9]", pattern) and "escape" in reason:
        return "backreferences are not supported"
    for theirs, ours in _RE2_COMPLAINTS.items():
        if reason.startswith(theirs):
            return ours
    return reason


def _found(pattern: str, topic: str) -> bool:
    """Return whether RE2 finds ``pattern`` somewhere in ``topic``."""
    return bool(pc.match_substring_regex(pa.scalar(topic), pattern).as_py())


_ROWS: Final = {(row.schema_encoding, row.message_encoding): row for row in MESSAGE_DECODERS}


class Choice(NamedTuple):
    """The decoder row for a channel (None for raw bytes), and the lenses for its messages."""

    row: MessageRow | None
    lenses: tuple[DeriveLens, ...] = ()


def choose(channel: Channel, schema: McapSchema | None, options: McapOptions) -> Choice | None:
    """Return the decoder and lenses for ``channel`` under ``options``, or None if the channel is left out."""
    if not options.selects(channel.topic):
        return None
    row = _row_of(channel, schema)
    if row is not None:
        lenses = _lenses_for(channel, schema, row.decoder, options)
        if lenses or row.decoder in options.decoders:
            return Choice(row, lenses)
    return Choice(None) if RAW in options.decoders else None


def compile_decoder(
    channel: Channel, schema: McapSchema | None, row: MessageRow | None, options: McapOptions, *, path: str
) -> MessageDecoder:
    """Compile the decoder of a channel. An unusable definition gives raw bytes and one ``ReadWarning``."""
    if row is None:
        if options.decoders & {ROS2, PROTOBUF}:
            _warn_of_encoding(channel, schema, path)
        return RawDecoder()
    name, data = ("", b"") if schema is None else (schema.name, schema.data)
    try:
        decoder = _compiled(row, name, data)
    except SchemaError as error:
        _warn(f"{path}: topic {channel.topic}: the schema {name} cannot be used: {error}")
        return RawDecoder()
    return decoder if options.columns is None else decoder.projected(Projection(options.columns).keeps)


def stamp_in(decoder: MessageDecoder, row: MessageRow | None, options: McapOptions) -> Selector | None:
    """Return the selector of ROS messages' stamps for a timeline, or None if they have no stamp.

    Frames need no selector: there, the stamp is already a column, and only the requested columns are decoded.
    """
    return stamp_of(decoder.datatype) if row is not None and row.decoder == ROS2 and not options.values else None


def _lenses_for(channel: Channel, schema: McapSchema | None, name: str, options: McapOptions) -> tuple[DeriveLens, ...]:
    """Return the lenses that give messages decoded by ``name`` their meaning; empty if they stay structs."""
    if schema is None:
        return ()
    if schema.encoding == "jsonschema" and _KEPT in schema.data and _KEPT_BY in options.decoders:
        return _kept_components(schema)
    meanings = (meaning for decoder, meaning in MEANINGS.items() if decoder in options.decoders)
    return next(filter(None, (meaning(name, schema.name, channel.topic, options.decoders) for meaning in meanings)), ())


_KEPT: Final = b'"x-rerun"'
"""The word in a JSON Schema with which ``write_mcap`` marks the components of messages' fields."""

_KEPT_BY: Final = "foxglove"


@lru_cache(maxsize=256)
def _kept_components(schema: McapSchema) -> tuple[DeriveLens, ...]:
    """Return the lens that turns messages back into components; none if the schema's mark is missing or invalid."""
    try:
        described = json.loads(schema.data)
        lens, archetype = DeriveLens(f"{schema.name}:message"), described["x-rerun"]["archetype"]
        for name, field in described["properties"].items():
            kept = field["x-rerun"]
            descriptor = ComponentDescriptor(kept["component"], archetype, kept["component_type"])
            datatype = pa.ipc.read_schema(pa.py_buffer(b64decode(kept["arrow"], validate=True))).field(0).type
            values = Selector(f".{name}[]") if name.isidentifier() else Selector(f".[{json.dumps(name)}][]")
            is_blob = pa.types.is_list(datatype) and datatype.value_type == pa.uint8()
            values = values.pipe(_byte_lists) if is_blob else values
            lens = lens.to_component(descriptor, values.cast(datatype))
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, OSError):
        return ()
    return (lens,)


def _byte_lists(values: pa.Array) -> pa.Array:
    """Return binary values as lists of uint8, like Rerun's blobs."""
    cells = values.cast(pa.large_binary())
    _, offsets, data = cells.buffers()
    borders = np.frombuffer(offsets, np.int64)[cells.offset : cells.offset + len(cells) + 1]
    flat = pa.array(np.frombuffer(data or b"", np.uint8)[borders[0] : borders[-1]], pa.uint8())
    lists = pa.ListArray.from_arrays(pa.array((borders - borders[0]).astype(np.int32)), flat)
    return pc.if_else(cells.is_valid(), lists, pa.nulls(len(cells), lists.type))


def _row_of(channel: Channel, schema: McapSchema | None) -> MessageRow | None:
    encoding = "" if schema is None else schema.encoding
    return _ROWS.get((encoding, channel.message_encoding.lower())) or _ROWS.get((encoding, None))


def _warn_of_encoding(channel: Channel, schema: McapSchema | None, path: str) -> None:
    if schema is None and channel.schema_id:
        _warn(f"{path}: topic {channel.topic}: its schema {channel.schema_id} is not in the file")
    elif schema is not None and schema.encoding == "ros2msg" and channel.message_encoding.lower() != "cdr":
        _warn(
            f"{path}: topic {channel.topic}: its schema {schema.name} is for ROS 2, but its messages have the encoding "
            f"{channel.message_encoding!r}, not CDR"
        )


def _warn(text: str) -> None:
    warnings.warn(f"{text}; its messages are kept as raw bytes", ReadWarning, stacklevel=3)


@lru_cache(maxsize=256)
def _compiled(row: MessageRow, name: str, data: bytes) -> MessageDecoder:
    return row.compile(name, data)


LOG_TIME: Final = "message_log_time"
PUBLISH_TIME: Final = "message_publish_time"

_MAX_SINGLE_FAULTS: Final = 32
"""Up to this many failing messages of a chunk are found one by one. After that, parts with a failing message fail."""

_NO_SUCH_MEANING: Final = "it has values that the type does not define"

_LATEST: Final = 2**63 - 1

Rows = npt.NDArray[np.int64]


class LensMapping:
    """Applies lenses to the chunks of decoded messages of one channel.

    A message stays as decoded, and is counted, if the lenses do not apply to it or fail. Failed messages are in a
    separate chunk. A lens's static data comes once.
    """

    def __init__(self, lenses: Sequence[DeriveLens], options: McapOptions) -> None:
        self._lenses = _lens_set(tuple(lenses))
        self._otherwise = next((lens.otherwise for lens in lenses if lens.otherwise), _NO_SUCH_MEANING)
        self._options = options
        self._constants: list[Chunk] = []
        self.unmapped = 0
        self.reason = ""
        self.remarks: Counter[str] = Counter()

    def chunks(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunks made from one chunk: the lenses' chunks, then the unchanged messages."""
        outputs = list(self._lenses.outputs(chunk))
        error = _error_in(outputs)
        if error is None:
            yield from self._made(chunk, outputs)
            return
        good, bad = self._parted(chunk.data, error)
        count = sum(map(len, bad))
        if count == chunk.num_rows:
            self._count(count, error)
            yield chunk
            return
        for rows in self._joined(chunk.data, good):
            part = Chunk.from_data(chunk.data.take(rows))
            yield from self._made(part, list(self._lenses.outputs(part)))
        if bad:
            self._count(count, error)
            yield Chunk.from_data(replace(chunk.data.take(np.concatenate(bad)), chunk_id=mint()))

    def _parted(self, data: ChunkData, error: LensError) -> tuple[list[Rows], list[Rows]]:
        """Return the messages (int64, ascending) for which the lenses work, and those for which they fail.

        ``error`` is the error for all messages together. If zero messages give the same error, all messages fail.
        """
        every = np.arange(data.num_rows)
        without = self._error_on(data, every[:0])
        if without is not None and without.message == error.message:
            return [], [every]
        good: list[Rows] = []
        bad: list[Rows] = []
        open_parts = [every]
        while open_parts:
            rows = open_parts.pop()
            if rows is not every and self._error_on(data, rows) is None:
                good.append(rows)
            elif len(rows) == 1 or len(bad) >= _MAX_SINGLE_FAULTS:
                bad.append(rows)
            else:
                half = len(rows) // 2
                open_parts += [rows[half:], rows[:half]]
        return good, bad

    def _joined(self, data: ChunkData, parts: list[Rows]) -> list[Rows]:
        """The parts joined to one, unless the lenses fail on the whole, for example because columns become too long."""
        whole = np.concatenate(parts)
        return [whole] if len(parts) == 1 or self._error_on(data, whole) is None else parts

    def _error_on(self, data: ChunkData, rows: Rows) -> LensError | None:
        return _error_in(self._lenses.outputs(Chunk.from_data(data.take(rows))))

    def _made(self, chunk: Chunk, outputs: list[LensOutput]) -> Iterator[Chunk]:
        inputs = self._lenses.inputs
        for output in outputs:
            made = output.chunk
            if made is None or (output.constant and self._seen(made)):
                continue
            if any(c.descriptor.component in inputs for c in made.data.components):
                self._count(made.num_rows, None)
            for count, text in output.remarks:
                self.remarks[text] += count
            yield made if output.constant or made is chunk else _timed(made, self._options)

    def _seen(self, constant: Chunk) -> bool:
        for other in self._constants:
            if (other.entity_path, other.data.components) == (constant.entity_path, constant.data.components):
                return True
        self._constants.append(constant)
        return False

    def _count(self, messages: int, error: LensError | None) -> None:
        self.unmapped += messages
        if not self.reason:
            self.reason = self._otherwise if error is None else error.message


def _error_in(outputs: Iterable[LensOutput]) -> LensError | None:
    return next((error for output in outputs for error in output.errors), None)


def _shifted(ticks: np.ndarray, options: McapOptions) -> np.ndarray:
    """Times (int64, ns) with the reader's offset; they saturate."""
    if options.offset_ns == 0:
        return ticks
    room = _LATEST - np.maximum(ticks, 0) if options.offset_ns > 0 else -_LATEST - 1 - np.minimum(ticks, 0)
    bounded = (np.minimum if options.offset_ns > 0 else np.maximum)(options.offset_ns, room)
    moved: np.ndarray = ticks + bounded
    return moved


def _timed(chunk: Chunk, options: McapOptions) -> Chunk:
    """Return the chunk; timelines from messages get the reader's type and offset."""
    data = chunk.data
    kind = TimelineKind(options.timeline_type)
    if options.offset_ns == 0 and all(t.kind is kind for t in data.timelines):
        return chunk
    return Chunk.from_data(replace(data, timelines=tuple(_line(t, kind, options) for t in data.timelines)))


def _line(line: Timeline, kind: TimelineKind, options: McapOptions) -> Timeline:
    if line.name in (LOG_TIME, PUBLISH_TIME) or line.kind is TimelineKind.SEQUENCE:
        return line
    return Timeline(line.name, kind, pa.array(_shifted(line.ticks, options)).view(kind.arrow_type))


def entities_of(lenses: Sequence[DeriveLens], entity_path: str) -> set[str]:
    """The entities that the messages at ``entity_path`` may have, mapped or not."""
    derives = _lens_set(tuple(lenses)).compiled.derives if lenses else ()
    return {entity_path, *(lens.target(entity_path) for lens in derives)}


@lru_cache(maxsize=256)
def _lens_set(lenses: tuple[DeriveLens, ...]) -> LensSet:
    """The lenses, compiled once in a process: parts of files have the same channels."""
    return LensSet(lenses, "forward_unmatched")


CHUNK_BYTES: Final = 15 * MIB // 8
"""The target size of a chunk: bytes of columns or of message data, whichever are more. A larger message makes a larger
chunk.

It is a little less than the 2 MiB of compacted chunks, as decoding adds bytes, and these must not cause another cut.
"""

_MOST_SHRUNK: Final = 1 / 4
"""If decoding shrinks messages to less than this share of their size, pieces are cut as if to this share."""

CHUNK_ROWS: Final = 65_536
"""The maximum number of rows of a chunk."""

Times = npt.NDArray[np.uint64]


class _ChannelRun(NamedTuple):
    """Messages of one channel in the arena: the starts and ends of their data, and their times (ns)."""

    channel_id: int
    starts: Ints
    ends: Ints
    log_times: Times
    publish_times: Times

    def take(self, rows: slice | Ints) -> _ChannelRun:
        """The run with only these rows."""
        return _ChannelRun(
            self.channel_id, self.starts[rows], self.ends[rows], self.log_times[rows], self.publish_times[rows]
        )


def runs(messages: MessageHeads, is_wanted: Callable[[int], bool]) -> Iterator[_ChannelRun]:
    """Yield one run for each channel (ascending ids), sorted by log time, publish time and place in the file.

    Unwanted channels have no run. ``is_wanted`` is called with each id just before its run.
    """
    heads = messages.heads
    if not len(heads):
        return
    channels = np.ascontiguousarray(heads["channel"])
    order = np.argsort(channels, kind="stable")
    borders = np.flatnonzero(np.diff(channels[order])) + 1
    for rows in np.split(order, borders):
        channel_id = int(channels[rows[0]])
        if not is_wanted(channel_id):
            continue
        starts = messages.offsets[rows] + HEAD.size
        ends = starts + heads["length"][rows].astype(np.int64)
        log_times, publish_times = heads["log_time"][rows], heads["publish_time"][rows]
        yield _sorted(_ChannelRun(channel_id, starts + MESSAGE_FIXED, ends, log_times, publish_times))


def pieces(run: _ChannelRun, size: int = CHUNK_BYTES) -> Iterator[_ChannelRun]:
    """Cut a run into the fewest equal pieces of at most ``CHUNK_ROWS`` rows and about ``size`` bytes."""
    if int((run.ends - run.starts).sum()) / size + len(run.starts) / CHUNK_ROWS < 1:
        yield run
        return
    fill = np.cumsum(np.maximum((run.ends - run.starts) / size, 1 / CHUNK_ROWS))
    count = int(fill[-1]) + 1
    cuts = np.searchsorted(fill, fill[-1] * np.arange(1, count) / count) + 1
    borders = np.unique(np.concatenate(([0], cuts, [len(fill)]))).tolist()
    for begin, end in pairwise(borders):
        yield run.take(slice(begin, end))


class ChannelOutput:
    """Makes chunks of one channel's messages, and counts the undecodable ones.

    Every message becomes one row of the decoded component. If it cannot be decoded, it becomes a row of
    ``McapMessage:data`` at the same entity, in a chunk after that of its neighbours. With a ``stamp``, messages that
    stay as decoded are also on the timeline of their own times. ``clamped`` counts log and publish times that were too
    late, and became the latest possible time.
    """

    def __init__(
        self,
        channel: Channel,
        decoder: MessageDecoder,
        options: McapOptions,
        lenses: Sequence[DeriveLens] = (),
        stamp: Selector | None = None,
    ) -> None:
        self._channel = channel
        self._entity_path = parse_entity_path(channel.topic)
        self._decoder = decoder
        self._options = options
        self._stamp = stamp
        self._mapping = LensMapping(lenses, options) if lenses else None
        self._bad = 0
        self._first_reason = ""
        self._surplus = Surplus()
        self._piece_bytes: int | None = None
        self.clamped = 0

    def chunks(self, arena: Bytes, run: _ChannelRun) -> Iterator[Chunk]:
        """Yield the chunks of ``run``; its messages are in ``arena``."""
        if self._piece_bytes is None:
            first = next(pieces(run))
            yield from self._measured(arena, first)
            run = run.take(slice(len(first.starts), None))
        if len(run.starts):
            first, *others = pieces(run, self._piece_bytes or CHUNK_BYTES)
            yield from self._measured(arena, first) if others else self._piece(arena, first)
            for piece in others:
                yield from self._piece(arena, piece)

    def _measured(self, arena: Bytes, piece: _ChannelRun) -> Iterator[Chunk]:
        """Yield the chunks of a piece. By their sizes, the next run is cut into chunks of at most ``CHUNK_BYTES``."""
        largest = 0
        for chunk in self._piece(arena, piece):
            largest = max(largest, chunk.byte_size)
            yield chunk
        size = int((piece.ends - piece.starts).sum())
        shrunk = min(max(largest / size, _MOST_SHRUNK), 1) if largest and size else 1
        self._piece_bytes = int(CHUNK_BYTES / shrunk)

    def _piece(self, arena: Bytes, piece: _ChannelRun) -> Iterator[Chunk]:
        data, piece = _released(arena, piece)
        with phase(DECODE):
            decoded = self._decoder.decode(data, piece.starts, piece.ends)
        self._surplus = self._surplus if self._surplus.messages else decoded.surplus
        if len(decoded.bad) + len(decoded.values) != len(piece.starts):
            raise AssertionError(
                f"{self._decoder.descriptor} returned {len(decoded.values)} rows instead of {len(piece.starts)}"
            )
        if not len(decoded.bad):
            yield from self._mapped(self._chunk(self._decoder, decoded.values, piece))
            return
        yield from self._parted(data, piece, decoded)

    def warn(self, *, path: str) -> None:
        """Warn once if messages could not be decoded, or are longer than defined."""
        if self._bad:
            warnings.warn(
                f"{path}: topic {self._channel.topic}: {self._bad} messages could not be decoded and become"
                f" {'null' if self._options.values else 'raw bytes'}; the first: {self._first_reason}",
                ReadWarning,
                stacklevel=2,
            )
        if self._surplus.messages:
            warnings.warn(
                f"{path}: topic {self._channel.topic}: messages are longer than their definition, "
                f"{self._decoder.descriptor.archetype}; only its fields are read. The first has {self._surplus.size:,} "
                f"bytes, of which {self._surplus.left:,} are not read. The messages have another version of the type: "
                "give that version's definition (types= of a rosbag2), or record it with the messages",
                ReadWarning,
                stacklevel=2,
            )
        if self._mapping is not None and self._mapping.unmapped:
            warnings.warn(
                f"{path}: topic {self._channel.topic}: {self._mapping.unmapped} messages do not fit the mapping of "
                f"their type, and remain structs; the first: {self._mapping.reason}",
                ReadWarning,
                stacklevel=2,
            )
        for text, count in () if self._mapping is None else self._mapping.remarks.items():
            message = f"{path}: topic {self._channel.topic}: {count} messages {text}"
            warnings.warn(message, ReadWarning, stacklevel=2)

    def _mapped(self, chunk: Chunk) -> Iterator[Chunk]:
        if self._mapping is None:
            return iter((self._stamped(chunk),))
        return timed(map(self._stamped, self._mapping.chunks(chunk)), DECODE)

    def _stamped(self, chunk: Chunk) -> Chunk:
        """Add the messages' own times to a chunk of messages as decoded; return other chunks unchanged."""
        if self._stamp is None or chunk.is_static:
            return chunk
        data = chunk.data
        messages = next((c.values for c in data.components if c.descriptor == self._decoder.descriptor), None)
        if messages is None or any(line.name == STAMP_TIMELINE for line in data.timelines):
            return chunk
        stamps = self._stamp.execute(messages.flatten())
        if stamps is None:
            return chunk
        ticks = _ticks(stamps.to_numpy(), self._options)
        line = Timeline(STAMP_TIMELINE, TimelineKind(self._options.timeline_type), ticks)
        return Chunk.from_data(replace(data, timelines=(*data.timelines, line)))

    def _parted(self, data: Bytes, piece: _ChannelRun, decoded: Decoded) -> Iterator[Chunk]:
        self._first_reason = self._first_reason or decoded.reasons[0]
        self._bad += len(decoded.bad)
        good = np.delete(np.arange(len(piece.starts)), decoded.bad)
        if len(good):
            yield from self._mapped(self._chunk(self._decoder, decoded.values, piece.take(good)))
        bad = piece.take(decoded.bad)
        if self._options.values:
            yield self._chunk(self._decoder, pa.nulls(len(decoded.bad), self._decoder.datatype), bad)
            return
        raw = RawDecoder()
        yield self._chunk(raw, raw.decode(data, bad.starts, bad.ends).values, bad)

    def _chunk(self, decoder: MessageDecoder, values: pa.Array, run: _ChannelRun) -> Chunk:
        most = np.uint64(_LATEST - max(self._options.offset_ns, 0))
        self.clamped += int((run.log_times > most).sum()) + int((run.publish_times > most).sum())
        timelines = {
            LOG_TIME: _times(run.log_times, self._options),
            PUBLISH_TIME: _times(run.publish_times, self._options),
        }
        return Chunk.build(self._entity_path, timelines, [(decoder.descriptor, _one_each(decoder, values))])


def _sorted(run: _ChannelRun) -> _ChannelRun:
    log, publish = run.log_times, run.publish_times
    later = log[1:] > log[:-1]
    if (later | ((log[1:] == log[:-1]) & (publish[1:] >= publish[:-1]))).all():
        return run
    return run.take(np.lexsort((publish, log)))


def _released(arena: Bytes, piece: _ChannelRun) -> tuple[Bytes, _ChannelRun]:
    """Copy a single message, so that its chunk does not keep the whole arena in memory."""
    if len(piece.starts) != 1:
        return arena, piece
    data = arena[piece.starts[0] : piece.ends[0]].copy()
    return data, piece._replace(starts=np.zeros(1, np.int64), ends=np.array([len(data)]))


def _times(values: Times, options: McapOptions) -> pa.Array:
    """Nanoseconds as the reader's time type. Times beyond int64 become the latest possible time."""
    return _ticks(np.minimum(values, np.uint64(_LATEST)).astype(np.int64), options)


def _ticks(values: Rows, options: McapOptions) -> pa.Array:
    """Times (int64, ns) as the reader's time type, with its offset."""
    times = _shifted(values, options)
    return pa.Array.from_buffers(options.time_type, len(times), [None, pa.py_buffer(times)])


def _one_each(decoder: MessageDecoder, values: pa.Array) -> pa.Array:
    """A list column with one instance in each row."""
    offsets = pa.py_buffer(np.arange(len(values) + 1, dtype=np.int32))
    return pa.Array.from_buffers(decoder.column, len(values), [None, offsets], children=[values])
