"""Tools of agents over a lake in a bucket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill import CatalogClient, Chunk, LazyChunkStream
from chunkmill.engine.agents import CallLimits, lake_server
from chunkmill.engine.chunk import ComponentDescriptor

mcp, anyio = pytest.importorskip("mcp"), pytest.importorskip("anyio")


@pytest.mark.process
def test_a_lake_in_a_bucket_is_read_and_its_place_is_not_said(bucket: str, tmp_path: Path) -> None:
    times = pa.array(range(0, 1_000_000_000, 100_000_000), pa.timestamp("ns"))
    chunk = Chunk.build("/imu", {"time": times}, [(ComponentDescriptor("x"), pa.array([[1.0]] * 10))])
    LazyChunkStream.from_iter([chunk]).write_rrd(
        f"{bucket}/a.rrd", application_id="t", recording_id="a", executor="inline"
    )
    CatalogClient(f"{bucket}/lake").create_dataset("drives").register(f"{bucket}/a.rrd").wait()

    async def run() -> list[Any]:
        async with mcp.Client(lake_server(f"{bucket}/lake", CallLimits())) as client:
            calls = [
                await client.call_tool("rates", {"dataset": "drives"}),
                await client.call_tool("rows", {"dataset": "drives", "limit": 2}),
                await client.call_tool("sql", {"statement": "SELECT * FROM drives"}),
                await client.call_tool("sql", {"statement": f"SELECT * FROM '{bucket}/a.rrd'"}),
                await client.call_tool("describe", {"name": f"{bucket}/lake"}),
            ]
            return [(call.is_error, call.content[0].text) for call in calls]

    rates, rows, segments, *refused = anyio.run(run)
    assert [row["rate_hz"] for row in json.loads(rates[1])["rows"]] == [10.0]
    assert len(json.loads(rows[1])["rows"]) == 2
    assert not segments[0] and bucket not in segments[1]
    assert all(is_error for is_error, _ in refused)
