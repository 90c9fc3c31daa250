"""Messages that are parsed one by one into Python values, as one column of the declared type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ....engine.limits import MAX_CELLS, MAX_ELEMENTS
from .json_types import JsonNode, Leaf, MisfitError, as_declared

_MOST_VALUES: Final = MAX_ELEMENTS // 4
"""Values taken from one message: each becomes an object."""


class Parser(NamedTuple):
    """How a message is read: ``parse`` gives its value, ``text`` the JSON text of one that nothing is declared of; both
    raise :class:`MisfitError`. ``items`` is at least the number of values in it, or more than what is given.
    """

    parse: Callable[[bytes], Any]
    text: Callable[[bytes], str]
    items: Callable[[bytes, int], int]


def too_many(node: JsonNode, rows: int, faults: dict[int, str]) -> bool:
    """Whether ``rows`` messages would become more values than memory is taken for; all are faults then."""
    if rows * node.leaves <= MAX_CELLS:
        return False
    faults.update(dict.fromkeys(range(rows), "messages of its type have more fields than are taken from so many"))
    return True


def build_column(
    node: JsonNode, messages: Sequence[memoryview], first: int, parser: Parser, faults: dict[int, str]
) -> tuple[np.ndarray, pa.Array]:
    """The messages' indices, counted from ``first``, and their values; what is wrong with one goes to ``faults``."""
    values: dict[int, Any] = {}
    for index, message in enumerate(messages, first):
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
