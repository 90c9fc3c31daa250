"""chunkmill compare and print: what two recordings hold beside each other, and chunks as tables."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine import ChunkStore, LazyChunkStream, OptimizationProfile, UsageError, compare
from chunkmill.engine.chunk import Chunk, ComponentDescriptor, differing
from chunkmill.engine.cli.commands import commands
from chunkmill.readers import McapReader, RrdReader
from click.testing import CliRunner, Result

FLOATS = pa.list_(pa.float64())


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(a) for a in arguments])


def made(
    times: Iterable[int],
    values: Iterable[object],
    entity: str = "/a",
    *,
    name: str = "v",
    timelines: Iterable[str] = ("t",),
    datatype: pa.DataType = FLOATS,
) -> Chunk:
    ticks = np.fromiter(times, np.int64)
    return Chunk.build(
        entity,
        {timeline: pa.array(ticks) for timeline in timelines},
        [(ComponentDescriptor(name), pa.array(list(values), datatype))],
    )


def rrd(path: Path, *chunks: Chunk, recording_id: str = "rec") -> Path:
    stream = LazyChunkStream.from_iter(list(chunks))
    stream.write_rrd(path, application_id="app", recording_id=recording_id, executor="inline")
    return path


def told(tmp_path: Path, a: Iterable[Chunk], b: Iterable[Chunk], **options: object) -> list[str]:
    found = compare(rrd(tmp_path / "a.rrd", *a), rrd(tmp_path / "b.rrd", *b), **options)  # type: ignore[arg-type]
    return [str(difference) for difference in found.differences]


ROWS = [[float(i)] for i in range(100)]


def changed(row: int, by: float = 1.0) -> list[list[float]]:
    return [[v + by if i == row else v] for i, (v,) in enumerate(ROWS)]


def test_order_and_cut_of_chunks_do_not_matter(tmp_path: Path) -> None:
    cut = [made(range(50, 100), ROWS[50:]), made(range(0, 100, 2), ROWS[0:100:2]), made(range(1, 50, 2), ROWS[1:50:2])]
    b = [made(range(51, 100, 2), ROWS[51:100:2]), made(range(50), ROWS[:50]), made(range(50, 100, 2), ROWS[50::2])]
    assert told(tmp_path, [*cut[:1], made(range(50), ROWS[:50])], b) == []
    assert told(tmp_path, [made(range(100), ROWS)], b) == []
    assert told(tmp_path, [made(range(100), ROWS)], b, chunks=True)[0] == "1 chunk | 3 chunks"


def test_what_differs_is_told_by_entity_component_and_time(tmp_path: Path) -> None:
    a, b = [made(range(100), ROWS)], [made(range(100), changed(7))]
    assert told(tmp_path, a, b) == ["/a v t 7: [7.0] | [8.0]"]
    assert told(tmp_path, a, [made(range(99), ROWS[:99])]) == ["/a v t 99: only in the first: [99.0]"]
    assert told(tmp_path, [made([1, 3], ROWS[:2])], [made([1, 2, 3], [[0.0], [5.0], [1.0]])]) == [
        "/a v t 2: only in the second: [5.0]"
    ]
    assert told(tmp_path, a, [*a, made([0], [[1.0]], "/b")]) == ["/b: only in the second, with 1 row"]
    assert told(tmp_path, a, [*a, made([0], [[1.0]], name="w")]) == ["/a w: only in the second"]


def test_times_are_written_by_the_kind_of_their_timeline(tmp_path: Path) -> None:
    def at(time: pa.Array, value: float) -> Chunk:
        return Chunk.build("/a", {"t": time}, [(ComponentDescriptor("v"), pa.array([[value]], FLOATS))])

    for times, text in (
        (pa.array([1_700_000_000_000_000_000], pa.timestamp("ns")), "2023-11-14T22:13:20"),
        (pa.array([1_500_000_000], pa.duration("ns")), "1.500000000 s"),
    ):
        assert told(tmp_path, [at(times, 1.0)], [at(times, 2.0)]) == [f"/a v t {text}: [1.0] | [2.0]"]


def test_of_many_the_first_are_told_and_the_others_counted(tmp_path: Path) -> None:
    a, b = [made(range(100), ROWS)], [made(range(100), [[v + 1] for (v,) in ROWS])]
    found = told(tmp_path, a, b, most=3)
    assert found[2:] == ["/a v t 2: [2.0] | [3.0]", "/a v: and 97 more rows"]
    assert told(tmp_path, a, b, most=0) == ["/a v: and 100 more rows"]


def test_tolerance(tmp_path: Path) -> None:
    a, b = [made(range(100), ROWS)], [made(range(100), changed(7, 0.01))]
    assert told(tmp_path, a, b, tolerance=0.011) == []
    assert len(told(tmp_path, a, b, tolerance=0.009)) == 1
    with pytest.raises(UsageError, match="tolerance"):
        told(tmp_path, a, b, tolerance=math.nan)


def test_ignored_timelines(tmp_path: Path) -> None:
    a = [made(range(100), ROWS, timelines=["t", "log"])]
    assert told(tmp_path, a, [made(range(100), ROWS)]) == ["/a v: on log, t | on t"]
    assert told(tmp_path, a, [made(range(100), ROWS)], ignore_timelines=["log"]) == []
    assert told(tmp_path, a, [made(range(5, 105), ROWS)], ignore_timelines=["log", "t"]) == []
    assert told(tmp_path, a, [made([0], [[0.0]], timelines=())], ignore_timelines=["log"]) == ["/a v: on t | static"]


def test_types_and_names_of_list_items(tmp_path: Path) -> None:
    a = [made(range(100), ROWS)]
    named = pa.list_(pa.field("element", pa.float64(), nullable=False))
    assert told(tmp_path, a, [made(range(100), ROWS, datatype=named)]) == []
    other = told(tmp_path, a, [made(range(100), ROWS, datatype=pa.list_(pa.float32()))])
    assert len(other) == 1
    assert other[0].startswith("/a v: type list<item: double> | list<item: float>")


def test_of_static_components_the_last_value_counts(tmp_path: Path) -> None:
    one, two, three = (made([0], [[value]], timelines=()) for value in (1.0, 2.0, 3.0))
    assert told(tmp_path, [one, two], [made([0], [[2.0]], timelines=())]) == []
    assert told(tmp_path, [one, two], [three]) == ["/a v: [2.0] | [3.0]"]


def test_rows_of_one_time_keep_their_order(tmp_path: Path) -> None:
    a = [made([1, 1], [[1.0], [2.0]])]
    assert told(tmp_path, a, [made([1, 1], [[1.0], [2.0]])]) == []
    assert len(told(tmp_path, a, [made([1, 1], [[2.0], [1.0]])])) == 2


def test_null_is_no_row(tmp_path: Path) -> None:
    assert told(tmp_path, [made([1, 2], [[1.0], None])], [made([1], [[1.0]])]) == []
    assert told(tmp_path, [made([1, 2], [[1.0], []])], [made([1], [[1.0]])]) == ["/a v t 2: only in the first: []"]


NAN = math.nan


@pytest.mark.parametrize(
    ("a", "b", "datatype", "expected"),
    [
        ([[1.0, NAN]], [[1.0, NAN]], FLOATS, [False]),
        ([[0.0], [1.0, 2.0], None], [[-0.0], [1.0], []], FLOATS, [False, True, True]),
        ([[[1, 2], [3]], [[4]]], [[[1, 2], [4]], [[4]]], pa.list_(pa.list_(pa.int8())), [True, False]),
        (
            [[{"x": 1.0, "s": "a"}], [{"x": NAN, "s": None}], [None]],
            [[{"x": 1.0, "s": "b"}], [{"x": NAN, "s": None}], [{"x": 0.0, "s": None}]],
            pa.list_(pa.struct([("x", pa.float32()), ("s", pa.string())])),
            [True, False, True],
        ),
        (
            [[[1.0, 2.0]], [[3.0, 4.0]]],
            [[[1.0, 2.0]], [[3.0, 5.0]]],
            pa.list_(pa.list_(pa.float64(), 2)),
            [False, True],
        ),
        ([[b"a"], [b"b"]], [[b"a"], [b"c"]], pa.list_(pa.binary()), [False, True]),
        ([True, None], [False, None], pa.bool_(), [True, False]),
    ],
)
def test_values_of_every_shape(a: list[object], b: list[object], datatype: pa.DataType, expected: list[bool]) -> None:
    columns = [pa.array([side[0], *side, side[0]], datatype).slice(1, len(side)) for side in (a, b)]
    assert differing(*columns).tolist() == expected


def test_formats_and_stores_beside_each_other(data: Path, tmp_path: Path) -> None:
    reader = McapReader(data / "demo.mcap")
    reader.stream().write_rrd(tmp_path / "a.rrd", application_id="x", recording_id="y", executor="inline")
    reader.stream().collect(optimize=OptimizationProfile.OBJECT_STORE, into=tmp_path / "store", executor="inline")
    ids = [
        {chunk.id for chunk in store}
        for store in (ChunkStore.open(tmp_path / "store"), RrdReader(tmp_path / "a.rrd").store())
    ]
    assert not ids[0] & ids[1]
    for other in (tmp_path / "a.rrd", tmp_path / "store"):
        done = run("compare", data / "demo.mcap", other)
        assert (done.exit_code, "have the same content" in done.stdout) == (0, True), done.output
        assert run("compare", data / "demo.mcap", other, "-q").output == ""
    done = run("compare", data / "demo.mcap", tmp_path / "store", "--topics", "imu", "--content", "/nissan/gps/duro/**")
    assert (done.exit_code, "/nissan/gps/duro/mag: only in the second" in done.stdout) == (1, True), done.output


def test_recordings_are_paired_by_their_ids(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    for name in ("one", "two"):
        rrd(landing / f"{name}.rrd", made(range(100), ROWS), recording_id=name)
    store = tmp_path / "store"
    run("ingest", landing, "--into", store, "--once", "--settle", "0s", "-q")
    shutil.copytree(store, tmp_path / "other")
    rrd(landing / "three.rrd", made(range(100), ROWS), recording_id="three")
    run("ingest", landing, "--into", store, "--once", "--settle", "0s", "-q")
    done = run("compare", store, tmp_path / "other")
    assert (done.exit_code, done.stdout) == (1, "recording three: only in the first\n"), done.output


def test_errors_of_compare(data: Path, tmp_path: Path) -> None:
    assert run("compare", data / "demo.mcap", tmp_path / "none.rrd").exit_code == 1
    assert run("compare", data / "demo.mcap").exit_code == 2
    assert run("compare", data / "demo.mcap", data / "demo.mcap", "--tolerance", "-1").exit_code == 2


class TestPrint:
    def test_chunks_as_they_are_formatted(self, tmp_path: Path) -> None:
        path = rrd(tmp_path / "a.rrd", made([1, 2], [[1.0], [2.0]]), made([3], [[3.0]], "/b"))
        chunks = RrdReader(path).stream().to_chunks(executor="inline")
        done = run("print", path)
        heading = "recording 'rec' of application 'app'\n"
        assert done.stdout == heading + "".join(f"{chunk.format(width=240)}\n" for chunk in chunks)
        assert run("print", path, "--limit", 1, "--width", 60).stdout == heading + chunks[0].format(width=60) + "\n"
        assert run("print", path, "--content", "/b", "--headers").stdout.splitlines()[1:] == [
            "/b rows=1 static=False timelines=['t'] cols=['t', 'v']"
        ]

    @pytest.mark.parametrize("limit", [1, 40])
    def test_every_format_and_stores(self, limit: int, data: Path, tmp_path: Path) -> None:
        McapReader(data / "demo.mcap").stream().collect(into=tmp_path / "store", executor="inline")
        for path in (data / "demo.mcap", data / "generated" / "pq_base.parquet", tmp_path / "store"):
            done = run("print", path, "--headers", "--limit", limit)
            assert done.exit_code == 0, done.output
            assert 2 <= len(done.stdout.splitlines()) <= limit + 1
        assert run("print", tmp_path / "none.mcap").exit_code == 1
