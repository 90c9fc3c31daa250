"""Small chunks for the tests of this folder, and what they hold, in a form that compares."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from chunkmill.engine.chunk import Chunk, ComponentDescriptor

FLOATS = pa.list_(pa.float64())


def made(times, components="c", timelines="t", datatype=FLOATS, value=(1.0,), entity="/a"):
    """A chunk with one value in each component of each row."""
    column = pa.array([list(value)] * len(times), datatype)
    return Chunk.build(
        entity,
        {name: pa.array(np.asarray(times, np.int64)) for name in timelines},
        [(ComponentDescriptor(name), column) for name in components],
    )


def content(chunks, *, with_row_ids=True):
    """The multiset of (entity, row id, times, component, value); values that are null are not in it."""
    found = Counter()
    for chunk in chunks:
        data = chunk.data
        ids = data.row_ids.to_pylist() if with_row_ids else [None] * data.num_rows
        times = list(zip(*([(t.name, t.kind, v) for v in t.ticks.tolist()] for t in data.timelines), strict=True))
        for component in data.components:
            for row, value in enumerate(component.values.to_pylist()):
                if value is not None:
                    when = times[row] if times else ()
                    found[data.entity_path, ids[row], when, component.descriptor, repr(value)] += 1
    return found


def times_of(chunks):
    """The times of each chunk on its first timeline."""
    return [c.data.timelines[0].ticks.tolist() for c in chunks]


def lengths(chunks):
    """Rows of each chunk."""
    return [c.num_rows for c in chunks]
