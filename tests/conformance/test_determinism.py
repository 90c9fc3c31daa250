"""The same bytes give the same chunks in the same order: run after run, on any executor, on any number of cores."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.readers import McapReader, RrdReader
from chunkmill.readers.mcap import plan
from comparison import cells
from mcap.writer import CompressionType, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An MCAP of many chunks and, as splits are made small here, of many splits."""
    monkeypatch.setattr(plan, "SPLIT_BYTES", 20_000)
    path = tmp_path / "drive.mcap"
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=4_000, compression=CompressionType.ZSTD)
        writer.start("ros2", "test")
        schema = writer.register_schema("test_msgs/msg/Value", "ros2msg", b"float64 value\nstring name\n")
        channels = [writer.register_channel(f"/topic/{i}", "cdr", schema) for i in range(3)]
        for i in range(3000):
            name = f"message {i}".encode() + b"\0"
            data = b"\0\1\0\0" + struct.pack("<dI", i / 7, len(name)) + name
            writer.add_message(channels[i % 3], i * 1000, data, i * 1000 + 5, i)
        writer.finish()
    return path


def written(path: Path, out: Path, executor: str) -> list[Chunk]:
    stream = McapReader(path).stream().filter(content="/topic/** - /topic/1")
    result = stream.write_rrd(out, application_id="a", recording_id="r", executor=executor)
    assert result.splits > 5
    assert result.rows == 2000 + 2, "messages, and the schemas of two topics"
    return RrdReader(out).stream().to_chunks(executor="inline")


def test_runs_agree_on_any_executor(recording: Path, tmp_path: Path, spark: SparkSession) -> None:
    runs = [written(recording, tmp_path / f"{i}.rrd", e) for i, e in enumerate(["inline", "spark", "spark", "inline"])]
    first = cells(runs[0])
    assert len(first) > 5
    assert all(cells(run) == first for run in runs)
    collected = McapReader(recording).stream().filter(content="/topic/** - /topic/1").to_chunks(executor="spark")
    assert cells(collected) == first
