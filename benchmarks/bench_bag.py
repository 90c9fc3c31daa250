"""Bags of ROS 1 to columns, beside rosbags, which decodes message by message.

``numbers``: 60,000 messages of IMUs, joints and odometry; all fields of all become Arrow columns of ours, and Python's
objects of rosbags. ``images``: 400 images of 640 x 480, of which both keep the bytes.

Ratios on two cores: numbers 0.05 (plain), 0.05 (LZ4), 0.20 (bz2, nearly all of it decompression, on both cores); images
3.9: rosbags gives views of the bytes that it read, where columns are copies.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunkmill.readers import BagReader
from conftest import Duel

rosbag1 = pytest.importorskip("rosbags.rosbag1")
typesys = pytest.importorskip("rosbags.typesys")

COMPRESSIONS = ("NONE", "LZ4", "BZ2")
NUMBERS, IMAGES = 60_000, 400
DECODERS = ["ros2_reflection"]
"""Messages as they are, which is what rosbags gives."""


@pytest.fixture(scope="module")
def store() -> Any:
    """The types of ROS 1."""
    return typesys.get_typestore(typesys.Stores.ROS1_NOETIC)


def write_bag(path: Path, compression: str, count: int, *, images: bool) -> Path:
    """A bag of as many numbers or images, as rosbags writes it."""
    store = typesys.get_typestore(typesys.Stores.ROS1_NOETIC)
    types, chance = store.types, np.random.default_rng(1)

    def header(i: int) -> Any:
        stamp = types["builtin_interfaces/msg/Time"](sec=i // 200, nanosec=i % 200 * 5_000_000)
        return types["std_msgs/msg/Header"](seq=i, stamp=stamp, frame_id="base_link")

    def imu(i: int) -> Any:
        vector, square = types["geometry_msgs/msg/Vector3"], np.zeros(9)
        turn = types["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0)
        pull = vector(*chance.random(3).tolist())
        return types["sensor_msgs/msg/Imu"](header(i), turn, square, pull, square, pull, square)

    def joints(i: int) -> Any:
        names, values = [f"joint_{n}" for n in range(7)], chance.random(7)
        return types["sensor_msgs/msg/JointState"](header(i), names, values, values, values)

    def pose(i: int) -> Any:
        point = types["geometry_msgs/msg/Point"](*chance.random(3).tolist())
        turn = types["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0)
        return types["geometry_msgs/msg/PoseStamped"](header(i), types["geometry_msgs/msg/Pose"](point, turn))

    pixels = chance.integers(0, 255, 640 * 480 * 3, dtype=np.uint8)

    def image(i: int) -> Any:
        return types["sensor_msgs/msg/Image"](header(i), 480, 640, "rgb8", 0, 640 * 3, pixels)

    makers = [image] if images else [imu, joints, pose]
    writer = rosbag1.Writer(path)
    if compression != "NONE":
        writer.set_compression(getattr(rosbag1.Writer.CompressionFormat, compression))
    with writer:
        kinds = [(writer.add_connection(f"/{m.__name__}", m(0).__msgtype__, typestore=store), m) for m in makers]
        for i in range(count):
            connection, maker = kinds[i % len(kinds)]
            value = maker(i)
            writer.write(connection, 10**18 + i * 5_000_000, store.serialize_ros1(value, value.__msgtype__))
    return path


def theirs(path: Path, store: Any) -> int:
    """Every message, decoded."""
    count = 0
    with rosbag1.Reader(path) as reader:
        for connection, _, raw in reader.messages():
            store.deserialize_ros1(raw, connection.msgtype)
            count += 1
    return count


def ours(path: Path) -> int:
    """Every message as a row of Arrow columns, which are dropped like the objects of rosbags."""
    source = BagReader(path, decoders=DECODERS).source()
    return sum(chunk.num_rows for split in source.splits() for chunk in source.read(split))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_numbers_of_a_bag(benchmark: Any, duel: Duel, store: Any, tmp_path: Path, compression: str) -> None:
    """Guards: at most 0.25 x the time of rosbags."""
    path = write_bag(tmp_path / "numbers.bag", compression, NUMBERS, images=False)
    assert ours(path) == theirs(path, store) == NUMBERS
    duel.run(benchmark, partial(ours, path), partial(theirs, path, store), bar=0.25)


@pytest.mark.parametrize("compression", ["NONE", "LZ4"])
def test_images_of_a_bag(benchmark: Any, duel: Duel, store: Any, tmp_path: Path, compression: str) -> None:
    """Guards: at most 1.0 x the time of rosbags, which only reads the bytes; not reached yet."""
    path = write_bag(tmp_path / "images.bag", compression, IMAGES, images=True)
    assert ours(path) == theirs(path, store) == IMAGES
    duel.run(benchmark, partial(ours, path), partial(theirs, path, store), bar=1.0)
