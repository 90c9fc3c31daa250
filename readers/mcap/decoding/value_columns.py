"""Messages that are parsed one by one into Python values, as one column of the declared type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ....engine.limits import MAX_CELLS, MAX_ELEMENTS
from .json_types import JsonNode, Leaf, MisfitError, as_declared

_MOST_VALUES: Final = MAX_ELEMENTS // 4
"""Values taken from one message: each becomes an object."""

_FREE_VALUES: Final = MAX_ELEMENTS // 2
_PER_BYTE: Final = 2
"""Values that objects become, beyond the free ones, for each byte of the messages."""

Messages = list[tuple[int, memoryview]]


class Parser(NamedTuple):
    """How a message is read: ``parse`` gives its value, ``text`` the JSON text of one that nothing is declared of; both
    raise :class:`MisfitError`. ``items`` is at least the number of values in it, or more than what is given;
    ``objects`` at least the number of its objects.
    """

    parse: Callable[[bytes], Any]
    text: Callable[[bytes], str]
    items: Callable[[bytes, int], int]
    objects: Callable[[bytes], int]


def messages_of(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, node: JsonNode, parser: Parser, faults: dict[int, str]
) -> Messages:
    """The messages ``data[starts[i]:ends[i]]`` that become no more values than memory is taken for; others are faults.

    An object has a value for each field that its schema declares, however few are in the message.
    """
    views = [data[start:end].data for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    if len(views) * node.leaves > MAX_CELLS:
        why = "messages of its type have more fields than are taken from so many"
        faults.update(dict.fromkeys(range(len(views)), why))
        return []
    total, widest = int((ends - starts).sum()), node.widest
    if total * widest <= _FREE_VALUES:
        return list(enumerate(views))
    values = np.array([parser.objects(bytes(view)) * widest for view in views])
    ascending = np.argsort(values, kind="stable")
    over = np.zeros(len(views), np.bool_)
    over[ascending[np.cumsum(values[ascending]) > _FREE_VALUES + _PER_BYTE * total]] = True
    why = "its objects have far fewer properties than their schema declares, and are too many"
    faults.update(dict.fromkeys(np.flatnonzero(over).tolist(), why))
    return [(index, view) for index, view in enumerate(views) if not over[index]]


def build_column(
    node: JsonNode, messages: Messages, parser: Parser, faults: dict[int, str]
) -> tuple[np.ndarray, pa.Array]:
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


def _joined(values: dict[int, Any], datatype: pa.DataType, faults: dict[int, str]) -> tuple[np.ndarray, pa.Array]:
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
