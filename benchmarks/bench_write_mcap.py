"""MCAP to MCAP: records copied by the official Python library and by ``write_mcap``; and whole chunks beside ``cp``."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunkmill.readers import McapReader
from conftest import AT_LEAST, Duel
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer

MIB = 1 << 20
SIZES = {"100 B": 100, "100 kB": 100_000}


def made(path: Path, size: int, total: int = 400 * MIB, compression: CompressionType = CompressionType.ZSTD) -> Path:
    """A file of ``total`` bytes of messages, half of each noise, on eight topics."""
    half = np.random.default_rng(1).integers(0, 256, 2 * MIB, np.uint8).tobytes()
    with path.open("wb") as file:
        writer = Writer(file, compression=compression)
        writer.start(library="bench")
        channels = [writer.register_channel(f"/topic/{i}", "own", 0) for i in range(8)]
        for i in range(total // size // (10 if size < 1000 else 1)):
            at = i * 7919 % MIB
            data = half[at : at + size // 2] + bytes(size - size // 2)
            writer.add_message(channels[i % 8], 10**18 + i * 1000, data, 10**18 + i * 1000, i)
        writer.finish()
    return path


def by_the_library(source: Path, out: Path) -> None:
    """Copy every record as the library's users do."""
    with source.open("rb") as file, out.open("wb") as target:
        writer = Writer(target)
        writer.start()
        channels: dict[int, int] = {}
        for _, channel, message in make_reader(file).iter_messages():
            if channel.id not in channels:
                channels[channel.id] = writer.register_channel(channel.topic, channel.message_encoding, 0)
            own = channels[channel.id]
            writer.add_message(own, message.log_time, message.data, message.publish_time, message.sequence)
        writer.finish()


@pytest.mark.parametrize("size", SIZES)
def test_records_beside_the_library(benchmark: Any, duel: Duel, size: str, tmp_path: Path) -> None:
    """Guards the ratio to the library's copy."""
    source = made(tmp_path / "in.mcap", SIZES[size])

    def ours() -> None:
        McapReader(source).stream().write_mcap(tmp_path / "ours.mcap", executor="spark")

    duel.run(benchmark, ours, lambda: by_the_library(source, tmp_path / "theirs.mcap"), bar=0.5)


def test_large_messages_in_a_second(tmp_path: Path) -> None:
    """Guards the bytes of messages of 100 kB that are sorted and compressed anew in a second."""
    source = made(tmp_path / "in.mcap", 100_000, 1000 * MIB)
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        McapReader(source).stream().write_mcap(tmp_path / "out.mcap", executor="spark")
        seconds.append(time.perf_counter() - began)
    AT_LEAST.append(("write_mcap, messages of 100 kB", 1000 / min(seconds[1:]), 600.0, "MiB/s"))


def test_whole_chunks_beside_cp(benchmark: Any, duel: Duel, tmp_path: Path) -> None:
    """Guards the ratio to ``cp`` that syncs its copy, as every output here is synced."""
    source = made(tmp_path / "in.mcap", 100_000, 800 * MIB, CompressionType.NONE)

    def ours() -> None:
        McapReader(source).stream().write_mcap(tmp_path / "ours.mcap", sort=False, executor="inline")

    def theirs() -> None:
        subprocess.run(["cp", source, tmp_path / "theirs.mcap"], check=True)
        subprocess.run(["sync", tmp_path / "theirs.mcap"], check=True)

    duel.run(benchmark, ours, theirs, bar=2.0)
