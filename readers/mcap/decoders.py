"""The decoders of MCAP, each one row and one class; a reader's options, and the decoder they choose for a channel.

Those of the file as a whole are classes (:class:`FileDecoder`), in the order of their chunks. Those of messages are
rows by the encodings of schema and message, under an identifier that Rerun gave them; those of meanings make lenses
over decoded messages.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import Projection
from ...engine.errors import ReadWarning, UsageError
from ...lenses import DeriveLens, Selector
from ...lenses.ros2 import needs_reflection, ros2_lenses, stamp_of
from . import decoding
from .decoding import MessageDecoder, RawDecoder, SchemaError
from .file_level import Attachments, Counts, FileDecoder, MetadataRecords, RecordingInfo, Schemas
from .records import Channel, McapSchema
from .robots import Robots
from .section import TimeRange, checked_integer, checked_range

FILE_DECODERS: Final[Mapping[str, type[FileDecoder]]] = {
    row.name: row for row in (Attachments, MetadataRecords, RecordingInfo, Schemas, Counts, Robots)
}
"""Decoders of the file as a whole; a range of times does not limit them."""

ROS2: Final = "ros2_reflection"
PROTOBUF: Final = "protobuf"
RAW: Final = "raw"
"""The identifiers of the decoders of messages, in the order in which they claim a channel."""


class MessageRow(NamedTuple):
    """A kind of messages: whose identifier it has, how schema and messages are encoded, and the class of the decoder.

    Encodings of messages are in lower case; None stands for any. The class is loaded when a channel needs it.
    """

    decoder: str
    schema_encoding: str
    message_encoding: str | None
    kind: str

    def compile(self, name: str, data: bytes) -> MessageDecoder:
        """The decoder of a schema. Raises ``SchemaError``."""
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
    """Return the lenses of a ROS type. Types that Rerun's reader maps by lenses need ``ros2_reflection`` too."""
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
"""From the identifier of a message's decoder, its type, its topic and the decoders that are used to lenses."""

MEANINGS: Final[Mapping[str, Meaning]] = {"ros2msg": _ros_meaning, "foxglove": _foxglove_meaning}
"""Meanings of decoded messages; the first that knows a type takes it."""

DECODERS: Final = tuple(sorted({*FILE_DECODERS, *MEANINGS, *(row.decoder for row in MESSAGE_DECODERS), RAW}))
"""All decoder identifiers, sorted."""


def file_decoders(chosen: Collection[str]) -> list[type[FileDecoder]]:
    """Return the chosen decoders of the file as a whole, in the order of their chunks."""
    return [row for name, row in FILE_DECODERS.items() if name in chosen]


def reads_records(opcode: int, chosen: Collection[str]) -> bool:
    """Return whether one of the chosen decoders reads the records of a kind, and so checks them."""
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
    patterns searched for in topics. ``times`` is the range of log times whose messages are read, None for all.
    With ``values`` chunks are for frames: a message that its decoder cannot read is a null, and of the fields only
    those that ``columns`` are made of need be decoded (None: all).
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
        """Return whether messages of ``topic`` are wanted.

        >>> options = McapOptions.checked(include_topic_regex=["imu", "^/tf$"], exclude_topic_regex=["raw"])
        >>> [options.selects(t) for t in ("/imu/data", "/imu/raw", "/tf", "/tf_static")]
        [True, False, True, False]
        """
        if self.include and not any(_found(pattern, topic) for pattern in self.include):
            return False
        return not any(_found(pattern, topic) for pattern in self.exclude)

    def of_values(self) -> McapOptions:
        """Return the options for frames: messages as they are decoded, unless other decoders were chosen."""
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
    """The row of the decoder that takes a channel, None for raw bytes, and the lenses over its messages."""

    row: MessageRow | None
    lenses: tuple[DeriveLens, ...] = ()


def choose(channel: Channel, schema: McapSchema | None, options: McapOptions) -> Choice | None:
    """Return what becomes of ``channel`` under ``options``; None when nothing is to come out of it."""
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
    """Return the selector of the stamp of ROS messages for a timeline, or None if they have no stamp.

    In frames the stamp is a column already, and only the wanted columns are decoded.
    """
    return stamp_of(decoder.datatype) if row is not None and row.decoder == ROS2 and not options.values else None


def _lenses_for(channel: Channel, schema: McapSchema | None, name: str, options: McapOptions) -> tuple[DeriveLens, ...]:
    """Return the lenses that give messages decoded by ``name`` their meaning; empty if they stay structs."""
    if schema is None:
        return ()
    meanings = (meaning for decoder, meaning in MEANINGS.items() if decoder in options.decoders)
    return next(filter(None, (meaning(name, schema.name, channel.topic, options.decoders) for meaning in meanings)), ())


def _row_of(channel: Channel, schema: McapSchema | None) -> MessageRow | None:
    encoding = "" if schema is None else schema.encoding
    return _ROWS.get((encoding, channel.message_encoding.lower())) or _ROWS.get((encoding, None))


def _warn_of_encoding(channel: Channel, schema: McapSchema | None, path: str) -> None:
    if schema is None and channel.schema_id:
        _warn(f"{path}: topic {channel.topic}: its schema, number {channel.schema_id}, is not in the file")
    elif schema is not None and schema.encoding == "ros2msg" and channel.message_encoding.lower() != "cdr":
        _warn(
            f"{path}: topic {channel.topic}: its schema {schema.name} is of ROS 2, but its messages are encoded as"
            f" {channel.message_encoding!r}, not as CDR"
        )


def _warn(text: str) -> None:
    warnings.warn(f"{text}; its messages are kept as raw bytes", ReadWarning, stacklevel=3)


@lru_cache(maxsize=256)
def _compiled(row: MessageRow, name: str, data: bytes) -> MessageDecoder:
    return row.compile(name, data)
