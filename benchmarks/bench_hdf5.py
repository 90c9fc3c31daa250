"""HDF5 to RRD beside rerun-sdk, by storage: contiguous, gzip, gzip with shuffle, lzf.

``CHUNKMILL_BENCH_MB`` (default 100) is the size of the values. The process that runs h5py waits from the first call on,
which does not count; ``test_start_of_hdf5`` has its start.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from chunkmill.engine import sandbox
from chunkmill.readers import Hdf5Reader
from conftest import FIGURES, MB, Duel

peer = pytest.importorskip("rerun.experimental")
if not hasattr(peer, "Hdf5Reader"):
    pytest.skip("it reads HDF5 since 0.41", allow_module_level=True)

STORED: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "gzip": {"compression": "gzip", "compression_opts": 4},
    "gzip and shuffle": {"compression": "gzip", "compression_opts": 4, "shuffle": True},
    "lzf": {"compression": "lzf"},
}


def write_episode(path: Path, stored: dict[str, Any], size: int) -> Path:
    """Write joints and pictures of two cameras; most of ``size`` bytes are pictures, a chunk each where there are."""
    chance = np.random.default_rng(1)
    pixels = 240 * 320 * 3
    rows = max(size // (2 * pixels + 6 * 14 * 8), 20)
    scene = np.repeat(chance.integers(0, 255, (24, 240, 40, 3), "u1"), 8, axis=2)
    with h5py.File(path, "w") as file:
        for name in ("action", "observations/qpos", "observations/qvel"):
            values = np.cumsum(chance.normal(0, 0.001, (rows, 28)), axis=0)
            file.create_dataset(name, data=values, chunks=(min(rows, 1024), 28) if stored else None, **stored)
        for camera in ("high", "wrist"):
            chunks = (1, 240, 320, 3) if stored else None
            images = file.create_dataset(
                f"observations/images/{camera}", (rows, 240, 320, 3), "u1", chunks=chunks, **stored
            )
            for at in range(0, rows, len(scene)):
                images[at : at + len(scene)] = scene[: rows - at] + np.uint8(at % 256)
    return path


@pytest.mark.parametrize("name", STORED)
def test_convert_hdf5(name: str, benchmark: Any, duel: Duel, tmp_path: Path) -> None:
    """Guards: at most 1.2 x rerun's time."""
    path = write_episode(tmp_path / "episode.hdf5", STORED[name], MB << 20)

    def ours() -> None:
        Hdf5Reader(path).stream().write_rrd(
            tmp_path / "ours.rrd", application_id="bench", recording_id="bench", executor="inline"
        )

    def theirs() -> None:
        peer.Hdf5Reader(path).stream().write_rrd(tmp_path / "theirs.rrd", application_id="bench", recording_id="bench")

    duel.run(benchmark, ours, theirs, bar=1.2)


def test_start_of_hdf5(benchmark: Any, tmp_path: Path) -> None:
    """The start of the process that runs h5py, with the reading of a small file."""
    path = write_episode(tmp_path / "episode.hdf5", {}, 0)
    started = time.perf_counter()
    sandbox._stop()
    benchmark.pedantic(lambda: Hdf5Reader(path).stream(), rounds=1)
    FIGURES.append(("start of the process of HDF5", time.perf_counter() - started, None, "s"))
