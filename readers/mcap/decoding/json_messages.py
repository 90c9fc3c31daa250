"""JSON and CBOR messages, by the JSON Schema that stands in the file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from ....engine.limits import MAX_CELLS, MAX_ELEMENTS, MAX_NESTING
from .columns import Faults, MessageDecoder, Piece
from .json_types import (
    JsonNode,
    Leaf,
    MisfitError,
    Record,
    as_declared,
    as_text,
    innermost,
    parse_json_schema,
    unwired,
    wired,
)

_MOST_VALUES: Final = MAX_ELEMENTS // 4
"""Values taken from one message: each becomes an object."""

_FREE_VALUES: Final = MAX_ELEMENTS // 2
_PER_BYTE: Final = 2
"""Values that objects become, beyond the free ones, for each byte of the messages."""

_Messages = list[tuple[int, memoryview]]


class Parser(NamedTuple):
    """The reading of a message: ``parse`` gives its value, ``text`` the JSON text of one that nothing is declared of;
    both raise :class:`MisfitError`. ``items`` is at least the number of values in it, or more than what is given;
    ``objects`` at least the number of its objects.
    """

    parse: Callable[[bytes], Any]
    text: Callable[[bytes], str]
    items: Callable[[bytes, int], int]
    objects: Callable[[bytes], int]


def _messages_of(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, node: JsonNode, parser: Parser, faults: Faults
) -> _Messages:
    """The messages ``data[starts[i]:ends[i]]`` that become no more values than memory is taken for; others are faults.

    An object has a value for each field that its schema declares, however few are in the message.
    """
    views = [data[start:end].data for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    element = innermost(node)
    if len(views) * element.leaves > MAX_CELLS:
        why = "messages of its type have more fields than are taken from so many"
        faults.update(dict.fromkeys(range(len(views)), why))
        return []
    total, widest = int((ends - starts).sum()), element.leaves if isinstance(element, Record) else 0
    if total * widest <= _FREE_VALUES:
        return list(enumerate(views))
    values = np.array([parser.objects(bytes(view)) * widest for view in views])
    ascending = np.argsort(values, kind="stable")
    over = np.zeros(len(views), np.bool_)
    over[ascending[np.cumsum(values[ascending]) > _FREE_VALUES + _PER_BYTE * total]] = True
    why = "its objects have far fewer properties than their schema declares, and are too many"
    faults.update(dict.fromkeys(np.flatnonzero(over).tolist(), why))
    return [(index, view) for index, view in enumerate(views) if not over[index]]


def _build_column(node: JsonNode, messages: _Messages, parser: Parser, faults: Faults) -> Piece:
    """The indices of messages, and their values; what is wrong with one goes to ``faults``."""
    values: dict[int, Any] = {}
    for index, message in messages:
        try:
            values[index] = _value(node, bytes(message), parser)
        except MisfitError as error:
            faults[index] = str(error).lstrip(".: ")
        except RecursionError:
            faults[index] = "it is nested too deeply"
    return _joined(values, node.arrow, faults)


def _value(node: JsonNode, message: bytes, parser: Parser) -> Any:
    if len(message) > _MOST_VALUES and parser.items(message, _MOST_VALUES) > _MOST_VALUES:
        raise MisfitError("it holds more values than are taken from one message")
    if isinstance(node, Leaf) and node.kind == "any":
        return parser.text(message)
    return as_declared(node, parser.parse(message))


def _joined(values: dict[int, Any], datatype: pa.DataType, faults: Faults) -> Piece:
    try:
        array = pa.array(values.values(), datatype)
    except UnicodeEncodeError:  # half a pair of surrogates
        for index, value in list(values.items()):
            try:
                pa.array([value], datatype)
            except UnicodeEncodeError:
                faults[index] = "a text in it has half of a pair of surrogates"
                del values[index]
        array = pa.array(values.values(), datatype)
    return np.fromiter(values, np.int64, len(values)), array


_OPEN: Final = b'{"m":'
_CLOSE: Final = b"}\n"
_FEW: Final = 64
"""So many messages among which one is odd are parsed one by one."""


class _SchemaDecoder(MessageDecoder):
    """A decoder of messages that a JSON Schema describes, by a ``parser`` of single ones."""

    parser: ClassVar[Parser]
    nameless: ClassVar[str]

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node = parse_json_schema(schema_name, schema_data)
        super().__init__(schema_name.replace("/", ".") or self.nameless, self._node.arrow)

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        return self._one_by_one(data, starts, ends, faults)

    def _one_by_one(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        messages = _messages_of(data, starts, ends, self._node, self.parser, faults)
        yield _build_column(self._node, messages, self.parser, faults)


def _has_infinity(array: pa.Array) -> bool:
    """Whether an infinite number is anywhere in it."""
    if pa.types.is_struct(array.type):
        return any(_has_infinity(array.field(index)) for index in range(array.type.num_fields))
    if pa.types.is_list(array.type):
        return _has_infinity(array.values)
    return bool(pa.types.is_floating(array.type) and pc.any(pc.is_inf(array)).as_py())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise MisfitError("a key is there twice in one object")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise MisfitError(f"{text[:40]} is too large for a number")
    return value


def _text(message: bytes) -> str:
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise MisfitError("it is not UTF-8") from None


def _parse(message: bytes) -> Any:
    return _loaded(_text(message), object_pairs_hook=_unique, parse_float=_finite)


def _loaded(text: str, **hooks: Any) -> Any:
    try:
        return json.loads(text, **hooks)
    except MisfitError:
        raise
    except RecursionError:
        raise MisfitError("it is nested too deeply") from None
    except ValueError as error:
        raise MisfitError(f"it is not JSON: {str(error)[:120]}") from None


def _as_it_is(message: bytes) -> str:
    """The text itself, if it is JSON: what stands there twice, or is large, stays as it is."""
    text = _text(message)
    _loaded(text)
    return text


def _count(message: bytes, _: int) -> int:
    return 1 + sum(map(message.count, (b",", b"[", b"{")))


def _count_objects(message: bytes) -> int:
    return message.count(b"{")


class JsonDecoder(_SchemaDecoder):
    """Decodes JSON messages of a ``jsonschema`` schema, or of none.

    See :func:`~.json_types.parse_json_schema` for what becomes of which type. A message that has what its schema does
    not declare, or declares otherwise, is bad, and so is one with a key that is there twice, with a number that does
    not fit, or that is not UTF-8. ``NaN`` and ``Infinity``, which many write, are numbers.
    """

    parser = Parser(_parse, _as_it_is, _count, _count_objects)
    nameless = "json"

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        super().__init__(schema_name, schema_data)
        self._options = arrow_json.ParseOptions(
            explicit_schema=pa.schema([("m", wired(self._node))]), unexpected_field_behavior="error"
        )

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        if not innermost(self._node).by_column:
            return self._one_by_one(data, starts, ends, faults)
        messages = _messages_of(data, starts, ends, self._node, self.parser, faults)
        return self._columnar(messages, faults) if messages else ()

    def _columnar(self, messages: _Messages, faults: Faults) -> Iterator[Piece]:
        """Read ``messages``; halve them where something is odd."""
        try:
            values = self._read([message for _, message in messages])
        except ValueError:  # what Arrow complains of, and wrong base64
            if len(messages) <= _FEW:
                yield _build_column(self._node, messages, self.parser, faults)
                return
            half = len(messages) // 2
            yield from self._columnar(messages[:half], faults)
            yield from self._columnar(messages[half:], faults)
            return
        yield np.array([index for index, _ in messages]), values

    def _read(self, messages: list[memoryview]) -> pa.Array:
        """Read all by Arrow's reader of JSON lines. Raises ``ValueError``.

        Each message is the one member of an object on a line of its own: as no text may contain a line end, each makes
        at least one row, and when there are as many rows as messages each made exactly one.
        """
        lines = _OPEN + (_CLOSE + _OPEN).join(messages) + _CLOSE
        lines.decode("utf-8")
        whole = arrow_json.ReadOptions(use_threads=False, block_size=min(len(lines) + 1, (1 << 31) - 1))
        table = arrow_json.read_json(pa.BufferReader(lines), whole, self._options)
        if table.num_rows != len(messages):
            raise ValueError("a message has more than one value")
        column = table.column(0)
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if _has_infinity(array):
            raise ValueError("a number may be too large")  # or it is written so: parsing tells which
        return unwired(self._node, array)


_ARGUMENTS: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_INDEFINITE: Final = 31
_MAP: Final = 5
_READ_BY_TAG: Final = (0, 1, 4, 5, 30, 35, 36, 37, 52, 54, 100, 258, 260, 261, 1004, 43000)
"""Tags of which the library makes objects of Python: dates, fractions, expressions, addresses."""

_REFERENCES: Final = (25, 28, 29, 256)


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


def _parse_cbor(message: bytes) -> Any:
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


def _text_cbor(message: bytes) -> str:
    return as_text(_parse_cbor(message))


def _items_of_cbor(message: bytes, most: int) -> int:
    """Count the items of the message, up to one more than ``most``."""
    return sum(1 for _ in islice(_majors(message), most + 1))


def _maps_of_cbor(message: bytes) -> int:
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


class CborDecoder(_SchemaDecoder):
    """Decodes CBOR messages of a ``jsonschema`` schema, or of none.

    Types are those of :class:`JsonDecoder`: what a JSON Schema declares, and JSON text for the rest, in
    which bytes are base64. As RFC 8949, section 6.1, has it, a tag is ignored and what it tags is taken; big numbers
    count as numbers, ``undefined`` as null. References to other places of the message cannot be read.
    """

    parser = Parser(_parse_cbor, _text_cbor, _items_of_cbor, _maps_of_cbor)
    nameless = "cbor"
