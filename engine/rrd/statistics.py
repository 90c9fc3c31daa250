"""Statistics of values: bounds, counts and few distinct texts of components' leaves, one cell a zone and leaf.

A **leaf** is a path in the values of a component: fields of structs by name (``.x``), elements of fixed-size lists of
up to 16 by place (``[0]``), all elements of other lists together (``[]``). It holds numbers, booleans or texts. Lists
of ``uint8`` are bytes, and have no leaves.

A **zone** is a chunk, or consecutive small chunks of an entity with about 256 rows in total, so that statistics do not
grow with the number of chunks (``benchmarks/bench_find.py``).

A piece of statistics belongs to the piece of times (:mod:`.times`) of the same chunks. It has the bytes of two columns,
like a piece of times: ``about``, as JSON, has the leaves, the number of cells of each, the texts, and the number of
chunks in zones; ``cells`` has the zones of these chunks, and then each field of all cells. Bounds are 32-bit floats
(64-bit floats for 64-bit integers), rounded outward: no value is outside them. NaN does not count for bounds; a flag
notes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import ChunkData
from ..limits import MIB
from .chunk_table import Integers

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[Any]

MOST_ELEMENTS: Final = 16
"""The size of lists up to which each element is a separate leaf."""

_MOST_LEAVES: Final = 64
"""The most leaves of a component with statistics."""

_MOST_TEXTS: Final = 16
_MOST_TEXTS_OF_PIECE: Final = 256
_LONGEST_TEXT: Final = 64
"""Limits of listed texts: their number in a chunk and in a piece, and the bytes of a text."""

_LONG_TEXTS: Final = 512
"""Above this many texts a chunk on average, each chunk's distinct texts are found separately."""

_TRIED: Final = 1024
"""The first texts: if too many of these are distinct, the others are not read."""

_MANY: Final = 255
"""The number of texts of a cell that does not list them."""

_HELD_BYTES: Final = 8 * MIB
_HELD_CHUNKS: Final = 4096
"""Bytes and number of chunks that wait to be reduced together."""

_ZONE_ROWS: Final = 256
"""A chunk with this many rows is its own zone."""

_BLOCK: Final = 64
_LONG: Final = 1024
"""Above this many values, a zone's bounds are found separately, in blocks."""

_FEW_BYTES: Final = 1 << 16
"""Leaves of up to this many bytes are reduced together."""

_HAS_NAN: Final = 1


class LeafStatistics(NamedTuple):
    """Statistics of a leaf in some chunks.

    Each chunk has the statistics of its zone, which may have more values. If ``is_known`` is false, a chunk may have
    any values. Values that are neither null nor NaN are from ``low`` to ``high``; without such values, ``low`` is
    larger. ``num_values`` counts values that are not null, ``nulls`` null values and rows without a value. ``texts``
    are all texts, or None if they are not listed.
    """

    is_known: Mask
    low: Floats
    high: Floats
    num_values: Integers
    nulls: Integers
    has_nan: Mask
    texts: list[frozenset[str] | None]

    @classmethod
    def unknown(cls, chunks: int) -> LeafStatistics:
        """The statistics of chunks with unknown values."""
        none = np.zeros(chunks, np.bool_)
        return cls(
            none,
            np.full(chunks, np.inf),
            np.full(chunks, -np.inf),
            np.zeros(chunks, np.int64),
            np.zeros(chunks, np.int64),
            none.copy(),
            [None] * chunks,
        )


# --- which leaves there are


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def field_path(name: str) -> str:
    """The part of a path for a field of a struct.

    >>> field_path("x"), field_path("a b")
    ('.x', '."a b"')
    """
    return f".{name}" if name.isidentifier() else f".{json.dumps(name, ensure_ascii=False)}"


def has_leaves(kind: pa.DataType) -> bool:
    """Return whether values of a type have a leaf."""
    if pa.types.is_struct(kind):
        return any(has_leaves(field.type) for field in kind)
    if _is_list(kind) or pa.types.is_fixed_size_list(kind):
        is_bytes = kind.value_type == pa.uint8() and not 0 < getattr(kind, "list_size", 0) <= MOST_ELEMENTS
        return not is_bytes and has_leaves(kind.value_type)
    return _is_number(kind) or _is_text(kind)


def leaf_paths(kind: pa.DataType, path: str = "") -> Iterator[str]:
    """The paths of the leaves of values of a type.

    >>> list(leaf_paths(pa.struct({"a": pa.list_(pa.float32(), 2), "b": pa.list_(pa.string())})))
    ['.a[0]', '.a[1]', '.b[]']
    """
    if not has_leaves(kind):
        return
    if pa.types.is_struct(kind):
        for field in kind:
            yield from leaf_paths(field.type, path + field_path(field.name))
    elif pa.types.is_fixed_size_list(kind) and 0 < kind.list_size <= MOST_ELEMENTS:
        for place in range(kind.list_size):
            yield from leaf_paths(kind.value_type, f"{path}[{place}]")
    elif pa.types.is_fixed_size_list(kind) or _is_list(kind):
        yield from leaf_paths(kind.value_type, path + "[]")
    else:
        yield path


# --- writing

_FIELDS: Final[dict[str, np.dtype[Any]]] = {
    "member": np.dtype("<u4"),
    "member_zone": np.dtype("<u4"),
    "zone": np.dtype("<u4"),
    "count": np.dtype("<u4"),
    "nulls": np.dtype("<u4"),
    "flags": np.dtype("u1"),
    "low": np.dtype("<f4"),
    "high": np.dtype("<f4"),
    "wide_low": np.dtype("<f8"),
    "wide_high": np.dtype("<f8"),
    "texts": np.dtype("u1"),
    "codes": np.dtype("<u4"),
}
"""The fields in stored order: chunks in zones, their zones, and fields of all cells, of bounds, and of texts."""

_NUMBERS: Final = "numbers"
_WIDE: Final = "wide"
_TEXTS: Final = "texts"
_KINDS: Final = {_NUMBERS: ("low", "high"), _WIDE: ("wide_low", "wide_high"), _TEXTS: ("texts",)}
"""The kinds of leaves, and the fields that only their cells have."""

_COUNTED: Final = np.iinfo(np.uint32).max

Cells = dict[str, Numbers]
"""The fields of the cells of a leaf."""


class _Group(NamedTuple):
    """Values of zones: ``zones[i]`` has the values in ``range(ends[i], ends[i + 1])``, and ``nulls[i]`` nulls."""

    zones: Integers
    values: pa.Array
    ends: Integers
    nulls: Integers

    def present(self) -> _Group:
        """The group without null values, which are counted."""
        if not self.values.null_count:
            return self
        is_valid = self.values.is_valid()
        ends = _sums(is_valid.to_numpy(zero_copy_only=False))[self.ends]
        nulls = self.nulls + np.diff(self.ends) - np.diff(ends)
        return _Group(self.zones, self.values.filter(is_valid), ends, nulls)

    def elements(self) -> _Group:
        """The elements of its lists; an empty or null list counts as a null."""
        lists, rows = self.values, len(self.values)
        if pa.types.is_list(lists.type) and rows and not lists.null_count:
            offsets = np.frombuffer(lists.buffers()[1], np.int32, rows + 1, 4 * lists.offset)
            lengths = offsets[1:] - offsets[:-1]
            ends = offsets[self.ends].astype(np.int64) - int(offsets[0])
        else:
            lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
            ends = _sums(lengths)[self.ends]
        nulls = self.nulls
        if not lengths.all():
            nulls = nulls + np.diff(_sums(lengths == 0)[self.ends])
        return _Group(self.zones, lists.flatten(), ends, nulls)


def _sums(sizes: Numbers) -> Integers:
    sums = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=sums[1:])
    return sums


def _zone_firsts(ends: Integers, entities: Integers) -> Integers:
    """The first chunk of each zone; chunks of one entity follow one another."""
    sizes = np.diff(ends)
    begins = np.append(True, np.diff(entities) != 0)
    starts = ends[:-1] - ends[:-1][begins][np.cumsum(begins) - 1]
    begins[1:] |= np.diff(starts // _ZONE_ROWS) != 0
    is_long = sizes >= _ZONE_ROWS
    begins |= is_long
    begins[1:] |= is_long[:-1]
    return np.flatnonzero(begins)


class _Waiting(NamedTuple):
    """Values of one component: chunk numbers, the chunks' entities, and their values."""

    numbers: list[int]
    entities: list[int]
    arrays: list[pa.ListArray]


class StatisticsWriter:
    """Collects the statistics of chunks, and makes a piece of them.

    It holds the values of at most 4,096 chunks or about 8 MiB, until they are reduced.
    """

    def __init__(self) -> None:
        self._skipped: set[str] = set()
        self._cells: dict[tuple[str, str, str], list[Cells]] = {}
        self._texts: dict[tuple[str, str], dict[str, int]] = {}
        self._members: list[tuple[Integers, Integers]] = []
        self._zones = 0
        self._begin()

    def _begin(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._entities: dict[str, int] = {}
        self._held = self._chunks = 0

    def add(self, number: int, data: ChunkData, held: int = 0) -> None:
        """Add chunk ``number``. Each of its columns keeps ``held`` bytes in memory; 0: only its own bytes."""
        waiting = self._waiting
        entity = self._entities.setdefault(data.entity_path, len(self._entities))
        size = held
        for component in data.components:
            name = component.descriptor.component
            if name in self._skipped:
                continue
            values = component.values
            some = waiting.get(name)
            if some is None:
                if not has_leaves(values.type.value_type):
                    self._skipped.add(name)
                    continue
                some = waiting[name] = _Waiting([], [], [])
            some.numbers.append(number)
            some.entities.append(entity)
            some.arrays.append(values)
            if not held:
                size += values.get_total_buffer_size()
        self._held += size
        self._chunks += 1
        if self._held >= _HELD_BYTES or self._chunks >= _HELD_CHUNKS:
            self._reduce()

    def finish(self) -> dict[str, Numbers]:
        """Return the columns of the piece, and begin another piece."""
        self._reduce()
        leaves: list[tuple[str, str, str, int, list[str]]] = []
        fields: dict[str, list[Numbers]] = {name: [] for name in _FIELDS}
        for (component, path, kind), parts in self._cells.items():
            texts = list(self._texts.get((component, path), ())) if kind == _TEXTS else []
            if len(texts) > _MOST_TEXTS_OF_PIECE:
                continue
            leaves.append((component, path, kind, sum(len(cells["zone"]) for cells in parts), texts))
            for cells in parts:
                for name, values in cells.items():
                    fields[name].append(values)
        for members, zones in self._members:
            fields["member"].append(members)
            fields["member_zone"].append(zones)
        about = {"members": sum(len(members) for members, _ in self._members), "leaves": leaves}
        columns = [
            np.concatenate([np.empty(0, dtype), *fields[name]], dtype=dtype, casting="unsafe")
            for name, dtype in _FIELDS.items()
        ]
        self._cells, self._texts, self._members, self._zones = {}, {}, [], 0
        return {
            "about": np.frombuffer(json.dumps(about, ensure_ascii=False).encode(), np.uint8),
            "cells": np.frombuffer(b"".join(column.tobytes() for column in columns), np.uint8),
        }

    def _reduce(self) -> None:
        for component, waiting in self._waiting.items():
            first = waiting.arrays[0].type
            if len(waiting.arrays) == 1 or all(values.type == first for values in waiting.arrays):
                self._add(component, waiting)
                continue
            groups: dict[pa.DataType, _Waiting] = {}
            for number, entity, values in zip(*waiting, strict=True):
                group = groups.setdefault(values.type, _Waiting([], [], []))
                group.numbers.append(number)
                group.entities.append(entity)
                group.arrays.append(values)
            for some in groups.values():
                self._add(component, some)
        self._begin()

    def _add(self, component: str, waiting: _Waiting) -> None:
        arrays = waiting.arrays
        numbers, entities = np.array(waiting.numbers, np.int64), np.array(waiting.entities, np.int64)
        if len(self._entities) > 1 and (entities != entities[0]).any():
            order = np.argsort(entities, kind="stable")
            numbers, entities = numbers[order], entities[order]
            arrays = [arrays[at] for at in order.tolist()]
        values = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        ends = _sums(np.fromiter(map(len, arrays), np.int64, len(arrays)))
        firsts = _zone_firsts(ends, entities)
        zones = self._zones + np.arange(len(firsts))
        self._zones += len(firsts)
        self._members.append((numbers, np.repeat(zones, np.diff(firsts, append=len(arrays)))))
        group = _Group(zones, values, ends[np.append(firsts, len(arrays))], np.zeros(len(zones), np.int64))
        self._leaves = 0
        self._matrices: dict[tuple[int, int, np.dtype[Any]], tuple[_Group, list[str], list[Numbers]]] = {}
        self._visit(component, "", group.elements())
        for some, paths, matrices in self._matrices.values():
            joined = matrices[0] if len(matrices) == 1 else np.concatenate([each.T for each in matrices]).T
            self._add_bounds(component, paths, some, joined)

    def _visit(self, component: str, path: str, group: _Group) -> None:
        """Add the cells of all leaves at and below a path."""
        kind = group.values.type
        if self._leaves >= _MOST_LEAVES or not has_leaves(kind):
            return
        group = group.present()
        if pa.types.is_struct(kind):
            for place, field in enumerate(kind):
                self._visit(component, path + field_path(field.name), group._replace(values=group.values.field(place)))
        elif pa.types.is_fixed_size_list(kind) and 0 < kind.list_size <= MOST_ELEMENTS:
            self._elements(component, path, group, kind.list_size)
        elif pa.types.is_fixed_size_list(kind) or _is_list(kind):
            self._visit(component, path + "[]", group.elements())
        elif _is_text(kind):
            self._add_texts(component, path, group)
        else:
            self._add_numbers(component, [path], group, _numpy(group.values).reshape(-1, 1))

    def _elements(self, component: str, path: str, group: _Group, size: int) -> None:
        """Add the leaves of the elements of non-null lists of one size."""
        flat = group.values.flatten()
        if _is_number(flat.type) and not flat.null_count:
            paths = [f"{path}[{place}]" for place in range(size)]
            self._add_numbers(component, paths, group, _numpy(flat).reshape(-1, size))
            return
        for place in range(size):
            values = flat.take(pa.array(np.arange(place, len(flat), size)))
            self._visit(component, f"{path}[{place}]", group._replace(values=values))

    def _add_numbers(self, component: str, paths: Sequence[str], group: _Group, matrix: Numbers) -> None:
        """Add numbers, a row of ``matrix`` for each value; small leaves wait to be reduced together."""
        self._leaves += len(paths)
        if matrix.nbytes > _FEW_BYTES * len(paths):
            self._add_bounds(component, paths, group, matrix)
            return
        key = id(group.ends), id(group.nulls), matrix.dtype
        _, all_paths, matrices = self._matrices.setdefault(key, (group, [], []))
        all_paths += paths
        matrices.append(matrix)

    def _add_bounds(self, component: str, paths: Sequence[str], group: _Group, matrix: Numbers) -> None:
        """Add cells of numbers: a row of ``matrix`` for each value, and a column for each leaf."""
        low, high, has_nan = _bounds(matrix, group.ends)
        kind = _WIDE if matrix.dtype in (np.int64, np.uint64) else _NUMBERS
        names = _KINDS[kind]
        low, high = (_outward(some, _FIELDS[names[0]], up=up) for some, up in ((low, False), (high, True)))
        count = np.minimum(np.diff(group.ends), _COUNTED)
        nulls = np.minimum(group.nulls, _COUNTED)
        for place, path in enumerate(paths):
            flags = has_nan[:, place].astype(np.uint8)
            cells = {"zone": group.zones, "count": count, "nulls": nulls, "flags": flags}
            cells |= {names[0]: low[:, place], names[1]: high[:, place]}
            self._cells.setdefault((component, path, kind), []).append(cells)

    def _add_texts(self, component: str, path: str, group: _Group) -> None:
        self._leaves += 1
        sizes = np.diff(group.ends)
        many = np.full(len(sizes), _MANY, np.uint8)
        texts, codes = many, np.empty(0, np.int64)
        codes_of = self._texts.setdefault((component, path), {})
        if group.values.nbytes <= (_LONGEST_TEXT + 8) * len(group.values) and len(codes_of) <= _MOST_TEXTS_OF_PIECE:
            texts, codes = _coded(group, sizes, codes_of)
        cells: Cells = {
            "zone": group.zones,
            "count": np.minimum(sizes, _COUNTED),
            "nulls": np.minimum(group.nulls, _COUNTED),
            "flags": np.zeros(len(sizes), np.uint8),
            "texts": texts,
            "codes": codes,
        }
        self._cells.setdefault((component, path, _TEXTS), []).append(cells)


def _coded(group: _Group, sizes: Integers, codes_of: dict[str, int]) -> tuple[Numbers, Integers]:
    """The number of texts of each chunk, or ``_MANY``, and the codes of listed texts; new ones join ``codes_of``."""
    period = _period(group.values)
    if period and int(sizes[sizes > 0].min()) >= period:
        texts = _few_texts(group.values.slice(0, period))
        counts = np.where(sizes > 0, _MANY if texts is None else len(texts), 0).astype(np.uint8)
        new = np.array([codes_of.setdefault(text, len(codes_of)) for text in texts or ()], np.int64)
        return counts, np.tile(new, np.count_nonzero(sizes))
    if len(group.values) > _LONG_TEXTS * len(sizes):
        few = [_few_texts(group.values.slice(a, n)) for a, n in zip(group.ends.tolist(), sizes.tolist(), strict=False)]
        counts = np.array([_MANY if some is None else len(some) for some in few], np.uint8)
        numbers = [codes_of.setdefault(text, len(codes_of)) for some in few for text in some or ()]
        return counts, np.array(numbers, np.int64)
    encoded = group.values.dictionary_encode()
    count = max(len(encoded.dictionary), 1)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    pairs = np.unique(owner * count + encoded.indices.to_numpy())
    owner, codes = np.divmod(pairs, count)
    per_chunk = np.bincount(owner, minlength=len(sizes))
    is_long = np.asarray(pc.greater(pc.binary_length(encoded.dictionary), _LONGEST_TEXT))
    has_long = np.bincount(owner[is_long[codes]], minlength=len(sizes)) > 0
    is_listed = (per_chunk <= _MOST_TEXTS) & ~has_long
    used, places = np.unique(codes[is_listed[owner]], return_inverse=True)
    texts = _texts_of(encoded.dictionary.take(pa.array(used)))
    if texts is None:
        return np.full(len(sizes), _MANY, np.uint8), np.empty(0, np.int64)
    new = np.array([codes_of.setdefault(text, len(codes_of)) for text in texts], np.int64)
    return np.where(is_listed, per_chunk, _MANY).astype(np.uint8), new[places]


def _few_texts(values: pa.Array) -> list[str] | None:
    """The different texts, or None if they are many or long."""
    period = _period(values)
    if period:
        values = values.slice(0, period)
    elif len(values) > _TRIED and len(values.slice(0, _TRIED).unique()) > _MOST_TEXTS:
        return None
    texts = values.unique()
    if len(texts) > _MOST_TEXTS or (pc.max(pc.binary_length(texts)).as_py() or 0) > _LONGEST_TEXT:
        return None
    return _texts_of(texts)


def _texts_of(values: pa.Array) -> list[str] | None:
    """Texts; None if some are not in UTF-8."""
    try:
        texts: list[str] = values.to_pylist()
    except UnicodeDecodeError:
        return None
    return texts


def _period(values: pa.Array) -> int:
    """The period after which texts repeat up to the end, like joint names, or 0 if none is found.

    It compares bytes, so that texts need not be hashed.
    """
    first = values.slice(0, _MOST_TEXTS + 1).to_pylist() if len(values) > _MOST_TEXTS else []
    if not first or first[0] not in first[1:]:
        return 0
    period = first.index(first[0], 1)
    _, offsets_buffer, data = values.buffers()
    dtype = np.int64 if pa.types.is_large_string(values.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, dtype, len(values) + 1, values.offset * np.dtype(dtype).itemsize)
    step = int(offsets[period] - offsets[0])
    text = np.frombuffer(data or b"", np.uint8)[int(offsets[0]) : int(offsets[-1])]
    is_same = np.array_equal(offsets[period:] - step, offsets[:-period]) and np.array_equal(
        text[step:], text[: len(text) - step]
    )
    return period if is_same else 0


def _numpy(values: pa.Array) -> Numbers:
    """Numbers without nulls; booleans as 0 and 1."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    array: Numbers = values.to_numpy(zero_copy_only=False)
    return array


def _bounds(matrix: Numbers, ends: Integers) -> tuple[Numbers, Numbers, Mask]:
    """The lowest and highest value of each chunk and column without NaN, and whether there is a NaN.

    Without values the lowest is infinite, or the largest integer.
    """
    shape = len(ends) - 1, matrix.shape[1]
    is_float = matrix.dtype.kind == "f"
    limits = (np.inf, -np.inf) if is_float else (np.iinfo(matrix.dtype).max, np.iinfo(matrix.dtype).min)
    low, high = (np.full(shape, limit, matrix.dtype) for limit in limits)
    sizes = np.diff(ends)
    filled = np.flatnonzero(sizes)
    has_nan = np.zeros(shape, np.bool_)
    if not len(filled):
        return low, high, has_nan
    low[filled], high[filled] = _reduced(np.minimum, matrix, ends, filled), _reduced(np.maximum, matrix, ends, filled)
    if is_float:
        has_nan = np.isnan(low)
        if has_nan.any():
            low[filled], high[filled] = _reduced(np.fmin, matrix, ends, filled), _reduced(np.fmax, matrix, ends, filled)
            low[np.isnan(low)], high[np.isnan(high)] = limits
    return low, high, has_nan


def _reduced(function: np.ufunc, matrix: Numbers, ends: Integers, filled: Integers) -> Numbers:
    starts = ends[:-1][filled]
    if len(matrix) < _LONG * len(filled):
        columns = np.ascontiguousarray(matrix.T)  # a row for each leaf, with contiguous values
        return np.asarray(function.reduceat(columns, starts, axis=1)).T
    return np.stack([_of_long(function, matrix[ends[at] : ends[at + 1]]) for at in filled.tolist()])


def _of_long(function: np.ufunc, matrix: Numbers) -> Numbers:
    """Reduce the columns of a matrix, many rows at once, so that whole vectors are compared."""
    width = matrix.shape[1]
    whole = len(matrix) // _BLOCK * _BLOCK
    parts = [matrix[whole:]]
    if whole:
        parts.append(function.reduce(matrix[:whole].reshape(-1, _BLOCK * width), axis=0).reshape(_BLOCK, width))
    reduced: Numbers = function.reduce(np.concatenate(parts), axis=0)
    return reduced


_EXACT: Final = float(1 << 53)


def _outward(values: Numbers, dtype: np.dtype[Any], *, up: bool) -> Numbers:
    """Values as floats, rounded up, or with ``up`` false down."""
    end = np.inf if up else -np.inf
    exact = values.astype(np.float64)
    if values.dtype in (np.int64, np.uint64):
        exact = np.where(np.abs(exact) >= _EXACT, np.nextafter(exact, end), exact)
    if dtype == np.float64:
        return exact
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    is_inside = rounded < exact if up else rounded > exact
    return np.where(is_inside, np.nextafter(rounded, np.float32(end)), rounded)


# --- reading


class PieceStatistics:
    """The statistics of a piece. Raises ``ValueError`` or ``KeyError`` for invalid columns."""

    def __init__(self, about: bytes, cells: bytes) -> None:
        self._leaves: dict[tuple[str, str], list[tuple[str, dict[str, slice], list[str]]]] = {}
        counts = dict.fromkeys(_FIELDS, 0)
        given = json.loads(about)
        counts["member"] = counts["member_zone"] = int(given["members"])
        for component, path, kind, count, texts in given["leaves"]:
            places = {}
            for name in ("zone", "count", "nulls", "flags", *_KINDS[kind]):
                places[name] = slice(counts[name], counts[name] + int(count))
                counts[name] += int(count)
            self._leaves.setdefault((component, path), []).append((kind, places, texts))
        self._fields: dict[str, Numbers] = {}
        offset = 0
        for name, dtype in _FIELDS.items():
            if name == "codes":
                listed = self._fields["texts"]
                counts[name] = int(listed[listed != _MANY].sum(dtype=np.int64))
            self._fields[name] = np.frombuffer(cells, dtype, counts[name], offset)
            offset += counts[name] * dtype.itemsize
        if offset != len(cells):
            raise ValueError(f"its cells have {len(cells):,} bytes instead of {offset:,}")
        zones = np.concatenate([self._fields["member_zone"], self._fields["zone"]])
        if len(zones) and zones.max() >= counts["member"]:
            raise ValueError("a cell refers to a chunk that does not exist")

    @property
    def leaves(self) -> list[tuple[str, str]]:
        """The components and paths of all leaves."""
        return list(self._leaves)

    def add_to(self, leaf: LeafStatistics, component: str, path: str, chunks: Integers, owners: Integers) -> None:
        """Add known statistics of a leaf to ``leaf``, for chunks by number; ``owners`` are the chunks' places in it."""
        for kind, places, texts in self._leaves.get((component, path), []):
            fields = {name: self._fields[name][place] for name, place in places.items()}
            cells, into = self._cells_of(fields["zone"], chunks, owners)
            if not len(cells):
                continue
            leaf.is_known[into] = True
            leaf.num_values[into] += fields["count"][cells]
            leaf.nulls[into] += fields["nulls"][cells]
            if kind == _TEXTS:
                for at, place in zip(cells.tolist(), into.tolist(), strict=True):
                    codes = self._codes(places["texts"].start + at)
                    if codes and max(codes) >= len(texts):
                        raise ValueError("a cell refers to a text that does not exist")
                    leaf.texts[place] = None if codes is None else frozenset(texts[code] for code in codes)
                continue
            low, high = _KINDS[kind]
            leaf.low[into] = np.minimum(leaf.low[into], fields[low][cells])
            leaf.high[into] = np.maximum(leaf.high[into], fields[high][cells])
            leaf.has_nan[into] |= (fields["flags"][cells] & _HAS_NAN) > 0

    def _cells_of(self, zones: Integers, chunks: Integers, owners: Integers) -> tuple[Integers, Integers]:
        """The cell of each chunk that is in one of these zones, and the chunk's owner."""
        members, member_zones = self._fields["member"], self._fields["member_zone"]
        cell_of = np.full(len(members), -1)  # zones are numbered from 0 on, and each has a chunk
        cell_of[zones] = np.arange(len(zones))
        owner_of = np.full(int(chunks.max(initial=-1)) + 1, -1)
        owner_of[chunks] = owners
        is_asked = members < len(owner_of)
        cells, into = cell_of[member_zones[is_asked]], owner_of[members[is_asked]]
        is_one = (cells >= 0) & (into >= 0)
        return cells[is_one], into[is_one]

    def _codes(self, cell: int) -> list[int] | None:
        """The codes of the texts of a cell."""
        count = int(self._fields["texts"][cell])
        if count == _MANY:
            return None
        start = int(self._code_ends[cell])
        codes: list[int] = self._fields["codes"][start : start + count].tolist()
        return codes

    @cached_property
    def _code_ends(self) -> Integers:
        counts = self._fields["texts"].astype(np.int64)
        return _sums(np.where(counts == _MANY, 0, counts))
