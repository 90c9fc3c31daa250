"""Index values and filters that are wrong, empty or contradict each other, and what becomes of them.

Errors have the class of those that Rerun recorded, and their first sentence. Where the recorded answers are at hand,
they are compared with the texts below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from chunkmill.engine import Chunk, LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ReadWarning, UnmatchedWarning
from datafusion import DataFrame, col, lit
from datafusion import functions as f
from places import SHARED

GOLDEN = SHARED / "golden" / "query"
NOT_VALUES = (
    "IndexValuesLike must be a pyarrow.Array, pyarrow.ChunkedArray, numpy.ndarray of int64, or numpy.ndarray of "
    "datetime64."
)
NOT_IN_ARROW = "pyarrow.Array for IndexValuesLike must be of type int64, timestamp, or duration."
SECOND = 10**9
FIRST, THIRD = datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 1, 0, 0, 3)  # noqa: DTZ001 (without a zone: UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> DatasetEntry:
    """A segment with an index of each kind: 1 to 3, and as many seconds."""
    folder = tmp_path_factory.mktemp("bad")
    numbers = np.arange(1, 4)
    times = {
        "frame": pa.array(numbers),
        "at": pa.array(numbers * SECOND, pa.timestamp("ns")),
        "since": pa.array(numbers * SECOND, pa.duration("ns")),
    }
    values = pa.array([[1], [2], [3]])
    one = Chunk.build("/a", times, [(ComponentDescriptor("v"), values)])
    path = folder / "one.rrd"
    LazyChunkStream.from_iter([one]).write_rrd(path, application_id="tests", recording_id="one")
    found = CatalogClient(folder / "lake").create_dataset("drives")
    found.register(str(path), executor="inline").wait()
    return found


REFUSED: dict[str, tuple[str | None, Any, type[Exception], str]] = {
    "dups": ("frame", np.array([10, 10]), ValueError, "Index values must be unique."),
    "float": ("frame", np.array([1.5]), TypeError, NOT_VALUES),
    "bool": ("frame", np.array([True]), TypeError, NOT_VALUES),
    "pa_int32": ("frame", pa.array([10], pa.int32()), TypeError, NOT_IN_ARROW),
    "pa_str": ("frame", pa.array(["10"]), TypeError, NOT_IN_ARROW),
    "scalar_int": ("frame", 10, TypeError, NOT_VALUES),
    "np2d": ("frame", np.array([[10]]), TypeError, NOT_VALUES),
    "uiv_none_index": (None, [10], ValueError, "index must be provided when using_index_values is specified"),
    "t:td64ns": ("at", {"one": np.array([1], "m8[ns]")}, TypeError, NOT_VALUES),
    "t:td64s": ("at", {"one": np.array([1], "m8[s]")}, TypeError, NOT_VALUES),
    # not recorded
    "text": ("frame", "10", TypeError, NOT_VALUES),
    "texts": ("frame", ["10"], TypeError, NOT_VALUES),
    "times of an integer index": ("frame", np.array([1], "M8[ns]"), TypeError, "Index 'frame' is of type int64"),
    "times of durations": (
        "since",
        np.array([1], "M8[s]"),
        TypeError,
        "duration[ns], and takes timedelta or timedelta64, or integers of nanoseconds, not datetime64.",
    ),
    "datetimes of durations": ("since", [FIRST], TypeError, "Index 'since' is of type duration[ns]"),
    "Arrow's times of integers": (
        "frame",
        pa.array([1], pa.timestamp("s")),
        TypeError,
        "Index 'frame' is of type int64",
    ),
    "spans of integers": ("frame", {"one": [timedelta(1)]}, TypeError, "Index 'frame' is of type int64"),
    "spans of times": ("at", pd.TimedeltaIndex([SECOND]), TypeError, "Index 'at' is of type timestamp[ns]"),
    "times and spans": ("at", [FIRST, timedelta(1)], TypeError, "Got both timedelta64 and datetime64."),
    "None": (
        "frame",
        [1, None],
        ValueError,
        "a value for index 'frame' of type int64 is None, at position 1. Remove it from the values.",
    ),
    "None of a segment": ("frame", {"one": [None]}, ValueError, "int64 is None, at position 0 of segment 'one'"),
    "NaT": (
        "at",
        np.array(["1970-01-02", "NaT"], "M8[s]"),
        ValueError,
        "index 'at' of type timestamp[ns] is NaT, at position 1",
    ),
    "pandas' NaT": ("since", pd.TimedeltaIndex([SECOND, None]), ValueError, "is NaT, at position 1"),
    "NaT in a list": ("at", [FIRST, pd.NaT], ValueError, "is NaT, at position 1"),
    "a year beyond nanoseconds": (
        "at",
        [datetime(2500, 1, 1, tzinfo=UTC)],
        ValueError,
        "value 2500-01-01 00:00:00+00:00 is larger",
    ),
    "seconds beyond nanoseconds": ("at", np.array([2**40], "M8[s]"), ValueError, "is larger than an index allows"),
    "Arrow beyond nanoseconds": (
        "at",
        pa.array([2**40], pa.timestamp("s")),
        ValueError,
        "is larger than an index allows",
    ),
    "an integer beyond": ("frame", [2**63], ValueError, "index value 9223372036854775808 is larger"),
    "duplicates in Arrow": ("frame", pa.array([1, 2, 1]), ValueError, "Index values must be unique."),
    "duplicates of a segment": ("frame", {"one": [1, 1]}, ValueError, "Index values must be unique."),
    "too large": ("frame", np.array([2**63], np.uint64), ValueError, "index value 9223372036854775808 is larger"),
    "no segments": ("frame", pa.table({"frame": [1]}), ValueError, "the data frame has no column 'rerun_segment_id'"),
    "no index": (
        "frame",
        pa.table({"rerun_segment_id": ["one"]}),
        ValueError,
        "the data frame has no column 'frame'",
    ),
    "unknown index": (
        "frames",
        None,
        ValueError,
        "Index 'frames' does not exist in the dataset.",
    ),
}


@pytest.mark.parametrize("label", REFUSED)
def test_what_is_refused(dataset: DatasetEntry, label: str) -> None:
    index, values, error, text = REFUSED[label]
    with pytest.raises(error) as raised:
        dataset.reader(index, using_index_values=values)
    assert text in str(raised.value)
    assert type(raised.value).__mro__.index(error) <= 2


TAKEN_HERE = {"dd:td64ns", "dd:td64s"}
"""Recorded errors that are none here."""


@pytest.mark.wide
@pytest.mark.parametrize("name", ["g05_using_index_values", "g05b_uiv_times"])
def test_every_recorded_error_is_one_of_these(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    if not path.exists():
        pytest.skip("the recorded answers are not at hand")
    for query in json.loads(Path(path).read_text(encoding="utf-8"))["queries"]:
        if "error" in query and query["label"] not in TAKEN_HERE:
            _, _, error, text = REFUSED[query["label"]]
            assert query["error_type"] == error.__name__ and query["error"].startswith(text)


ACCEPTED: dict[str, tuple[str, Any]] = {
    "a list": ("frame", [3, 1]),
    "a range": ("frame", range(1, 4, 2)),
    "int32": ("frame", np.array([1, 3], np.int32)),
    "uint64": ("frame", np.array([3, 1], np.uint64)),
    "Arrow": ("frame", pa.array([3, None, 1])),
    "chunks": ("frame", pa.chunked_array([[3], [1]])),
    "a series": ("frame", pd.Series([1, 3])),
    "integers as times": ("at", [SECOND, 3 * SECOND]),
    "nanoseconds": ("at", np.array([SECOND, 3 * SECOND], "M8[ns]")),
    "milliseconds": ("at", np.array([1000, 3000], "M8[ms]")),
    "seconds": ("at", np.array([1, 3], "M8[s]")),
    "seconds in Arrow": ("at", pa.array([1, 3], pa.timestamp("s"))),
    "a time zone": ("at", pa.array([10**6, 3 * 10**6], pa.timestamp("us", "UTC"))),
    "dates": ("at", pd.DatetimeIndex(["1970-01-01T00:00:01", "1970-01-01T00:00:03"])),
    "durations in Arrow": ("since", pa.array([1000, 3000], pa.duration("ms"))),
    "datetimes": ("at", [FIRST, datetime(1970, 1, 1, 1, 0, 3, tzinfo=timezone(HOUR))]),
    "pandas' times": ("at", [pd.Timestamp(SECOND), pd.Timestamp(3 * SECOND, tz="UTC").tz_convert("Asia/Tokyo")]),
    "numpy's times in a list": ("at", [np.datetime64(1, "s"), np.datetime64(3000, "ms")]),
    "dates of a zone": ("at", pd.DatetimeIndex([SECOND, 3 * SECOND], tz="UTC").tz_convert("Europe/Berlin")),
    "Arrow's times in a list": ("at", pa.array([1, 3], pa.timestamp("s"))[::1].to_pylist()),
    "Arrow's scalars": ("at", list(pa.array([1, 3], pa.timestamp("s", "UTC")))),
    "times as objects": ("at", np.array([FIRST, THIRD], object)),
    "integers as durations": ("since", [SECOND, 3 * SECOND]),
    "timedeltas": ("since", [timedelta(seconds=1), timedelta(seconds=3)]),
    "pandas' timedeltas": ("since", [pd.Timedelta(SECOND), pd.Timedelta(3 * SECOND)]),
    "an index of spans": ("since", pd.TimedeltaIndex([SECOND, 3 * SECOND])),
    "a series of spans": ("since", pd.Series(pd.TimedeltaIndex([3 * SECOND, SECOND]))),
    "numpy's spans": ("since", np.array([1000, 3000], "m8[ms]")),
    "spans of a segment": ("since", {"one": [timedelta(seconds=1), np.timedelta64(3, "s")]}),
    "a table of times": (
        "at",
        pd.DataFrame({"rerun_segment_id": ["one", "one"], "at": pd.DatetimeIndex([SECOND, 3 * SECOND])}),
    ),
    "each segment": ("frame", {"one": [3, 1], "none": [9]}),
    "a table": ("frame", pa.table({"rerun_segment_id": ["one", "one"], "frame": [3, 1]})),
}


@pytest.mark.parametrize("label", ACCEPTED)
def test_what_is_taken(dataset: DatasetEntry, label: str) -> None:
    index, values = ACCEPTED[label]
    frame = dataset.reader(index, using_index_values=values)
    assert [row["/a:v"] for row in frame.sort(index).to_pylist()] == [[1], [3]]


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ("ona", "dataset 'drives' has no segment 'ona'; ignored. Did you mean 'one'?"),
        (["one", "zzz"], "dataset 'drives' has no segment 'zzz'; ignored."),
        (
            pa.table({"rerun_segment_id": list("zyxwv")}),
            "has no segment 'v', 'w', 'x' and 2 more; ignored.",
        ),
    ],
    ids=str,
)
def test_a_segment_that_is_not_there_is_told_of(dataset: DatasetEntry, chosen: Any, told: str) -> None:
    for where in (dataset, dataset.filter_contents("/**")):
        with pytest.warns(ReadWarning, match=re.escape(told)) as caught:
            view = where.filter_segments(chosen)
        assert caught[0].filename == __file__
        assert set(view.segment_ids()) == {"one"} & set(chosen if isinstance(chosen, list) else [])
    assert dataset.filter_segments("one").filter_segments(["one"]).segment_ids() == ["one"]


FRAME, SEGMENT = col("frame"), col("rerun_segment_id")

EMPTY: dict[str, Callable[[DatasetEntry], DataFrame]] = {
    "no segments": lambda d: d.filter_segments([]).reader("frame"),
    "no contents": lambda d: d.filter_contents([]).reader("frame"),
    "unknown contents": lambda d: d.filter_contents("/nope/**").reader("frame"),
    "no index values": lambda d: d.reader("frame", using_index_values=[]),
    "no index values of segments": lambda d: d.reader("frame", using_index_values={"one": []}),
    "index values of no segment": lambda d: d.reader("frame", using_index_values={"nope": [1]}),
    "ranges that contradict each other": lambda d: d.reader("frame").filter((FRAME > 2) & (FRAME < 2)),
    "two filters that do": lambda d: d.reader("frame").filter(lit(1) == FRAME).filter(lit(2) == FRAME),
    "between, the wrong way": lambda d: d.reader("frame").filter(FRAME.between(lit(3), lit(1))),
    "two segments at once": lambda d: d.reader("frame").filter((lit("one") == SEGMENT) & (lit("two") == SEGMENT)),
    "in no set": lambda d: d.reader("frame").filter(f.in_list(SEGMENT, [])),
    "a value that is not there": lambda d: d.reader("frame").filter(lit(9) == FRAME),
    "of another type": lambda d: d.reader("frame").filter(lit(99.5) < FRAME),
}


@pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.UnmatchedWarning")
@pytest.mark.parametrize("label", EMPTY)
def test_what_has_no_rows(dataset: DatasetEntry, label: str) -> None:
    frame = EMPTY[label](dataset)
    assert frame.count() == 0
    assert frame.to_arrow_table().schema.names[0] == "rerun_segment_id" and "frame" in frame.schema().names
    assert str(frame) == "No data to display"


def test_an_unknown_column_is_an_error_of_datafusion(dataset: DatasetEntry) -> None:
    with pytest.raises(Exception, match="nope"):
        dataset.reader("frame").filter(col("nope") > 1)


def test_contents_that_match_no_entity_are_warned_of(dataset: DatasetEntry) -> None:
    with pytest.warns(UnmatchedWarning, match=r"no entity matches /aa/\*\*\. Did you mean /a"):
        assert dataset.filter_contents("/aa/**").reader("frame").count() == 0
    with pytest.warns(UnmatchedWarning, match="no entity matches /b"):
        dataset.catalog.ctx.sql("SELECT frame FROM reader('drives', index => 'frame', contents => '/b')").count()
    for some in ("/**", ["/a", "/b"], []):
        dataset.filter_contents(some).reader("frame")
