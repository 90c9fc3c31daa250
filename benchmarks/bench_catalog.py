"""The catalog beside ``rerun server``: registration in place, and what a dataset tells of its segments; warm sessions.

The stated figures are of ``CHUNKMILL_BENCH_FILES=1000`` (the default) and ``CHUNKMILL_BENCH_LARGE=20`` files of
``CHUNKMILL_BENCH_LARGE_MB=200``, which take 4 GB of disk; the default is 2. ``scale_catalog.py`` has those of many
segments.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chunkmill import CatalogClient
from conftest import Duel
from made_recordings import write_camera, write_drive

server = pytest.importorskip("rerun.server")

FILES = int(os.environ.get("CHUNKMILL_BENCH_FILES", "1000"))
LARGE = int(os.environ.get("CHUNKMILL_BENCH_LARGE", "2"))
LARGE_MB = int(os.environ.get("CHUNKMILL_BENCH_LARGE_MB", "200"))
TOLD = 100


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """Our client, and Rerun's."""
    with server.Server() as running:
        yield CatalogClient(tmp_path_factory.mktemp("lake")), running.client()


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """URIs of recordings of 38 kB."""
    folder = tmp_path_factory.mktemp("drives")
    return [write_drive(folder / f"{number:06d}.rrd", number).as_uri() for number in range(max(FILES, TOLD))]


def registering(uris: list[str]) -> Callable[[Any], None]:
    """What registers files with a new dataset of a client."""
    names = (f"drives-{number}-{len(uris)}" for number in itertools.count())

    def register(client: Any) -> None:
        client.create_dataset(next(names)).register(uris).wait()

    return register


def test_register_small_recordings(benchmark: Any, duel: Duel, clients: tuple[Any, Any], drives: list[str]) -> None:
    """Guards: registered durably in at most 1.5 x the time of Rerun's server, which forgets them when it stops."""
    ours, theirs = clients
    register = registering(drives[:FILES])
    duel.run(benchmark, lambda: register(ours), lambda: register(theirs), bar=1.5)


def test_register_large_recordings(benchmark: Any, duel: Duel, clients: tuple[Any, Any], tmp_path: Path) -> None:
    """Guards: footers alone are read, however large the file."""
    ours, theirs = clients
    uris = [write_camera(tmp_path / f"{number}.rrd", number, LARGE_MB).as_uri() for number in range(LARGE)]
    register = registering(uris)
    duel.run(benchmark, lambda: register(ours), lambda: register(theirs), bar=1.0)
    for path in tmp_path.glob("*.rrd"):
        path.unlink()


@pytest.mark.parametrize("what", ["both", "segment_table", "schema"])
def test_tables(benchmark: Any, duel: Duel, clients: tuple[Any, Any], drives: list[str], what: str) -> None:
    """Guards: the segment table and the schema of 100 segments together take at most half of the time of Rerun's."""
    ours, theirs = (client.create_dataset(f"told-{what}") for client in clients)
    for dataset in (ours, theirs):
        dataset.register(drives[:TOLD]).wait()

    def tell(dataset: Any) -> None:
        if what != "schema":
            assert len(dataset.segment_table().to_arrow_table()) == TOLD
        if what != "segment_table":
            dataset.schema()

    duel.run(benchmark, lambda: tell(ours), lambda: tell(theirs), bar=0.5 if what == "both" else None)
