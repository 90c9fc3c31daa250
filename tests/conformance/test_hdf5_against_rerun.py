"""HDF5 files in the layouts of three data sets: the chunks are those of Rerun 0.41, value by value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from chunkmill.readers import Hdf5Reader, IndexColumn
from comparison import cells, normalised

rerun_chunk = pytest.importorskip("rerun.chunk")
experimental = pytest.importorskip("rerun.experimental")
if not hasattr(experimental, "Hdf5Reader"):
    pytest.skip("it reads HDF5 since 0.41", allow_module_level=True)

ROWS = 40
RANDOM = np.random.default_rng(3)


def aloha(file: h5py.File) -> None:
    """ACT's: joints of two arms, three cameras, attributes."""
    file.attrs["sim"] = True
    file["action"] = RANDOM.normal(size=(ROWS, 14)).astype("f4")
    for name in ("qpos", "qvel", "effort"):
        file[f"observations/{name}"] = RANDOM.normal(size=(ROWS, 14))
    for camera in ("cam_high", "cam_left_wrist"):
        pixels = RANDOM.integers(0, 255, (ROWS, 24, 32, 3), dtype="u1")
        file.create_dataset(f"observations/images/{camera}", data=pixels, chunks=(1, 24, 32, 3))


def robomimic(file: h5py.File) -> None:
    """One file of demos, each with lengths of its own."""
    data = file.create_group("data")
    data.attrs["total"] = 90
    data.attrs["env_args"] = '{"env_name": "Lift"}'
    for i, rows in enumerate((30, ROWS, 20)):
        demo = file.create_group(f"data/demo_{i}")
        demo.attrs["num_samples"] = rows
        demo["actions"] = RANDOM.normal(size=(rows, 7))
        demo["rewards"] = RANDOM.normal(size=rows)
        demo["dones"] = RANDOM.integers(0, 2, rows)
        demo.create_dataset("states", data=RANDOM.normal(size=(rows, 32)), compression="gzip", shuffle=True)
        for name, width in (("robot0_eef_pos", 3), ("robot0_eef_quat", 4)):
            demo[f"obs/{name}"] = RANDOM.normal(size=(rows, width))
        demo["obs/agentview_image"] = RANDOM.integers(0, 255, (rows, 12, 12, 3), dtype="u1")


def droid(file: h5py.File) -> None:
    """Many small groups, whole numbers in milliseconds as times."""
    file["observation/timestamp/control/step_start"] = 1_690_000_000_000 + 66 * np.arange(ROWS)
    file["observation/timestamp/skip_action"] = RANDOM.integers(0, 2, ROWS).astype("i1")
    for name in ("joint_positions", "joint_velocities"):
        file[f"observation/robot_state/{name}"] = RANDOM.normal(size=(ROWS, 7))
    file["observation/robot_state/gripper_position"] = RANDOM.normal(size=ROWS)
    file["action/cartesian_position"] = RANDOM.normal(size=(ROWS, 6))
    file["action/gripper_position"] = RANDOM.normal(size=ROWS)


TIMES = ("timestamp", "observation/timestamp/control/step_start", "ms")
LAYOUTS: dict[str, tuple[Callable[[Any], None], dict[str, Any]]] = {
    "aloha": (aloha, {}),
    "aloha, no structs": (aloha, {"use_structs": False, "entity_path_prefix": "/robot"}),
    "aloha, less": (aloha, {"ignore_datasets": ["observations/images"]}),
    "robomimic": (robomimic, {"root_group": "/data/demo_1"}),
    "droid": (droid, {"index_column": TIMES}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_chunks_are_those_of_rerun(name: str, tmp_path: Path) -> None:
    make, options = LAYOUTS[name]
    path = tmp_path / "episode.hdf5"
    with h5py.File(path, "w") as file:
        make(file)
    ours, theirs = dict(options), dict(options)
    if "index_column" in options:
        kind, column, unit = options["index_column"]
        ours["index_column"] = getattr(IndexColumn, kind)(column, input_unit=unit)
        theirs["index_column"] = getattr(rerun_chunk.IndexColumn, kind)(column, input_unit=unit)
    found = list(Hdf5Reader(path).stream(**ours).to_chunks(executor="inline"))
    stream = experimental.Hdf5Reader(path).stream(**theirs)
    expected = [normalised(chunk.to_record_batch()) for chunk in stream.to_chunks()]
    assert cells(found) == cells(expected)
    sizes = [sorted((c.entity_path, c.is_static, c.num_rows) for c in chunks) for chunks in (found, expected)]
    assert sizes[0] == sizes[1]
