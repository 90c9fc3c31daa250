"""CBOR messages, by a JSON Schema that stands in the file."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ....engine.chunk import ComponentDescriptor
from ....engine.limits import MAX_NESTING
from .decoded import Decoded, check_batch, decoded_of
from .json_messages import Parser, build_column, messages_of
from .json_schema import parse_json_schema
from .json_types import MisfitError, as_text

_ARGUMENTS: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_INDEFINITE: Final = 31
_MAP: Final = 5
_READ_BY_TAG: Final = (0, 1, 4, 5, 30, 35, 36, 37, 52, 54, 100, 258, 260, 261, 1004, 43000)
"""Tags of which the library makes objects of Python: dates, fractions, expressions, addresses."""

_REFERENCES: Final = (25, 28, 29, 256)


class CborDecoder:
    """Decodes CBOR messages; a :class:`~chunkmill.readers.mcap.decoding.MessageDecoder`.

    Types are those of :class:`~.json_messages.JsonDecoder`: what a JSON Schema declares, and JSON text for the rest, in
    which bytes are base64. As RFC 8949, section 6.1, has it, a tag is ignored and what it tags is taken; big numbers
    count as numbers, ``undefined`` as null. References to other places of the message cannot be read.
    """

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node = parse_json_schema(schema_name, schema_data)
        name = schema_name.replace("/", ".") or "cbor"
        self.descriptor = ComponentDescriptor(f"{name}:message", archetype=name)
        self.datatype: pa.DataType = self._node.arrow

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """See :meth:`MessageDecoder.decode`."""
        check_batch(starts, ends)
        faults: dict[int, str] = {}
        messages = messages_of(data, starts, ends, self._node, PARSE_CBOR, faults)
        return decoded_of([build_column(self._node, messages, PARSE_CBOR, faults)], self.datatype, faults)


def _untagged(value: Any, _: bool) -> Any:
    return value


def _reference(_value: Any, _immutable: bool) -> Any:
    raise MisfitError("it refers to other places within itself")


def _tagged(tag: Any, _: bool) -> Any:
    return tag.value


def _open(value: Mapping[Any, Any], _: bool) -> Any:
    from cbor2 import undefined

    return {name: None if child is undefined else child for name, child in value.items()}


_DECODERS: Final = {**dict.fromkeys(_READ_BY_TAG, _untagged), **dict.fromkeys(_REFERENCES, _reference)}


def _parse(message: bytes) -> Any:
    from cbor2 import CBORDecodeError, CBORDecoder

    file = io.BytesIO(message)
    decoder = CBORDecoder(
        file,
        tag_hook=_tagged,
        object_hook=_open,
        semantic_decoders=_DECODERS,
        max_depth=MAX_NESTING,
        allow_duplicate_keys=False,
        strict_hashable_types=True,
    )
    try:
        value = decoder.decode()
    except CBORDecodeError as error:
        why = error.__cause__ if isinstance(error.__cause__, MisfitError) else error
        raise MisfitError(f"it is not CBOR: {str(why)[:120]}") from None
    if file.tell() != len(message):
        raise MisfitError("it goes on after its value")
    return value


def _text(message: bytes) -> str:
    return as_text(_parse(message))


def _count(message: bytes, most: int) -> int:
    """How many items the message has; stops counting past ``most``."""
    return sum(1 for _ in islice(_majors(message), most + 1))


def _count_objects(message: bytes) -> int:
    return sum(1 for major in _majors(message) if major == _MAP)


def _majors(message: bytes) -> Iterator[int]:
    """The major types of its items, in order, as far as it is CBOR."""
    place = 0
    while place < len(message):
        major, info = message[place] >> 5, message[place] & 31
        size = _ARGUMENTS.get(info, 0)
        argument = int.from_bytes(message[place + 1 : place + 1 + size], "big") if size else info
        place += 1 + size + (argument if major in (2, 3) and info != _INDEFINITE else 0)
        yield major


PARSE_CBOR: Final = Parser(_parse, _text, _count, _count_objects)
