"""Datasets of a few small segments, for the tests of this folder."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from chunkmill import CatalogClient, Chunk, LazyChunkStream
from chunkmill.engine.chunk import ComponentDescriptor

VALUE = ComponentDescriptor("value")
CLEAR = ComponentDescriptor("Clear:is_recursive", "rerun.archetypes.Clear", "rerun.components.ClearIsRecursive")


def chunk(entity: str, frames: list[int], values: list[Any], name: ComponentDescriptor = VALUE) -> Chunk:
    """A chunk of one component, static where there are no frames."""
    index = {"frame": pa.array(frames, pa.int64())} if frames else {}
    return Chunk.build(entity, index, [(name, pa.array(values))])


def written(path: Path, segment: str, *chunks: Chunk) -> str:
    """The RRD of a segment."""
    path.mkdir(exist_ok=True)
    target = path / f"{segment}.rrd"
    stream = LazyChunkStream.from_iter(chunks)
    stream.write_rrd(target, application_id="tests", recording_id=segment, executor="inline")
    return str(target)


def small_dataset(path: Path, segments: int = 3) -> Any:
    """A dataset of segments with a hundred rows each, whose values tell the segment and the frame."""
    paths = [
        written(
            path, f"s{i}", chunk("/a", list(range(100)), [[f"{i}/{n}"] for n in range(100)]), chunk("/b", [5], [[i]])
        )
        for i in range(segments)
    ]
    dataset = CatalogClient(str(path / "lake")).create_dataset("small")
    dataset.register(paths).wait()
    return dataset


def generated_dataset(path: Path, seed: int) -> Any:
    """A dataset of some segments with overlapping chunks, nulls, static values and clears."""
    random_ = random.Random(seed)
    entities = ["/w", "/w/a", "/w/a/b", "/z"]
    paths = [written(path, f"s{i}", *_generated(random_, entities)) for i in range(random_.randint(2, 5))]
    dataset = CatalogClient(str(path / "lake")).create_dataset(f"generated-{seed}")
    dataset.register(paths).wait()
    return dataset


def _generated(random_: random.Random, entities: list[str]) -> Iterator[Chunk]:
    yield chunk("/w", [random_.randint(0, 9)], [[0]])  # an index that is there
    for _ in range(random_.randint(3, 12)):
        entity, count = random_.choice(entities), random_.randint(1, 40)
        frames = [random_.randint(-20, 60) for _ in range(count)]
        if random_.random() < 0.2:
            yield chunk(entity, frames, [[random_.random() < 0.5] for _ in frames], CLEAR)
        elif random_.random() < 0.1:
            yield chunk(entity, [], [[random_.randint(0, 9)]])
        else:
            yield chunk(entity, frames, [random_.choice([None, [], [n], [n, n + 1]]) for n in range(count - 1)] + [[1]])
