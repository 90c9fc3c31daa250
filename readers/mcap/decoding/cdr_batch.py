"""Many messages of one type and byte order to Arrow arrays, in the quickest way their layouts allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from .cdr_alike import Alike
from .cdr_arrow import assemble, read
from .cdr_layout import Batch, Frame, Program, compile_node
from .cdr_still import Memory
from .cdr_template import MOST_BYTES, NoTemplateError, Template, trace
from .cdr_walk import TooManyElementsError
from .message_types import Struct, Wire

_MOST_TEMPLATES: Final = 4
_MOST_REMEMBERED: Final = 16
_LEAST_ALIKE: Final = 8
"""A template serves at least this many messages, and at least one in so many."""

Piece = tuple[np.ndarray, pa.Array]
Faults = dict[int, str]


class Messages(NamedTuple):
    """Messages ``data[starts[i]:ends[i]]``, header included; ``order`` is their byte order, ``"<"`` or ``">"``."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    order: str


class ColumnarReader:
    """Reads messages of one type by column."""

    def __init__(self, node: Struct, wire: Wire) -> None:
        self._node = node
        self._wire = wire
        self._program: Program = compile_node(node, "", wire)
        self._templates: dict[tuple[str, int], tuple[Template, Memory]] = {}

    def read(self, messages: Messages, chosen: np.ndarray, faults: Faults) -> Iterator[Piece]:
        """Arrays of the messages ``chosen`` (indices, int64), each with the indices that it has the values of.

        What is wrong with a message goes to ``faults``.
        """
        read = []
        for group in _of_equal_length((messages.ends - messages.starts)[chosen]):
            alike = self._read_alike(messages, chosen[group])
            if alike is not None:
                yield alike
                read.append(alike[0])
        if sum(map(len, read)) < len(chosen):
            rest = np.setdiff1d(chosen, np.concatenate(read), assume_unique=True) if read else chosen
            yield from self._read_any(messages, rest, faults)

    def _read_alike(self, messages: Messages, chosen: np.ndarray) -> Piece | None:
        """Read those of ``chosen``, all of one length, that have the layout of the first; None when few have."""
        data, starts, ends, order = messages
        first = chosen[0]
        body = data[starts[first] + self._wire.header : ends[first]]
        known = self._templates.get((order, len(body)))
        if known is None or not known[0].fits(body.tobytes()):
            try:
                known = trace(self._node, body.tobytes(), order, self._wire), Memory()
            except NoTemplateError:
                return None
            if len(self._templates) >= _MOST_REMEMBERED:
                self._templates.clear()
            self._templates[order, len(body)] = known
        alike = self._take_apart(*known, messages, chosen)
        if not alike.alike.all():
            chosen = chosen[alike.alike]
            if len(chosen) * _LEAST_ALIKE < len(alike.alike):
                return None
            alike = self._take_apart(*known, messages, chosen)
        values = alike.array()
        return None if alike.batch.faults else (chosen, values)

    def _read_any(self, messages: Messages, chosen: np.ndarray, faults: Faults) -> Iterator[Piece]:
        """Read messages of any layout; those found wrong are left out and the others read again."""
        data, starts, ends, order = messages
        while True:
            batch = Batch(data, order, self._wire)
            base = starts[chosen] + self._wire.header
            try:
                frame = Frame(batch, base, base, ends[chosen], chosen, chosen)
                columns = read(self._program, frame)
            except TooManyElementsError:
                yield from self._read_halves(messages, chosen, faults)
                return
            if self._wire.exact:
                frame.require(frame.place == frame.end, "the message goes on after its last field")
            if not batch.faults:
                values = assemble(self._node, iter(columns), len(chosen), batch)
            if not batch.faults:
                yield chosen, values
                return
            for owners, what in batch.faults:
                for owner in owners.tolist():
                    faults.setdefault(owner, what)
            chosen = np.setdiff1d(chosen, np.concatenate([owners for owners, _ in batch.faults]))

    def _read_halves(self, messages: Messages, chosen: np.ndarray, faults: Faults) -> Iterator[Piece]:
        if len(chosen) == 1:
            faults[int(chosen[0])] = "it holds more elements than are taken from one message"
            return
        half = len(chosen) // 2
        yield from self._read_any(messages, chosen[:half], faults)
        yield from self._read_any(messages, chosen[half:], faults)

    def _take_apart(self, template: Template, memory: Memory, messages: Messages, chosen: np.ndarray) -> Alike:
        batch = Batch(messages.data, messages.order, self._wire)
        return Alike(template, memory, batch, messages.starts[chosen] + self._wire.header, chosen)


def _of_equal_length(lengths: np.ndarray) -> list[np.ndarray]:
    """Indices of messages of equal length, if a few lengths make up most of them."""
    if bool((lengths == lengths[0]).all()):
        return [np.arange(len(lengths))] if lengths[0] <= MOST_BYTES else []
    least = max(_LEAST_ALIKE, len(lengths) // _LEAST_ALIKE)
    values, counts = np.unique(lengths, return_counts=True)
    several = (counts >= least) & (values <= MOST_BYTES)
    if not several.any() or 2 * int(counts[several].sum()) < len(lengths):
        return []
    commonest = np.argsort(-counts[several], kind="stable")[:_MOST_TEMPLATES]
    return [np.flatnonzero(lengths == length) for length in values[several][commonest].tolist()]
