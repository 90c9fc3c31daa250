"""Frames of all real recordings: the same values from Spark as from this process, and none lost."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from chunkmill.engine import ChunkmillError, LazyChunkStream
from chunkmill.readers import detect_format
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
