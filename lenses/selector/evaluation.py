"""Selectors on whole Arrow arrays: paths, functions, and values turned into other values.

Each stage turns an array into :class:`GroupedValues`: the values and, if a stage flattened lists, the values of each
input element (``offsets``) and the elements that became null as a whole (``valid``). Stages are composed by composing
offsets; no stage looks at one row at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import SelectorError
from .. import arrays
from ..arrays import Offsets, Validity, type_name
from .syntax import (
    Cast,
    Constant,
    Each,
    FieldAccess,
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

_SECONDS = ("sec", "secs", "seconds")
_FRACTIONS = ("nanosec", "nanosecs", "nsec", "nsecs", "nanos", "nanoseconds")


@cache
def _billion() -> pa.Scalar:
    return pa.scalar(1_000_000_000, pa.int64())


def element(values: pa.Array, position: int) -> pa.Array:
    """Return the element of each list at ``position``, from the end if negative; null beyond the list."""
    kind = values.type
    if pa.types.is_fixed_size_list(kind):
        return _slot(values, position)
    if not pa.types.is_list(kind):
        raise unexpected(f"cannot access `[{position}]` on", kind)
    offsets = arrays.offsets_of(values)
    starts, ends = offsets[:-1], offsets[1:]
    if not -(2**31) <= position < 2**31:
        return pa.nulls(len(values), kind.value_type)
    small = abs(position) + int(offsets[-1]) < 2**31
    step = np.int32(position) if small else np.int64(position)
    places = (starts if position >= 0 else ends) + step
    inside = places < ends if position >= 0 else places >= starts
    return arrays.taken(values.values, places, arrays.both(inside, arrays.validity_of(values)))


def _slot(values: pa.FixedSizeListArray, position: int) -> pa.Array:
    size = values.type.list_size
    if not -size <= position < size:
        return pa.nulls(len(values), values.type.value_type)
    places = (np.arange(len(values), dtype=np.int64) + values.offset) * size + position % size
    return arrays.taken(values.values, places, arrays.validity_of(values))


def call(name: str, arguments: tuple[str, ...], values: pa.Array) -> pa.Array:
    """Return the outputs of a built-in function. The only one is ``string_prefix``."""
    if name != "string_prefix":
        raise SelectorError(f"Unknown function: `{name}`")
    if len(arguments) != 1:
        raise SelectorError(f"Wrong arguments for function: `{name}`")
    if not pa.types.is_string(values.type):
        raise SelectorError(f"Type mismatch in {name} input: expected StringArray, got {type_name(values.type)}")
    return pc.binary_join_element_wise(arguments[0], values, "")


def unexpected(what: str, kind: pa.DataType) -> SelectorError:
    """The error for values of a type that a stage does not take."""
    return SelectorError(f"Invalid argument error: {what} unexpected type {type_name(kind)}")


def cast(values: pa.Array, datatype: pa.DataType) -> pa.Array:
    """Cast ``values`` to ``datatype``, which may also exclude nulls inside lists and structs.

    Raises ``pa.ArrowInvalid`` for values that do not fit.
    """
    kind = values.type
    if kind == datatype:
        return values
    if pa.types.is_fixed_size_list(kind) and pa.types.is_fixed_size_list(datatype):
        if kind.list_size != datatype.list_size:
            raise SelectorError(f"Cast error: lists of {kind.list_size} do not fit lists of {datatype.list_size}")
        flat = cast(
            values.values.slice(values.offset * kind.list_size, len(values) * kind.list_size), datatype.value_type
        )
        if not datatype.value_field.nullable and flat.null_count:
            flat = _present_where(values, flat, kind.list_size)
        return pa.Array.from_buffers(datatype, len(values), [arrays.bitmap_of(values)], children=[flat])
    return pc.cast(values, datatype)


def _present_where(values: pa.FixedSizeListArray, flat: pa.Array, size: int) -> pa.Array:
    """``flat`` without nulls. Nulls under null lists never show; any other null raises an error."""
    missing = ~flat.is_valid().to_numpy(zero_copy_only=False)
    shown = values.is_valid().to_numpy(zero_copy_only=False).repeat(size)
    if (missing & shown).any():
        raise SelectorError("Cast error: a null number in a vector that allows no nulls")
    return flat.fill_null(pa.scalar(0).cast(flat.type))


def scaled(values: pa.Array, factor: float) -> pa.Array:
    """Numbers times ``factor``: floats keep their width, integers become float64; lists keep their shape."""
    kind = values.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        product = pc.multiply(pc.cast(values, pa.float64(), safe=False), pa.scalar(factor, pa.float64()))
        return pc.cast(product, kind, safe=False) if pa.types.is_floating(kind) else product
    if pa.types.is_fixed_size_list(kind):
        flat = arrays.flattened(values)
        bitmap, nullable = arrays.bitmap_of(values), kind.value_field.nullable
        return arrays.fixed_lists(scaled(flat, factor), kind.list_size, bitmap, nullable=nullable)
    if pa.types.is_list(kind):
        flat, offsets = arrays.grouped(values, hidden=True)
        return arrays.list_array(scaled(flat, factor), offsets, arrays.bitmap_of(values))
    raise SelectorError(f"Invalid argument error: cannot scale values of type {type_name(kind)}")


def nanoseconds(values: pa.Array) -> pa.Array:
    """Convert stamps to int64 nanoseconds.

    A stamp is an Arrow timestamp or duration, or a struct of seconds (``sec``, ``secs``, ``seconds``) and nanoseconds
    (``nanosec``, ``nsec``, ``nanos``, …) as ROS and protobuf write it. If a part is null, the stamp is null.
    """
    kind = values.type
    if pa.types.is_timestamp(kind):
        return pc.cast(pc.cast(values, pa.timestamp("ns", kind.tz)), pa.int64())
    if pa.types.is_duration(kind):
        return pc.cast(pc.cast(values, pa.duration("ns")), pa.int64())
    if pa.types.is_struct(kind):
        places = _stamp_places(kind)
        if places is not None:
            seconds, fraction = (_member(values, place) for place in places)
            # 60 % less time on stamps as in ROS (a million: 1.5 ms, not 4.0), as none of them overflows; guarded by
            # benchmarks/bench_types.py.
            if _is_small(seconds) and _is_small(fraction):
                ticks = np.multiply(seconds.to_numpy(), 1_000_000_000, dtype=np.int64)
                return pa.array(np.add(ticks, fraction.to_numpy(), out=ticks))
            seconds, fraction = cast(seconds, pa.int64()), cast(fraction, pa.int64())
            return pc.add_checked(pc.multiply_checked(seconds, _billion()), fraction)
    raise SelectorError(f"Invalid argument error: no stamp of seconds and nanoseconds in type {type_name(kind)}")


@lru_cache(maxsize=64)
def _stamp_places(kind: pa.StructType) -> tuple[int, int] | None:
    """Find seconds and nanoseconds among the fields of a struct."""
    names = [f.name for f in kind]
    whole = next((n for n in _SECONDS if n in names), None)
    rest = next((n for n in _FRACTIONS if n in names), None)
    return None if whole is None or rest is None else (names.index(whole), names.index(rest))


def _member(values: pa.StructArray, place: int) -> pa.Array:
    return pc.struct_field(values, [place]) if values.null_count else values.field(place)


def _is_small(values: pa.Array) -> bool:
    """Return whether nothing is null, and a billion times each value is an int64."""
    return values.null_count == 0 and values.type in (pa.int32(), pa.uint32())


def pack(node: Pack, parts: list[pa.Array]) -> pa.FixedSizeListArray:
    """Vectors with one number from each of ``parts``."""
    size = len(parts)
    if node.datatype is None:
        return _packed_as_they_are(node, parts)
    numbers, missing = beside([_numbers(p) for p in parts], node.datatype.to_pandas_dtype(), node.factor)
    if missing is None:
        return arrays.fixed_lists(pa.array(numbers.reshape(-1)), size, nullable=not node.whole)
    if not node.whole:
        return arrays.fixed_lists(pa.array(numbers.reshape(-1), mask=missing.reshape(-1)), size, nullable=True)
    valid = np.packbits(~missing.any(axis=1), bitorder="little")
    return arrays.fixed_lists(pa.array(numbers.reshape(-1)), size, pa.py_buffer(valid))


def beside(
    columns: Sequence[pa.Array], kind: type[np.floating[Any]], factor: float = 1.0
) -> tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.bool_] | None]:
    """Join columns of numbers, times ``factor``, to a matrix; also return a mask of nulls, or None without nulls."""
    numbers = np.empty((len(columns[0]), len(columns)), kind)
    missing = np.zeros(numbers.shape, bool)
    for i, column in enumerate(columns):
        if column.null_count:
            missing[:, i] = ~column.is_valid().to_numpy(zero_copy_only=False)
            column = pc.fill_null(column, 0)
        values = column.to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
            numbers[:, i] = values if factor == 1.0 else values * factor
    return numbers, missing if missing.any() else None


def _packed_as_they_are(node: Pack, parts: list[pa.Array]) -> pa.FixedSizeListArray:
    """Lists with one value of any type from each part; a null value makes the list null."""
    kind = parts[0].type
    for path, part in zip(node.parts, parts, strict=True):
        if part.type != kind:
            raise SelectorError(
                f"`pack` path `{pipeline_text(path)}` has type {type_name(part.type)}, but expected {type_name(kind)} "
                "(inferred from the first path); all paths must share the same datatype"
            )
    size, count = len(parts), len(parts[0])
    turns = np.arange(size * count).reshape(size, count).T.reshape(-1)
    flat = pa.concat_arrays(parts).take(pa.array(turns))
    valid = np.ones(count, bool)
    for part in parts:
        if part.null_count:
            valid &= part.is_valid().to_numpy(zero_copy_only=False)
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return arrays.fixed_lists(flat, size, bitmap, nullable=True)


def vectors(node: Pack, values: pa.Array) -> pa.FixedSizeListArray:
    """Vectors from lists that already hold the numbers in order. Raises if a list has another length."""
    size, kind = len(node.parts), values.type
    if pa.types.is_fixed_size_list(kind):
        fits = kind.list_size == size
    elif pa.types.is_list(kind):
        offsets = arrays.offsets_of(values)
        wrong = offsets[1:] - offsets[:-1] != size
        valid = arrays.validity_of(values)
        fits = not (wrong if valid is None else wrong & valid).any()
    else:
        raise SelectorError(f"Invalid argument error: no {size} numbers in type {type_name(kind)}")
    if not fits:
        raise SelectorError(f"Invalid argument error: expected {size} numbers in {type_name(kind)}")
    parts = [pc.list_element(_present(values, size), i) for i in range(size)]
    return pack(node, parts)


def _numbers(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return pc.cast(values, pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values
    raise SelectorError(f"Invalid argument error: expected a number, got type {type_name(kind)}")


def _present(values: pa.Array, size: int) -> pa.Array:
    """The lists, with ``size`` nulls in place of each null list, so that every list has all elements."""
    if pa.types.is_fixed_size_list(values.type) or values.null_count == 0:
        return values
    return pc.cast(values, pa.list_(values.type.value_type, size))


class GroupedValues(NamedTuple):
    """An array in groups: group ``i`` owns ``values[offsets[i]:offsets[i + 1]]``; without offsets, one value.

    ``valid`` has one bool per group; None: all groups are valid.
    """

    values: pa.Array
    offsets: Offsets | None = None
    valid: Validity | None = None

    def of(self, before: GroupedValues) -> GroupedValues:
        """Return these groups of ``before.values`` as groups of the array that ``before`` was made from."""
        if before.offsets is None:
            return GroupedValues(self.values, self.offsets, arrays.both(before.valid, self.valid))
        offsets = before.offsets if self.offsets is None else self.offsets[before.offsets]
        valid = None if self.valid is None else arrays.any_in_group(self.valid, before.offsets)
        return GroupedValues(self.values, offsets, arrays.both(before.valid, valid))


class ListRows:
    """The elements of a list array: row ``i`` owns ``elements[offsets[i]:offsets[i + 1]]``."""

    __slots__ = ("_one_each", "elements", "offsets", "source")

    def __init__(self, source: pa.ListArray, *, whole: bool) -> None:
        """Take the elements that the visible lists span, or all stored ones if ``whole`` (for users' callables)."""
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
        """Return whether each row has one element. Then element groups are row groups: 18 % less time on IMUs."""
        if self._one_each is None:
            self._one_each = len(self.elements) == len(self.source) and arrays.is_one_each(self.offsets)
        return self._one_each

    @property
    def all_there(self) -> bool:
        """Return whether each row has one element, and no row is null."""
        return self.source.null_count == 0 and self.one_each

    def regrouped(self, groups: GroupedValues) -> pa.ListArray:
        """Return ``groups``, which were made from the elements, as one list per row."""
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
    """Whether stages record groups besides values, and the rows that the values come from."""

    groups: bool
    rows: ListRows | None = None

    @property
    def hides_nulls(self) -> bool:
        """Return whether each value is a separate row; then elements stored under a null list never show."""
        return self.rows is not None and self.rows.one_each


_VALUES = Tracking(False)
_GROUPS = Tracking(True)


def execute(pipeline: SelectorPipeline, source: pa.Array) -> pa.Array | None:
    """Evaluate ``pipeline`` on ``source``; return flat values, or None if it yields nothing."""
    groups = run(pipeline.nodes, GroupedValues(source), _VALUES)
    return None if groups is None else groups.values


def execute_per_row(pipeline: SelectorPipeline, source: pa.ListArray) -> pa.ListArray | None:
    """Evaluate ``pipeline`` on the elements of ``source``; return one list per row, or None if there is no result."""
    rows = ListRows(source, whole=holds_code(pipeline))
    groups = run(pipeline.nodes, GroupedValues(rows.elements), Tracking(True, rows))
    return None if groups is None else rows.regrouped(groups)


def missing_field(pipeline: SelectorPipeline, source: pa.ListArray) -> tuple[str, list[str]] | None:
    """Return the missing field that makes ``pipeline`` give nothing, and the names of the existing fields.

    Return None for other causes, and for selectors with callables, which run only once.
    """
    if holds_code(pipeline):
        return None
    rows = ListRows(source, whole=False)
    groups = GroupedValues(rows.elements)
    for node in pipeline.nodes:
        after = step(node, groups, Tracking(True, rows))
        if after is None:
            kind = groups.values.type
            if isinstance(node, FieldAccess) and pa.types.is_struct(kind):
                return node.name, [f.name for f in kind]
            return None
        groups = after
    return None


class SelectorTable:
    """A tree of stages. Each slot is a stage after another slot; slot 0 is the input.

    Common beginnings of selectors are computed once. This saves 3 to 7 % of the time for a lens of an IMU, and two
    thirds for a point cloud whose selectors share a callable. ``benchmarks/bench_types.py`` guards it.
    """

    __slots__ = ("_slots", "stages", "whole")

    def __init__(self) -> None:
        self.stages: list[tuple[int, Node]] = [(0, Identity())]
        self.whole = False
        self._slots: dict[tuple[int, Node], int] = {}

    def add(self, pipeline: SelectorPipeline) -> int:
        """Add a selector, and return the slot of its result."""
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
    """The results of a table's selectors on one column. They are computed on demand, each stage once."""

    __slots__ = ("_columns", "_errors", "_groups", "_rows", "_table")

    def __init__(self, table: SelectorTable, column: pa.ListArray) -> None:
        self._table = table
        self._rows = ListRows(column, whole=table.whole)
        self._groups: dict[int, GroupedValues | None] = {0: GroupedValues(self._rows.elements)}
        self._columns: dict[int, pa.ListArray | None] = {}
        self._errors: dict[int, SelectorError] = {}

    def column(self, slot: int) -> pa.ListArray | None:
        """Return the selector's list array, one list per row of the input, or None if it gives nothing.

        Raises :class:`~chunkmill.engine.errors.SelectorError`.
        """
        if slot in self._errors:
            raise self._errors[slot]
        if slot not in self._columns:
            try:
                groups = self._at(slot)
                self._columns[slot] = None if groups is None else self._rows.regrouped(groups)
            except SelectorError as error:
                self._errors[slot] = error
                raise
        return self._columns[slot]

    def one_each(self, slot: int) -> pa.Array | None:
        """Return the selector's values if each row has exactly one and no value is null, or else None.

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
    """Apply ``nodes`` in turn to ``start``."""
    groups: GroupedValues | None = start
    for node in nodes:
        groups = None if groups is None else step(node, groups, tracking)
    return groups


def step(node: Node, before: GroupedValues, tracking: Tracking) -> GroupedValues | None:
    """Apply one more stage. Raises :class:`SelectorError` if it does not fit the values."""
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
        case FieldAccess(name):
            return _field(values, name)
        case Index(position):
            return GroupedValues(element(values, position))
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
            return GroupedValues(call(name, arguments or (), values))
        case _:
            return _converted(node, values, tracking)


def _converted(node: Node, values: pa.Array, tracking: Tracking) -> GroupedValues | None:
    match node:
        case Jq():
            from .jq_program import run_jq

            outputs, offsets = run_jq(node, values)
            return GroupedValues(outputs, offsets)
        case Cast(datatype):
            return GroupedValues(cast(values, datatype))
        case Scaled(factor):
            return GroupedValues(scaled(values, factor))
        case Nanoseconds():
            return GroupedValues(nanoseconds(values))
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
    """Apply ``inner`` and its marks from left to right; a ``?`` suppresses errors before it."""
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
            f"Python callback changed the length: it got {len(values):,} values and returned {len(given):,}"
        )
    return GroupedValues(given)


def _packed(node: Pack, values: pa.Array, tracking: Tracking) -> GroupedValues | None:
    if node.by_position and not pa.types.is_struct(values.type):
        return GroupedValues(vectors(node, values))
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
            raise SelectorError("the selectors of a vector give different numbers of values")
    packed = pack(node, [p.values for p in parts])
    if node.datatype is None or not tracking.groups:
        return GroupedValues(packed)
    return GroupedValues(packed, first.offsets, reduce(arrays.both, [p.valid for p in parts]))


def _fields(kind: pa.DataType) -> str:
    return f". Available fields: [{', '.join(f.name for f in kind)}]" if pa.types.is_struct(kind) else ""


def _same_groups(a: GroupedValues, b: GroupedValues) -> bool:
    if a.offsets is None or b.offsets is None:
        return a.offsets is b.offsets and len(a.values) == len(b.values)
    return len(a.values) == len(b.values) and bool(np.array_equal(a.offsets, b.offsets))
