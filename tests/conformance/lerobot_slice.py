"""Export a bag of ROS 1, databases of rosbag2 and an MCAP to LeRobot datasets, which LeRobot's own loader reads.

    python tests/conformance/lerobot_slice.py --lerobot ENVIRONMENT/bin/python

The bag and the MCAP are real recordings of ``tests/data``. The databases are written by the library ``rosbags``: joint
states, and two cameras, in JPEG and in H.264, whose brightness is the first number of the joint states; they become
images, a video that is encoded and one that is copied. What ``lerobot_loader.py`` checks then, it says itself.

``--lerobot`` is the interpreter of an environment with lerobot 0.4.4. ``.ci/torch`` makes one. With ``--keep`` the
datasets stay in a folder, and what the loader gives of them: ``test_training_against_lerobot.py`` reads both.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from chunkmill import McapReader
from chunkmill.engine.writers import ExportReport, write_lerobot

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data"
LOADER = HERE / "lerobot_loader.py"
FPS = 30
FRAMES = 90
SIZE = (64, 48)
START = 1_700_000_000_000_000_000

TURTLE = {
    "fps": 20,
    "timeline": "message_log_time",
    "task": "follow the turtle",
    "episodes": {"by": "ranges", "ranges": [[0, 8], [10, 18]]},
    "features": {
        "observation.state": {
            "entity": "/turtle2/pose",
            "selector": ".x",
            "rule": "linear",
            "tolerance": 0.1,
            "outside": "drop_frame",
        },
        "observation.environment_state": {"entity": "/turtle1/pose", "selector": ".x", "rule": "linear"},
        "action": {"entity": "/turtle2/cmd_vel", "selector": ".angular.z"},
    },
}
CAR = {
    "fps": FPS,
    "timeline": "message_log_time",
    "task": "keep the lane",
    "features": {
        "observation.state": {"entity": "/nissan/vehicle_speed", "selector": ".data", "rule": "linear"},
        "observation.environment_state": {
            "entity": "/nissan/gps/duro/imu",
            "component": "Scalars:scalars",
            "rule": "linear",
        },
        "action": {"entity": "/nissan/vehicle_steering", "selector": ".data", "rule": "nearest"},
    },
}
_NUMBERS = {"component": "Scalars:scalars", "rule": "linear", "tolerance": 0.05}
ARM = {
    "fps": FPS,
    "timeline": "ros2_timestamp",
    "task": "put the cup on the plate",
    "features": {
        "observation.state": {
            "entity": "/joint_states/position",
            "component": "Scalars:scalars",
            "rule": "linear",
            "tolerance": 0.05,
        },
        "action": {
            "entity": "/joint_states/velocity",
            "component": "Scalars:scalars",
            "rule": "linear",
            "tolerance": 0.05,
        },
        "observation.images.top": {"entity": "/top", "dtype": "image", "rule": "nearest"},
        "observation.images.side": {"entity": "/top", "dtype": "video", "rule": "nearest"},
        "observation.images.wrist": {"entity": "/wrist", "dtype": "video", "rule": "nearest", "timeline": "timestamp"},
    },
}


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lerobot", required=True, metavar="PYTHON", help="an interpreter that has lerobot 0.4.4")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where datasets and values stay")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if options.keep is not None:
            options.keep.mkdir()
        for facts in run(options.lerobot, options.keep or Path(scratch)):
            print(json.dumps(facts))
    return 0


def run(interpreter: str, folder: Path) -> list[dict[str, Any]]:
    """Export all, read and train, and return what the loader says of each dataset."""
    sets = [bag(folder), mcap(folder), databases(folder)]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    done = subprocess.run(
        [interpreter, "-W", "ignore", str(LOADER), *map(str, sets)],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | offline,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"LeRobot's loader failed:\n{done.stdout}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def bag(folder: Path) -> Path:
    """A bag of ROS 1 as a dataset, on the command line."""
    source = DATA / "bag" / "rosbag__example-bz2.bag"
    return commanded(folder, "turtle", TURTLE, source)


def mcap(folder: Path) -> Path:
    """An MCAP as a dataset, from Python."""
    report = write_lerobot({"demo": McapReader(DATA / "demo.mcap").stream()}, folder / "car", CAR, executor="inline")
    complete(report)
    return folder / "car"


def databases(folder: Path) -> Path:
    """Two recordings of rosbag2 as a dataset, on the command line."""
    for number in range(2):
        write_database(folder / f"take{number}", START + number * 60_000_000_000, phase=number)
    return commanded(folder, "arm", ARM, folder / "take0", folder / "take1")


def commanded(folder: Path, name: str, spec: dict[str, Any], *inputs: Path) -> Path:
    """Export by the command line, and return the folder of the dataset."""
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    words = [str(Path(sys.executable).parent / "chunkmill"), "export", "lerobot", f"{name}.yaml", *map(str, inputs)]
    words += ["-o", name, "--executor", "inline", "--quiet"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return folder / name


def complete(report: ExportReport) -> None:
    """Every frame that the account wants is written or said to be dropped."""
    for account in report.accounts:
        assert account.wanted == account.written + account.dropped > 0


# ---------------------------------------------------------------------------------------------------- the databases


def brightness(seconds: float, phase: int) -> float:
    """What cameras show at a time, of 1."""
    return 0.5 + 0.3 * float(np.sin(2 * seconds + phase))


def write_database(folder: Path, start: int, *, phase: int) -> None:
    """Write a recording with the library ``rosbags``: joint states at 100 Hz, two cameras at 30 Hz."""
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    video = "foxglove_msgs/msg/CompressedVideo"
    store.register(
        get_types_from_msg("builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n", video)
    )
    types = store.types
    time, header = types["builtin_interfaces/msg/Time"], types["std_msgs/msg/Header"]

    def stamp(at: int) -> Any:
        return time(sec=at // 10**9, nanosec=at % 10**9)

    def joints(at: int) -> Any:
        seconds = (at - start) / 1e9
        position = np.array([brightness(seconds, phase), np.cos(seconds), seconds / 3])
        velocity = np.array([0.6 * np.cos(2 * seconds + phase), -np.sin(seconds), 1 / 3])
        names = ["light", "elbow", "hand"]
        kind = types["sensor_msgs/msg/JointState"]
        return kind(header(stamp(at), ""), names, position, velocity, np.zeros(0))

    random = np.random.default_rng(phase)
    frames = [start + number * 10**9 // FPS + int(random.integers(-2_000_000, 2_000_000)) for number in range(FRAMES)]
    pictures = [np.full((SIZE[1], SIZE[0], 3), 255 * brightness((t - start) / 1e9, phase), np.uint8) for t in frames]
    ticks = range(start - 10_000_000, start + FRAMES * 10**9 // FPS, 10_000_000)
    messages = [(at, "/joint_states", joints(at)) for at in ticks]
    still = types["sensor_msgs/msg/CompressedImage"]
    for at, picture, sample in zip(frames, pictures, samples(pictures), strict=True):
        messages.append((at, "/top", still(header(stamp(at), "top"), "jpeg", np.frombuffer(jpeg(picture), np.uint8))))
        data = np.frombuffer(sample, np.uint8)
        messages.append((at, "/wrist", types[video](stamp(at), "wrist", data, "h264")))
    with Writer(folder, version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        topics = {
            "/joint_states": "sensor_msgs/msg/JointState",
            "/top": "sensor_msgs/msg/CompressedImage",
            "/wrist": video,
        }
        connections = {
            topic: (writer.add_connection(topic, kind, typestore=store), kind) for topic, kind in topics.items()
        }
        for at, topic, message in sorted(messages, key=lambda each: each[0]):
            connection, kind = connections[topic]
            writer.write(connection, at, store.serialize_cdr(message, kind))


def jpeg(picture: Any) -> bytes:
    """A picture as a JPEG."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(picture).save(out, "JPEG", quality=95)
    return out.getvalue()


def samples(pictures: list[Any]) -> Iterator[bytes]:
    """Pictures as samples of H.264, a key frame each second."""
    from chunkmill.engine.video import VideoFrame, VideoTrack, encode

    track = VideoTrack(0x61766331, *SIZE, Fraction(1, FPS), Fraction(FPS))
    frames = (VideoFrame(number, picture) for number, picture in enumerate(pictures))
    for sample in encode(track, frames, keyframe_interval=FPS, keyframes=range(0, len(pictures), FPS)):
        yield sample.data


if __name__ == "__main__":
    sys.exit(main())
