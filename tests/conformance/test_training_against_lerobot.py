"""A LeRobot dataset that is read as a lake gives the samples that LeRobot's own loader gives of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunkmill import CatalogClient, OptimizationProfile
from chunkmill.readers import LeRobotDataset

torch = pytest.importorskip("torch")

from chunkmill import training  # noqa: E402 - not without torch

SETS = os.environ.get("CHUNKMILL_LEROBOT_SETS", "")
"""Where ``lerobot_slice.py --keep`` left datasets, and what LeRobot's loader gives of them; ``.ci/torch`` names it."""

STATE, ACTION = "observation.state", "action"
STEPS = {STATE: (-2, -1, 0, 1), ACTION: tuple(range(8))}
PICTURES = (-1, 0)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SETS, reason="CHUNKMILL_LEROBOT_SETS names no folder of lerobot_slice.py"),
]


def lake(folder: Path, name: str) -> Any:
    """The episodes of a dataset in a lake."""
    files = []
    for episode in LeRobotDataset(Path(SETS) / name).episodes():
        path = folder / f"{episode.recording_id}.rrd"
        store = episode.stream().collect(optimize=OptimizationProfile.OBJECT_STORE, executor="inline")
        store.write_rrd(path, application_id=name, recording_id=path.stem)
        files.append(path.as_uri())
    dataset = CatalogClient(folder / "lake").create_dataset(name)
    dataset.register(files).wait()
    return dataset


def fields(kept: Any, per_step: float) -> dict[str, training.Field]:
    """The fields that were asked of LeRobot, by offsets that are so much a frame."""
    made = {}
    for name, steps in STEPS.items():
        window = [step * per_step for step in steps]
        path = f"/{name.replace('.', '/')}:Scalars:scalars"
        made[name] = training.Field(path, training.NumericDecoder(), window=window)
    for name in kept:
        if name.startswith("observation.images.") and not name.endswith("_is_pad"):
            entity, window = f"/{name.replace('.', '/')}", [step * per_step for step in PICTURES]
            if name.endswith("top"):
                made[name] = training.Field(f"{entity}:EncodedImage:blob", training.ImageDecoder(), window=window)
            else:
                path = f"{entity}:VideoStream:sample"
                made[name] = training.Field(path, training.VideoFrameDecoder(), window=window)
    return {**made, "task": training.Field("/task:TextDocument:text", training.TextDecoder())}


@pytest.mark.parametrize("index", ["frame_index", "timestamp"])
@pytest.mark.parametrize(("name", "fps"), [("turtle", 20), ("car", 30), ("arm", 30)])
def test_samples_are_those_of_lerobot(name: str, fps: int, index: str, tmp_path: Path) -> None:
    """States, actions, masks, pictures and frames of video are equal, by the number of a frame and by its time."""
    kept = np.load(Path(SETS) / f"{name}.npz")
    dataset = lake(tmp_path, name)
    is_time = index == "timestamp"
    chosen = fields(kept.files, 1 / fps if is_time else 1)
    sampling = training.RowSampling(chosen[STATE].path) if is_time else None
    samples = training.IterableSamples(
        training.DataSource(dataset), index, chosen, timeline_sampling=sampling, batch_size=16, seed=3
    )
    seen = []
    for batch in training.loader(samples):
        seen += batch["sample"].tolist()
        for row, number in enumerate(batch["sample"].tolist()):
            assert batch["task"][row] == kept["task"][number]
            for field in chosen.keys() - {"task"}:
                mine, peer = batch[field][row].numpy(), kept[field][number]
                assert np.array_equal(mine, peer.reshape(mine.shape).astype(mine.dtype)), (field, number)
                assert batch[f"{field}_is_pad"][row].tolist() == kept[f"{field}_is_pad"][number].tolist()
    assert sorted(seen) == list(range(len(kept["task"])))
