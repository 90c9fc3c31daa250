"""``chunkmill query``: what it writes, of which sources, and that it is there whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from chunkmill import CatalogClient, Chunk, LazyChunkStream
from chunkmill.engine import query_metrics
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner, Result
from file_limits import SmallDisk, largest_file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, ["query", *map(str, arguments)])


def chunk(entity: str, frames: list[int], values: list[int]) -> Chunk:
    return Chunk.build(
        entity,
        {"frame": pa.array(frames, pa.int64())},
        [(ComponentDescriptor("value"), pa.array([[v] for v in values]))],
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with a dataset of three segments, of ids that are no names of files, and their RRDs."""
    folder = tmp_path_factory.mktemp("queries")
    paths = []
    for number, name in enumerate(("a/1", "b 2", "c")):
        path = folder / f"{number}.rrd"
        parts = [chunk("/speed", [3, 1, 2], [30 + number, 10, 20]), chunk("/gear", [2, 5], [1, 2])]
        LazyChunkStream.from_iter(parts).write_rrd(path, application_id="t", recording_id=name, executor="inline")
        paths.append(str(path))
    CatalogClient(folder / "lake").create_dataset("drives").register(paths).wait()
    return folder


def test_many_segments_are_a_folder_that_tools_know(lake: Path, tmp_path: Path) -> None:
    for suffix in ("parquet", "arrow"):
        out = tmp_path / f"rows.{suffix}"
        done = run(lake / "lake", "drives", "--index", "frame", "-o", out)
        assert (done.exit_code, "12 rows of 3 segments" in done.output) == (0, True), done.output
        assert sorted(path.name for path in out.iterdir()) == [
            "rerun_segment_id=a%2F1",
            "rerun_segment_id=b%202",
            "rerun_segment_id=c",
        ]
        table = ds.dataset(out, format=suffix if suffix == "parquet" else "ipc", partitioning="hive").to_table()
        assert sorted(set(table["rerun_segment_id"].to_pylist())) == ["a/1", "b 2", "c"]
        assert table["frame"].to_pylist() == [1, 2, 3, 5] * 3
        assert table.schema.field("/speed:value").metadata[b"rerun:entity_path"] == b"/speed"


def test_one_segment_is_a_file_in_order(lake: Path, tmp_path: Path) -> None:
    condition = '"/speed:value"[1] > 10 OR "/gear:value" IS NOT NULL'
    out = tmp_path / "new" / "rows.parquet"
    done = run(lake / "lake", "--index", "frame", "--segments", "c", "--where", condition, "--end", 5, "-o", out)
    assert done.exit_code == 0, done.output
    table = pq.read_table(out)
    assert table.column_names == ["rerun_segment_id", "frame", "/gear:value", "/speed:value"]
    assert table["frame"].to_pylist() == [2, 3]
    assert table["/speed:value"].to_pylist() == [[20], [32]]


def test_files_of_one_recording_are_one_segment(lake: Path, tmp_path: Path) -> None:
    path = tmp_path / "more.rrd"
    more = LazyChunkStream.from_iter([chunk("/brake", [4], [7])])
    more.write_rrd(path, application_id="t", recording_id="c", executor="inline")
    done = run(lake / "2.rrd", path, "--index", "frame", "--fill", "--values", "0,4", "-o", tmp_path / "r.arrow")
    assert done.exit_code == 0, done.output
    assert pa.ipc.open_file(str(tmp_path / "r.arrow")).read_all().to_pylist() == [
        {"rerun_segment_id": "c", "frame": 0, "/brake:value": None, "/gear:value": None, "/speed:value": None},
        {"rerun_segment_id": "c", "frame": 4, "/brake:value": [7], "/gear:value": [1], "/speed:value": [32]},
    ]


def test_limits_count_rows_of_segments_in_order(lake: Path, tmp_path: Path) -> None:
    assert run(lake / "lake", "--index", "frame", "--limit", 5, "-o", tmp_path / "five.parquet").exit_code == 0
    rows = ds.dataset(tmp_path / "five.parquet", partitioning="hive").to_table()
    assert rows.select(["rerun_segment_id", "frame"]).to_pylist() == [
        {"rerun_segment_id": segment, "frame": frame}
        for segment, frame in [("a/1", 1), ("a/1", 2), ("a/1", 3), ("a/1", 5), ("b 2", 1)]
    ]


def test_what_fails_leaves_what_was_there(lake: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    assert run(lake / "lake", "--index", "frame", "-o", out).exit_code == 0
    before = sorted(path.read_bytes() for path in out.rglob("*.parquet"))
    damaged = tmp_path / "damaged.rrd"
    data = bytearray((lake / "0.rrd").read_bytes())
    data[len(data) // 4] ^= 0xFF
    damaged.write_bytes(data)
    assert run(damaged, "--index", "frame", "-o", out).exit_code == 2
    assert run(damaged, "--index", "frame", "-o", out, "--overwrite").exit_code == 1
    assert sorted(path.read_bytes() for path in out.rglob("*.parquet")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged.rrd", "rows.parquet"]
    assert run(lake / "0.rrd", "--index", "frame", "-o", out, "--overwrite").exit_code == 0
    assert pq.read_table(out).num_rows == 4
    assert run(lake / "lake", "--index", "frame", "-o", out, "--overwrite", "--segments", "[ab]*").exit_code == 0
    assert len(list(out.rglob("*.parquet"))) == 2


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("segments", ["c", "*"])
@pytest.mark.heavy
def test_a_full_disk_is_said_with_the_path_wherever_it_comes(
    lake: Path, tmp_path: Path, suffix: str, segments: str
) -> None:
    out = tmp_path / f"rows.{suffix}"
    query = (lake / "lake", "--index", "frame", "--segments", segments, "-o", out)
    assert run(*query).exit_code == 0
    files = [out] if segments == "c" else sorted(out.rglob(f"*.{suffix}"))
    size, before = min(path.stat().st_size for path in files), [path.read_bytes() for path in files]
    for limit in (0, 3, 300, size // 2, size - 300, size - 1):  # the first bytes, the rows, the footer, the last byte
        with largest_file(limit):
            done = run(*query, "--overwrite")
        assert done.exit_code == 1, (limit, done.output)
        assert f"{out}: cannot be written: File too large" in done.output, (limit, done.output)
        assert "Free some space" in done.output
        assert [path.read_bytes() for path in files] == before and list(tmp_path.iterdir()) == [out]
    assert run(*query, "--overwrite").exit_code == 0


def test_a_disk_that_fills_up_is_said_with_the_path(lake: Path, disk: SmallDisk) -> None:
    failed = []
    for left in (0, 1, 2, 3, 4):
        out = disk.folder / f"{left}.parquet"
        disk.fill(left * 4096)
        done = run(lake / "0.rrd", "--index", "frame", "-o", out)
        assert done.exit_code == (0 if out.exists() else 1)
        assert out.exists() or f"{out}: cannot be written: No space left on device" in done.output, done.output
        failed += [] if out.exists() else [left]
        disk.make_space()
    assert failed[:2] == [0, 1]


def test_a_plan_tells_what_filters_leave(lake: Path) -> None:
    done = run(lake / "lake", "--index", "frame", "--end", 2, "--segments", "c", "--explain")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0].startswith("reads 1 of 1 segment, 1 of 2 chunks, ")
    assert "by the filter (frame < 2)" in done.output
    done = run(lake / "lake", "--index", "frame", "--where", "rerun_segment_id = 'c' AND frame < 0", "--explain")
    assert done.output.startswith("reads 0 of 3 segments")


def test_the_report_has_the_metrics_of_the_query(lake: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "rows.arrow", tmp_path / "run.json"
    with query_metrics() as metrics:
        done = run(lake / "0.rrd", "--index", "frame", "--contents", "/speed", "-o", out, "--report", report)
    assert done.exit_code == 0, done.output
    told, query = json.loads(report.read_text()), metrics.last_query()
    assert query is not None and told["query"] == query.to_dict()
    assert (told["rows"], told["chunks"], told["bytes_in"]) == (3, query.query_chunks, query.fetch_bytes)
    assert told["bytes_out"] == out.stat().st_size and told["destination"] == str(out)

    page = tmp_path / "run.html"
    assert run(lake / "0.rrd", "--index", "frame", "--report", page).exit_code == 0
    assert "query_chunks" in page.read_text() and "full_scan" in page.read_text()


def test_times_keep_their_nanoseconds_which_spark_reads_as_numbers(spark: Any, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    given = ["--index", "message_log_time", "--contents", "/nissan/vehicle_speed", "-o", out]
    assert run(data / "demo.mcap", *given, "--executor", "inline").exit_code == 0
    times = pq.read_table(out)["message_log_time"]
    assert times.type == pa.timestamp("ns")
    ticks = times.cast(pa.int64()).to_pylist()
    name = "spark.sql.legacy.parquet.nanosAsLong"
    spark.conf.set(name, "true")
    try:
        rows = spark.read.parquet(str(out)).select("message_log_time").collect()
    finally:
        spark.conf.unset(name)
    assert [row[0] for row in rows] == ticks
    assert any(tick % 1000 for tick in ticks)
