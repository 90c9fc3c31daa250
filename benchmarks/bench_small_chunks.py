"""Twenty thousand chunks of one row, from this process through a pipeline: a warm session against rerun-sdk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.store import OptimizationProfile
from chunkmill.engine.stream import LazyChunkStream
from conftest import Duel

peer = pytest.importorskip("rerun.chunk")

COUNT = 20_000
MAPS = 5


def small_chunks() -> list[Chunk]:
    return [
        Chunk.from_columns(
            f"/arm/{i % 10}", [TimeColumn("frame", sequence=[i])], [ComponentColumn("angle", [float(i)])]
        )
        for i in range(COUNT)
    ]


def renamed(chunk: Any) -> Any:
    return chunk.with_entity_path(chunk.entity_path)


def mapped(stream: Any) -> Any:
    for _ in range(MAPS):
        stream = stream.map(renamed)
    return stream


TERMINALS: dict[str, Callable[..., Any]] = {
    "to_chunks": lambda stream, profiles, **how: stream.to_chunks(**how),
    "collect": lambda stream, profiles, **how: stream.collect(optimize=profiles.OBJECT_STORE, **how),
    "five_maps": lambda stream, profiles, **how: mapped(stream).to_chunks(**how),
}


@pytest.mark.parametrize("executor", ["inline", "spark"])
@pytest.mark.parametrize("name", TERMINALS)
def test_many_small_chunks(name: str, executor: str, benchmark: Any, duel: Duel) -> None:
    """Guards what is done for a chunk however small it is; no bar: in one process the peer does next to nothing."""
    terminal, chunks = TERMINALS[name], small_chunks()
    theirs = [c for chunk in chunks for c in peer.Chunk.from_record_batch(chunk.to_record_batch())]
    duel.name = f"small_{name}_{executor}"
    duel.run(
        benchmark,
        lambda: terminal(LazyChunkStream.from_iter(chunks), OptimizationProfile, executor=executor),
        lambda: terminal(peer.LazyChunkStream.from_iter(theirs), peer.OptimizationProfile),
        bar=None,
    )
