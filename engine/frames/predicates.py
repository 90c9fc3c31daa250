"""Filters that DataFusion hands down, taken apart: what they are made of, and which of them decide what is read.

An expression of Arrow tells nobody what it is made of, but for its own serialisation: the metadata of a schema, whose
entries are calls, fields and literals in the order of a walk, depth first. What is read from it is put together again
and compared with the expression, so that a release of Arrow that writes it in another way is found out.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..query import SEGMENT_ID, AnswerColumns

_AND: Final = "and_kleene"
_OR: Final = "or_kleene"


@dataclass(frozen=True)
class Term:
    """A part of an expression: a ``call`` of parts, the name of a ``field``, a ``literal`` as a scalar of Arrow, or an
    expression that is ``opaque``.

    ``options`` are those of a call, as Arrow's function takes them, and ``values`` the set of ``is_in``.
    """

    kind: str
    value: Any
    parts: tuple[Term, ...] = ()
    options: pc.FunctionOptions | None = None
    values: pa.Array | None = None

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names of all fields in it, as far as they are known."""
        mine = frozenset((self.value,)) if self.kind == "field" else frozenset[str]()
        return mine.union(*(part.fields for part in self.parts))

    @cached_property
    def expression(self) -> pc.Expression:
        """It as an expression of Arrow."""
        if self.kind == "opaque":
            return self.value
        if self.kind == "field":
            return pc.field(self.value)
        if self.kind == "literal":
            return pc.scalar(self.value)
        return pc.Expression._call(self.value, [part.expression for part in self.parts], self.options)  # noqa: SLF001

    def conjuncts(self) -> Iterator[Term]:
        """The parts that must all be true."""
        if self.kind == "call" and self.value == _AND:
            for part in self.parts:
                yield from part.conjuncts()
        else:
            yield self

    def decides_what_is_read(self, columns: AnswerColumns) -> bool:
        """Whether it is of the segment, of the queried index, and of components that are null or not, alone."""
        if self.kind == "call" and self.value in ("is_valid", "is_null") and self.parts[0].kind == "field":
            return columns.component(self.parts[0].value) is not None or self.parts[0].value in _read_by(columns)
        if self.kind == "field":
            return self.value in _read_by(columns)
        return self.kind != "opaque" and all(part.decides_what_is_read(columns) for part in self.parts)


def _read_by(columns: AnswerColumns) -> tuple[str | None, ...]:
    return (SEGMENT_ID, columns.query.index)


def conjuncts_of(predicate: pc.Expression | None) -> list[Term]:
    """The filters that DataFusion joined into a predicate; None is none."""
    return [] if predicate is None else list(taken_apart(predicate).conjuncts())


def taken_apart(predicate: pc.Expression) -> Term:
    """The parts of an expression; it is ``opaque`` where they cannot be told."""
    opaque = Term("opaque", predicate)
    try:
        found = _parsed(predicate)
        return found if found.expression.equals(predicate) else opaque
    except (ValueError, KeyError, IndexError, TypeError, struct.error, pa.ArrowException):
        return opaque


def _parsed(predicate: pc.Expression) -> Term:
    with pa.ipc.open_file(predicate.__reduce__()[1][0]) as file:
        schema, values = file.schema, file.get_batch(0)
    entries = iter(_entries(schema))
    found = _term(*next(entries), entries, values)
    if next(entries, None) is not None:
        raise ValueError("not one expression")
    return found


def _term(kind: str, value: str, entries: Iterator[tuple[str, str]], values: pa.RecordBatch) -> Term:
    """The part that begins with an entry of this kind."""
    if kind == "field_ref":
        return Term("field", value)
    if kind == "literal":
        return Term("literal", values.column(int(value))[0])
    if kind != "call":
        raise ValueError(f"unknown: {kind}")
    parts: list[Term] = []
    options = members = None
    for entry in entries:
        if entry == ("end", value):
            return Term("call", value, tuple(parts), options, members)
        if entry[0] == "options":
            told = values.column(int(entry[1]))[0]
            options = _options(value, told)
            members = told["value_set"].values if value == "is_in" else None
        else:
            parts.append(_term(*entry, entries, values))
    raise ValueError(f"{value} does not end")


def _options(function: str, values: pa.StructScalar) -> pc.FunctionOptions:
    if function == "is_in":
        return pc.SetLookupOptions(values["value_set"].values, skip_nulls=False)
    if function == "is_null":
        return pc.NullOptions(nan_is_null=values["nan_is_null"].as_py())
    raise ValueError(f"unknown options of {function}")


class _ArrowSchema(ctypes.Structure):
    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _entries(schema: pa.Schema) -> list[tuple[str, str]]:
    """The metadata of a schema, in its order, as Arrow's C interface has it: pyarrow shows a key only once."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    place = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata

    def number() -> int:
        nonlocal place
        (value,) = struct.unpack("=i", ctypes.string_at(place, 4))
        place += 4
        return int(value)

    def text() -> str:
        nonlocal place
        size = number()
        value = ctypes.string_at(place, size).decode()
        place += size
        return value

    return [(text(), text()) for _ in range(number() if place else 0)]
