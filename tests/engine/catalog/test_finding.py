"""Events found by value: those of an oracle in numpy, and nothing read that statistics rule out."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine import LazyChunkStream, frames
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.engine.execution import spark_stage
from chunkmill.engine.optimisation import ChunkReferences
from chunkmill.engine.recordings import RecordingsFolder, times_in
from chunkmill.engine.rrd import TimesDirectory, statistics
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

Rows = list[tuple[int, Any]]
"""The index value of each row, and what a component has there."""

ACCEL = pa.struct([("linear", pa.list_(pa.float64(), 3)), ("frame", pa.string())])


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetEntry:
    return CatalogClient(tmp_path / "lake").create_dataset("drives")


def chunk(entity: str, ticks: Sequence[int], component: str, values: pa.Array) -> Chunk:
    """A chunk of one component by the index ``tick``; static without ticks."""
    lines = [TimeColumn("tick", sequence=list(ticks))] if len(ticks) else []
    return Chunk.from_columns(entity, lines, [ComponentColumn(component, values)])


def registered(dataset: DatasetEntry, folder: Path, segment: str, chunks: Sequence[Chunk], **options: Any) -> None:
    """Register a recording of these chunks as a segment."""
    path = folder / f"{segment}-{options.get('layer_name', 'base')}.rrd"
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="tests", recording_id=segment, executor="inline")
    dataset.register([str(path)], copy=True, executor="inline", **options).wait()


def scalars(values: Sequence[Any], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(
        [None if v is None else v if isinstance(v, list) else [v] for v in values], pa.list_(kind or pa.float64())
    )


def found(dataset: Any, condition: str, **options: Any) -> list[tuple[Any, ...]]:
    """The events as tuples of segment, start, end, peak, peak_at and rows."""
    table = dataset.find(condition, index=options.pop("index", "tick"), executor="inline", **options).to_arrow_table()
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def read_chunks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The chunks that are read: the recording's file and the row of its manifest."""
    read: list[tuple[str, int]] = []
    real = ChunkReferences.read

    def counted(self: ChunkReferences, rows: Any) -> Iterator[Any]:
        read.extend((self.store.recording_id if self.store else "", row) for row in rows.tolist())
        return real(self, rows)

    monkeypatch.setattr(ChunkReferences, "read", counted)
    return read


def events_of(ticks: np.ndarray, is_true: np.ndarray, window: int | None) -> list[tuple[int, int, int]]:
    """Start, end and rows of the events, row by row."""
    events: list[list[int]] = []
    last = None
    for at, (tick, true) in enumerate(zip(ticks.tolist(), is_true.tolist(), strict=True)):
        if not true:
            continue
        joins = last is not None and (at == last + 1 if window is None else tick - events[-1][1] <= window)
        if joins:
            events[-1][1], events[-1][2] = tick, events[-1][2] + 1
        else:
            events.append([tick, tick, 1])
        last = at
    return [tuple(event) for event in events]  # type: ignore[misc]


def plant(
    dataset: DatasetEntry, folder: Path, segments: int, each: int
) -> dict[str, list[tuple[int, int, float, int, int]]]:
    """Segments of 4 chunks of 30 rows; every ``each``-th has two events. Return these."""
    random = np.random.default_rng(7)
    paths, planted = [], {}
    for number in range(segments):
        ticks = np.arange(120) * 2
        values = random.uniform(-9, 9, (120, 3))
        name = f"segment-{number:04}"
        if number % each == each // 2:
            first = int(random.integers(5, 55))
            values[first : first + 4, 1] = [10, 12.5, 11, 10.5]
            values[first + 60, 1] = 30
            at = ticks[[first, first + 3, first + 1, first + 60]].tolist()
            planted[name] = [(at[0], at[1], 12.5, at[2], 4), (at[3], at[3], 30.0, at[3], 1)]
        column = pa.array([[{"linear": row, "frame": "imu"}] for row in values], pa.list_(ACCEL))
        chunks = [chunk("/imu", ticks[a : a + 30], "Imu:accel", column[a : a + 30]) for a in range(0, 120, 30)]
        path = folder / f"{name}.rrd"
        LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="tests", recording_id=name, executor="inline")
        paths.append(str(path))
    dataset.register(paths, copy=True, executor="inline").wait()
    return planted


@pytest.mark.parametrize(
    ("segments", "each"), [(40, 20), pytest.param(1000, 100, marks=pytest.mark.slow)], ids=["some", "thousand"]
)
def test_planted_events_are_found_and_other_segments_stay_closed(
    dataset: DatasetEntry, tmp_path: Path, read_chunks: list[tuple[str, int]], segments: int, each: int
) -> None:
    planted = plant(dataset, tmp_path, segments, each)
    read_chunks.clear()
    events = found(dataset, "/imu:Imu:accel.linear[1] > 9.8")
    assert events == [(name, *event) for name, some in planted.items() for event in some]
    opened = {name for name, _ in read_chunks}
    assert opened == set(planted)
    assert len(opened) * each == segments
    table = dataset.find("/imu:Imu:accel.linear[1] > 9.8", executor="inline").to_arrow_table()
    assert dataset.filter_segments(table).segment_ids() == list(planted)  # type: ignore[arg-type]


@pytest.mark.slow
def test_spark_finds_the_same_events(dataset: DatasetEntry, tmp_path: Path) -> None:
    planted = plant(dataset, tmp_path, 60, 20)
    events = dataset.find("/imu:Imu:accel.linear[1] > 9.8", executor="spark").to_arrow_table().to_pylist()
    assert [tuple(event.values()) for event in events] == [(name, *e) for name, some in planted.items() for e in some]


def test_a_pinned_version_has_the_events_of_its_time(dataset: DatasetEntry, tmp_path: Path) -> None:
    registered(dataset, tmp_path, "a", [chunk("/a", range(3), "v", scalars([1, 9, 1]))])
    before = dataset.at()
    registered(dataset, tmp_path, "a", [chunk("/a", range(3), "v", scalars([1, 1, 9]))])
    assert [event[1] for event in found(before, "/a:v > 5")] == [1]
    assert [event[1] for event in found(dataset, "/a:v > 5")] == [2]


def test_of_a_long_segment_only_chunks_are_read_that_may_have_an_event(
    dataset: DatasetEntry, tmp_path: Path, read_chunks: list[tuple[str, int]]
) -> None:
    values = np.zeros(40_000)
    values[[7, 8, 9, 20_000, 39_999]] = 5
    chunks = [chunk("/a", range(a, a + 10_000), "v", scalars(values[a : a + 10_000])) for a in range(0, 40_000, 10_000)]
    registered(dataset, tmp_path, "long", chunks)
    read_chunks.clear()
    assert [event[1:3] for event in found(dataset, "/a:v > 1")] == [(7, 9), (20_000, 20_000), (39_999, 39_999)]
    assert len(set(read_chunks)) == 3


def test_small_chunks_of_an_entity_share_statistics(
    dataset: DatasetEntry, tmp_path: Path, read_chunks: list[tuple[str, int]]
) -> None:
    """Those of another entity, with the same component, are not among them, nor is a long chunk."""
    quiet = [chunk("/b", [at], "v", scalars([0.5])) for at in range(600)]
    small = [chunk("/a", [at], "v", scalars([9.0 if at == 400 else 0.5])) for at in range(600)]
    long = chunk("/a", range(600, 1600), "v", scalars([0.5] * 1000))
    mixed = [part for pair in zip(quiet, small, strict=True) for part in pair]
    registered(dataset, tmp_path, "one", [*mixed[:200], long, *mixed[200:]])
    read_chunks.clear()
    assert found(dataset, "/b:v > 5") == []
    assert read_chunks == []
    assert [event[1:3] for event in found(dataset, "/a:v > 5")] == [(400, 400)]
    assert len(set(read_chunks)) <= 256
    bounds = [times.statistics("v", "", np.arange(len(times))).high.max() for times in times_of(dataset)]
    assert bounds == [9.0]


def test_an_event_goes_on_from_one_share_of_a_segment_to_the_next(
    dataset: DatasetEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares are what tasks read; with statistics and without them."""
    values = np.zeros(8000)
    values[1500:4500] = 1
    values[[5999, 6001]] = 1
    chunks = [chunk("/a", range(a, a + 1000), "v", scalars(values[a : a + 1000])) for a in range(0, 8000, 1000)]
    registered(dataset, tmp_path, "a", chunks)
    expected = [(1500, 4499, 3000), (5999, 5999, 1), (6001, 6001, 1)]

    def shared(segments: Sequence[Any], request: Any, *_: Any) -> Any:
        """Rows as tasks of some kilobytes read them."""
        shares = [piece for segment in segments for piece in segment.cut(9000)]
        assert len(shares) > len(segments)
        return LocalShares(shares, request)

    class LocalShares:
        def __init__(self, shares: Sequence[Any], request: Any) -> None:
            self.shares = shares

        def rows(self, _: int) -> Iterator[pa.RecordBatch]:
            return itertools.chain.from_iterable(share.batches() for share in self.shares)

        def close(self) -> None: ...

    monkeypatch.setattr(frames, "rows_of", shared)
    for has_statistics in (True, False):
        if not has_statistics:
            monkeypatch.setattr(TimesDirectory, "has_statistics", False)
            warnings.simplefilter("ignore", ReadWarning)
        assert [(e[1], e[2], e[5]) for e in found(dataset, "/a:v > 0")] == expected
        assert [(e[1], e[2], e[5]) for e in found(dataset, "/a:v > 0", window=2)] == [expected[0], (5999, 6001, 2)]


# --- any condition on any values

NUMBERS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), [0.0, -1.5, 2.5, math.nan, math.inf, -math.inf, 1e300, 9.8]),
    "float": (pa.float32(), [0.0, 9.8, -3.0, math.nan, 16777216.0]),
    "half": (pa.float16(), [np.float16(0), np.float16(2.5), np.float16(-1)]),
    "int64": (pa.int64(), [0, -1, 2**53, 2**53 + 1, -(2**63), 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**53 + 1, 2**64 - 1]),
    "int8": (pa.int8(), [0, -128, 127, 3]),
    "bool": (pa.bool_(), [True, False]),
    "text": (pa.string(), ["", "auto", "it's", "ü" * 40, "manual"]),
}
CONSTANTS: list[Any] = [
    0,
    1,
    -1,
    2.5,
    9.8,
    2**53,
    2**53 + 1,
    2**63 - 1,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    0.5,
    1e300,
    127,
]
TEXTS = ["", "auto", "it's", "nobody", "ü" * 40]


@st.composite
def conditions(draw: st.DrawFn, is_text: bool, depth: int = 2) -> tuple[str, Callable[[list[Any]], bool | None]]:
    """A condition on ``/a:v``, and what it is of the values of a row that are not null."""
    kind = draw(st.sampled_from(["compare", "between", "in", "null", *(["not", "and", "or"] if depth else [])]))
    column = draw(st.sampled_from(["/a:v", '"/a:v"']))
    if kind == "not":
        text, test = draw(conditions(is_text, depth - 1))
        return f"NOT ({text})", lambda row: None if test(row) is None else not test(row)
    if kind in ("and", "or"):
        (a, left), (b, right) = draw(conditions(is_text, depth - 1)), draw(conditions(is_text, depth - 1))

        def joined(row: list[Any], decides: bool = kind == "or") -> bool | None:
            both = left(row), right(row)
            return decides if decides in both else None if None in both else not decides

        return f"({a}) {kind} ({b})", joined
    if kind == "null":
        negated = draw(st.booleans())
        return f"{column} IS {'NOT ' * negated}NULL", lambda row: bool(row) == negated
    constant = st.sampled_from(TEXTS if is_text else CONSTANTS)

    def any_of(test: Callable[[Any], bool]) -> Callable[[list[Any]], bool | None]:
        return lambda row: any(map(test, row)) if row else None

    if kind == "between" and not is_text:
        low, high = draw(constant), draw(constant)
        return f"{column} BETWEEN {low!r} AND {high!r}", any_of(lambda v: low <= v <= high)
    if kind == "in":
        some = draw(st.lists(constant, min_size=1, max_size=3))
        return f"{column} in ({', '.join(map(written, some))})", any_of(lambda v: v in some)
    op, test = draw(st.sampled_from(OPERATORS[-3:] if is_text else OPERATORS))
    other = draw(constant)
    if draw(st.booleans()) or op in ("<", "<=", ">", ">="):
        return f"{column} {op} {written(other)}", any_of(lambda v: test(v, other))
    return f"{written(other)}{op}{column}", any_of(lambda v: test(v, other))


OPERATORS: list[tuple[str, Callable[[Any, Any], bool]]] = [
    ("<", lambda a, b: a < b),
    ("<=", lambda a, b: a <= b),
    (">", lambda a, b: a > b),
    (">=", lambda a, b: a >= b),
    ("=", lambda a, b: a == b),
    ("==", lambda a, b: a == b),
    ("<>", lambda a, b: a != b),
]


def written(constant: Any) -> str:
    return "'" + constant.replace("'", "''") + "'" if isinstance(constant, str) else repr(constant)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_condition_is_true_of_the_rows_of_which_an_oracle_says_so(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    kind, values = NUMBERS[data.draw(st.sampled_from(sorted(NUMBERS)))]
    cell = st.one_of(st.just([]), st.lists(st.one_of(st.none(), st.sampled_from(values)), min_size=1, max_size=2))
    parts = data.draw(st.lists(st.lists(cell, min_size=1, max_size=4), min_size=1, max_size=5))
    ticks = data.draw(st.permutations(range(sum(map(len, parts)))))
    dataset = CatalogClient(folder / "lake").create_dataset("any")
    chunks, rows, start = [], {}, 0
    for part in parts:
        some = sorted(ticks[start : start + len(part)])
        start += len(part)
        chunks.append(chunk("/a", some, "v", scalars(part, kind)))
        rows |= dict(zip(some, part, strict=True))
    registered(dataset, folder, "one", chunks)
    for _ in range(6):
        text, test = data.draw(conditions(kind == pa.string()))
        window = data.draw(st.sampled_from([None, 0, 1, 3]))
        order = np.array(sorted(rows))
        held = [[v for v in scalars([rows[t]], kind)[0].as_py() if v is not None] for t in order.tolist()]
        is_true = np.array([test(row) is True for row in held])
        events = [(start, end, n) for _, start, end, _, _, n in found(dataset, text, window=window)]
        assert events == events_of(order, is_true, window), (text, rows)


def test_peaks_are_the_most_extreme_values_and_their_first_times(dataset: DatasetEntry, tmp_path: Path) -> None:
    values = [1.0, [7.0, 9.0], 9.0, math.nan, [8.0, math.nan], None, 2.0]
    registered(dataset, tmp_path, "a", [chunk("/a", range(7), "v", scalars(values))])
    assert found(dataset, "/a:v > 5", window=2) == [("a", 1, 4, 9.0, 1, 3)]
    assert found(dataset, "/a:v <= 2", window="10") == [("a", 0, 6, 1.0, 0, 2)]
    assert [event[3:5] for event in found(dataset, "/a:v = 9")] == [(None, None)]
    registered(dataset, tmp_path, "b", [chunk("/b", range(3), "v", scalars([2**64 - 1, 5, 7], pa.uint64()))])
    assert found(dataset, f"/b:v > {2**63}") == [("b", 0, 0, 2**64 - 1, 0, 1)]


def test_a_value_that_another_hides_is_no_event(dataset: DatasetEntry, tmp_path: Path) -> None:
    """The later row id counts, of another chunk or layer; static values and clears count as they do for queries."""
    one = [chunk("/a", [0, 5, 9], "v", scalars([9, 9, 1])), chunk("/a", [5], "v", scalars([0]))]
    registered(dataset, tmp_path, "one", one)
    assert [event[1:3] for event in found(dataset, "/a:v > 5")] == [(0, 0)]
    registered(dataset, tmp_path, "one", [chunk("/a", [0], "v", scalars([0]))], layer_name="more")
    assert found(dataset, "/a:v > 5") == []
    registered(
        dataset, tmp_path, "two", [chunk("/a", [0, 1], "v", scalars([9, 9])), chunk("/a", [], "v", scalars([1]))]
    )
    rows = dataset.filter_segments("two").reader("tick").to_arrow_table()
    assert len(found(dataset, "/a:v > 5")) == sum(row == [9.0] for row in rows["/a:v"].to_pylist())


def test_a_clear_is_a_row_without_a_value(dataset: DatasetEntry, tmp_path: Path) -> None:
    clear = chunk("/a", [3], "Clear:is_recursive", pa.array([[True]]))
    parts = [chunk("/a/b", range(a, a + 3), "v", scalars([1, 1, 1])) for a in (0, 3, 6)]
    registered(dataset, tmp_path, "one", [*parts, clear])
    rows = dataset.reader("tick").to_arrow_table().sort_by("tick")
    values = rows["/a/b:v"].to_pylist()
    held = [bool(value) for value in values]
    ticks = np.array(rows["tick"].to_pylist())
    expected = events_of(ticks, np.array([not some for some in held]), None)
    assert [(e[1], e[2], e[5]) for e in found(dataset, "/a/b:v IS NULL")] == expected
    assert [e[5] for e in found(dataset, "/a/b:v = 1")] == [n for *_, n in events_of(ticks, np.array(held), None)]


def test_several_columns_have_their_latest_values(dataset: DatasetEntry, tmp_path: Path) -> None:
    mode = chunk("/robot", [0, 10, 20], "State:mode", scalars(["manual", "auto", "manual"], pa.string()))
    speed = chunk("/robot/base", range(0, 30, 3), "speed", scalars(list(range(10))))
    registered(dataset, tmp_path, "one", [mode, speed])
    registered(dataset, tmp_path, "two", [speed])
    auto = "/robot:State:mode = 'auto' AND /robot/base:speed >= 4"
    assert [event[:3] for event in found(dataset, auto)] == [("one", 12, 18)]
    assert [event[:3] for event in found(dataset, "/robot:State:mode IS NULL AND /robot/base:speed = 2")] == [
        ("two", 6, 6)
    ]
    assert found(dataset, "/robot:State:mode = 'off' AND /robot/base:speed >= 0") == []


def test_static_values_need_no_index(dataset: DatasetEntry, tmp_path: Path) -> None:
    for name, version in (("a", 3), ("b", 4)):
        registered(dataset, tmp_path, name, [chunk("/robot", [], "version", scalars([version], pa.int32()))])
    assert found(dataset, "/robot:version > 3", index=None) == [("b", None, None, 4, None, 1)]


def test_times_and_their_windows(dataset: DatasetEntry, tmp_path: Path) -> None:
    stamps = np.array([0, 1, 4, 20], "M8[s]").astype("M8[ns]")
    parts = [
        Chunk.from_columns("/a", [TimeColumn("at", timestamp=stamps)], [ComponentColumn("v", scalars([1, 1, 1, 1]))]),
        Chunk.from_columns(
            "/a", [TimeColumn("lap", duration=stamps - stamps[0])], [ComponentColumn("w", scalars([1] * 4))]
        ),
    ]
    registered(dataset, tmp_path, "a", parts)
    for window, rows in ((3, [3, 1]), ("2s", [2, 1, 1]), (timedelta(seconds=16), [4]), (None, [4])):
        assert [event[-1] for event in found(dataset, "/a:v = 1", index="at", window=window)] == rows
    assert [event[1].total_seconds() for event in found(dataset, "/a:w = 1", index="lap", window=1)] == [0, 4, 20]


# --- where statistics are, and what they are worth


def test_a_dataset_without_statistics_is_read_whole_until_maintenance_makes_them(
    dataset: DatasetEntry, tmp_path: Path, read_chunks: list[tuple[str, int]]
) -> None:
    for name in ("a", "b"):
        path = tmp_path / f"{name}.rrd"
        one = chunk("/a", range(3), "v", scalars([1, 2, 3 if name == "a" else 9]))
        LazyChunkStream.from_iter([one]).write_rrd(path, application_id="tests", recording_id=name, executor="inline")
        dataset.register([str(path)]).wait()
    with pytest.warns(ReadWarning, match=r"2 of 2 segments .*do_maintenance"):
        assert [event[0] for event in found(dataset, "/a:v > 5")] == ["b"]
    dataset.do_maintenance(optimize_indexes=True)
    read_chunks.clear()
    assert [event[0] for event in found(dataset, "/a:v > 5")] == ["b"]
    assert {name for name, _ in read_chunks} == {"b"} or len(read_chunks) == 1
    assert found(dataset, "/a:v > 10") == []
    assert len(read_chunks) == 1


def test_one_command_makes_them_for_a_lake_on_spark(
    dataset: DatasetEntry,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    read_chunks: list[tuple[str, int]],
) -> None:
    paths = [tmp_path / f"{name}.rrd" for name in "ab"]
    for path in paths:
        one = chunk("/a", range(3), "v", scalars([1, 2, ord(path.stem)]))
        stream = LazyChunkStream.from_iter([one])
        stream.write_rrd(path, application_id="tests", recording_id=path.stem, executor="inline")
    dataset.register([str(path) for path in paths]).wait()
    with pytest.warns(ReadWarning, match="2 of 2 segments"):
        assert found(dataset, "/a:v > 97") == [("b", 2, 2, 98.0, 2, 1)]
    ran: list[int] = []
    real = spark_stage.run_spark

    def counted(session: Any, runner: Any, tasks: Sequence[Any], **options: Any) -> Any:
        ran.append(len(tasks))
        return real(session, runner, tasks, **options)

    monkeypatch.setattr(spark_stage, "run_spark", counted)
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "spark")
    done = CliRunner().invoke(commands, ["catalog", "maintain", str(tmp_path / "lake")])
    assert (done.exit_code, ran) == (0, [2]), done.output
    assert [times.directory.has_statistics for times in times_of(dataset)] == [True, True]
    read_chunks.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found(dataset, "/a:v > 97") == [("b", 2, 2, 98.0, 2, 1)]
    assert len(read_chunks) == 1


def test_times_without_statistics_get_them(
    dataset: DatasetEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an earlier release stored them."""
    from chunkmill.engine.rrd import TimesWriter

    real = TimesWriter.finish

    def without(self: TimesWriter) -> Any:
        pieces, directory = real(self)
        kept = pieces[::2]
        sizes = np.array([len(piece) for piece in kept], np.int64)
        places = directory.places.copy()
        places[:, 0] //= 2
        return kept, type(directory)(np.cumsum(sizes) - sizes, sizes, directory.digests[::2], places)

    with monkeypatch.context() as patch:
        patch.setattr(TimesWriter, "finish", without)
        registered(dataset, tmp_path, "a", [chunk("/a", range(3), "v", scalars([1, 2, 3]))])
    assert [times.directory.has_statistics for times in times_of(dataset)] == [False]
    with pytest.warns(ReadWarning, match="no statistics"):
        assert len(found(dataset, "/a:v > 1")) == 1
    dataset.do_maintenance(optimize_indexes=True)
    assert [times.directory.has_statistics for times in times_of(dataset)] == [True]
    assert len(found(dataset, "/a:v > 1")) == 1


def times_of(dataset: DatasetEntry) -> list[Any]:
    folder = RecordingsFolder(dataset.manifest_url)
    newest = folder.newest()
    assert newest is not None
    return [times_in(folder, entry) for entry in folder.live(newest)]


def test_compaction_keeps_statistics_and_makes_damaged_ones_anew(dataset: DatasetEntry, tmp_path: Path) -> None:
    for name in "abc":
        registered(dataset, tmp_path, name, [chunk("/a", range(3), "v", scalars([1, 2, ord(name)]))])
    expected = found(dataset, "/a:v > 97")
    dataset.do_maintenance(compact_fragments=True)
    assert all(times.directory.has_statistics for times in times_of(dataset))
    assert found(dataset, "/a:v > 97") == expected
    times = times_of(dataset)[1]
    piece = int(times.directory.statistics_of(np.array([0]))[0])
    path, at = times.path, times.start + int(times.directory.offsets[piece]) + int(times.directory.sizes[piece]) // 2
    Path(path).chmod(0o600)
    with Path(path).open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 255]))
    with pytest.raises(ReadError, match="digest differs"):
        found(dataset, "/a:v > 97")
    for name in "de":
        registered(dataset, tmp_path, name, [chunk("/a", range(3), "v", scalars([1, 2, 3]))])
    with pytest.warns(ReadWarning, match="computed again"):
        dataset.do_maintenance(compact_fragments=True)
    assert found(dataset, "/a:v > 97") == expected


# --- what takes events


def brakes(dataset: DatasetEntry, folder: Path) -> Any:
    """Three segments of 5 s at 10 Hz, two of which brake: one from 1 s to 1.9 s, one at 3 s and 3.1 s."""
    hard = {"a": range(10, 20), "b": (), "c": (30, 31)}
    for number, (name, rows) in enumerate(hard.items()):
        values = np.ones(50)
        values[list(rows)] = 9 + number
        stamps = (np.arange(50) * 100 + 10_000_000).astype("M8[ms]").astype("M8[ns]")
        line = TimeColumn("at", timestamp=stamps)
        part = Chunk.from_columns("/car", [line], [ComponentColumn("brake", scalars(values.tolist()))])
        registered(dataset, folder, name, [part])
    return dataset.find("/car:brake > 5", executor="inline")


def test_events_are_episodes_of_a_lerobot_dataset(dataset: DatasetEntry, tmp_path: Path) -> None:
    spec = {"fps": 10, "task": "brake", "features": {"action": {"entity": "/car", "component": "brake"}}}
    events = brakes(dataset, tmp_path)
    report = dataset.write_lerobot(tmp_path / "out", spec, episodes=events, executor="inline")
    assert [(a.recording, a.written) for a in report.accounts] == [("a", 10), ("c", 2)]
    data = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "out").glob("data/**/*.parquet"))])
    assert np.ravel(data["action"].to_pylist()).tolist() == [9.0] * 10 + [11.0] * 2
    again = dataset.write_lerobot(tmp_path / "out", spec, episodes=events, executor="inline", append=True)
    assert set(again.skipped) == {"a", "c"}
    fewer = events.to_arrow_table().slice(0, 1).append_column("task", pa.array(["stop"]))
    changed = dataset.write_lerobot(tmp_path / "out", spec, episodes=fewer, executor="inline", append=True)
    assert [(a.recording, a.task) for a in changed.accounts] == [("a", "stop")]
    assert changed.episodes == 1
    with pytest.raises(ValueError, match="given twice"):
        dataset.write_lerobot(
            tmp_path / "b", {**spec, "episodes": {"by": "ranges", "ranges": [[0, 1]]}}, episodes=fewer
        )
    steps = pa.table({"rerun_segment_id": ["a"], "start": [1], "end": [2]})
    with pytest.raises(ValueError, match="index of times"):
        dataset.write_lerobot(tmp_path / "b", spec, episodes=steps)
    with pytest.raises(ValueError, match="no column 'end'"):
        dataset.write_lerobot(tmp_path / "b", spec, episodes=steps.drop_columns("end"))
    with pytest.raises(TypeError, match="must be an Arrow table"):
        dataset.write_lerobot(tmp_path / "b", spec, episodes="events")
    with pytest.raises(ValueError, match="ends before"):
        dataset.write_lerobot(
            tmp_path / "b", spec, episodes=fewer.rename_columns({"start": "end", "end": "start"}), executor="inline"
        )


def test_events_are_samples(dataset: DatasetEntry, tmp_path: Path) -> None:
    from chunkmill.training import DataSource, Field, FixedRateSampling, NumericDecoder, SampleIndex, SampleReader

    source = DataSource(dataset, episodes=brakes(dataset, tmp_path), episode_columns=["peak"])
    index = SampleIndex.build(
        source, "at", {"brake": Field("/car:brake", NumericDecoder())}, timeline_sampling=FixedRateSampling(10)
    )
    samples = list(SampleReader(index).read(np.arange(len(index))).values())
    assert [float(np.ravel(sample["brake"])[0]) for sample in samples] == [9.0] * 10 + [11.0] * 2
    assert [float(sample["peak"]) for sample in samples] == [9.0] * 10 + [11.0] * 2


def test_events_are_labelled_in_a_table_and_joined_in_sql(dataset: DatasetEntry, tmp_path: Path) -> None:
    events = brakes(dataset, tmp_path).to_arrow_table()
    client = CatalogClient(tmp_path / "lake")
    table = client.create_table("events", events.schema.append(pa.field("verdict", pa.string())))
    table.append(events.append_column("verdict", pa.array(["accept", "reject"])))
    rows = client.ctx.sql(
        "SELECT rerun_segment_id, peak FROM events JOIN drives USING (rerun_segment_id) WHERE verdict = 'accept'"
    )
    assert rows.to_pylist() == [{"rerun_segment_id": "a", "peak": 9.0}]
    accepted = client.ctx.sql("SELECT * FROM events WHERE verdict = 'reject'")
    assert dataset.filter_segments(accepted).segment_ids() == ["c"]  # type: ignore[arg-type]


# --- what is wrong with a condition


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "a column is missing at its end"),
        ("/imu:Imu:acel.linear[0] > 1", r"no column '/imu:Imu:acel.linear\[0\]'.*Did you mean '/imu:Imu:accel'"),
        ("/imu:Imu:accel.linaer[0] > 1", r"there is no.*Did you mean '/imu:Imu:accel.linear\[0\]'"),
        ("/imu:Imu:accel.linear > 1", r"cannot be compared.*/imu:Imu:accel.linear\[0\]"),
        ("/imu:Imu:accel.frame > 'a'", "texts"),
        ("/imu:Imu:accel.frame = 1", "cannot be compared with 1"),
        ("/imu:Imu:accel.linear[0] = 'a'", "cannot be compared with 'a'"),
        ("/imu:Imu:accel.linear[0] >", "a number, a 'text', TRUE or FALSE is missing at its end"),
        ("/imu:Imu:accel.linear[0] > 1 /imu:Imu:accel.linear[0] > 1", "AND or OR is missing"),
        ("(/imu:Imu:accel.linear[0] > 1", r"\) is missing"),
        ("/imu:Imu:accel.linear[0] NOT 1", "BETWEEN or IN is missing"),
        ("/imu:Imu:accel.frame = 'a", "a quote is not closed"),
        ("/imu:Imu:accel.linear[0] > 1e999", "is too large"),
        ("/imu:Imu:accel.linear[0] IN ()", "is missing before"),
        ("NOT " * 200 + "/imu:Imu:accel.linear[0] > 1", "nesting is deeper than"),
        (" " * 10_001, "characters"),
    ],
)
def test_a_wrong_condition_is_an_error_that_says_where(
    dataset: DatasetEntry, tmp_path: Path, condition: str, message: str
) -> None:
    values = pa.array([[{"linear": [1, 2, 3], "frame": "a"}]], pa.list_(ACCEL))
    registered(dataset, tmp_path, "a", [chunk("/imu", [0], "Imu:accel", values)])
    with pytest.raises(ValueError, match=f"(?s){message}"):
        found(dataset, condition)


def test_wrong_arguments(dataset: DatasetEntry, tmp_path: Path) -> None:
    lines = [TimeColumn("tick", sequence=[0]), TimeColumn("lap", duration=np.array([0], "m8[ns]"))]
    both = Chunk.from_columns("/a", lines, [ComponentColumn("v", scalars([1]))])
    registered(dataset, tmp_path, "a", [both])
    with pytest.raises(ValueError, match="several indexes"):
        found(dataset, "/a:v > 0", index=None)
    with pytest.raises(ValueError, match="'tack' does not exist"):
        found(dataset, "/a:v > 0", index="tack")
    with pytest.raises(ValueError, match="is a time"):
        found(dataset, "/a:v > 0", window="10s")
    with pytest.raises(ValueError, match="no column"):
        found(dataset, "/a:v > 0", contents="/b/**")
    with pytest.raises(TypeError):
        found(dataset, 1)  # type: ignore[arg-type]


def test_names_with_quotes_and_dots(dataset: DatasetEntry, tmp_path: Path) -> None:
    kind = pa.struct([("a b", pa.list_(pa.int16())), ("c.d", pa.bool_())])
    values = pa.array([[{"a b": [1, 2], "c.d": False}], [{"a b": [], "c.d": True}]], pa.list_(kind))
    registered(dataset, tmp_path, "s", [chunk('/we"ird/x.y', [0, 1], "v.w", values)])
    (name,) = (column.name for column in dataset.schema().component_columns())
    quoted = name.replace('"', '""')
    assert [e[1] for e in found(dataset, f'"{quoted}.""a b""[]" = 2')] == [0]
    assert [e[1] for e in found(dataset, f'"{quoted}.""a b""[1]" IS NULL')] == [1]
    assert [e[1] for e in found(dataset, f'"{quoted}.""c.d""" = TRUE')] == [1]


# --- statistics by themselves


def test_bounds_enclose_values_of_any_size() -> None:
    random = np.random.default_rng(3)
    for dtype in (np.float64, np.float32, np.int64, np.uint64, np.int8):
        for rows in (0, 1, 7, 5000):
            raw = random.integers(0, 256, rows * 2 * np.dtype(dtype).itemsize, np.uint8)
            matrix = raw.view(dtype).reshape(-1, 2)
            ends = np.array([0, rows // 3, rows // 3, rows])
            low, high, has_nan = statistics._bounds(matrix, ends)
            down = statistics._outward(low, np.dtype("<f4"), up=False)
            up = statistics._outward(high, np.dtype("<f4"), up=True)
            for at, (a, b) in enumerate(itertools.pairwise(ends.tolist())):
                for column in range(2):
                    values = [v for v in matrix[a:b, column].tolist() if v == v]
                    assert has_nan[at, column] == (len(values) < b - a)
                    if values:
                        assert down[at, column].item() <= min(values)
                        assert up[at, column].item() >= max(values)


# --- the command


def test_the_command_shows_writes_and_keeps_events(tmp_path: Path) -> None:
    client = CatalogClient(tmp_path / "lake")
    registered(client.create_dataset("drives"), tmp_path, "a", [chunk("/a", range(4), "v", scalars([1, 9, 9, 1]))])
    lake, out = str(tmp_path / "lake"), tmp_path / "events.parquet"

    def run(*options: str) -> str:
        result = CliRunner().invoke(commands, ["find", lake, "drives", "/a:v > 5", "--index", "tick", *options])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "9" in run()
    assert json.loads(run("--json", "--window", "1")) == {
        "rerun_segment_id": "a",
        "start": 1,
        "end": 2,
        "peak": 9.0,
        "peak_at": 1,
        "rows": 2,
    }
    for _ in range(2):
        run("-o", str(out), "--overwrite", "--into-table", "events", "-q")
    assert pq.read_table(out).num_rows == 1
    assert client.get_table("events").reader().to_arrow_table().num_rows == 2
    result = CliRunner().invoke(commands, ["find", lake, "drives", "/a:w > 5"])
    assert result.exit_code != 0
    assert "Did you mean '/a:v'" in result.output
