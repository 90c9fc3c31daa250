"""The tasks of a refresh: rows of the source are read, joined with what functions gave for them, and written."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import WriteError
from ..execution import Body, Packed, TaskRun
from ..faults import reach
from ..lance import IS_SET, SOURCE_ROW, Fragment, LanceTable
from .backfill_task import BackfillBody, skipped_by
from .batching import READ_BYTES, READ_ROWS, Batching
from .checkpoints import CheckpointStore, Computed, Offsets
from .planning import Piece
from .provenance import inputs_token, token_of
from .targets import FunctionColumns
from .view_definition import ViewDefinition


def key_of(target: FunctionColumns, fragment: Fragment) -> str:
    """The key of the checkpoints of a view's column: of what the values of a fragment's rows are."""
    files = inputs_token(fragment.files_of(target.inputs))
    return f"{fragment.id:08x}-{files}-{token_of(target.name, target.token, str(target.fields[0].type))}"


@dataclass(frozen=True)
class ViewBody(Body):
    """The stage that writes rows of a view. ``most`` are the rows of a fragment; ``source`` is read at ``version``."""

    view: LanceTable
    schema: pa.Schema
    definition: ViewDefinition
    source: LanceTable
    version: int
    functions: tuple[FunctionColumns, ...]
    tasks: Packed[tuple[Piece, ...]]
    most: int | None
    job: str

    def label(self, index: int) -> str:
        """The fragments of the source whose rows a task writes."""
        first, *more = self.tasks[index]
        return f"rows of fragment {first.fragment.id}{f', and {len(more)} more' if more else ''}"

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the rows of a task's pieces, and tell of the fragments in which they are."""
        count = 0

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for piece in self.tasks[task.index]:
                for batch in self._rows(piece, told):
                    count += batch.num_rows
                    yield batch

        told: dict[str, dict[int, list[dict[str, Any]]]] = {one.name: {} for one in self.functions}
        written = self.view.written(pa.RecordBatchReader.from_batches(self.schema, rows()), "append", self.most)
        reach("view.write")
        failures = {name: [one for found in own.values() for one in found] for name, own in told.items()}
        errors = [
            self._errors(target).keep_errors(fragment, found)
            for target in self.functions
            for fragment, found in told[target.name].items()
        ]
        skipped = {name: skipped_by(found) for name, found in failures.items()}
        task.rows.note("written", {"fragments": written, "rows": count, "skipped": skipped, "errors": errors})
        yield from ()
        return {"chunks": 0, "rows": count, "bytes": 0}

    def _errors(self, target: FunctionColumns) -> BackfillBody:
        return BackfillBody(self.source, self.version, target, Batching(), Packed(()), self.job, home=self.view.place)

    def _rows(self, piece: Piece, told: dict[str, dict[int, list[dict[str, Any]]]]) -> Iterator[pa.RecordBatch]:
        store = CheckpointStore(self.view.place)
        values = {
            one.name: _KeptValues(
                store.of(key_of(one, piece.fragment), one.schema).in_order(piece.span), self.view.place
            )
            for one in self.functions
        }
        expressions = {SOURCE_ROW: "_rowid", **self.definition.expressions}
        for batch in self.source.pinned(self.version).selected(
            piece.fragment, expressions, piece.where, piece.span, rows=READ_ROWS, size=READ_BYTES
        ):
            offsets = batch.column(0).to_numpy()
            found = batch
            if piece.only is not None:
                mask = np.isin(offsets, piece.only, assume_unique=True)
                found, offsets = batch.filter(pa.array(mask)), offsets[mask]
            if not found.num_rows:
                continue
            columns = dict(zip(found.schema.names[1:], found.columns[1:], strict=True))
            columns[SOURCE_ROW] = columns[SOURCE_ROW].cast(pa.int64())
            columns[IS_SET] = pa.repeat(pa.scalar(value=True), len(offsets))
            for name, kept in values.items():
                columns[name], failures = kept.take(offsets)
                if failures:
                    told[name].setdefault(piece.fragment.id, []).extend(failures)
            yield pa.RecordBatch.from_arrays(
                [_as(columns.get(field.name), field, len(offsets)) for field in self.schema], schema=self.schema
            )


class _KeptValues:
    """The values of a column that checkpoints of a fragment have, handed out in the order of rows."""

    def __init__(self, pieces: Iterator[Computed], place: str) -> None:
        self._pieces = pieces
        self._place = place
        self._held: list[Computed] = []

    def take(self, offsets: Offsets) -> tuple[pa.Array, list[dict[str, Any]]]:
        """The values of rows, all after those that were taken before, and what failed in them."""
        last = int(offsets[-1])
        while not self._held or int(self._held[-1].offsets[-1]) < last:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._held.append(piece)
        if not self._held:
            raise self._lost()
        all_ = Computed.joined(self._held)
        at: npt.NDArray[np.int64] = np.minimum(np.searchsorted(all_.offsets, offsets), len(all_) - 1)
        if (all_.offsets[at] != offsets).any():
            raise self._lost()
        values = all_.values.column(0)
        is_run = len(at) == int(at[-1]) - int(at[0]) + 1
        taken = values.slice(int(at[0]), len(at)) if is_run else values.take(pa.array(at))
        self._held = [all_] if int(all_.offsets[-1]) > last else []
        wanted = set(offsets.tolist()) if all_.failures else set()
        return taken, [one for one in all_.failures if (one["row_address"] & 0xFFFFFFFF) in wanted]

    def _lost(self) -> WriteError:
        return WriteError(
            "checkpoints of the view went while they were put together",
            path=self._place,
            hint="Nothing was committed; refresh it again.",
            transient=True,
        )


def _as(column: pa.Array | None, field: pa.Field, rows: int) -> pa.Array:
    """A column as the view has it; nulls where the query has none of that name."""
    if column is None:
        return pa.nulls(rows, field.type)
    return column if column.type == field.type else column.cast(field.type)
