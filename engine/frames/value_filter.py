"""Filters that look into components, which Arrow does not compare: they are left to DataFusion, batch by batch."""

from __future__ import annotations

import operator
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
from .predicates import Term, conjuncts_of

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
    """Filters of which all must be true in the rows that are kept."""

    terms: tuple[Term, ...]

    @cached_property
    def names(self) -> list[str]:
        """The columns that they look at."""
        return sorted(frozenset().union(*(term.fields for term in self.terms)))

    @cached_property
    def expression(self) -> Expr:
        """They as DataFusion has them. Raises ``UnsupportedError`` for what it cannot be told."""
        return reduce(operator.and_, map(_expression, self.terms))

    def kept(self, batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows in which they are true, with the columns ``names``."""
        for batch in batches:
            for found in _elsewhere(lambda batch=batch: self._of(batch)):  # type: ignore[misc]
                if len(found):
                    yield _selected(found, names)

    def _of(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        # One partition: the plan is then evaluated by the thread that asks, whatever those of DataFusion wait for.
        context = SessionContext(SessionConfig().with_target_partitions(1))
        frame = context.create_dataframe([[batch]])
        return [found.cast(batch.schema) for found in frame.filter(self.expression).collect()]


def divided(predicate: pc.Expression | None, columns: AnswerColumns) -> tuple[pc.Expression | None, ValueFilter | None]:
    """The part of a predicate that the kernel evaluates, and the rest.

    The kernel knows of components whether they are null; and to Arrow, null is in no set, where SQL does not know.
    """
    terms = conjuncts_of(predicate)
    rest = [term for term in terms if _looks_into(term, columns)]
    below = [term for term in terms if not _looks_into(term, columns)]
    if not rest and not any(_asks_for_sets(term) for term in below):
        return predicate, None
    plain = reduce(operator.and_, (_of_sql(term, columns).expression for term in below)) if below else None
    return plain, ValueFilter(tuple(rest)) if rest else None


def _looks_into(term: Term, columns: AnswerColumns) -> bool:
    """Whether more is asked of a component than whether it is null."""
    if term.kind == "field":
        return columns.component(term.value) is not None
    if term.kind == "call" and term.value in ("is_null", "is_valid") and term.parts[0].kind == "field":
        return False
    return any(_looks_into(part, columns) for part in term.parts)


def _asks_for_sets(term: Term) -> bool:
    return (term.kind == "call" and term.value == "is_in") or any(map(_asks_for_sets, term.parts))


def _of_sql(term: Term, columns: AnswerColumns, *, is_whole: bool = True) -> Term:
    """A term in which null is neither in a set nor not in it; a whole filter stays, as both mean the same there."""
    if term.kind != "call" or (is_whole and term.value == "is_in"):
        return term
    parts = tuple(_of_sql(part, columns, is_whole=False) for part in term.parts)
    found = replace(term, parts=parts)
    if term.value != "is_in" or parts[0].value in (SEGMENT_ID, columns.query.index):
        return found
    unknown = Term("literal", pa.scalar(None, pa.bool_()))
    is_null = Term("call", "is_null", parts, pc.NullOptions(nan_is_null=False))
    return Term("call", "or_kleene", (found, Term("call", "and_kleene", (is_null, unknown))))


def _expression(term: Term) -> Expr:
    if term.kind == "field":
        quoted = term.value.replace('"', '""')
        return col(f'"{quoted}"')
    if term.kind == "literal":
        return lit(term.value)
    if term.kind == "call" and term.value == "is_in" and term.values is not None:
        return f.in_list(_expression(term.parts[0]), [lit(value) for value in term.values])
    if term.kind == "call" and term.value in _OPERATORS:
        found: Expr = _OPERATORS[term.value](*map(_expression, term.parts))
        return found
    raise UnsupportedError(
        f"a filter with {term.value} of a component cannot be evaluated",
        hint="Collect the rows with to_arrow_table() first, and filter them then.",
    )


def _selected(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    if not names:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(batch), pa.struct([])))
    return batch.select(list(names))


def _elsewhere(work: Callable[[], list[pa.RecordBatch]]) -> list[pa.RecordBatch]:
    """Do ``work`` in another thread: those of DataFusion may not wait for DataFusion."""
    found: list[pa.RecordBatch] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.extend(work())
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            failed.append(error)

    thread = threading.Thread(target=run, name="chunkmill-filter", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found
