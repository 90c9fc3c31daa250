"""Near-duplicates: rows of a table whose vector's similarity to that of an earlier row reaches a threshold.

Rows are taken in table order. A row is a near-duplicate if it is similar to an earlier row that stays; otherwise it
stays. So no two rows that stay are similar, and each near-duplicate is similar to one that stays. Rows are compared
block by block as products of matrices: with the rows of earlier blocks that stay, inline or by Spark tasks, and then
with the rows of their own block. A process has at most two blocks in memory, and the keys of all rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ReadWarning, UsageError, check_argument
from ...execution import Body, RunOptions, Stage, Task, TaskRun, query_executor, raise_failure, warn_of
from ...lance import FragmentReader, LanceTable, keys_of
from ...units import counted
from ..search import ROW_ID
from ..targets import quoted

Numbers = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

DUPLICATE_OF: Final = "duplicate_of"
SIMILARITY: Final = "similarity"
_SEGMENT: Final = "rerun_segment_id"
_BLOCK_BYTES: Final = 32 << 20
_MOST_ROWS: Final = 8192
_FEWEST_ROWS: Final = 256
_TILE: Final = 512
"""Rows that are compared with a block at once."""
_NUMBERS_A_BYTE: Final = 64
"""How many multiplications take as long as reading a byte in a query; used to choose the executor."""
_USABLE, _NULL, _NOT_FINITE, _ZERO = range(4)
_REASONS: Final = {_NULL: "null", _NOT_FINITE: "not finite", _ZERO: "zero"}


class _Block(NamedTuple):
    """The vectors of some rows, scaled to length one, and the state of each; unusable ones are zeros."""

    units: Numbers
    states: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Vectors:
    """The vectors in a column of one version of a table. The object can be pickled."""

    table: LanceTable
    version: int
    column: str
    size: int

    def block(self, start: int, stop: int) -> _Block:
        """The vectors of the rows from ``start`` to ``stop``. Raises ``UsageError`` if a vector has another size."""
        reader = self.table.pinned(self.version)
        batches = reader.expressed({self.column: quoted(self.column)}, offset=start, limit=stop - start)
        columns = [batch.column(0) for batch in batches]
        values = pa.chunked_array(columns, reader.schema.field(self.column).type).combine_chunks()
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        return self._units(values, start)

    def _units(self, values: pa.Array, start: int) -> _Block:
        valid = np.flatnonzero(np.asarray(values.is_valid()))
        if not pa.types.is_fixed_size_list(values.type):
            sizes = np.asarray(pc.list_value_length(values.drop_null()))
            if (sizes != self.size).any():
                at = int(np.argmax(sizes != self.size))
                raise UsageError(
                    f"the column {self.column!r} has {sizes[at]} numbers in row {start + valid[at]}, not {self.size}",
                    hint="All vectors must have the same size.",
                )
        numbers = values.drop_null().flatten().to_numpy(zero_copy_only=False)
        numbers = numbers.astype(np.float64).reshape(len(valid), self.size)
        largest = np.abs(numbers).max(axis=1, initial=0.0)
        units = np.zeros((len(values), self.size))
        states = np.full(len(values), _NULL, np.uint8)
        states[valid] = np.where(np.isfinite(largest), np.where(largest > 0, _USABLE, _ZERO), _NOT_FINITE)
        usable = states[valid] == _USABLE
        scaled = numbers[usable] / largest[usable, None]  # so that the squares are finite
        units[valid[usable]] = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
        return _Block(units, states)


class _Alike(NamedTuple):
    """For each row, the number of the first similar row among others, or -1, and the similarity."""

    first: Positions
    similarity: npt.NDArray[np.float32]


def _alike(units: Numbers, others: Numbers, threshold: np.float32) -> _Alike:
    made = _Alike(np.full(len(units), -1), np.zeros(len(units), np.float32))
    for start in range(0, len(units) if len(others) else 0, _TILE):
        products = _products(units[start : start + _TILE], others)
        at = (products >= threshold).argmax(axis=1)
        rows = np.flatnonzero(products[np.arange(len(at)), at] >= threshold)
        made.first[start + rows] = at[rows]
        made.similarity[start + rows] = products[rows, at[rows]]
    return made


def _products(units: Numbers, others: Numbers) -> npt.NDArray[np.float32]:
    """Return the cosines, computed in 64 bits and rounded, so that equal vectors have exactly 1."""
    products: npt.NDArray[np.float32] = (units @ others.T).astype(np.float32)
    return products


@dataclass(frozen=True)
class _ComparisonBody(Body):
    """Tasks that each compare the rows of a block with those rows of an earlier block that stay. Picklable."""

    vectors: Vectors
    spans: tuple[tuple[int, int], ...]
    block: int
    staying: bytes
    threshold: np.float32

    def label(self, index: int) -> str:
        """The name of a task's input."""
        start, stop = self.spans[index]
        return f"rows {start} to {stop} of {self.vectors.table.place}"

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Compare the block with the block of the task's number."""
        yield from ()
        start, stop = self.spans[task.index]
        stays = np.unpackbits(np.frombuffer(self.staying, np.uint8), count=self.spans[self.block][0])
        others = np.flatnonzero(stays[start:stop])
        units = self.vectors.block(*self.spans[self.block]).units
        alike = _alike(units, self.vectors.block(start, stop).units[others], self.threshold)
        rows = np.flatnonzero(alike.first >= 0)
        firsts = start + others[alike.first[rows]]
        return {"rows": rows.tolist(), "first": firsts.tolist(), "similarity": alike.similarity[rows].tolist()}


class _Search:
    """The state of a search: for each row, the first similar row, and whether the row stays."""

    def __init__(self, vectors: Vectors, rows: int, threshold: np.float32, run: RunOptions) -> None:
        self._vectors = vectors
        self._threshold = threshold
        self._run = run
        step = min(_MOST_ROWS, max(_FEWEST_ROWS, _BLOCK_BYTES // (8 * max(vectors.size, 1))))
        self._spans = tuple((start, min(start + step, rows)) for start in range(0, rows, step))
        self._stays = np.zeros(rows, bool)
        self.first = np.full(rows, -1)
        self.similarity = np.zeros(rows, np.float32)
        self.unusable = np.zeros(len(_REASONS) + 1, np.int64)

    def search(self) -> None:
        """Compare all rows."""
        for number, (start, stop) in enumerate(self._spans):
            block = self._vectors.block(start, stop)
            self.unusable += np.bincount(block.states, minlength=len(self.unusable))
            if self._run.executor == "spark" and number:
                self._compare_by_tasks(number)
            else:
                self._compare_here(number, block.units)
            self._compare_within(start, block)

    def _compare_here(self, number: int, units: Numbers) -> None:
        """Compare the rows of a block with the rows of each earlier block, in this process."""
        start, stop = self._spans[number]
        for begin, end in self._spans[:number]:
            others = np.flatnonzero(self._stays[begin:end])
            todo = np.flatnonzero(self.first[start:stop] < 0)
            alike = _alike(units[todo], self._vectors.block(begin, end).units[others], self._threshold)
            rows = np.flatnonzero(alike.first >= 0)
            self._note(start + todo[rows], begin + others[alike.first[rows]], alike.similarity[rows])

    def _compare_by_tasks(self, number: int) -> None:
        """Compare the rows of a block with the rows of earlier blocks, one task per earlier block."""
        spans = self._spans[: number + 1]
        start, _ = spans[number]
        staying = np.packbits(self._stays[:start]).tobytes()
        body = _ComparisonBody(self._vectors, spans, number, staying, self._threshold)
        ran = Stage(body, [Task(at, body.label(at), 0) for at in range(number)]).run(self._run)
        raise_failure(ran.notes)
        warn_of(ran.notes, set())
        outcomes = [outcome for outcome in ran.outcomes() if not isinstance(outcome, Exception)]
        for outcome in reversed(outcomes):  # of several similar rows, the first one counts
            self._note(start + np.array(outcome["rows"], np.int64), outcome["first"], outcome["similarity"])

    def _compare_within(self, start: int, block: _Block) -> None:
        """Compare those rows of a block with each other that are similar to no row of earlier blocks."""
        stays = self._stays[start : start + len(block.units)]
        todo = np.flatnonzero((self.first[start : start + len(stays)] < 0) & (block.states == _USABLE))
        for begin in range(0, len(todo), _TILE):
            rows = todo[begin : begin + _TILE]
            others = np.flatnonzero(stays)
            alike = _alike(block.units[rows], block.units[others], self._threshold)
            similar = np.flatnonzero(alike.first >= 0)
            self._note(start + rows[similar], start + others[alike.first[similar]], alike.similarity[similar])
            left = rows[alike.first < 0]
            products = _products(block.units[left], block.units[left])
            for at, row in enumerate(left.tolist()):
                earlier = np.flatnonzero((products[at, :at] >= self._threshold) & stays[left[:at]])
                if len(earlier):
                    self._note(start + row, start + left[earlier[0]], products[at, earlier[0]])
                else:
                    stays[row] = True

    def _note(self, rows: Any, first: Any, similarity: Any) -> None:
        self.first[rows] = first
        self.similarity[rows] = similarity


def near_duplicates(
    table: LanceTable,
    column: str,
    threshold: float,
    key: str | Sequence[str] | None,
    executor: str | None,
) -> pa.Table:
    """The near-duplicates among the rows of a table; see :meth:`TableCuration.near_duplicates`."""
    check_argument("threshold", threshold, int, float)
    if not 0 < threshold <= 1:
        raise UsageError(f"threshold={threshold!r} is not a similarity above 0 and up to 1")
    reader = table.at()
    vectors = _vectors(table, reader, column)
    keys = _keys(reader, key)
    rows = keys.num_rows
    chosen = query_executor(executor, lambda: rows * rows * vectors.size // _NUMBERS_A_BYTE)
    search = _Search(vectors, rows, np.float32(threshold), RunOptions(chosen))
    search.search()
    reasons = [f"{search.unusable[state]:,} {reason}" for state, reason in _REASONS.items() if search.unusable[state]]
    if reasons:
        count = counted(int(search.unusable[1:].sum()), "vector")
        text = f"{table.title}, column {vectors.column!r}: {count} cannot be compared ({', '.join(reasons)})"
        warnings.warn(f"{text}; their rows do not count as duplicates", ReadWarning, stacklevel=3)
    similar = np.flatnonzero(search.first >= 0)
    others = keys.take(search.first[similar])
    of = others.column(0).combine_chunks() if keys.num_columns == 1 else others.to_struct_array().combine_chunks()
    made = keys.take(similar).append_column(DUPLICATE_OF, of)
    return made.append_column(SIMILARITY, pa.array(search.similarity[similar]))


def _vectors(table: LanceTable, reader: FragmentReader, name: str) -> Vectors:
    """The vectors of a column. Raises ``UsageError`` if it has none."""
    check_argument("column", name, str)
    if name not in reader.schema.names:
        raise UsageError(f"there is no column {name!r}", hint=f"There are: {', '.join(reader.schema.names)}.")
    kind = reader.schema.field(name).type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise UsageError(f"the column {name!r} has {kind}, not vectors", hint="A vector is a list of numbers.")
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
    if not pa.types.is_fixed_size_list(kind):
        for batch in reader.expressed({name: quoted(name)}, f"{quoted(name)} IS NOT NULL", limit=1):
            size = len(batch.column(0)[0]) if len(batch) else size
    return Vectors(table, reader.version, name, size)


def _keys(reader: FragmentReader, key: str | Sequence[str] | None) -> pa.Table:
    """Return the key columns of all rows. Raises ``UsageError`` for nulls and duplicate keys."""
    if key is None:
        own = keys_of(reader.schema)
        names = own or [_SEGMENT if _SEGMENT in reader.schema.names else ROW_ID]
    else:
        names = [key] if isinstance(key, str) else list(key)
    if unknown := [name for name in names if name not in (*reader.schema.names, ROW_ID)]:
        raise UsageError(
            f"key: there is no column {unknown[0]!r}", hint=f"There are: {', '.join(reader.schema.names)}."
        )
    if not names or any(name in (DUPLICATE_OF, SIMILARITY) for name in names):
        raise UsageError(f"key: expected columns other than {DUPLICATE_OF} and {SIMILARITY} of the result, got {names}")
    expressions = {name: quoted(name) for name in names}
    schema = reader.expressed_schema(expressions)
    keys = pa.Table.from_batches(reader.expressed(expressions), schema).combine_chunks()
    hint = "Give the columns that identify a row as key=, or _rowid."
    if any(column.null_count for column in keys.columns):
        raise UsageError(f"key: {', '.join(names)} has a null, which identifies no row", hint=hint)
    try:
        different = keys.group_by(names).aggregate([]).num_rows
    except pa.ArrowNotImplementedError:
        raise UsageError(f"key: columns of {keys.schema.field(0).type} cannot identify rows", hint=hint) from None
    if different < keys.num_rows:
        raise UsageError(f"key: {', '.join(names)} is the same in several rows", hint=hint)
    return keys
