"""Foxglove's messages whose fields are of other types than Foxglove declares: mapped or left, never an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.lenses.foxglove import foxglove_lenses
from chunkmill.readers.mcap.decoders import LensMapping, McapOptions

from tests.lenses.foxglove_messages import PROTOBUF, VECTOR, types

TYPES = types()
OTHERS = (
    pa.null(),
    pa.string(),
    pa.binary(),
    pa.int8(),
    pa.uint64(),
    pa.float32(),
    pa.bool_(),
    pa.timestamp("us"),
    pa.list_(pa.float64()),
    pa.list_(pa.float64(), 9),
    pa.list_(pa.list_(pa.uint8())),
    pa.struct({"name": pa.string(), "value": pa.string()}),
    pa.struct({}),
    VECTOR,
    PROTOBUF.stamp,
)


def variants(kind: pa.DataType) -> Iterator[pa.DataType | None]:
    """The type with one part of it, at any depth, of another type or left out."""
    yield from (other for other in OTHERS if other != kind)
    if pa.types.is_list(kind):
        yield from (pa.list_(inner) for inner in variants(kind.value_type) if inner is not None)
    elif pa.types.is_struct(kind):
        for i, changed in enumerate(kind):
            rest = [*kind][:i], [*kind][i + 1 :]
            yield pa.struct([*rest[0], *rest[1]])
            for inner in variants(changed.type):
                yield pa.struct([*rest[0], changed.with_type(inner), *rest[1]])


def some(kind: pa.DataType, rng: np.random.Generator, depth: int = 0) -> Any:
    """A value of the type, of odd ones too."""
    if rng.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {f.name: some(f.type, rng, depth + 1) for f in kind}
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else int(rng.choice([0, 1, 3, 9]))
        return [some(kind.value_type, rng, depth + 1) for _ in range(size)]
    if pa.types.is_string(kind):
        return str(rng.choice(["", "x", "y", "z", "red", "rgb8", "h264", "WARNING", "nöt"]))
    if pa.types.is_binary(kind):
        return rng.bytes(int(rng.choice([0, 1, 12, 100])))
    if pa.types.is_boolean(kind):
        return bool(rng.integers(2))
    if pa.types.is_floating(kind):
        return float(rng.choice([0.0, -1.5, 1e300, np.nan, np.inf]))
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        bits = 64 if pa.types.is_timestamp(kind) else kind.bit_width
        signed = pa.types.is_timestamp(kind) or pa.types.is_signed_integer(kind)
        top = 2 ** (bits - signed) - 1
        return int(rng.choice(np.array([0, 1, 4, 7, 12, top], object)))
    return None


def chunk(name: str, kind: pa.DataType, rows: list[Any]) -> Chunk:
    column = pa.array([[row] for row in rows], pa.list_(kind))
    times = TimeColumn("message_log_time", timestamp=np.arange(len(rows)).astype("datetime64[ns]"))
    return Chunk.from_columns("/e", [times], [ComponentColumn(ComponentDescriptor(f"foxglove.{name}:message"), column)])


def filled(rows: list[Any]) -> set[int]:
    """The messages that hold a list of something."""
    held = (m.values() if isinstance(m, dict) else () for m in rows)
    return {i for i, values in enumerate(held) if any(isinstance(v, list) and v for v in values)}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.heavy
def test_messages_of_any_type_are_mapped_or_left(name: str) -> None:
    rng = np.random.default_rng(7)
    lenses = foxglove_lenses(f"foxglove.{name}")
    changed = [kind for kind in variants(TYPES[name]) if kind is not None]
    picked = rng.choice(len(changed), min(len(changed), 60), replace=False)
    for kind in [TYPES[name], *(changed[i] for i in picked.tolist())]:
        rows = [some(kind, rng) for _ in range(6)]
        mapping = LensMapping(lenses, McapOptions.checked())
        made = list(mapping.chunks(chunk(name, kind, rows)))
        found = [tick for c in made for tick in c.data.timelines[0].ticks.tolist()]
        assert sorted(found) == list(range(6)) or (lenses[0].scatter and filled(rows) <= set(found)), kind
        for c in made:
            for x in c.data.components:
                x.values.validate(full=True)
        left = [c for c in made if any(x.descriptor.component in mapping._lenses.inputs for x in c.data.components)]
        assert sum(c.num_rows for c in left) == mapping.unmapped, kind
        assert (mapping.unmapped > 0) == bool(mapping.reason)
