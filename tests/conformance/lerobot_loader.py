"""Read datasets with LeRobot's own loader, and train a small policy on each: started by ``lerobot_slice.py``.

It runs in an environment with ``lerobot`` 0.4.4 and its torch, and knows nothing of chunkmill. Each argument is the
folder of a dataset. Every frame of every episode is read, its numbers and its pictures; where a dataset has cameras,
the first number of the state is their brightness. Then ACT takes ten steps on some frames, normalized by the
dataset's statistics, by AdamW, and its loss must be smaller after them. What the loader gives of each frame, in windows
with their masks, is left in ``NAME.npz`` beside the folder, for ``test_training_against_lerobot.py``.

Prints one line of JSON for each dataset.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs.types import FeatureType
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.utils import dataset_to_policy_features
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.act.processor_act import make_act_pre_post_processors

STEPS = 10
ACTIONS = 8
BATCH = 16
TOLERANCE = 0.02
"""The largest difference of a camera's brightness from the state, of 1: JPEG and H.264 round."""


def main(folders: list[str]) -> None:
    """Read and train."""
    torch.set_num_threads(1)
    for folder in folders:
        began = time.monotonic()
        keep(folder)
        facts = {"dataset": Path(folder).name, **read(folder), **train(folder)}
        print(json.dumps({**facts, "seconds": round(time.monotonic() - began, 1)}), flush=True)


def read(folder: str) -> dict[str, Any]:
    """Read all frames, and compare what they say of themselves."""
    dataset = LeRobotDataset("slice/set", root=folder, video_backend="pyav")
    features = dataset.meta.features
    pictures = [name for name, feature in features.items() if feature["dtype"] in ("image", "video")]
    vectors = [name for name, feature in features.items() if feature["dtype"].startswith("float")]
    worst, at = 0.0, 0
    for episode in dataset.meta.episodes:
        for number in range(episode["length"]):
            frame = dataset[at]
            assert (int(frame["episode_index"]), int(frame["frame_index"])) == (episode["episode_index"], number)
            assert abs(float(frame["timestamp"]) - number / dataset.fps) < 1e-4, frame["timestamp"]
            assert frame["task"], f"frame {at} has no task"
            for name in vectors:
                assert torch.isfinite(frame[name]).all(), f"frame {at}, {name}"
            for name in pictures:
                height, width, channels = features[name]["shape"]
                assert frame[name].shape == (channels, height, width), (name, frame[name].shape)
                worst = max(worst, abs(float(frame[name].mean()) - float(frame["observation.state"][0])))
            at += 1
    assert at == len(dataset) == dataset.meta.total_frames > 0
    assert worst < TOLERANCE, f"a camera shows another frame: its brightness is {worst} off"
    return {"episodes": dataset.meta.total_episodes, "frames": at, "cameras": pictures, "brightness": round(worst, 4)}


def keep(folder: str) -> None:
    """Write what the loader gives of all frames: numbers and pictures at several frames, and where these are padded."""
    meta = LeRobotDataset("slice/set", root=folder).meta
    steps = {name: [-1, 0] for name, feature in meta.features.items() if feature["dtype"] in ("image", "video")}
    steps |= {"observation.state": [-2, -1, 0, 1], "action": list(range(ACTIONS))}
    wanted = {name: [step / meta.fps for step in some] for name, some in steps.items()}
    dataset = LeRobotDataset("slice/set", root=folder, delta_timestamps=wanted, video_backend="pyav")
    frames = [dataset[number] for number in range(len(dataset))]
    kept = {name: np.stack([frame[name].numpy() for frame in frames]) for name in frames[0] if name != "task"}
    for name in set(steps) - {"observation.state", "action"}:
        kept[name] = np.rint(255 * kept[name]).astype(np.uint8)
    kept["task"] = np.array([frame["task"] for frame in frames])
    np.savez(f"{folder}.npz", **kept)


def train(folder: str) -> dict[str, Any]:
    """Take steps on frames from the whole dataset, and return the losses before and after them."""
    torch.manual_seed(0)
    fps = LeRobotDataset("slice/set", root=folder).fps
    wanted = {"action": [step / fps for step in range(ACTIONS)]}
    dataset = LeRobotDataset("slice/set", root=folder, delta_timestamps=wanted, video_backend="pyav")
    features = dataset_to_policy_features(dataset.meta.features)
    config = ACTConfig(
        input_features={name: f for name, f in features.items() if f.type is not FeatureType.ACTION},
        output_features={name: f for name, f in features.items() if f.type is FeatureType.ACTION},
        chunk_size=ACTIONS,
        n_action_steps=ACTIONS,
        pretrained_backbone_weights=None,
        dim_model=64,
        n_heads=2,
        dim_feedforward=128,
        n_encoder_layers=1,
        dropout=0.0,
        use_vae=False,
        device="cpu",
    )
    policy = ACTPolicy(config)
    normalize, _ = make_act_pre_post_processors(config, dataset_stats=dataset.meta.stats)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-4, weight_decay=config.optimizer_weight_decay)
    step = max(1, len(dataset) // BATCH)
    frames = [dataset[number] for number in range(0, len(dataset), step)][:BATCH]
    batch = torch.utils.data.default_collate(frames)
    for name, feature in dataset.meta.features.items():
        if name in features and tuple(feature["shape"]) == (1,):  # the loader gives single numbers without a dimension
            batch[name] = batch[name].unsqueeze(-1)
    batch = normalize(batch)
    losses = []
    for _ in range(STEPS + 1):
        loss, _ = policy.forward(batch)
        losses.append(float(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0], f"the loss did not fall: {losses}"
    return {"loss": [round(losses[0], 4), round(losses[-1], 4)]}


if __name__ == "__main__":
    main(sys.argv[1:])
