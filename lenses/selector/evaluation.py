"""Selectors on whole Arrow arrays.

Each stage turns an array into :class:`Groups`: the values, and, where a stage flattened lists, which values belong to
which element of the input (``offsets``) and which elements became null as a whole (``valid``). Stages are composed by
composing offsets; no stage looks at one row at a time.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import SelectorError
from . import conversion, jq_program, lists
from .lists import Offsets, Validity
from .syntax import (
    Call,
    Cast,
    Constant,
    Each,
    Field,
    Function,
    Group,
    Identity,
    Index,
    Jq,
    Map,
    Marked,
    Nanoseconds,
    Node,
    Packed,
    Pipeline,
    Scaled,
    holds_code,
    pipeline_text,
)
from .type_names import type_name


class Groups(NamedTuple):
    """An array in groups: group ``i`` owns ``values[offsets[i]:offsets[i + 1]]``, one each without offsets.

    ``valid`` has one bool a group; None: all are.
    """

    values: pa.Array
    offsets: Offsets | None = None
    valid: Validity | None = None

    def of(self, before: Groups) -> Groups:
        """These groups, made of ``before.values``, as groups of what ``before`` was made of."""
        if before.offsets is None:
            return Groups(self.values, self.offsets, lists.both(before.valid, self.valid))
        offsets = before.offsets if self.offsets is None else self.offsets[before.offsets]
        valid = None if self.valid is None else lists.any_in_group(self.valid, before.offsets)
        return Groups(self.values, offsets, lists.both(before.valid, valid))


class Rows:
    """The elements of a list array: row ``i`` owns ``elements[offsets[i]:offsets[i + 1]]``."""

    __slots__ = ("_one_each", "elements", "offsets", "source")

    def __init__(self, source: pa.ListArray, *, whole: bool) -> None:
        """Only the elements that the visible lists span, unless ``whole``: user callables see all that are stored."""
        offsets: Offsets = lists.offsets_of(source)
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
        """Whether each row has one element: then groups of elements are groups of rows."""
        if self._one_each is None:
            self._one_each = len(self.elements) == len(self.source) and lists.is_one_each(self.offsets)
        return self._one_each

    def start(self) -> Groups:
        """Return what the first stage starts from."""
        return Groups(self.elements)

    @property
    def all_there(self) -> bool:
        """Whether each row has one element, and none is null as a whole."""
        return self.source.null_count == 0 and self.one_each

    def regrouped(self, found: Groups) -> pa.ListArray:
        """``found``, made of the elements, as one list a row."""
        if found.valid is None:
            valid: Validity | pa.Buffer | None = lists.bitmap_of(self.source)
        else:
            kept = found.valid if self.one_each else lists.any_in_group(found.valid, self.offsets)
            valid = lists.both(kept, lists.validity_of(self.source))
        if found.offsets is None:
            offsets = self.offsets
        else:
            offsets = found.offsets if self.one_each else found.offsets[self.offsets]
        return lists.list_array(found.values, offsets, valid)


class Tracking(NamedTuple):
    """Stages' record of more than the values: their groups, and the rows whose elements they started from."""

    groups: bool
    rows: Rows | None = None

    @property
    def hides_nulls(self) -> bool:
        """Whether each value is a row of its own, so that what is stored under a null list never shows."""
        return self.rows is not None and self.rows.one_each


_VALUES = Tracking(False)
_GROUPS = Tracking(True)


def execute(pipeline: Pipeline, source: pa.Array) -> pa.Array | None:
    """The values that ``pipeline`` gives for ``source``, flat; None where it gives nothing."""
    found = run(pipeline.nodes, Groups(source), _VALUES)
    return None if found is None else found.values


def execute_per_row(pipeline: Pipeline, source: pa.ListArray) -> pa.ListArray | None:
    """A list array of as many rows as ``source``: what ``pipeline`` gives for the elements of each of its lists."""
    rows = Rows(source, whole=holds_code(pipeline))
    found = run(pipeline.nodes, rows.start(), Tracking(True, rows))
    return None if found is None else rows.regrouped(found)


def run(nodes: tuple[Node, ...], start: Groups, tracking: Tracking) -> Groups | None:
    """``nodes`` in turn on ``start``."""
    groups = start
    for node in nodes:
        found = step(node, groups, tracking)
        if found is None:
            return None
        groups = found
    return groups


def step(node: Node, before: Groups, tracking: Tracking) -> Groups | None:
    """One more stage. Raises :class:`SelectorError` where it does not fit the values."""
    values = before.values
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if tracking.rows is not None and before.offsets is not None:
        tracking = _GROUPS
    try:
        found = _apply(node, values, tracking)
    except pa.ArrowException as error:
        raise SelectorError(f"Arrow error: {error}") from error
    if found is None:
        return None
    return found.of(before) if tracking.groups else Groups(found.values)


def _apply(node: Node, values: pa.Array, tracking: Tracking) -> Groups | None:
    match node:
        case Field(name):
            return _field(values, name)
        case Index(position):
            return Groups(_element(values, position))
        case Each():
            return _each(values, tracking)
        case Map(body):
            return _map(values, body)
        case Group(body):
            return run(body.nodes, Groups(values), tracking)
        case Marked(inner, marks):
            return _marked(inner, marks, values, tracking)
        case Function():
            return _called(node, values, tracking)
        case Identity():
            return Groups(values)
        case Constant(text):
            return Groups(pa.repeat(pa.scalar(text, pa.string()), len(values)))
        case Call(name, arguments):
            return Groups(_built_in(name, arguments or (), values))
        case _:
            return _converted(node, values, tracking)


def _converted(node: Node, values: pa.Array, tracking: Tracking) -> Groups | None:
    match node:
        case Jq():
            outputs, offsets = jq_program.run_jq(node, values)
            return Groups(outputs, offsets)
        case Cast(datatype):
            return Groups(conversion.cast(values, datatype))
        case Scaled(factor):
            return Groups(conversion.scaled(values, factor))
        case Nanoseconds():
            return Groups(conversion.nanoseconds(values))
        case Packed():
            return _packed(node, values, tracking)
        case _:
            raise SelectorError(f"Unknown stage: {node!r}")


def _field(values: pa.Array, name: str) -> Groups | None:
    kind = values.type
    if not pa.types.is_struct(kind):
        raise _unexpected(f"cannot access field `.{name}` on", kind)
    places = kind.get_all_field_indices(name)
    if not places:
        return None
    if values.null_count == 0:
        return Groups(values.field(places[0]))
    return Groups(pc.struct_field(values, [places[0]]))


def _element(values: pa.Array, position: int) -> pa.Array:
    kind = values.type
    if pa.types.is_fixed_size_list(kind):
        return _slot(values, position)
    if not pa.types.is_list(kind):
        raise _unexpected(f"cannot access `[{position}]` on", kind)
    offsets = lists.offsets_of(values)
    starts, ends = offsets[:-1], offsets[1:]
    if not -(2**31) <= position < 2**31:
        return pa.nulls(len(values), kind.value_type)
    small = abs(position) + int(offsets[-1]) < 2**31
    step = np.int32(position) if small else np.int64(position)
    places = (starts if position >= 0 else ends) + step
    there = places < ends if position >= 0 else places >= starts
    return lists.taken(values.values, places, lists.both(there, lists.validity_of(values)))


def _slot(values: pa.FixedSizeListArray, position: int) -> pa.Array:
    size = values.type.list_size
    if not -size <= position < size:
        return pa.nulls(len(values), values.type.value_type)
    places = (np.arange(len(values), dtype=np.int64) + values.offset) * size + position % size
    return lists.taken(values.values, places, lists.validity_of(values))


def _each(values: pa.Array, tracking: Tracking) -> Groups:
    kind = values.type
    if not (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise _unexpected("`.[]` called on", kind)
    if not tracking.groups:
        return Groups(lists.flattened(values))
    flat, offsets = lists.grouped(values, hidden=values.null_count > 0 and tracking.hides_nulls)
    return Groups(flat, offsets, lists.validity_of(values))


def _map(values: pa.Array, body: Pipeline) -> Groups | None:
    kind = values.type
    if pa.types.is_fixed_size_list(kind):
        raise SelectorError(f"Not yet implemented: `map()` is not yet implemented for {type_name(kind)}")
    if not pa.types.is_list(kind):
        raise _unexpected("cannot call `.map()` on", kind)
    found = execute_per_row(body, values)
    return None if found is None else Groups(found)


def _marked(inner: Node, marks: str, values: pa.Array, tracking: Tracking) -> Groups | None:
    """``inner`` and its marks from left to right: a ``?`` forgives what fails before it."""
    try:
        found = step(inner, Groups(values), tracking)
    except SelectorError:
        if "?" in marks:
            return None
        raise
    if found is None or "!" not in marks or not tracking.groups:
        return found
    there = lists.validity_of(found.values)
    if there is not None and found.offsets is not None:
        there = lists.any_in_group(there, found.offsets)
    return Groups(found.values, found.offsets, lists.both(found.valid, there))


def _built_in(name: str, arguments: tuple[str, ...], values: pa.Array) -> pa.Array:
    if name != "string_prefix":
        raise SelectorError(f"Unknown function: `{name}`")
    if len(arguments) != 1:
        raise SelectorError(f"Wrong arguments for function: `{name}`")
    if not pa.types.is_string(values.type):
        raise SelectorError(f"Type mismatch in {name} input: expected StringArray, got {type_name(values.type)}")
    return pc.binary_join_element_wise(arguments[0], values, "")


def _called(node: Function, values: pa.Array, tracking: Tracking) -> Groups | None:
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
    return Groups(given)


def _packed(node: Packed, values: pa.Array, tracking: Tracking) -> Groups | None:
    if node.by_position and not pa.types.is_struct(values.type):
        return Groups(conversion.vectors(node, values))
    parts: list[Groups] = []
    for part in node.parts:
        found = run(part.nodes, Groups(values), _GROUPS)
        if found is None and node.datatype is None:
            raise SelectorError(
                f"`pack` path `{pipeline_text(part)}` gives nothing: no such field{_fields(values.type)}"
            )
        if found is None:
            return None
        parts.append(found)
    first = parts[0]
    for other in parts[1:]:
        if not _same_groups(first, other):
            raise SelectorError("the parts of a vector differ in their number of values")
    packed = conversion.pack(node, [p.values for p in parts])
    if node.datatype is None:
        return Groups(packed)
    if not tracking.groups:
        return Groups(packed)
    return Groups(packed, first.offsets, reduce(lists.both, [p.valid for p in parts]))


def _fields(kind: pa.DataType) -> str:
    return f". Available fields: [{', '.join(f.name for f in kind)}]" if pa.types.is_struct(kind) else ""


def _same_groups(a: Groups, b: Groups) -> bool:
    if len(a.values) != len(b.values):
        return False
    if a.offsets is None or b.offsets is None:
        return a.offsets is b.offsets
    return bool(np.array_equal(a.offsets, b.offsets))


def _unexpected(what: str, kind: pa.DataType) -> SelectorError:
    return SelectorError(f"Invalid argument error: {what} unexpected type {type_name(kind)}")
