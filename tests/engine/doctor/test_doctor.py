"""Planted faults are found where they are, and nothing is found in clean recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunkmill.engine.doctor import KINDS, diagnose

from tests import video_files
from tests.engine.doctor.recordings_with_faults import (
    EPISODES,
    FPS,
    SECOND,
    START,
    Plant,
    added,
    drive,
    edge,
    kept,
    lerobot_table,
    messages,
    moved,
    paced,
    png,
    set_cells,
    set_number,
    set_times,
    shifted,
    video,
    without,
    write_lerobot,
    write_mcap,
    write_rrd,
)
from tests.places import recordings

BOTH = ("log_time", "sensor_time")
NAN = float("nan")
BLACK = list(bytes(8 * 6 * 3))
WHITE = [png(np.full((6, 8, 3), 255, np.uint8))]
FRAME_ROTATION = {"Transform3D__child_frame": [["arm"]], "Transform3D__parent_frame": [["base"]]}


def dropped(start: int, stop: int) -> Callable[[Any], Any]:
    return lambda rows: (rows < start) | (rows >= stop)


def thinned(start: int, stop: int, step: int) -> Callable[[Any], Any]:
    return lambda rows: (rows < start) | (rows >= stop) | (rows % step == 0)


def with_row(value: float, start: int, stop: int) -> Callable[[Any], Any]:
    return lambda values: np.where((np.arange(len(values)) >= start) & (np.arange(len(values)) < stop), value, values)


PLANTED: list[tuple[str, str, str | None, float | None, Plant]] = [
    # kind, entity, subject or timeline, seconds from the start, what plants it
    ("clock-backward", "/imu", "sensor_time", 7.0, shifted("/imu", 1200, -5, "sensor_time")),
    ("clock-backward", "/pose", "log_time", 13.0, shifted("/pose", 400, -3, *BOTH)),
    ("clock-forward", "/imu", "sensor_time", 7.0, shifted("/imu", 700, 10, "sensor_time")),
    ("clock-forward", "/front/image", "sensor_time", 9.0, shifted("/front/image", 90, 4, "sensor_time")),
    ("clock-drift", "/imu", "sensor_time", 0.0, paced("/imu", "sensor_time", 0.01)),
    ("clock-drift", "/pose", "sensor_time", 0.0, paced("/pose", "sensor_time", -0.005)),
    ("gap", "/imu", "log_time", 5.0, kept("/imu", dropped(500, 800))),
    ("gap", "/rear/image", "log_time", 6.0, kept("/rear/image", dropped(60, 100))),
    ("out-of-order", "/imu", "log_time", 3.0, moved("/imu", slice(300, 310), 320)),
    ("out-of-order", "/pose", "log_time", 4.0, moved("/pose", slice(100, 102), 140)),
    ("duplicate-times", "/imu", "log_time", 9.0, set_times("/imu", slice(900, 910), None, *BOTH)),
    ("duplicate-times", "/pose", "log_time", 8.0, set_times("/pose", slice(200, 204), None, *BOTH)),
    ("rate-drop", "/imu", "log_time", 6.0, kept("/imu", thinned(600, 1200, 5))),
    ("rate-drop", "/pose", "log_time", 12.0, kept("/pose", thinned(300, 500, 4))),
    ("time-outlier", "/imu", "sensor_time", None, set_times("/imu", slice(10, 13), 0, "sensor_time")),
    ("time-outlier", "/pose", "log_time", None, set_times("/pose", slice(50, 51), 4 * START // 3, "log_time")),
    ("early-stop", "/imu", "log_time", 12.0, kept("/imu", lambda rows: rows < 1200)),
    ("early-stop", "/rear/image", "log_time", 15.0, kept("/rear/image", lambda rows: rows < 150)),
    ("late-start", "/imu", "log_time", 0.0, kept("/imu", lambda rows: rows >= 600)),
    ("late-start", "/pose", "log_time", 0.0, kept("/pose", lambda rows: rows >= 250)),
    ("constant-sensor", "/imu", "Scalars:scalars[2]", None, set_number("/imu", 2, lambda values: values * 0)),
    ("constant-sensor", "/imu", "Scalars:scalars[3]", None, set_number("/imu", 3, lambda values: values * 0 + 0.25)),
    ("clipped", "/imu", "Scalars:scalars[0]", None, set_number("/imu", 0, lambda values: np.clip(values * 2, -9, 0.3))),
    ("clipped", "/imu", "Scalars:scalars[5]", None, set_number("/imu", 5, lambda values: np.clip(values, -0.1, 0.1))),
    ("not-finite", "/imu", "Scalars:scalars[1]", 4.0, set_number("/imu", 1, with_row(NAN, 400, 420))),
    ("not-finite", "/imu", "Scalars:scalars[4]", 9.0, set_number("/imu", 4, with_row(np.inf, 900, 901))),
    ("non-unit-quaternion", "/pose", "pose.Pose:quaternion", 2.0,
     set_cells("/pose", "pose.Pose:quaternion", slice(50, 60), [{"x": 0.0, "y": 1.0, "z": 0.0, "w": 1.0}])),
    ("non-unit-quaternion", "/tf_static/arm", "Transform3D:quaternion", None,
     added("/tf_static/arm", Transform3D__quaternion=[[[0.0] * 4]], **FRAME_ROTATION)),
    ("frozen-camera", "/front/image", "Image:buffer", 5.0,
     set_cells("/front/image", "Image:buffer", slice(50, 90), lambda cell: cell)),
    ("frozen-camera", "/rear/image", "EncodedImage:blob", 12.0,
     set_cells("/rear/image", "EncodedImage:blob", slice(120, 140), lambda cell: cell)),
    ("blank-camera", "/front/image", "Image:buffer", None, lambda made: dark(made, "/front/image")),
    ("blank-camera", "/rear/image", "EncodedImage:blob", None, lambda made: dark(made, "/rear/image")),
    ("video-start", "/front/video", "log_time", 0.0, video("/front/video", lambda row: row % 20 == 7)),
    ("video-start", "/rear/video", "log_time", 0.0, video("/rear/video", lambda row: row % 10 == 1)),
    ("video-keyframes", "/front/video", "log_time", 0.0, video("/front/video", lambda _row: False)),
    ("video-keyframes", "/rear/video", "log_time", 0.0, lambda made: long_groups(made, "/rear/video")),
    ("missing-transform", "/scan", "laser", None, added("/scan", CoordinateFrame__frame=[["laser"]])),
    ("missing-transform", "/points", "lidar", None, added("/points", CoordinateFrame__frame=[["/lidar"]])),
    ("disconnected-frames", "/tf_static/arm", "hand", None, edge("/tf_static/arm", "hand", "shoulder")),
    ("disconnected-frames", "/tf_static/map", "earth", None, edge("/tf_static/map", "map", "earth")),
    ("transform-cycle", "/tf_static", "base", None, edge("/tf_static/back", "odom", "base")),
    ("transform-cycle", "/tf_static/earth", "earth", None, lambda made: circle(made, "odom", "map", "earth")),
    ("missing-calibration", "/rear/image", "EncodedImage:blob", None, without("/rear/camera_info")),
    ("missing-calibration", "/front/image", "Image:buffer", None, without("/front/camera_info")),
]  # fmt: skip


def dark(made: Any, entity: str) -> None:
    """Images of one colour, which are not all the same bytes."""
    for name, column in made[entity].columns.items():
        for row in range(60, 130):
            if name == "Image:buffer":
                column[row] = [[value + row % 2 for value in BLACK]]
            elif name == "EncodedImage:blob":
                column[row] = [png(np.full((6, 8, 3), 254 + row % 2, np.uint8))]


def circle(made: Any, *frames: str) -> None:
    for child, parent in zip(frames, (*frames[1:], frames[0]), strict=True):
        edge(f"/tf_static/{child}", child, parent)(made)


def long_groups(made: Any, entity: str) -> None:
    video(entity, lambda row: row in (0, 190))(made)
    for times in made[entity].times.values():
        times[:] = START + (times - START) * 2
    for other, rows in made.items():
        if other != entity:
            for times in rows.times.values():
                times[:] = START + (times - START) * 2


@pytest.mark.parametrize(
    ("kind", "entity", "subject", "seconds", "plant"),
    [pytest.param(*row, id=f"{row[0]} {row[1]} {row[2]}") for row in PLANTED],
)
def test_a_planted_fault_is_found_and_no_other(
    kind: str, entity: str, subject: str | None, seconds: float | None, plant: Plant, tmp_path: Path
) -> None:
    made = drive()
    plant(made)
    found = list(diagnose(write_rrd(tmp_path / "drive.rrd", made)))
    assert [(f.kind, f.entity_path) for f in found] == [(kind, entity)]
    (finding,) = found
    assert subject in (finding.subject, finding.timeline)
    if seconds is not None:
        assert finding.start is not None
        assert abs((finding.start - START) / SECOND - seconds) < 0.5


def test_at_least_thirty_faults_of_fifteen_kinds_are_planted() -> None:
    """The bar of the issue, which the table above and those below must not fall under."""
    kinds = [row[0] for row in PLANTED]
    assert len(kinds) >= 30
    assert len(set(kinds)) >= 15
    assert all(kinds.count(kind) == 2 for kind in kinds)
    tested_elsewhere = {"unreadable", "no-messages", *(kind for kind in KINDS if kind.startswith("lerobot"))}
    assert set(KINDS) == {*kinds, *tested_elsewhere}


def test_the_faults_of_an_mcap(tmp_path: Path) -> None:
    """Its log times and publish times are two clocks, and a channel may have no message."""
    sent = messages()
    late = [(t, log, pub + (6 * SECOND if t == "/b" and pub >= START + 8 * SECOND else 0)) for t, log, pub in sent]
    path = write_mcap(tmp_path / "leap.mcap", late, silent=("/lidar", "/radar"))
    assert [(f.kind, f.entity_path, f.timeline) for f in diagnose(path)] == [
        ("clock-forward", "/b", "message_publish_time"),
        ("no-messages", "/lidar", None),
        ("no-messages", "/radar", None),
    ]
    jumped = [(t, log, pub - (4 * SECOND if at >= 1200 else 0)) for at, (t, log, pub) in enumerate(sent)]
    found = list(diagnose(write_mcap(tmp_path / "back.mcap", jumped)))
    assert [(f.kind, f.entity_path, f.timeline, f.count) for f in found] == [
        ("clock-backward", name, "message_publish_time", 1) for name in ("/a", "/b")
    ]
    paused = [message for message in sent if not START + 9 * SECOND < message[2] < START + 14 * SECOND]
    found = diagnose(write_mcap(tmp_path / "gap.mcap", paused))
    assert [(f.kind, f.entity_path) for f in found] == [("gap", "/a"), ("gap", "/b")]


def test_faults_of_one_topic_do_not_hide_each_other(tmp_path: Path) -> None:
    """A gap long before a step back does not make up for it, and bursts do not fill what is kept of steps."""
    made = drive()
    noise = np.random.default_rng(3)
    for times in made["/imu"].times.values():  # four messages at a time
        times[:] = times[np.arange(len(times)) // 4 * 4 + 3] + noise.integers(0, 9, len(times)).cumsum()
    kept("/imu", dropped(300, 500))(made)
    shifted("/imu", 1500, -1.5, "sensor_time")(made)
    found = diagnose(write_rrd(tmp_path / "both.rrd", made))
    assert [(f.kind, f.entity_path, f.timeline) for f in found] == [
        ("clock-backward", "/imu", "sensor_time"),
        ("gap", "/imu", "log_time"),
    ]


def test_two_channels_of_one_topic_are_no_clock_that_steps_back(tmp_path: Path) -> None:
    """Each has chunks of its own, which begin before the other's end."""
    from mcap.writer import Writer

    path = tmp_path / "two.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        number = writer.register_schema(
            "V", "jsonschema", b'{"type": "object", "properties": {"v": {"type": "number"}}}'
        )
        channels = [writer.register_channel("/tf", "json", number, {"publisher": name}) for name in "ab"]
        for row in range(400):
            time = START + row * SECOND // 50
            writer.add_message(channels[row % 2], time, b'{"v": 1}', time)
        writer.finish()
    assert diagnose(path)


# --- LeRobot


def changed(column: str, episode: int, change: Callable[[Any], Any]) -> dict[str, Any]:
    table = lerobot_table(episode)
    return {"tables": {episode: lerobot_table(episode, **{column: change(np.asarray(table[column]))})}}


def skipping(at: int) -> Callable[[Any], Any]:
    return lambda numbers: np.where(np.arange(len(numbers)) >= at, numbers + 1, numbers)


LEROBOT: list[tuple[str, int, int, dict[str, Any]]] = [
    ("lerobot-timestamps", 2, 0, changed("timestamp", 0, lambda t: (t * 1.5).astype(np.float32))),
    ("lerobot-timestamps", 3, 2, changed("timestamp", 2, lambda t: np.where(t > 3, t + 0.05, t).astype(np.float32))),
    ("lerobot-index", 2, 1, changed("frame_index", 1, skipping(20))),
    ("lerobot-index", 3, 2, changed("index", 2, skipping(30))),
    ("lerobot-length", 2, 1, {"lengths": {1: 49}}),
    ("lerobot-length", 3, 0, {"lengths": {0: 41}}),
]


@pytest.mark.parametrize(("kind", "version", "episode", "changes"), LEROBOT)
def test_a_planted_fault_of_a_lerobot_dataset(
    kind: str, version: int, episode: int, changes: dict[str, Any], tmp_path: Path
) -> None:
    found = diagnose(write_lerobot(tmp_path / "set", version, **changes))
    assert {(f.kind, f.segment) for f in found} == {(kind, f"episode_{episode:06d}")}
    assert all(f.severity == "error" and f.source == str(tmp_path / "set") for f in found)


def test_missing_files_of_a_lerobot_dataset(tmp_path: Path) -> None:
    """A file of data, a video, and frames of a video."""
    root = write_lerobot(tmp_path / "set", 2)
    (root / "data/episode_000001.parquet").unlink()
    assert [(f.kind, f.segment) for f in diagnose(root)] == [("lerobot-missing", "episode_000001")]
    clips = {episode: video_files.video(count=count, rate=FPS) for episode, count in enumerate(EPISODES)}
    assert diagnose(write_lerobot(tmp_path / "whole", 2, videos=clips))
    clips[2] = video_files.video(count=EPISODES[2] - 5, rate=FPS)
    del clips[0]
    found = diagnose(write_lerobot(tmp_path / "videos", 2, videos=clips))
    assert [(f.kind, f.segment, f.value) for f in found] == [
        ("lerobot-missing", "episode_000000", "the file is missing from 0 s on, for 40 frames of the episode"),
        ("lerobot-missing", "episode_000002", "it has 55 frames from 0 s on, for 60 frames of the episode"),
    ]


def test_an_episode_that_cannot_be_read_is_a_finding_and_the_others_are_examined(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set", 2, **changed("timestamp", 2, lambda t: (t * 2).astype(np.float32)))
    (root / "data/episode_000001.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    found = diagnose(root)
    assert ("unreadable", "episode_000001") in {(f.kind, f.segment) for f in found}
    assert ("lerobot-timestamps", "episode_000002") in {(f.kind, f.segment) for f in found}


# --- clean recordings

GENERATED: dict[str, Callable[[Path], Path]] = {
    "drive": lambda folder: write_rrd(folder / "drive.rrd", drive()),
    "mcap": lambda folder: write_mcap(folder / "a.mcap", messages()),
    "lerobot 2": lambda folder: write_lerobot(folder / "set", 2),
    "lerobot 3": lambda folder: write_lerobot(folder / "set", 3),
}
REAL = recordings(
    "demo.mcap",
    "mcap/asam-osi-converter__MovingHostWith3DModel.mcap",
    "mcap/derived/flatbuffer_pose_in_frame.mcap",
    "mcap/derived/reverse_order_small_chunks.mcap",
    "mcap/mcap-encrypt__sample.mcap",
    "mcap/p4__bag8_0.mcap",
    "mcap/rerun__simple-protobuf.mcap",
    "mcap/rosbag2__multiple_files_0.mcap",
    "mcap/rosbag2__wbag_0.mcap",
    "mcap/rplidar-zenoh-driver__out.mcap",
    "rosbag2/rosbag2__wbag_4.db3",
    "rrd/unity-rerun-sdk__phase3_scene.rrd",
)


@pytest.mark.parametrize("name", GENERATED)
def test_nothing_is_found_in_a_clean_recording(name: str, tmp_path: Path) -> None:
    found = diagnose(GENERATED[name](tmp_path))
    assert found, [str(finding) for finding in found]
    assert found.rows > 100


@pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")
@pytest.mark.parametrize("path", REAL)
def test_nothing_is_found_in_a_real_recording(path: Path) -> None:
    found = diagnose(path)
    assert found, [str(finding) for finding in found]
    assert found.recordings == 1


def test_a_video_with_pictures(tmp_path: Path) -> None:
    """Key frames are decoded, to see whether the camera is blank."""
    for name, count in (("a", 30), ("b", 31)):
        path = tmp_path / f"{name}.mp4"
        path.write_bytes(video_files.video(count=count))
        assert diagnose(path)
