"""Frames of all real recordings: the same values from Spark as from this process, and none lost."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from chunkmill.engine import Chunk, ChunkmillError, ComponentColumn, LazyChunkStream, TimeColumn
from chunkmill.engine.chunk import columns_of
from chunkmill.engine.stream import FrameRequest, framed, lazy_stream, value_schema
from chunkmill.readers import McapReader, RrdReader, detect_format
from places import DATA, WIDE_DATA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATTERNS = ("demo.mcap", "mcap/*.mcap", "rrd/*.rrd", "parquet/*/*.parquet")
LARGE = 64 * 2**20


def frames(folder: Path) -> list[tuple[LazyChunkStream, pa.Table]]:
    """The values of every recording that has rows and can be read, and as a frame."""
    found = []
    for path in sorted({path for pattern in PATTERNS for path in folder.glob(pattern) if path.is_file()}):
        if path.stat().st_size <= LARGE:
            with contextlib.suppress(ChunkmillError):
                values = detect_format(path).open(path).values()
                found.append((values, values.to_arrow(executor="inline")))
    return found


def check_equal(one: pa.Table, other: pa.Table) -> None:
    """The same columns in the same order, and in each the same values in the same rows (NaN is NaN)."""
    assert one.schema.equals(other.schema)
    for name in one.column_names:
        first, second = one.column(name).combine_chunks(), other.column(name).combine_chunks()
        if not first.equals(second):
            assert first.is_valid().equals(second.is_valid()), name
            assert str(first.drop_null().to_pylist()) == str(second.drop_null().to_pylist()), name


PARQUETS = ("generated/pq_*.parquet", "parquet/*/*.parquet", "parquet/*/data/*/*.parquet")


def told(stream: LazyChunkStream, request: FrameRequest) -> pa.Schema | None:
    """The schema of a frame by the word of the source alone; None where it does not tell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy_stream, "inline_chunks", None)
        try:
            return value_schema(stream, request).arrow
        except TypeError:
            return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("patterns", "lists", "least"),
    [(PARQUETS, None, 30), (("rrd/**/*.rrd",), True, 15), (("rrd/**/*.rrd",), False, 5)],
    ids=["parquet", "lists of rrd", "no lists of rrd"],
)
@pytest.mark.heavy
def test_the_schema_that_a_footer_tells_is_that_of_the_frame(
    patterns: tuple[str, ...], lists: bool | None, least: int
) -> None:
    request, count = FrameRequest.of(lists=lists), 0
    for path in sorted({path for pattern in patterns for path in DATA.glob(pattern)}):
        with contextlib.suppress(ChunkmillError):
            stream = detect_format(path).open(path).stream()
            frame = framed(stream, request).to_chunks(executor="inline")
            schema = told(stream, request)
            if schema is not None:
                assert schema.equals(request.schema(*columns_of(chunk.data for chunk in frame)).arrow), path
                count += 1
    assert count >= least


def test_messages_in_an_rrd_need_no_look_for_their_schema_and_others_do(data: Path, tmp_path: Path) -> None:
    stream = McapReader(data / "demo.mcap", decoders=["ros2_reflection"]).stream()
    stream.write_rrd(tmp_path / "m.rrd", application_id="a", recording_id="r", executor="inline")
    written = RrdReader(tmp_path / "m.rrd").stream()
    request = FrameRequest.of("/nissan/gps/duro/imu", columns=["linear_acceleration.x", "log_time"])
    schema = told(written, request)
    assert schema is not None
    assert schema.equals(written.to_arrow("/nissan/gps/duro/imu", columns=["linear_acceleration.x", "log_time"]).schema)
    assert told(written.map(lambda chunk: chunk), request) is None
    assert told(RrdReader(tmp_path / "m.rrd").stream(), FrameRequest.of(static=True)) is None
    scalars = Chunk.from_columns("/s", [TimeColumn("t", sequence=[1])], [ComponentColumn("volume", [[1.0, 2.0]])])
    two = LazyChunkStream.from_iter([scalars])
    two.write_rrd(tmp_path / "s.rrd", application_id="a", recording_id="r", executor="inline")
    assert told(RrdReader(tmp_path / "s.rrd").stream(), FrameRequest.of()) is None
    assert RrdReader(tmp_path / "s.rrd").stream().to_arrow().column("volume").to_pylist() == [[1.0, 2.0]]


@pytest.mark.filterwarnings("ignore")
def test_spark_gives_the_same_frames(spark: SparkSession) -> None:
    found = frames(DATA)
    assert len(found) > 30
    merged = LazyChunkStream.merge(*[values for values, _ in found])
    on_spark = merged.to_arrow(executor="spark")
    assert on_spark.num_rows == sum(table.num_rows for _, table in found)
    check_equal(merged.to_arrow(executor="inline"), on_spark)


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore")
def test_spark_gives_the_same_frames_of_the_wide_collection(spark: SparkSession) -> None:
    for values, here in frames(WIDE_DATA):
        check_equal(here, values.to_arrow(executor="spark"))
