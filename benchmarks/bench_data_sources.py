"""Spark's data source beside a conversion: what a query of one field of one topic costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chunkmill.engine import get_session
from chunkmill.readers import McapReader
from conftest import Duel


def test_one_field_in_spark_beside_converting_all(benchmark: Any, duel: Duel, mixture: Path, tmp_path: Path) -> None:
    """Guards that only what is asked for is decoded: the stated ratio is of 300 MB, in a warm session."""
    spark = get_session()
    source = spark.read.format("chunkmill.mcap").option("topic", "/imu/data")

    def query() -> None:
        rows = source.option("columns", "linear_acceleration.x").load(str(mixture))
        assert rows.selectExpr("count(`linear_acceleration.x`)").collect()[0][0]

    def conversion() -> None:
        McapReader(mixture).stream().write_rrd(
            tmp_path / "all.rrd", application_id="bench", recording_id="bench", executor="spark"
        )

    duel.run(benchmark, query, conversion, bar=0.3)
