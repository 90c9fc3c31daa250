"""Parquet to RRD: a warm session against rerun-sdk in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chunkmill.readers import ParquetReader
from conftest import Duel
from made_recordings import write_table

peer = pytest.importorskip("rerun.experimental")

ROWS = 1_000_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A million rows of 40 columns."""
    return write_table(tmp_path_factory.mktemp("table") / "table.parquet", ROWS)


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
