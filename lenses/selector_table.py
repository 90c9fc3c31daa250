"""The selectors over one component, evaluated together: what several begin with is computed once."""

from __future__ import annotations

import pyarrow as pa

from .selector.evaluation import Groups, Rows, Tracking, step
from .selector.syntax import Node, Pipeline, holds_code


class SelectorTable:
    """A tree of stages: each slot is one stage behind another slot; slot 0 is the input itself."""

    __slots__ = ("_slots", "stages", "whole")

    def __init__(self) -> None:
        self.stages: list[tuple[int, Node | None]] = [(0, None)]
        self.whole = False
        self._slots: dict[tuple[int, Node], int] = {}

    def add(self, pipeline: Pipeline) -> int:
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
        self._rows = Rows(column, whole=table.whole)
        self._groups: dict[int, Groups | None] = {0: self._rows.start()}
        self._columns: dict[int, pa.ListArray | None] = {}

    def column(self, slot: int) -> pa.ListArray | None:
        """The selector's list array, one list a row of the input; None where it gives nothing.

        Raises :class:`~chunkmill.engine.errors.SelectorError`.
        """
        if slot not in self._columns:
            found = self._at(slot)
            self._columns[slot] = None if found is None else self._rows.regrouped(found)
        return self._columns[slot]

    def one_each(self, slot: int) -> pa.Array | None:
        """The selector's values where each row of the input has just one, and none is null; else None.

        Raises :class:`~chunkmill.engine.errors.SelectorError`.
        """
        found = self._at(slot)
        if found is None or found.offsets is not None or found.valid is not None or not self._rows.all_there:
            return None
        return None if found.values.null_count else found.values

    def _at(self, slot: int) -> Groups | None:
        path = []
        while slot not in self._groups:
            path.append(slot)
            slot = self._table.stages[slot][0]
        found = self._groups[slot]
        for slot in reversed(path):
            node = self._table.stages[slot][1]
            assert node is not None
            found = None if found is None else step(node, found, Tracking(True, self._rows))
            self._groups[slot] = found
        return found
