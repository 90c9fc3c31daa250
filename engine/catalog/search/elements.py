"""Elements of a component: the rows of a search index, from the chunks of layers."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...chunk import ChunkData
from ...errors import ReadError, UsageError
from ...execution import Body, TaskRun
from ...lance import ENTRY, INSTANCE, IndexTable
from ...locations import located
from ...optimisation import ChunkReferences
from ...recordings import RecordingEntry, RecordingsFolder

TIMEPOINT: Final = "timepoint"
"""The column with the value of the time index. In search results it has the name of the index."""

Numbered = tuple[int, RecordingEntry]
"""A layer and its number in the index's rows."""


@dataclass(frozen=True)
class Elements:
    """The elements of a component that have a time on an index. Their type is ``instance``.

    Vectors are ``fixed_size_list``. If the component's lists hold numbers, each list is a vector, otherwise each
    element.
    """

    entity: str
    component: str
    index: str
    timepoint: pa.DataType
    instance: pa.DataType

    @property
    def schema(self) -> pa.Schema:
        """The columns of an index."""
        return pa.schema(
            [
                ("rerun_segment_id", pa.string()),
                ("rerun_segment_layer", pa.string()),
                ("chunk_id", pa.binary(16)),
                (TIMEPOINT, self.timepoint),
                ("instance_id", pa.uint32()),
                (INSTANCE, self.instance),
                (ENTRY, pa.uint32()),
            ]
        )

    def of_layer(self, folder: RecordingsFolder, numbered: Numbered) -> Iterator[pa.RecordBatch]:
        """The rows of a layer, by chunk. Raises ``ReadError``, and ``UsageError`` for vectors of different lengths."""
        number, entry = numbered
        if not entry.chunks:
            return
        references = folder.references(entry)
        for data in references.read(self.chunks_of(references)):
            batch = self._of_chunk(data, number, entry)
            if batch.num_rows:
                yield batch

    def chunks_of(self, references: ChunkReferences) -> npt.NDArray[np.int64]:
        """The chunks with the component and the index."""
        table = references.table
        codes, paths = table.entity_codes
        if self.entity not in paths:
            return np.empty(0, np.int64)
        parts, lines = table.components, table.timelines
        wanted = [i for i, descriptor in enumerate(parts.descriptors) if descriptor.component == self.component]
        indexes = [i for i, (name, _) in enumerate(lines.keys) if name == self.index]
        are = (codes == paths.index(self.entity)) & ~table.is_static
        return np.flatnonzero(
            are & _having(parts.ends, parts.codes, wanted) & _having(lines.ends, lines.codes, indexes)
        )

    def _of_chunk(self, data: ChunkData, number: int, entry: RecordingEntry) -> pa.RecordBatch:
        times = next(line.times for line in data.timelines if line.name == self.index)
        values = next(
            component.values for component in data.components if component.descriptor.component == self.component
        )
        rows, instances, elements = self._cut(values)
        count = len(elements)
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(entry.recording_id, count),
                pa.repeat(entry.layer, count),
                pa.repeat(pa.scalar(data.chunk_id, pa.binary(16)), count),
                times.take(rows).cast(self.timepoint),
                instances.cast(pa.uint32()),
                elements,
                pa.repeat(pa.scalar(number, pa.uint32()), count),
            ],
            schema=self.schema,
        )

    def _cut(self, values: pa.ListArray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """The row, the place in the row's list and the value of each element that is not null."""
        lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0), dtype=np.int64)
        rows = np.repeat(np.arange(len(values)), lengths)
        places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        elements = pc.list_flatten(values)
        if not pa.types.is_fixed_size_list(self.instance):
            mask = elements.is_valid()
            return pa.array(rows).filter(mask), pa.array(places).filter(mask), elements.filter(mask).cast(self.instance)
        if is_number(elements.type):
            lists, rows, places = values, np.arange(len(values)), np.zeros(len(values), np.int64)
        else:
            lists = elements
        mask = self._vectors_in(lists)
        cells = pc.list_flatten(lists.filter(mask)).cast(self.instance.value_type)
        vectors = pa.FixedSizeListArray.from_arrays(cells, type=self.instance)
        return pa.array(rows).filter(mask), pa.array(places).filter(mask), vectors

    def _vectors_in(self, lists: pa.Array) -> pa.Array:
        """The mask of the lists that are vectors: not null, not empty, and without a null."""
        size = self.instance.list_size
        lengths = pc.fill_null(pc.list_value_length(lists), 0)
        other = lengths.filter(pc.and_(pc.not_equal(lengths, 0), pc.not_equal(lengths, size)))
        if len(other):
            raise UsageError(
                f"{self.entity}:{self.component} has vectors of {other[0]} and of {size} numbers",
                hint="All vectors of an index must have the same length.",
            )
        mask = np.asarray(pc.equal(lengths, size), dtype=bool)
        cells = pc.list_flatten(lists)
        if cells.null_count:
            owners = np.repeat(np.arange(len(lists)), np.asarray(lengths, dtype=np.int64))
            mask = mask & ~np.isin(np.arange(len(lists)), owners[np.asarray(cells.is_null(), dtype=bool)])
        return pa.array(mask)


@dataclass(frozen=True, slots=True)
class ElementsBody(Body):
    """The stage that writes the rows of layers into files of an index's table. Each task writes some layers."""

    elements: Elements
    store: str
    table: str
    name: str
    groups: tuple[tuple[Numbered, ...], ...]

    def label(self, index: int) -> str:
        """The layers of a task."""
        first = self.groups[index][0][1].recording_id
        return first if len(self.groups[index]) == 1 else f"{first} and {len(self.groups[index]) - 1} more"

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the rows of some layers, and note their files."""
        folder = RecordingsFolder(self.store)
        batches = (batch for layer in self.groups[task.index] for batch in layer_rows(self.elements, folder, layer))
        first = next(batches, None)
        if first is not None:
            table = IndexTable(located(self.table), self.name)
            for fragment in table.written(_chained(first, batches), self.elements.schema):
                task.rows.note("fragment", {"fragment": fragment})
        yield from ()
        return {}


def layer_rows(elements: Elements, folder: RecordingsFolder, numbered: Numbered) -> Iterator[pa.RecordBatch]:
    """The rows of a layer. Errors name the layer."""
    try:
        yield from elements.of_layer(folder, numbered)
    except (ReadError, UsageError) as error:
        error.message += f", in segment {numbered[1].recording_id}"
        raise


def first_length(elements: Elements, folder: RecordingsFolder, layers: Sequence[RecordingEntry]) -> int | None:
    """The length of the first list that is not empty, which all vectors must have."""
    for entry in layers:
        if not entry.chunks:
            continue
        references = folder.references(entry)
        for data in references.read(elements.chunks_of(references)):
            values = next(
                component.values
                for component in data.components
                if component.descriptor.component == elements.component
            )
            lists = values if is_number(values.type.value_type) else pc.list_flatten(values)
            lengths = pc.list_value_length(lists)
            positive = lengths.filter(pc.greater(pc.fill_null(lengths, 0), 0))
            if len(positive):
                return int(positive[0].as_py())
    return None


def is_number(type_: pa.DataType) -> bool:
    """Return whether vectors may be made of values of this type."""
    return bool(pa.types.is_floating(type_) or pa.types.is_integer(type_))


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _having(ends: npt.NDArray[np.int64], codes: npt.NDArray[np.int64], wanted: list[int]) -> npt.NDArray[np.bool_]:
    """The mask of the rows with at least one wanted cell."""
    mask = np.zeros(len(ends) - 1, np.bool_)
    mask[np.repeat(np.arange(len(mask)), np.diff(ends))[np.isin(codes, wanted)]] = True
    return mask
