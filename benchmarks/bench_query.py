"""Queries beside ``rerun server``: the same recordings and questions, in one run; warm, and in a new process each.

``CHUNKMILL_BENCH_QUERY_ROWS=10000000``, ``CHUNKMILL_BENCH_QUERY_SEGMENTS=1000`` and
``CHUNKMILL_BENCH_QUERY_VALUES=10000`` are the sizes of the stated figures; by default they are a tenth or so.
``CHUNKMILL_BENCH_QUERY_FOLDER`` keeps the recordings from one run to the next.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.frames import answer as execution
from conftest import AT_LEAST, FIGURES, RESULTS, ROUNDS, Duel
from datafusion import SessionContext
from query_cases import CASES, Sums, client_of, options_of, registered, taken

pytest.importorskip("rerun.server")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the recordings are."""
    kept = os.environ.get("CHUNKMILL_BENCH_QUERY_FOLDER")
    found = Path(kept) if kept else tmp_path_factory.mktemp("queried")
    found.mkdir(parents=True, exist_ok=True)
    return found


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[Any, Any]]:
    """Our client, and Rerun's."""
    with client_of("ours") as ours, client_of("rerun") as theirs:
        yield ours, theirs


@pytest.mark.parametrize("name", CASES)
def test_query(benchmark: Any, duel: Duel, clients: tuple[Any, Any], folder: Path, name: str) -> None:
    """Guards: the rows of Rerun's server, in half of its time."""
    case = CASES[name]
    ours = registered(clients[0], name, case.recordings(folder), **options_of("ours", case))
    theirs = registered(clients[1], name, case.recordings(folder))
    assert Sums.of(case.ask(ours)).agrees(Sums.of(case.ask(theirs)))
    duel.run(benchmark, lambda: taken(case.ask(ours)), lambda: taken(case.ask(theirs)), bar=case.bar)


@pytest.mark.parametrize("name", CASES)
def test_cold(benchmark: Any, duel: Duel, folder: Path, name: str) -> None:
    """Guards: a new process that registers and asks takes half of the time of one with Rerun's server."""
    CASES[name].recordings(folder)

    def answer(who: str) -> str:
        script = Path(__file__).with_name("query_cases.py")
        return subprocess.run(
            [sys.executable, script, who, name, folder], check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    assert answer("ours") == answer("rerun")
    duel.run(benchmark, lambda: answer("ours"), lambda: answer("rerun"), bar=CASES[name].bar)


FRAMES = "frame >= 100 AND frame < 120"
SQL = {
    "full_read": "SELECT * FROM reader({dataset}, index => 'frame')",
    "range": f"SELECT * FROM reader({{dataset}}, index => 'frame') WHERE {FRAMES}",
    "range_filled": f"SELECT * FROM reader({{dataset}}, index => 'frame', fill => true) WHERE {FRAMES}",
    "one_component": (
        "SELECT rerun_segment_id, frame, \"/arm/joint_3:scalars\" FROM reader({dataset}, index => 'frame')"
    ),
    "one_entity": "SELECT * FROM reader({dataset}, index => 'frame', contents => '/arm/joint_3')",
    "entity_range_of_many": (
        f"SELECT * FROM reader({{dataset}}, index => 'frame', contents => '/arm/joint_3') WHERE {FRAMES}"
    ),
    "long_segment": "SELECT * FROM reader({dataset}, index => 'frame')",
}


@pytest.mark.parametrize("name", SQL)
def test_sql_beside_reader(benchmark: Any, duel: Duel, folder: Path, name: str) -> None:
    """Guards: rows by SQL take 1.5 times the time and the processor time of the same by ``reader``, at most."""
    case = CASES[name]
    with client_of("ours") as client:
        dataset = registered(client, name, case.recordings(folder))
        statement = SQL[name].format(dataset=name)
        assert Sums.of(client.ctx.sql(statement)).agrees(Sums.of(case.ask(dataset)))
        used: dict[str, list[float]] = {"sql": [], "reader": []}

        def timed(way: str, answer: Callable[[], Any]) -> int:
            started = time.process_time()
            count = taken(answer())
            used[way].append(time.process_time() - started)
            return count

        duel.run(
            benchmark,
            lambda: timed("sql", lambda: client.ctx.sql(statement)),
            lambda: timed("reader", lambda: case.ask(dataset)),
            bar=1.5,
        )
        own, other = (statistics.median(used[way][1:]) for way in ("sql", "reader"))
        RESULTS.append((f"processor time of SQL beside reader, {name}", own, other, 1.5))


JOIN = """
SELECT fast.frame, fast.scalars, slow.scalars, slower.scalars FROM fast
ASOF LEFT JOIN slow ON fast.frame >= slow.frame ASOF LEFT JOIN slower ON fast.frame >= slower.frame
"""


def test_latest_at_beside_duckdb(
    benchmark: Any, duel: Duel, clients: tuple[Any, Any], folder: Path, tmp_path: Path
) -> None:
    """Guards: filling takes 1.5 x the time of DuckDB's join over the same columns in Parquet, at most."""
    duckdb = pytest.importorskip("duckdb")
    case = CASES["latest_at"]
    dataset = registered(clients[0], "beside_duckdb", case.recordings(folder))
    connection = duckdb.connect()
    for entity in ("fast", "slow", "slower"):
        name = f"/{entity}:scalars"
        rows = dataset.filter_contents(f"/{entity}").reader("frame").select("frame", f'"{name}"').to_arrow_table()
        values = [pc.list_flatten(chunk) for chunk in rows[name].chunks]
        path = tmp_path / f"{entity}.parquet"
        pq.write_table(pa.table({"frame": rows["frame"], "scalars": pa.chunked_array(values)}), path)
        connection.execute(f"CREATE VIEW {entity} AS SELECT * FROM read_parquet('{path}')")

    def joined() -> int:
        return sum(len(batch) for batch in connection.sql(JOIN).to_arrow_reader(65_536))

    assert joined() == taken(case.ask(dataset))
    duel.run(benchmark, lambda: taken(case.ask(dataset)), joined, bar=1.5)


class Mapped:
    """The rows of an execution that lie in an Arrow file, as they do when Spark's workers have written them."""

    def __init__(self, path: Path, names: Sequence[str] | None) -> None:
        self._path = path
        self._names = names

    def rows(self, _segment: int) -> Iterator[pa.RecordBatch]:
        """The rows of the one segment."""
        with pa.memory_map(str(self._path)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                yield batch if self._names is None else batch.select(self._names)

    def close(self) -> None:
        """Nothing."""


def test_scan_beside_an_arrow_file(
    benchmark: Any, duel: Duel, clients: tuple[Any, Any], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards: rows that were written take twice the time through a frame that an Arrow file of them takes, at most."""
    frame = registered(clients[0], "scanned", CASES["long_segment"].recordings(folder)).reader("frame")
    path = tmp_path / "rows.arrow"
    with pa.ipc.new_file(path, frame.schema()) as file:
        for batch in frame.execute_stream():
            file.write_batch(batch.to_pyarrow())
    context = SessionContext()
    context.register_dataset("rows", ds.dataset(path, format="ipc"))
    monkeypatch.setattr(execution, "rows_of", lambda _, request, *__: Mapped(path, request.names))
    assert Sums.of(frame).agrees(Sums.of(context.table("rows")))
    duel.run(benchmark, lambda: taken(frame), lambda: taken(context.table("rows")), bar=2.0)


READ = """
import sys, time
from chunkmill import CatalogClient
uri, home, rounds = sys.argv[1:]
dataset = CatalogClient(home).create_dataset("long")
dataset.register(uri).wait()
for _ in range(int(rounds) + 1):
    started = time.perf_counter()
    for batch in dataset.reader("frame", executor="spark").execute_stream():
        batch.to_pyarrow()
    print(time.perf_counter() - started, flush=True)
"""


@pytest.mark.parametrize("name", ["long_segment"])
def test_two_cores_over_one(benchmark: Any, folder: Path, tmp_path: Path, name: str) -> None:
    """Guards: Spark reads a long segment 1.6 x as fast with two cores as with one."""
    (path,) = CASES[name].recordings(folder)

    def seconds(cores: int) -> float:
        script = [sys.executable, "-c", READ, path.as_uri(), tmp_path / str(cores), str(ROUNDS)]
        environment = {**os.environ, "CHUNKMILL_MASTER": f"local[{cores}]"}
        text = subprocess.run(script, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
        return statistics.median([float(line) for line in text.split()][1:])

    one = seconds(1)
    two = benchmark.pedantic(lambda: seconds(2), rounds=1)
    AT_LEAST.append((f"two cores over one, {name}", one / two, 1.6, "x"))
    FIGURES.append(("one core", one, None, "s"))
    FIGURES.append(("two cores", two, None, "s"))
