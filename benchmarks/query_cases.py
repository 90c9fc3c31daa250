"""Queries that are asked of our catalog and of ``rerun server``: recordings, questions, and what their rows come to.

    python benchmarks/query_cases.py {ours,rerun} CASE FOLDER

answers one of them in a process of its own, from registering the recordings in FOLDER to the last row.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

MB = int(os.environ.get("CHUNKMILL_BENCH_QUERY_MB", "200"))
ROWS = int(os.environ.get("CHUNKMILL_BENCH_QUERY_ROWS", "1000000"))
SEGMENTS = int(os.environ.get("CHUNKMILL_BENCH_QUERY_SEGMENTS", "200"))
VALUES = int(os.environ.get("CHUNKMILL_BENCH_QUERY_VALUES", "1000"))

Numbers = npt.NDArray[Any]

# --- recordings


def chunk_of(entity: str, times: dict[str, pa.Array], values: dict[str, Numbers]) -> Any:
    """A chunk with one number in each row of each component."""
    from chunkmill import Chunk
    from chunkmill.engine.chunk import ComponentDescriptor

    count = len(next(iter(values.values())))
    ends = pa.array(np.arange(count + 1, dtype=np.int32))
    columns = [(ComponentDescriptor(n), pa.ListArray.from_arrays(ends, pa.array(v))) for n, v in values.items()]
    return Chunk.build(entity, times, columns)


def written(path: Path, chunks: Iterator[Any]) -> Path:
    """A recording that is named as its file."""
    from chunkmill.engine.rrd import RrdWriter, StoreEntry

    store = StoreEntry("recording", "fleet", path.stem)
    with RrdWriter(path) as writer:
        writer.begin_store(store)
        for chunk in chunks:
            writer.append(store, chunk)
        writer.finish()
    return path


def times_of(ticks: Numbers) -> dict[str, pa.Array]:
    """Three timelines."""
    stamps = pa.array(ticks * 10_000_000 + 1_700_000_000_000_000_000).view(pa.timestamp("ns"))
    return {"frame": pa.array(ticks), "log_tick": pa.array(ticks), "log_time": stamps}


def drive(number: int) -> Iterator[Any]:
    """1,000 rows of 8 joints in chunks of 250, and a property: 300 kB."""
    random = np.random.default_rng(number)
    for joint in range(8):
        for first in range(0, 1000, 250):
            yield chunk_of(
                f"/arm/joint_{joint}", times_of(np.arange(first, first + 250)), {"scalars": random.normal(0, 1, 250)}
            )
    yield chunk_of("/__properties", {}, {"number": np.array([number])})


def long(rows: int, entities: int, components: int, chunk_rows: int = 16_384) -> Iterator[Any]:
    """Numbers of entities that are logged together."""
    random = np.random.default_rng(3)
    noise = random.normal(0, 1, chunk_rows + 4096)
    for first in range(0, rows, chunk_rows):
        ticks = np.arange(first, min(first + chunk_rows, rows))
        for entity in range(entities):
            starts = random.integers(0, 4096, components).tolist()
            values = {f"v{at}": noise[start : start + len(ticks)] for at, start in enumerate(starts)}
            yield chunk_of(f"/entity_{entity}", times_of(ticks), values)


def rates(rows: int) -> Iterator[Any]:
    """A fast entity, and two slow ones whose times are some of its own."""
    random = np.random.default_rng(5)
    for entity, step in (("/fast", 1), ("/slow", 7), ("/slower", 100)):
        ticks = np.arange(0, rows, step)
        for first in range(0, len(ticks), 16_384):
            some = ticks[first : first + 16_384]
            yield chunk_of(entity, {"frame": pa.array(some)}, {"scalars": random.normal(0, 1, len(some))})


def camera(number: int, megabytes: int) -> Iterator[Any]:
    """Images of 105 kB, one in a chunk, and the scalars of seven joints in chunks of 250 rows."""
    from chunkmill import Chunk
    from chunkmill.engine.chunk import ComponentDescriptor

    random = np.random.default_rng(number)
    noise = random.bytes(2 << 20)
    for frame in range(megabytes * 1_000_000 // 107_000):
        start = int(random.integers(0, 1 << 20))
        blob = pa.array([[noise[start : start + 105_000]]], pa.list_(pa.binary()))
        yield Chunk.build("/camera", times_of(np.array([frame])), [(ComponentDescriptor("blob"), blob)])
        if frame % 250 == 0:
            for joint in range(7):
                ticks = np.arange(frame, frame + 250)
                yield chunk_of(f"/arm/joint_{joint}", times_of(ticks), {"scalars": random.normal(0, 1, 250)})


def drives(folder: Path, count: int) -> list[Path]:
    """Many small recordings; those that are there stay."""
    paths = [folder / f"drive_{number:06d}.rrd" for number in range(count)]
    return [path if path.exists() else written(path, drive(number)) for number, path in enumerate(paths)]


def one(name: str, chunks: Callable[[], Iterator[Any]]) -> Callable[[Path], list[Path]]:
    """One recording, which stays if it is there."""

    def made(folder: Path) -> list[Path]:
        path = folder / f"{name}.rrd"
        return [path if path.exists() else written(path, chunks())]

    return made


def cameras(folder: Path) -> list[Path]:
    """Recordings of ``2 * MB``, which are mostly images."""
    paths = [folder / f"cameras_{MB}_{number}.rrd" for number in range(4)]
    return [path if path.exists() else written(path, camera(number, MB // 2)) for number, path in enumerate(paths)]


# --- questions


class Case(NamedTuple):
    """A question: its recordings, what is asked of a dataset that has them, and the part of Rerun's time to reach.

    ``times``: whether our catalog makes their times when they are registered, for rows that need no values.
    """

    recordings: Callable[[Path], list[Path]]
    ask: Callable[[Any], Any]
    bar: float = 0.5
    times: bool = False


def between(frame: Any, first: int, stop: int) -> Any:
    """The rows of some frames."""
    from datafusion import col, lit

    return frame.filter((col("frame") >= lit(first)) & (col("frame") < lit(stop)))


def given(dataset: Any, count: int) -> Any:
    """Rows of ``count`` values for each segment, filled."""
    values = np.arange(count) * 1000 // count + 1
    by_segment = dict.fromkeys(dataset.segment_ids(), np.unique(values))
    return dataset.reader("frame", using_index_values=by_segment, fill_latest_at=True)


def spread(dataset: Any, count: int) -> Any:
    """Rows of ``count`` times for each segment, filled."""
    stamps = 1_700_000_000_000_000_000 + np.arange(count) * (1000 * 10_000_000 // count)
    by_segment = dict.fromkeys(dataset.segment_ids(), stamps.view("datetime64[ns]"))
    return dataset.reader("log_time", using_index_values=by_segment, fill_latest_at=True)


def hundred(folder: Path) -> list[Path]:
    """100 segments."""
    return drives(folder, 100)


def many(folder: Path) -> list[Path]:
    """``SEGMENTS`` segments."""
    return drives(folder, SEGMENTS)


JOINT = "/arm/joint_3"
CAMERA = one(f"camera_{MB}", lambda: camera(0, MB))
LONG = one(f"long_{ROWS}", lambda: long(ROWS, 10, 4))
RATES = one(f"rates_{ROWS}", lambda: rates(ROWS))

CASES = {
    "full_read": Case(hundred, lambda dataset: dataset.reader("frame")),
    "range": Case(hundred, lambda dataset: between(dataset.reader("frame"), 100, 120)),
    "range_filled": Case(hundred, lambda dataset: between(dataset.reader("frame", fill_latest_at=True), 100, 120)),
    "given_values": Case(hundred, lambda dataset: given(dataset, 10)),
    "one_component": Case(
        hundred, lambda dataset: dataset.reader("frame").select("rerun_segment_id", "frame", f'"{JOINT}:scalars"')
    ),
    "one_entity": Case(hundred, lambda dataset: dataset.filter_contents(JOINT).reader("frame")),
    "scalars_beside_images": Case(CAMERA, lambda dataset: dataset.filter_contents("/arm/**").reader("frame")),
    "one_image": Case(
        CAMERA, lambda dataset: between(dataset.filter_contents("/camera").reader("frame"), MB * 2, MB * 2 + 1)
    ),
    "long_segment": Case(LONG, lambda dataset: dataset.reader("frame")),
    "latest_at": Case(RATES, lambda dataset: dataset.reader("frame", fill_latest_at=True)),
    "many_given_values": Case(many, lambda dataset: spread(dataset, VALUES)),
    "entity_range_of_many": Case(
        many, lambda dataset: between(dataset.filter_contents(JOINT).reader("frame"), 100, 120)
    ),
    "count_beside_images": Case(cameras, lambda dataset: dataset.reader("frame").count(), times=True),
    "scalar_beside_images": Case(
        cameras,
        lambda dataset: dataset.reader("frame").select("rerun_segment_id", "frame", f'"{JOINT}:scalars"'),
        times=True,
    ),
}


# --- answers


def taken(answer: Any) -> int:
    """All rows of an answer, batch by batch; their number."""
    if isinstance(answer, int):
        return answer
    return sum(len(batch.to_pyarrow()) for batch in answer.execute_stream())


class Sums(NamedTuple):
    """What rows come to, in whatever order they are: their number, and of each column the values and their sum."""

    rows: int
    values: dict[str, int]
    sums: dict[str, float]

    @classmethod
    def of(cls, answer: Any) -> Sums:
        """Of all rows of an answer."""
        if isinstance(answer, int):
            return cls(answer, {}, {})
        rows, values, sums = 0, Counter[str](), Counter[str]()
        for batch in answer.execute_stream():
            found = batch.to_pyarrow()
            rows += len(found)
            for name, column in zip(found.schema.names, found.columns, strict=True):
                values[name] += len(column) - column.null_count
                sums[name] += _sum(column)
        return cls(rows, dict(values), dict(sums))

    def agrees(self, other: Sums) -> bool:
        """Whether they are those of the same rows; numbers are added in any order."""
        same = self.rows == other.rows and self.values == other.values
        return same and all(np.isclose(total, other.sums[name], 1e-6, 1e-6) for name, total in self.sums.items())


def _sum(column: pa.Array) -> float:
    while pa.types.is_list(column.type):
        column = column.flatten()
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return float(np.sum(column.drop_null().to_numpy() / 1000))
    return float(pc.sum(pc.binary_length(column)).as_py() or 0)


# --- who answers


@contextmanager
def client_of(who: str) -> Iterator[Any]:
    """A client of our catalog in a new folder, or of a server of Rerun's that starts for it."""
    if who == "ours":
        from chunkmill import CatalogClient

        with tempfile.TemporaryDirectory() as folder:
            yield CatalogClient(folder)
    else:
        from rerun.server import Server

        with Server() as running:
            yield running.client()


def options_of(who: str, case: Case) -> dict[str, Any]:
    """Options of a registration."""
    return {"times": True} if who == "ours" and case.times else {}


def registered(client: Any, name: str, paths: list[Path], **options: Any) -> Any:
    """A new dataset of recordings."""
    dataset = client.create_dataset(name)
    dataset.register([path.as_uri() for path in paths], **options).wait()
    return dataset


def main() -> None:
    """Answer one question."""
    who, name, folder = sys.argv[1:]
    case = CASES[name]
    with client_of(who) as client:
        print(taken(case.ask(registered(client, "cold", case.recordings(Path(folder)), **options_of(who, case)))))


if __name__ == "__main__":
    main()
