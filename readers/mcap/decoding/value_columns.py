"""Messages that are parsed one by one into Python values, as one column of the declared type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ....engine.limits import MAX_CELLS, MAX_PARSED_MESSAGE
from .json_types import JsonNode, Leaf, MisfitError, as_declared


class Parser(NamedTuple):
    """How a message is read: ``parse`` gives its value, ``text`` the JSON text of one that nothing is declared of. Both
    raise :class:`MisfitError`.
    """

    parse: Callable[[bytes], Any]
    text: Callable[[bytes], str]


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
        if len(message) > MAX_PARSED_MESSAGE:
            faults[index] = f"it has {len(message):,} bytes, too many to be taken apart one by one"
            continue
        try:
            values[index] = _value(node, message, parser)
        except MisfitError as error:
            faults[index] = str(error).lstrip(".: ")
        except RecursionError:
            faults[index] = "it is nested too deeply"
    return _joined(values, node.arrow, faults)


def _value(node: JsonNode, message: memoryview, parser: Parser) -> Any:
    if isinstance(node, Leaf) and node.kind == "any":
        return parser.text(bytes(message))
    return as_declared(node, parser.parse(bytes(message)))


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
