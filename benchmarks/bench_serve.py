"""A served lake beside ``rerun server``: the same client, files and calls, each server in a process of its own.

    pytest benchmarks/bench_serve.py --benchmark-enable

``CHUNKMILL_BENCH_LARGE_MB`` (default 200) is the size of the recording that is fetched whole.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ABSOLUTE, Duel
from made_recordings import write_camera, write_drive
from served_lake import SCRIPTS, served

catalog = pytest.importorskip("rerun.catalog")

FILES = 100
LARGE_MB = int(os.environ.get("CHUNKMILL_BENCH_LARGE_MB", "200"))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what is registered: 100 recordings of 38 kB, and a large one."""
    folder = tmp_path_factory.mktemp("drives")
    for number in range(FILES):
        write_drive(folder / f"{number:06d}.rrd", number)
    write_camera(folder / "large.rrd", 0, LARGE_MB)
    return folder


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory, recordings: Path) -> Iterator[tuple[Any, Any]]:
    """The SDK's client of a served lake, and of Rerun's server."""
    logs = tmp_path_factory.mktemp("logs")
    lake = tmp_path_factory.mktemp("lake")
    ours = served(logs / "ours.log", SCRIPTS / "chunkmill", "serve", "start", lake, "--create", "--allow", recordings)
    with ours as own, served(logs / "peer.log", SCRIPTS / "rerun", "server") as other:
        yield catalog.CatalogClient(own.url), catalog.CatalogClient(other.url)


@pytest.fixture(scope="module")
def datasets(clients: tuple[Any, Any], recordings: Path) -> tuple[Any, Any]:
    """A dataset of the small recordings in each."""
    return registered(clients, sorted(recordings.glob("0*.rrd")), "drives")


@pytest.fixture(scope="module")
def large(clients: tuple[Any, Any], recordings: Path) -> tuple[Any, Any]:
    """A dataset of the large recording in each."""
    return registered(clients, [recordings / "large.rrd"], "large")


def registered(clients: tuple[Any, Any], files: list[Path], name: str) -> tuple[Any, Any]:
    """The dataset of some files, in each."""
    made = [client.create_dataset(name) for client in clients]
    for dataset in made:
        dataset.register([file.as_uri() for file in files]).wait()
    return made[0], made[1]


def test_serve_register(benchmark: Any, duel: Duel, clients: tuple[Any, Any], recordings: Path) -> None:
    """Guards: 100 files registered in at most 2.0 x the time of Rerun's server, which forgets them when it stops."""
    uris = [file.as_uri() for file in sorted(recordings.glob("0*.rrd"))]
    names = (f"registered-{number}" for number in itertools.count())

    def register(client: Any) -> None:
        dataset = client.create_dataset(next(names))
        dataset.register(uris).wait()
        assert len(dataset.segment_ids()) == FILES

    ours, theirs = clients
    duel.run(benchmark, lambda: register(ours), lambda: register(theirs), 2.0)


def rows(view: Any, **asked: Any) -> int:
    """Rows of a query."""
    return view.reader(index="log_tick", **asked).to_arrow_table().num_rows


def in_range(dataset: Any, **asked: Any) -> int:
    """Rows of 20 ticks."""
    from datafusion import col, lit

    frame = dataset.reader(index="log_tick", **asked)
    return frame.filter((col("log_tick") >= lit(100)) & (col("log_tick") < lit(120))).to_arrow_table().num_rows


def at_values(dataset: Any) -> int:
    """Rows at ten ticks of every segment."""
    values = {segment: np.arange(5, 200, 20) for segment in dataset.segment_ids()}
    return rows(dataset, using_index_values=values, fill_latest_at=True)


CALLS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "segment table": (lambda dataset: dataset.segment_table().to_arrow_table().num_rows, 1.5),
    "schema": (lambda dataset: len(dataset.schema().to_arrow()), 1.5),
    "index ranges": (lambda dataset: dataset.get_index_ranges().to_arrow_table().num_rows, 1.5),
    "range": (in_range, 1.3),
    "filter": (lambda dataset: rows(dataset.filter_contents(["/base"])), 1.3),
    "fill": (lambda dataset: in_range(dataset, fill_latest_at=True), 1.3),
    "index values": (at_values, 1.3),
}
"""Calls on a dataset of 100 segments, each with the ratio to reach."""


@pytest.mark.parametrize("call", CALLS)
def test_serve_call(benchmark: Any, duel: Duel, datasets: tuple[Any, Any], call: str) -> None:
    """Guards: as much comes back, in at most the stated ratio of the peer's time."""
    ask, bar = CALLS[call]
    ours, theirs = datasets
    count = ask(theirs)
    assert ask(ours) == count > 0
    duel.run(benchmark, lambda: ask(ours), lambda: ask(theirs), bar)


def fetch(dataset: Any) -> int:
    """Chunks of the large recording, all fetched."""
    return len(dataset.segment_store("camera-000000").stream().to_chunks())


@pytest.mark.parametrize(("readers", "bar"), [(1, 1.5), (2, 1.2)])
def test_serve_fetch(benchmark: Any, duel: Duel, large: tuple[Any, Any], readers: int, bar: float) -> None:
    """Guards: the large recording fetched by one client, and by two at once, within the ratio of the peer's time."""
    with ThreadPoolExecutor(readers) as pool:

        def every(dataset: Any) -> list[int]:
            return list(pool.map(fetch, [dataset] * readers))

        ours, theirs = large
        assert every(ours) == every(theirs)
        duel.run(benchmark, lambda: every(ours), lambda: every(theirs), bar)


def test_serve_open(benchmark: Any, duel: Duel, datasets: tuple[Any, Any]) -> None:
    """Guards: a segment opened in at most 10 ms."""
    ours, theirs = datasets
    segment = ours.segment_ids()[0]
    duel.run(benchmark, lambda: ours.segment_store(segment), lambda: theirs.segment_store(segment), None)
    ABSOLUTE.append(("serve open", benchmark.extra_info["seconds"] * 1000, 10, "ms"))
