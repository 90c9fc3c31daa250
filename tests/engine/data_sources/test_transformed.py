"""Pipelines over the rows of DataFrames, partition by partition: streams of Spark's through chunks and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine import Chunk, LazyChunkStream, UsageError
from chunkmill.readers import McapReader
from comparison import cells

MCAP = "mcap/rosbag2__cdr_test_0.mcap"


def named(chunk: Chunk) -> Chunk:
    return chunk.with_entity_path("/robot" + chunk.entity_path)


def test_a_pipeline_runs_where_the_rows_are(spark: Any, data: Path) -> None:
    frame = spark.read.format("chunkmill").option("payload", "true").load(str(data / MCAP))
    topic = next(
        c.entity_path for c in McapReader(data / MCAP).stream().to_chunks(executor="inline") if not c.is_static
    )
    passed = LazyChunkStream.from_stream(frame).filter(content=topic).map(named).to_spark(payload=True)
    assert passed.columns == frame.columns
    rows = passed.select("path", "recording_id").distinct().collect()
    assert [tuple(row) for row in rows] == [(str(data / MCAP), "rosbag2__cdr_test_0")]
    chunks = LazyChunkStream.from_spark(passed).to_chunks(executor="inline")
    wanted = McapReader(data / MCAP).stream().filter(content=topic).map(named).to_chunks(executor="inline")
    assert cells(chunks) == cells(wanted)


def test_it_ends_in_a_dataframe_alone(spark: Any, data: Path) -> None:
    frame = spark.read.format("chunkmill").option("payload", "true").load(str(data / MCAP))
    stream = LazyChunkStream.from_stream(frame)
    with pytest.raises(UsageError, match="exist only while Spark runs the query"):
        stream.to_chunks(executor="inline")
    with pytest.raises(UsageError, match="needs payload=True"):
        stream.to_spark()
    with pytest.raises(UsageError, match="cannot be merged with"):
        LazyChunkStream.merge(stream, McapReader(data / MCAP).stream()).to_spark(payload=True)
    with pytest.raises(UsageError, match="cannot be merged with"):
        LazyChunkStream.merge(LazyChunkStream.from_stream(frame), McapReader(data / MCAP).stream()).explain()
    with pytest.raises(UsageError, match="not a DataFrame of chunks"):
        LazyChunkStream.from_stream(spark.range(1))


def test_its_plan_is_told_before_a_row_has_come(spark: Any, data: Path) -> None:
    frame = spark.read.format("chunkmill").option("payload", "true").load(str(data / MCAP))
    stream = LazyChunkStream.from_stream(frame).filter(content="/imu/**").map(named)
    assert stream.explain().splitlines() == [
        "Pipeline: 1 source(s), 0 split(s), 1 stage",
        "  source from_stream: rows of a DataFrame, partition by partition",
        "  stage (mapInArrow: chunk rows in, chunk rows out)",
        "    map(named)",
        "      filter(content='/imu/**')",
        "        read from_stream",
        "  payloads: decoded by map(named)",
    ]
    assert "from_stream" in stream._repr_html_()
