"""Selectors on whole Arrow arrays.

Each stage turns an array into :class:`GroupedValues`: the values, and, where a stage flattened lists, which values
belong to which element of the input (``offsets``) and which elements became null as a whole (``valid``). Stages are
composed by composing offsets; no stage looks at one row at a time.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import SelectorError
from .. import arrays
from ..arrays import Offsets, Validity, type_name
from . import conversion
from .conversion import unexpected
from .syntax import (
    Cast,
    Constant,
    Each,
    Field,
    Function,
    FunctionCall,
    Identity,
    Index,
    Jq,
    MapEach,
    Marked,
    Nanoseconds,
    Nested,
    Node,
    Pack,
    Scaled,
    SelectorPipeline,
    holds_code,
    pipeline_text,
)


class GroupedValues(NamedTuple):
    """An array in groups: group ``i`` owns ``values[offsets[i]:offsets[i + 1]]``, one each without offsets.

    ``valid`` has one bool a group; None: all are.
    """

    values: pa.Array
    offsets: Offsets | None = None
    valid: Validity | None = None

    def of(self, before: GroupedValues) -> GroupedValues:
        """These groups, made of ``before.values``, as groups of what ``before`` was made of."""
        if before.offsets is None:
            return GroupedValues(self.values, self.offsets, arrays.both(before.valid, self.valid))
        offsets = before.offsets if self.offsets is None else self.offsets[before.offsets]
        valid = None if self.valid is None else arrays.any_in_group(self.valid, before.offsets)
        return GroupedValues(self.values, offsets, arrays.both(before.valid, valid))


class ListRows:
    """The elements of a list array: row ``i`` owns ``elements[offsets[i]:offsets[i + 1]]``."""

    __slots__ = ("_one_each", "elements", "offsets", "source")

    def __init__(self, source: pa.ListArray, *, whole: bool) -> None:
        """Only the elements that the visible lists span, unless ``whole``: user callables see all that are stored."""
        offsets: Offsets = arrays.offsets_of(source)
        elements = source.values
        if not whole and (offsets[0] != 0 or offsets[-1] != len(elements)):
            start, end = int(offsets[0]), int(offsets[-1])
            elements, offsets = elements.slice(start, end - start), offsets if start == 0 else offsets - start
        self.source = source
        self.elements = elements
        self.offsets = offsets
        self._one_each: bool | None = None

    @property
    def one_each(self) -> bool:
        """Return whether each row has one element: then groups of elements are groups of rows, 18 % less on IMUs."""
        if self._one_each is None:
            self._one_each = len(self.elements) == len(self.source) and arrays.is_one_each(self.offsets)
        return self._one_each

    @property
    def all_there(self) -> bool:
        """Return whether each row has one element, and none is null as a whole."""
        return self.source.null_count == 0 and self.one_each

    def regrouped(self, groups: GroupedValues) -> pa.ListArray:
        """``groups``, made of the elements, as one list per row."""
        if groups.valid is None:
            valid: Validity | pa.Buffer | None = arrays.bitmap_of(self.source)
        else:
            row_valid = groups.valid if self.one_each else arrays.any_in_group(groups.valid, self.offsets)
            valid = arrays.both(row_valid, arrays.validity_of(self.source))
        if groups.offsets is None:
            offsets = self.offsets
        else:
            offsets = groups.offsets if self.one_each else groups.offsets[self.offsets]
        return arrays.list_array(groups.values, offsets, valid)


class Tracking(NamedTuple):
    """Stages' record of more than the values: their groups, and the rows whose elements they started from."""

    groups: bool
    rows: ListRows | None = None

    @property
    def hides_nulls(self) -> bool:
        """Return whether each value is a row of its own: then elements stored under a null list never show."""
        return self.rows is not None and self.rows.one_each


_VALUES = Tracking(False)
_GROUPS = Tracking(True)


def execute(pipeline: SelectorPipeline, source: pa.Array) -> pa.Array | None:
    """Evaluate ``pipeline`` on ``source``; return flat values, or None if it yields nothing."""
    groups = run(pipeline.nodes, GroupedValues(source), _VALUES)
    return None if groups is None else groups.values


def execute_per_row(pipeline: SelectorPipeline, source: pa.ListArray) -> pa.ListArray | None:
    """Evaluate ``pipeline`` on the elements of ``source``; return one list per row, or None if it yields nothing."""
    rows = ListRows(source, whole=holds_code(pipeline))
    groups = run(pipeline.nodes, GroupedValues(rows.elements), Tracking(True, rows))
    return None if groups is None else rows.regrouped(groups)


class SelectorTable:
    """A tree of stages: each slot is one stage behind another slot; slot 0 is the input itself.

    Common beginnings of selectors are computed once: 3 to 7 % of the lens of an IMU, two thirds of that of a point
    cloud, with its callable in each; guarded by the types of ``benchmarks/bench_types.py``.
    """

    __slots__ = ("_slots", "stages", "whole")

    def __init__(self) -> None:
        self.stages: list[tuple[int, Node]] = [(0, Identity())]
        self.whole = False
        self._slots: dict[tuple[int, Node], int] = {}

    def add(self, pipeline: SelectorPipeline) -> int:
        """The slot at which the selector's result will be."""
        self.whole = self.whole or holds_code(pipeline)
        slot = 0
        for node in pipeline.nodes:
            key = (slot, node)
            if key not in self._slots:
                self._slots[key] = len(self.stages)
                self.stages.append(key)
            slot = self._slots[key]
        return slot


class SelectorResults:
    """The results of a table's selectors on one column, computed when asked for, each stage once."""

    __slots__ = ("_columns", "_groups", "_rows", "_table")

    def __init__(self, table: SelectorTable, column: pa.ListArray) -> None:
        self._table = table
        self._rows = ListRows(column, whole=table.whole)
        self._groups: dict[int, GroupedValues | None] = {0: GroupedValues(self._rows.elements)}
        self._columns: dict[int, pa.ListArray | None] = {}

    def column(self, slot: int) -> pa.ListArray | None:
        """Return the selector's list array, one list per row of the input, or None if it gives nothing.

        Raises :class:`~chunkmill.engine.errors.SelectorError`.
        """
        if slot not in self._columns:
            groups = self._at(slot)
            self._columns[slot] = None if groups is None else self._rows.regrouped(groups)
        return self._columns[slot]

    def one_each(self, slot: int) -> pa.Array | None:
        """Return the selector's values if each row of the input has just one, and none is null; else None.

        Raises :class:`~chunkmill.engine.errors.SelectorError`.
        """
        groups = self._at(slot)
        if groups is None or groups.offsets is not None or groups.valid is not None or not self._rows.all_there:
            return None
        return None if groups.values.null_count else groups.values

    def _at(self, slot: int) -> GroupedValues | None:
        path = []
        while slot not in self._groups:
            path.append(slot)
            slot = self._table.stages[slot][0]
        groups = self._groups[slot]
        for slot in reversed(path):
            node = self._table.stages[slot][1]
            groups = None if groups is None else step(node, groups, Tracking(True, self._rows))
            self._groups[slot] = groups
        return groups


def run(nodes: tuple[Node, ...], start: GroupedValues, tracking: Tracking) -> GroupedValues | None:
    """``nodes`` in turn on ``start``."""
    groups: GroupedValues | None = start
    for node in nodes:
        groups = None if groups is None else step(node, groups, tracking)
    return groups


def step(node: Node, before: GroupedValues, tracking: Tracking) -> GroupedValues | None:
    """One more stage. Raises :class:`SelectorError` where it does not fit the values."""
    values = before.values
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if tracking.rows is not None and before.offsets is not None:
        tracking = _GROUPS
    try:
        groups = _apply(node, values, tracking)
    except pa.ArrowException as error:
        raise SelectorError(f"Arrow error: {error}") from error
    if groups is None:
        return None
    return groups.of(before) if tracking.groups else GroupedValues(groups.values)


def _apply(node: Node, values: pa.Array, tracking: Tracking) -> GroupedValues | None:
    match node:
        case Field(name):
            return _field(values, name)
        case Index(position):
            return GroupedValues(conversion.element(values, position))
        case Each():
            return _each(values, tracking)
        case MapEach(body):
            return _map(values, body)
        case Nested(body):
            return run(body.nodes, GroupedValues(values), tracking)
        case Marked(inner, marks):
            return _marked(inner, marks, values, tracking)
        case Function():
            return _called(node, values, tracking)
        case Identity():
            return GroupedValues(values)
        case Constant(text):
            return GroupedValues(pa.repeat(pa.scalar(text, pa.string()), len(values)))
        case FunctionCall(name, arguments):
            return GroupedValues(conversion.call(name, arguments or (), values))
        case _:
            return _converted(node, values, tracking)


def _converted(node: Node, values: pa.Array, tracking: Tracking) -> GroupedValues | None:
    match node:
        case Jq():
            from .jq_program import run_jq

            outputs, offsets = run_jq(node, values)
            return GroupedValues(outputs, offsets)
        case Cast(datatype):
            return GroupedValues(conversion.cast(values, datatype))
        case Scaled(factor):
            return GroupedValues(conversion.scaled(values, factor))
        case Nanoseconds():
            return GroupedValues(conversion.nanoseconds(values))
        case Pack():
            return _packed(node, values, tracking)
        case _:
            raise SelectorError(f"Unknown stage: {node!r}")


def _field(values: pa.Array, name: str) -> GroupedValues | None:
    kind = values.type
    if not pa.types.is_struct(kind):
        raise unexpected(f"cannot access field `.{name}` on", kind)
    places = kind.get_all_field_indices(name)
    if not places:
        return None
    if values.null_count == 0:
        return GroupedValues(values.field(places[0]))
    return GroupedValues(pc.struct_field(values, [places[0]]))


def _each(values: pa.Array, tracking: Tracking) -> GroupedValues:
    kind = values.type
    if not (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise unexpected("`.[]` called on", kind)
    if not tracking.groups:
        return GroupedValues(arrays.flattened(values))
    flat, offsets = arrays.grouped(values, hidden=values.null_count > 0 and tracking.hides_nulls)
    return GroupedValues(flat, offsets, arrays.validity_of(values))


def _map(values: pa.Array, body: SelectorPipeline) -> GroupedValues | None:
    kind = values.type
    if pa.types.is_fixed_size_list(kind):
        raise SelectorError(f"Not yet implemented: `map()` is not yet implemented for {type_name(kind)}")
    if not pa.types.is_list(kind):
        raise unexpected("cannot call `.map()` on", kind)
    lists = execute_per_row(body, values)
    return None if lists is None else GroupedValues(lists)


def _marked(inner: Node, marks: str, values: pa.Array, tracking: Tracking) -> GroupedValues | None:
    """``inner`` and its marks from left to right: a ``?`` forgives what fails before it."""
    try:
        groups = step(inner, GroupedValues(values), tracking)
    except SelectorError:
        if "?" in marks:
            return None
        raise
    if groups is None or "!" not in marks or not tracking.groups:
        return groups
    valid = arrays.validity_of(groups.values)
    if valid is not None and groups.offsets is not None:
        valid = arrays.any_in_group(valid, groups.offsets)
    return GroupedValues(groups.values, groups.offsets, arrays.both(groups.valid, valid))


def _called(node: Function, values: pa.Array, tracking: Tracking) -> GroupedValues | None:
    try:
        given = node.callable(values)
    except SelectorError:
        raise
    except Exception as error:
        raise SelectorError(f"Python callback failed: {type(error).__name__}: {error}") from error
    if given is None:
        return None
    if not isinstance(given, pa.Array):
        kind = type(given)
        raise SelectorError(
            "Failed to convert callback result to Arrow: TypeError: Expected instance of pyarrow.lib.Array, "
            f"got {kind.__module__}.{kind.__name__}"
        )
    if tracking.groups and len(given) != len(values):
        raise SelectorError(
            f"Python callback changed the length: it was given {len(values):,} values and returned {len(given):,}"
        )
    return GroupedValues(given)


def _packed(node: Pack, values: pa.Array, tracking: Tracking) -> GroupedValues | None:
    if node.by_position and not pa.types.is_struct(values.type):
        return GroupedValues(conversion.vectors(node, values))
    parts: list[GroupedValues] = []
    for part in node.parts:
        groups = run(part.nodes, GroupedValues(values), _GROUPS)
        if groups is None and node.datatype is None:
            raise SelectorError(
                f"`pack` path `{pipeline_text(part)}` gives nothing: no such field{_fields(values.type)}"
            )
        if groups is None:
            return None
        parts.append(groups)
    first = parts[0]
    for other in parts[1:]:
        if not _same_groups(first, other):
            raise SelectorError("the parts of a vector differ in their number of values")
    packed = conversion.pack(node, [p.values for p in parts])
    if node.datatype is None or not tracking.groups:
        return GroupedValues(packed)
    return GroupedValues(packed, first.offsets, reduce(arrays.both, [p.valid for p in parts]))


def _fields(kind: pa.DataType) -> str:
    return f". Available fields: [{', '.join(f.name for f in kind)}]" if pa.types.is_struct(kind) else ""


def _same_groups(a: GroupedValues, b: GroupedValues) -> bool:
    if a.offsets is None or b.offsets is None:
        return a.offsets is b.offsets and len(a.values) == len(b.values)
    return len(a.values) == len(b.values) and bool(np.array_equal(a.offsets, b.offsets))
