"""Events found by value among a thousand segments, and what the statistics cost that spare reading the others.

Guards: at most 5 % of the segments are opened where 1 % hold an event; statistics cost at most 5 % of the processor
time of an ingest, and 2 % of its bytes; no reading of rows takes more than 1.1 times as long beside them.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.optimisation import ChunkReferences
from chunkmill.engine.rrd import TimesDirectory, times
from conftest import ABSOLUTE, FIGURES, ROUNDS

SEGMENTS, EACH = 1000, 100
_TURNS = min(ROUNDS, 3)
IMU = pa.struct(
    [
        ("orientation", pa.list_(pa.float64(), 4)),
        ("covariance", pa.list_(pa.float64(), 9)),
        ("turn", pa.struct([(axis, pa.float64()) for axis in "xyz"])),
        ("acceleration", pa.struct([(axis, pa.float64()) for axis in "xyz"])),
        ("frame", pa.string()),
    ]
)


class NoStatistics:
    """In the place of :class:`StatisticsWriter`: makes a piece without a leaf."""

    def add(self, *_: Any) -> None: ...

    def finish(self) -> dict[str, Any]:
        return {"about": np.frombuffer(b'{"members": 0, "leaves": []}', np.uint8), "cells": np.empty(0, np.uint8)}


def imu(path: Path, chunks: int, rows: int) -> Path:
    """An RRD of messages of an IMU, so many to a chunk."""
    random = np.random.default_rng(1)
    parts = []
    for number in range(chunks):
        messages = [
            {
                "orientation": row[:4],
                "covariance": row[4:13],
                "turn": dict(zip("xyz", row[13:16], strict=True)),
                "acceleration": dict(zip("xyz", row[16:], strict=True)),
                "frame": "imu_link",
            }
            for row in random.normal(size=(rows, 19)).tolist()
        ]
        stamps = (np.arange(rows) + number * rows).astype("M8[ms]").astype("M8[ns]")
        column = ComponentColumn("Imu:message", pa.array([[message] for message in messages], pa.list_(IMU)))
        parts.append(Chunk.from_columns("/imu", [TimeColumn("at", timestamp=stamps)], [column]))
    LazyChunkStream.from_iter(parts).write_rrd(path, application_id="bench", recording_id=path.stem, executor="inline")
    return path


def scalars(path: Path, chunks: int, rows: int) -> Path:
    """An RRD of scalars in ten entities, so many to a chunk."""
    random = np.random.default_rng(1)
    parts = [
        Chunk.from_columns(
            f"/joint/{number % 10}",
            [TimeColumn("frame", sequence=list(range(number * rows, (number + 1) * rows)))],
            [ComponentColumn("Scalars:scalars", random.normal(size=rows).tolist())],
        )
        for number in range(chunks)
    ]
    LazyChunkStream.from_iter(parts).write_rrd(path, application_id="bench", recording_id=path.stem, executor="inline")
    return path


def in_turn(*functions: Callable[[], float], turns: int = _TURNS) -> list[float]:
    """The median of each function's result; they are called in turn, in an order that turns round."""
    results: list[list[float]] = [[] for _ in functions]
    for turn in range(turns + 1):
        for at in range(len(functions)) if turn % 2 else reversed(range(len(functions))):
            results[at].append(functions[at]())
    return [statistics.median(some[1:]) for some in results]


def cpu(function: Callable[[], object]) -> float:
    """The seconds of processor time of a call."""
    started = time.process_time()
    function()
    return time.process_time() - started


SOURCES: dict[str, Callable[[Path, Path], Path]] = {
    "mixture": lambda _, mixture: mixture,
    "imu, 25 rows a chunk": lambda folder, _: imu(folder / "imu25.rrd", 2000, 25),
    "imu, 1 row a chunk": lambda folder, _: imu(folder / "imu1.rrd", 5000, 1),
    "scalars, 1 row a chunk": lambda folder, _: scalars(folder / "scalars1.rrd", 10_000, 1),
    "scalars, 100 rows a chunk": lambda folder, _: scalars(folder / "scalars100.rrd", 2000, 100),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_cost_of_statistics(
    kind: str, benchmark: Any, mixture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards 5 % of processor time and 2 % of bytes.

    The time is that of the thread within the calls that make statistics, beside that of all the rest of the process:
    the difference of two runs is less than what they differ by on a busy machine.
    """
    source = SOURCES[kind](tmp_path, mixture)
    sizes, lakes = dict[bool, int](), iter(range(1_000_000))
    real = times.StatisticsWriter
    spent = 0.0

    class Timed(real):  # type: ignore[misc, valid-type]
        def add(self, *arguments: Any) -> None:
            nonlocal spent
            started = time.thread_time()
            super().add(*arguments)
            spent += time.thread_time() - started

        def finish(self) -> dict[str, Any]:
            nonlocal spent
            started = time.thread_time()
            columns: dict[str, Any] = super().finish()
            spent += time.thread_time() - started
            return columns

    def share(*, is_with: bool) -> float:
        nonlocal spent
        spent, lake = 0.0, tmp_path / f"lake{next(lakes)}"
        monkeypatch.setattr(times, "StatisticsWriter", Timed if is_with else NoStatistics)
        dataset = CatalogClient(lake).create_dataset("drives")
        seconds = cpu(lambda: dataset.register([str(source)], copy=True, executor="inline").wait())
        sizes[is_with] = sum(path.stat().st_size for path in lake.rglob("*") if path.is_file())
        return 100 * spent / (seconds - spent)

    share(is_with=False)
    (percent,) = benchmark.pedantic(lambda: in_turn(lambda: share(is_with=True)), rounds=1)
    ABSOLUTE.append((f"statistics, {kind}: time", percent, 5.0, "%"))
    ABSOLUTE.append((f"statistics, {kind}: bytes", 100 * (sizes[True] / sizes[False] - 1), 2.0, "%"))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[DatasetEntry, list[tuple[str, int, int]]]:
    """A dataset, and the segment, start and end of each event."""
    folder = tmp_path_factory.mktemp("planted")
    random = np.random.default_rng(7)
    paths, events = [], []
    for number in range(SEGMENTS):
        values = random.uniform(-9, 9, 400)
        if number % EACH == EACH // 2:
            first = int(random.integers(0, 390))
            values[first : first + 5] = 10
            events.append((f"segment-{number:04}", first, first + 4))
        parts = [
            Chunk.from_columns(
                "/imu",
                [TimeColumn("tick", sequence=list(range(at, at + 100)))],
                [ComponentColumn("accel", values[at : at + 100].tolist())],
            )
            for at in range(0, 400, 100)
        ]
        paths.append(str(folder / f"segment-{number:04}.rrd"))
        LazyChunkStream.from_iter(parts).write_rrd(
            paths[-1], application_id="b", recording_id=f"segment-{number:04}", executor="inline"
        )
    dataset = CatalogClient(folder / "lake").create_dataset("drives")
    dataset.register(paths, copy=True, executor="inline").wait()
    return dataset, events


def test_find_among_a_thousand_segments(
    benchmark: Any, planted: tuple[DatasetEntry, list[tuple[str, int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards 5 % of the segments opened, and the events, which are those of numpy."""
    dataset, events = planted
    opened = set[str]()
    real = ChunkReferences.read

    def counted(self: ChunkReferences, rows: Any) -> Iterator[Any]:
        opened.add(self.store.recording_id if self.store else "")
        return real(self, rows)

    monkeypatch.setattr(ChunkReferences, "read", counted)

    def find() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dataset.find("/imu:accel > 9.8", executor="inline").to_arrow_table()

    def whole() -> float:
        with monkeypatch.context() as patch:
            patch.setattr(TimesDirectory, "has_statistics", False)
            return cpu(find)

    rows = find().select(["rerun_segment_id", "start", "end"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == events
    ABSOLUTE.append(("find: segments opened", 100 * len(opened) / SEGMENTS, 5.0, "%"))
    assert len(opened) <= SEGMENTS // 20
    own, all_rows = benchmark.pedantic(lambda: in_turn(lambda: cpu(find), whole), rounds=1)
    FIGURES.append(("find: seconds", own, None, "s"))
    FIGURES.append(("find without statistics: seconds", all_rows, None, "s"))


def test_reading_beside_statistics(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards 1.1 times the time of reading rows where there are no statistics."""
    source = scalars(tmp_path / "one.rrd", 2000, 100)

    def stored(writer: Any, name: str) -> DatasetEntry:
        with monkeypatch.context() as patch:
            patch.setattr(times, "StatisticsWriter", writer)
            dataset = CatalogClient(tmp_path / name).create_dataset("drives")
            dataset.register([str(source)], copy=True, executor="inline").wait()
            return dataset

    datasets = stored(times.StatisticsWriter, "with"), stored(NoStatistics, "without")

    def read(dataset: DatasetEntry) -> float:
        return cpu(lambda: dataset.reader("frame").to_arrow_table())

    own, without = benchmark.pedantic(
        lambda: in_turn(*(lambda d=each: read(d) for each in datasets), turns=15), rounds=1
    )
    ABSOLUTE.append(("reading beside statistics: times as long", own / without, 1.1, ""))
