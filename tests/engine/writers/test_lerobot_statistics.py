"""The statistics of an export beside the definition of lerobot 0.4.4, computed of the dataset's own data."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunkmill import LazyChunkStream
from chunkmill.engine.writers.lerobot import write_lerobot
from lerobot_statistics import FIGURES, episodes_of, expected_of, expected_of_all, features_of, written
from test_lerobot_writing import images, numbers


def noise(random: np.random.Generator, size: tuple[int, int]) -> bytes:
    """A PNG of random pixels."""
    out = io.BytesIO()
    pixels = random.integers(0, 256, (size[1], size[0], 3), np.uint8)
    pytest.importorskip("PIL.Image").fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def drawn(random: np.random.Generator, count: int, size: tuple[int, int]) -> LazyChunkStream:
    """Numbers of several sizes, and pictures, ten a second."""
    seconds = np.arange(count) / 10
    return LazyChunkStream.from_iter(
        [
            numbers("/arm", seconds, random.normal([0, -3, 50], [1e-3, 1, 20], (count, 3))),
            numbers("/steps", seconds, random.integers(-1000, 1000, (count, 2))),
            numbers("/closed", seconds, random.integers(0, 2, (count, 1))),
            images("/camera", seconds, [noise(random, size) for _ in range(count)]),
        ]
    )


def spec_of(dtype: str) -> dict[str, Any]:
    """The export of such a recording, its pictures as images or as a video."""
    return {
        "fps": 10,
        "features": {
            "observation.state": {"entity": "/arm"},
            "observation.exact": {"entity": "/arm", "dtype": "float64"},
            "observation.steps": {"entity": "/steps", "dtype": "int64"},
            "observation.closed": {"entity": "/closed", "dtype": "bool"},
            "observation.images.top": {"entity": "/camera", "dtype": dtype},
        },
    }


@pytest.mark.parametrize("size", [(16, 12), (320, 240)])
def test_they_are_what_lerobot_computes(size: tuple[int, int], tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    lengths = (130, 7, 1) if size[0] < 300 else (6, 3)  # of 130 frames, 100 are sampled
    recordings = {str(length): drawn(random, length, size) for length in lengths}
    write_lerobot(recordings, tmp_path / "set", spec_of("image"), executor="inline")
    episodes, overall = written(tmp_path / "set")
    rows, features = episodes_of(tmp_path / "set"), features_of(tmp_path / "set")
    for name, feature in features.items():
        parts = [expected_of(episode[name], feature["dtype"]) for episode in rows]
        for mine, oracles in zip([*episodes, overall], [*parts, expected_of_all(parts)], strict=True):
            for key in FIGURES:
                assert mine[name][key].shape == oracles[key].shape, (name, key)
                assert np.allclose(mine[name][key], oracles[key], rtol=0, atol=1e-6), (name, key)


def test_pictures_have_them_as_a_video_too(tmp_path: Path) -> None:
    pytest.importorskip("av")
    shown = []
    for dtype in ("image", "video"):
        recording = drawn(np.random.default_rng(2), 5, (64, 48))
        write_lerobot({"a": recording}, tmp_path / dtype, spec_of(dtype), executor="inline")
        shown.append((tmp_path / dtype / "meta/stats.json").read_text())
    assert shown[0] == shown[1]
