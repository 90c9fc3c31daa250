"""Parquet files as a Spark data source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.data_sources.options import Request
from chunkmill.engine.data_sources.reading import chunk_tasks
from chunkmill.engine.errors import UsageError
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import FORMATS, ParquetReader
from comparison import cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def file(tmp_path: Path) -> Path:
    table = pa.table({"t": [1, 2, 3], "arm_x": [0.5, 1.5, None], "arm_on": [True, False, True], "site": ["n"] * 3})
    pq.write_table(table, tmp_path / "drive.parquet")
    return tmp_path / "drive.parquet"


def test_a_file_with_payload_comes_back(spark: SparkSession, file: Path) -> None:
    frame = (
        spark.read.format("chunkmill.parquet").options(payload="true", index_columns="t:timestamp:ms").load(str(file))
    )
    chunks = LazyChunkStream.from_spark(frame).to_chunks(executor="inline")
    wanted = ParquetReader(file, index_columns=[("t", "timestamp", "ms")]).stream().to_chunks(executor="inline")
    assert cells(chunks) == cells(wanted)


def entities(file: Path, **options: str) -> list[tuple[str, bool]]:
    row = FORMATS["parquet"]
    work = chunk_tasks([str(file)], Request.of(row, {"path": str(file), **options}))
    return [(c.entity_path, c.is_static) for task in work for c in task.work.run(0)]


def test_options_are_those_of_the_reader(file: Path) -> None:
    assert entities(file, entity_path_prefix="/robot", static_columns="site")[1:] == [
        ("/robot/arm", False),
        ("/robot/t", False),
        ("/robot", True),
    ]
    assert ("/arm_x", False) in entities(file, column_grouping="individual")
    assert entities(file, content="/arm") == [("/arm", False)]


def test_options_are_checked(file: Path) -> None:
    with pytest.raises(UsageError, match="'true' or 'false'"):
        entities(file, use_structs="maybe")
    with pytest.raises(UsageError, match=r"index_columns.*not of the form NAME:TYPE"):
        entities(file, index_columns="t:date")
    with pytest.raises(UsageError, match="no option 'topics'"):
        entities(file, topics="/x")
