"""Filters from DataFusion: filters that choose chunks, and filters that compare component values.

An Arrow expression shows its parts only in its serialisation: the metadata of a schema, whose entries are calls, fields
and literals in depth-first order. The parsed parts are joined again and compared with the expression, to detect an
Arrow release that serialises it differently.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import Expr, SessionConfig, SessionContext, col, lit
from datafusion import functions as f

from ..errors import UnsupportedError
from ..query import SEGMENT_ID, AnswerColumns

_AND: Final = "and_kleene"
_OR: Final = "or_kleene"


@dataclass(frozen=True)
class Term:
    """A part of an expression: a ``call`` of parts, the name of a ``field``, a ``literal`` as an Arrow scalar, or an
    ``opaque`` expression.

    ``options`` are the options of a call for Arrow's function, and ``values`` is the set of ``is_in``.
    """

    kind: str
    value: Any
    parts: tuple[Term, ...] = ()
    options: pc.FunctionOptions | None = None
    values: pa.Array | None = None

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names of all known fields in the term."""
        mine = frozenset((self.value,)) if self.kind == "field" else frozenset[str]()
        return mine.union(*(part.fields for part in self.parts))

    @cached_property
    def expression(self) -> pc.Expression:
        """The term as an Arrow expression."""
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
        """Return whether the term depends only on the segment, the queried index, and whether components are null."""
        if self.kind == "call" and self.value in ("is_valid", "is_null") and self.parts[0].kind == "field":
            return columns.component(self.parts[0].value) is not None or self.parts[0].value in _read_by(columns)
        if self.kind == "field":
            return self.value in _read_by(columns)
        return self.kind != "opaque" and all(part.decides_what_is_read(columns) for part in self.parts)


def _read_by(columns: AnswerColumns) -> tuple[str | None, ...]:
    return (SEGMENT_ID, columns.query.index)


def conjuncts_of(predicate: pc.Expression | None) -> list[Term]:
    """The filters that DataFusion joined into a predicate; empty for None."""
    return [] if predicate is None else list(taken_apart(predicate).conjuncts())


def taken_apart(predicate: pc.Expression) -> Term:
    """Return the parts of an expression; ``opaque`` if it cannot be parsed."""
    opaque = Term("opaque", predicate)
    try:
        term = _parsed(predicate)
        return term if term.expression.equals(predicate) else opaque
    except (ValueError, KeyError, IndexError, TypeError, struct.error, pa.ArrowException):
        return opaque


def _parsed(predicate: pc.Expression) -> Term:
    with pa.ipc.open_file(predicate.__reduce__()[1][0]) as file:
        schema, values = file.schema, file.get_batch(0)
    entries = iter(_entries(schema))
    term = _term(*next(entries), entries, values)
    if next(entries, None) is not None:
        raise ValueError("not one expression")
    return term


def _term(kind: str, value: str, entries: Iterator[tuple[str, str]], values: pa.RecordBatch) -> Term:
    """The term that begins with an entry of this kind."""
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
            fields = values.column(int(entry[1]))[0]
            options = _options(value, fields)
            members = fields["value_set"].values if value == "is_in" else None
        else:
            parts.append(_term(*entry, entries, values))
    raise ValueError(f"{value} is incomplete")


def _options(function: str, values: pa.StructScalar) -> pc.FunctionOptions:
    if function == "is_in":
        return pc.SetLookupOptions(values["value_set"].values, skip_nulls=False)
    if function == "is_null":
        return pc.NullOptions(nan_is_null=values["nan_is_null"].as_py())
    raise ValueError(f"unknown options of {function}")


class _ArrowSchema(ctypes.Structure):
    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _entries(schema: pa.Schema) -> list[tuple[str, str]]:
    """The ordered metadata of a schema, from Arrow's C interface, as pyarrow drops repeated keys."""
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


_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "add_checked": operator.add,
    "and_kleene": operator.and_,
    "divide_checked": operator.truediv,
    "equal": operator.eq,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "invert": operator.invert,
    "is_null": lambda value: value.is_null(),
    "is_valid": lambda value: value.is_not_null(),
    "less": operator.lt,
    "less_equal": operator.le,
    "multiply_checked": operator.mul,
    "not_equal": operator.ne,
    "or_kleene": operator.or_,
    "subtract_checked": operator.sub,
}


@dataclass(frozen=True)
class ValueFilter:
    """Filters that a row must pass."""

    terms: tuple[Term, ...]

    @cached_property
    def names(self) -> list[str]:
        """The columns of the filters."""
        return sorted(frozenset().union(*(term.fields for term in self.terms)))

    @cached_property
    def expression(self) -> Expr:
        """The filters as a DataFusion expression.

        Raises ``UnsupportedError`` for a filter that DataFusion cannot express.
        """
        return reduce(operator.and_, map(_expression, self.terms))

    def kept(self, batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows that pass the filters, with the columns ``names``."""
        for batch in batches:
            for rows in _elsewhere(lambda batch=batch: self._of(batch)):  # type: ignore[misc]
                if len(rows):
                    yield _selected(rows, names)

    def _of(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        # With one partition, the calling thread evaluates the plan, even if DataFusion's threads wait.
        context = SessionContext(SessionConfig().with_target_partitions(1))
        frame = context.create_dataframe([[batch]])
        return [rows.cast(batch.schema) for rows in frame.filter(self.expression).collect()]


def divided(predicate: pc.Expression | None, columns: AnswerColumns) -> tuple[pc.Expression | None, ValueFilter | None]:
    """The part of a predicate that the kernel evaluates, and the rest.

    The kernel knows only whether components are null. In Arrow, null is in no set; in SQL, the result is null.
    """
    terms = conjuncts_of(predicate)
    rest = [term for term in terms if _looks_into(term, columns)]
    below = [term for term in terms if not _looks_into(term, columns)]
    if not rest and not any(_asks_for_sets(term) for term in below):
        return predicate, None
    plain = reduce(operator.and_, (_of_sql(term, columns).expression for term in below)) if below else None
    return plain, ValueFilter(tuple(rest)) if rest else None


def _looks_into(term: Term, columns: AnswerColumns) -> bool:
    """Return whether a component is compared, and not only tested for null."""
    if term.kind == "field":
        return columns.component(term.value) is not None
    if term.kind == "call" and term.value in ("is_null", "is_valid") and term.parts[0].kind == "field":
        return False
    return any(_looks_into(part, columns) for part in term.parts)


def _asks_for_sets(term: Term) -> bool:
    return (term.kind == "call" and term.value == "is_in") or any(map(_asks_for_sets, term.parts))


def _of_sql(term: Term, columns: AnswerColumns, *, is_whole: bool = True) -> Term:
    """A term in which ``is_in`` of null is null. A filter that is only an ``is_in`` stays."""
    if term.kind != "call" or (is_whole and term.value == "is_in"):
        return term
    parts = tuple(_of_sql(part, columns, is_whole=False) for part in term.parts)
    rewritten = replace(term, parts=parts)
    if term.value != "is_in" or parts[0].value in (SEGMENT_ID, columns.query.index):
        return rewritten
    unknown = Term("literal", pa.scalar(None, pa.bool_()))
    is_null = Term("call", "is_null", parts, pc.NullOptions(nan_is_null=False))
    return Term("call", "or_kleene", (rewritten, Term("call", "and_kleene", (is_null, unknown))))


def _expression(term: Term) -> Expr:
    if term.kind == "field":
        quoted = term.value.replace('"', '""')
        return col(f'"{quoted}"')
    if term.kind == "literal":
        return lit(term.value)
    if term.kind == "call" and term.value == "is_in" and term.values is not None:
        return f.in_list(_expression(term.parts[0]), [lit(value) for value in term.values])
    if term.kind == "call" and term.value in _OPERATORS:
        expression: Expr = _OPERATORS[term.value](*map(_expression, term.parts))
        return expression
    raise UnsupportedError(
        f"a filter cannot evaluate {term.value} of a component",
        hint="Collect the rows with to_arrow_table() first, and then filter them.",
    )


def _selected(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    if not names:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(batch), pa.struct([])))
    return batch.select(list(names))


def _elsewhere(work: Callable[[], list[pa.RecordBatch]]) -> list[pa.RecordBatch]:
    """Do ``work`` in another thread: DataFusion's threads must not wait for DataFusion."""
    batches: list[pa.RecordBatch] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            batches.extend(work())
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            failed.append(error)

    thread = threading.Thread(target=run, name="chunkmill-filter", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return batches
