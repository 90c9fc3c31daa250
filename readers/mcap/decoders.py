"""The decoders of MCAP: each is one row here, and one class or function.

Those of the file as a whole are classes (:class:`FileDecoder`), in the order of their chunks. Those of messages are
rows by the encodings of schema and message, under an identifier that Rerun gave them; those of meanings make lenses
over decoded messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from ...lenses import DeriveLens
from ...lenses.foxglove import foxglove_lenses
from ...lenses.ros2 import needs_reflection, ros2_lenses
from .decoding import (
    MessageDecoder,
    cbor_decoder,
    flatbuffer_decoder,
    idl_decoder,
    json_decoder,
    protobuf_decoder,
    ros1_decoder,
    ros2_decoder,
)
from .file_level import Attachments, Counts, FileDecoder, MetadataRecords, RecordingInfo, Schemas
from .urdf import Robots

FILE_DECODERS: Final[Mapping[str, type[FileDecoder]]] = {
    row.name: row for row in (Attachments, MetadataRecords, RecordingInfo, Schemas, Counts, Robots)
}
"""What tells of the file as a whole, and is not bound by a range of times."""

ROS2: Final = "ros2_reflection"
PROTOBUF: Final = "protobuf"
RAW: Final = "raw"
"""The identifiers of the decoders of messages, in the order in which they claim a channel."""


class MessageRow(NamedTuple):
    """A kind of messages: whose identifier it has, how schema and messages are encoded, and what compiles a decoder.

    Encodings of messages are in lower case; None stands for any.
    """

    decoder: str
    schema_encoding: str
    message_encoding: str | None
    compile: Callable[[str, bytes], MessageDecoder]


MESSAGE_DECODERS: Final = (
    MessageRow(ROS2, "ros2msg", "cdr", ros2_decoder),
    MessageRow(ROS2, "ros2idl", "cdr", idl_decoder),
    MessageRow(ROS2, "omgidl", "cdr", idl_decoder),
    MessageRow(ROS2, "ros1msg", "ros1", ros1_decoder),
    MessageRow(PROTOBUF, "protobuf", None, protobuf_decoder),
    MessageRow(PROTOBUF, "flatbuffer", "flatbuffer", flatbuffer_decoder),
    MessageRow(PROTOBUF, "jsonschema", "json", json_decoder),
    MessageRow(PROTOBUF, "", "json", json_decoder),
    MessageRow(PROTOBUF, "jsonschema", "cbor", cbor_decoder),
    MessageRow(PROTOBUF, "", "cbor", cbor_decoder),
)


def _ros_meaning(kind: str, type_name: str, topic: str, decoders: Collection[str]) -> tuple[DeriveLens, ...]:
    """The mappings that Rerun's reader has as lenses need the reflection that they are lenses over."""
    if kind != ROS2 or (needs_reflection(type_name) and ROS2 not in decoders):
        return ()
    return ros2_lenses(type_name, topic)


def _foxglove_meaning(kind: str, type_name: str, topic: str, decoders: Collection[str]) -> tuple[DeriveLens, ...]:
    del topic
    return foxglove_lenses(type_name) if kind in decoders else ()


Meaning = Callable[[str, str, str, Collection[str]], tuple[DeriveLens, ...]]
"""From the identifier of a message's decoder, its type, its topic and the decoders that are used to lenses."""

MEANINGS: Final[Mapping[str, Meaning]] = {"ros2msg": _ros_meaning, "foxglove": _foxglove_meaning}
"""What decoded messages mean; the first that knows a type takes it."""

DECODERS: Final = tuple(sorted({*FILE_DECODERS, *MEANINGS, *(row.decoder for row in MESSAGE_DECODERS), RAW}))
"""All decoder identifiers, sorted."""


def file_decoders(chosen: Collection[str]) -> list[type[FileDecoder]]:
    """Those of the file as a whole that are chosen, in the order of their chunks."""
    return [row for name, row in FILE_DECODERS.items() if name in chosen]


def reads_records(opcode: int, chosen: Collection[str]) -> bool:
    """Whether one of the chosen decoders reads the records of a kind, and so checks them."""
    return any(row.opcode == opcode for row in file_decoders(chosen))
