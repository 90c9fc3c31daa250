"""What a recording holds, in a form in which two readers, or two files, can be compared."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from chunkmill.engine.chunk import Chunk


class Cell(NamedTuple):
    """A component's column in a chunk, without ids: equal when every time, value and type is."""

    entity: str
    component: str
    descriptor: tuple[str | None, str | None]
    times: tuple[tuple[str, str, tuple[int, ...]], ...]
    values: str


def normalised(batch: pa.RecordBatch) -> Chunk:
    """The chunk of a batch of ours or Rerun's."""
    return Chunk.from_record_batch(batch)


def cells(chunks: Iterable[Chunk]) -> list[Cell]:
    """Every column of every chunk, in order."""
    return [cell for chunk in chunks for cell in _cells(chunk)]


def _cells(chunk: Chunk) -> Iterator[Cell]:
    data = chunk.data
    times = tuple((t.name, t.kind.value, tuple(t.ticks.tolist())) for t in data.timelines)
    if not data.components:
        yield Cell(chunk.entity_path, "", (None, None), times, str(chunk.num_rows))
    for c in data.components:
        values = _canonical(c.values)
        yield Cell(
            chunk.entity_path,
            c.descriptor.component,
            (c.descriptor.archetype, c.descriptor.component_type),
            times,
            f"{values.type}: {values.to_pylist()!r}",
        )


def _canonical(values: pa.Array) -> pa.Array:
    """Readers name the items of lists differently (``item`` or ``element``); nothing else is changed."""
    if pa.types.is_list(values.type) and values.type.value_field.name != "item":
        return values.cast(pa.list_(pa.field("item", values.type.value_type)))
    return values


def rerun_chunks(path: Path) -> dict[str, list[Chunk]]:
    """The chunks of every store in an RRD as Rerun's own reader gives them, in the file's order."""
    reader = rerun_reader(path)
    stores = {}
    for entry in [*reader.recordings(), *reader.blueprints()]:
        name = f"{entry.kind} {entry.application_id} {entry.recording_id}"
        stores[name] = [normalised(c.to_record_batch()) for c in reader.stream(store=entry).to_chunks()]
    return stores


def rerun_store(path: Path) -> Any:
    """The first recording of an RRD, opened with Rerun's own reader by its footer."""
    return rerun_reader(path).store()


def rerun_reader(path: Path) -> Any:
    """Rerun's own reader of RRD files."""
    import rerun.experimental

    try:
        import rerun.chunk
    except ModuleNotFoundError:  # before 0.37
        return rerun.experimental.RrdReader(path)
    return rerun.chunk.RrdReader(path)


def rerun_verify(*paths: Path) -> None:
    """Fail unless ``rerun rrd verify`` accepts the files."""
    rerun = Path(sysconfig.get_path("scripts")) / "rerun"
    done = subprocess.run(
        [sys.executable, "-m", "rerun_cli", "rrd", "verify", *map(str, paths)]
        if not rerun.exists()
        else [rerun, "rrd", "verify", *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def described_columns(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The component columns: what they are called, their types and values."""
    data = [(f, c) for f, c in zip(batch.schema, batch.columns, strict=True) if f.metadata[b"rerun:kind"] == b"data"]
    keys = (b"rerun:component", b"rerun:archetype", b"rerun:component_type")
    return [(*(f.metadata.get(k) for k in keys), f.type, c.to_pylist()) for f, c in data]
