"""DataFrames of Spark as rows of tables: tasks write them, and one commit takes them in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.errors import UsageError, WriteError
from datafusion import col, lit


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    return CatalogClient(tmp_path / "lake")


@pytest.mark.quick
def test_tasks_of_spark_write_a_frame_in_one_commit(client: CatalogClient, spark: Any) -> None:
    key = pa.field("id", pa.int64(), nullable=False, metadata={"rerun:is_table_index": "true"})
    schema = pa.schema([key, ("v", pa.float32()), ("t", pa.timestamp("ns", "UTC")), ("s", pa.string())])
    table = client.create_table("written", schema)
    frame = spark.range(0, 1000, 1, 4).selectExpr("id", "cast(id / 2 as float) as v", "timestamp_seconds(id) as t")
    table.append(frame)
    table.append(spark.range(1000, 1000, 1, 2))  # of no rows
    found = table.reader().sort(col("id")).to_arrow_table()
    assert found["id"].to_pylist() == list(range(1000))
    assert found["v"][3].as_py() == 1.5
    assert found["t"].cast(pa.int64())[2].as_py() == 2_000_000_000
    assert found["s"].null_count == 1000
    dataset = lance.dataset(table.storage_url)
    assert dataset.version == 2
    assert len(dataset.get_fragments()) == 4
    table.upsert(id=5, v=0.25)
    assert table.reader().filter(col("id") == lit(5)).to_pydict()["v"] == [0.25]

    table.overwrite(spark.range(0, 10, 1, 3).selectExpr("id", "id * 2 as twice"))
    assert table.arrow_schema().names == ["id", "twice"]
    assert sorted(table.reader().to_pydict()["twice"]) == list(range(0, 20, 2))
    assert table.arrow_schema().field("id").metadata[b"rerun:is_table_index"] == b"true"
    table.upsert(id=5, twice=0)
    assert table.reader().count() == 10
    table.overwrite(spark.range(0, 0, 1, 2))
    assert table.reader().count() == 0

    version = lance.dataset(table.storage_url).version
    with pytest.raises(WriteError, match="fields did not match"):
        table.append(spark.range(3).selectExpr("id", "id as other"))
    with pytest.raises(WriteError, match="must not have any"):
        table.append(spark.range(3).selectExpr("cast(null as bigint) as id"))
    with pytest.raises(UsageError, match="two columns"):
        table.append(spark.range(3).selectExpr("id", "id as id"))
    with pytest.raises(UsageError, match=r"cannot have a column called 'a\.b'"):
        table.overwrite(spark.range(3).selectExpr("id", "id as `a.b`"))
    with pytest.raises(UsageError, match="reserved name"):
        table.overwrite(spark.range(3).selectExpr("id", "id as _rowid"))
    assert lance.dataset(table.storage_url).version == version
