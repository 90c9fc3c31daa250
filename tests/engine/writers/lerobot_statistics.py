"""The statistics of a LeRobot dataset as lerobot 0.4.4 defines them, computed of the dataset's own data.

    python tests/engine/writers/lerobot_statistics.py FOLDER

compares the figures of a dataset with lerobot's own functions, in an environment
that has lerobot; it prints the largest difference of each feature and figure.

An episode's figures are over its frames, as a population; those of an image are over the pixels of the frames that are
sampled, of every n-th pixel where it is large, each channel by itself, in 0 … 1. The figures of all episodes weigh each
episode by its count.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

Figures = dict[str, npt.NDArray[np.float64]]
FIGURES = ("min", "max", "mean", "std", "count")


def features_of(root: Path) -> dict[str, Any]:
    """The features of numbers and of images in the data files."""
    features = json.loads((root / "meta/info.json").read_text())["features"]
    return {name: feature for name, feature in features.items() if feature["dtype"] not in ("video", "string")}


def episodes_of(root: Path) -> list[dict[str, list[Any]]]:
    """The rows of each episode, by feature."""
    rows = [row for file in sorted(root.glob("data/*/*.parquet")) for row in pq.read_table(file).to_pylist()]
    count = 1 + max(row["episode_index"] for row in rows)
    own = [[row for row in rows if row["episode_index"] == number] for number in range(count)]
    return [{name: [row[name] for row in some] for name in features_of(root)} for some in own]


def pictures(values: Sequence[Mapping[str, Any]]) -> list[npt.NDArray[np.uint8]]:
    """The frames of an episode that are sampled, of every n-th pixel: ``[height, width, 3]``."""
    from PIL import Image

    count = len(values)
    wanted = max(min(100, count), min(int(count**0.75), 10_000))
    chosen = [values[int(n)] for n in np.round(np.linspace(0, count - 1, wanted))]
    images = [np.asarray(Image.open(io.BytesIO(value["bytes"])).convert("RGB")) for value in chosen]
    height, width = images[0].shape[:2]
    step = int((width if width > height else height) / 150) if max(height, width) >= 300 else 1
    return [image[::step, ::step] for image in images]


def expected_of(values: Sequence[Any], dtype: str) -> Figures:
    """The figures of one feature in one episode."""
    if dtype == "image":
        images = pictures(values)
        pixels = np.concatenate([image.reshape(-1, 3) for image in images]) / 255.0
        figures = {name: figure.reshape(3, 1, 1) for name, figure in _figures(pixels).items()}
        return {**figures, "count": np.array([len(images)])}
    rows = np.asarray(values, np.float64)
    return {**_figures(rows.reshape(len(rows), 1) if rows.ndim == 1 else rows), "count": np.array([len(rows)])}


def _figures(rows: npt.NDArray[np.float64]) -> Figures:
    return {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}


def expected_of_all(parts: Sequence[Figures]) -> Figures:
    """The figures of one feature in all episodes, of those of each."""
    counts = np.array([part["count"][0] for part in parts], np.float64)
    shares = (counts / counts.sum()).reshape(-1, *[1] * parts[0]["mean"].ndim)
    means = np.stack([part["mean"] for part in parts])
    mean = (means * shares).sum(0)
    variance = ((np.stack([part["std"] for part in parts]) ** 2 + (means - mean) ** 2) * shares).sum(0)
    lowest, highest = (np.stack([p[key] for p in parts]) for key in ("min", "max"))
    return {"min": lowest.min(0), "max": highest.max(0), "mean": mean, "std": np.sqrt(variance),
            "count": np.array([counts.sum()])}  # fmt: skip


def written(root: Path) -> tuple[list[dict[str, Figures]], dict[str, Figures]]:
    """The figures that a dataset has: of each episode, and of all."""
    table = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    names = features_of(root)
    episodes = [{n: {key: np.asarray(row[f"stats/{n}/{key}"]) for key in FIGURES} for n in names} for row in table]
    overall = json.loads((root / "meta/stats.json").read_text())
    return episodes, {name: {key: np.asarray(overall[name][key]) for key in FIGURES} for name in names}


def main(root: Path) -> None:
    """Compare a dataset with lerobot's own functions."""
    from lerobot.datasets.compute_stats import aggregate_stats, compute_episode_stats
    from PIL import Image

    features = features_of(root)
    parts = []
    for episode in episodes_of(root):
        data: dict[str, Any] = {}
        for name, values in episode.items():
            if features[name]["dtype"] == "image":
                data[name] = []
                for number, value in enumerate(values):
                    path = root / f"{name}-{number}.png"
                    Image.open(io.BytesIO(value["bytes"])).save(path)
                    data[name].append(str(path))
            else:
                data[name] = np.asarray(values, features[name]["dtype"])
        parts.append(compute_episode_stats(data, features))
        for path in root.glob("*.png"):
            path.unlink()
    episodes, overall = written(root)
    theirs, mine = [*parts, aggregate_stats(parts)], [*episodes, overall]
    for name in features:
        for key in FIGURES:
            most = max(float(np.abs(m[name][key] - t[name][key]).max()) for m, t in zip(mine, theirs, strict=True))
            print(f"{name:28} {key:6} {most:.3g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
