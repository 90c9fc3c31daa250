"""Parquet to RRD: a warm session against rerun-sdk in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.readers import ParquetReader
from conftest import Duel

peer = pytest.importorskip("rerun.experimental")

ROWS = 1_000_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A million rows of 40 columns of floats with 10 prefixes, in one row group as Arrow writes it."""
    noise = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("table") / "table.parquet"
    pq.write_table(pa.table({f"g{i}_{j}": noise.normal(size=ROWS).cumsum() for i in range(10) for j in range(4)}), path)
    return path


@pytest.mark.parametrize("executor", ["spark", "inline"])
def test_convert_parquet(executor: str, benchmark: Any, duel: Duel, table: Path, tmp_path: Path) -> None:
    """Guards: a warm convert of 1 M rows x 40 columns takes at most 0.8 x rerun's time on Spark."""

    def ours() -> None:
        ParquetReader(table).stream().write_rrd(
            tmp_path / "ours.rrd", application_id="bench", recording_id="bench", executor=executor
        )

    def theirs() -> None:
        peer.ParquetReader(table).stream().write_rrd(
            tmp_path / "theirs.rrd", application_id="bench", recording_id="bench"
        )

    duel.run(benchmark, ours, theirs, bar=0.8 if executor == "spark" else None)
