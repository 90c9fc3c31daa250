"""A small drive that has no fault, and what plants one in it: on chunks of an RRD, on an MCAP, on a LeRobot dataset."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from chunkmill.engine.chunk import IMAGE_FORMAT, Chunk, ComponentDescriptor
from chunkmill.engine.stream import LazyChunkStream
from PIL import Image

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
LENGTH = 20
ROWS_A_CHUNK = 64

_TYPES = {
    "Scalars:scalars": pa.list_(pa.float64()),
    "pose.Pose:quaternion": pa.list_(pa.struct([(name, pa.float64()) for name in "xyzw"])),
    "InstancePoses3D:translations": pa.list_(pa.list_(pa.float32(), 3)),
    "Transform3D:quaternion": pa.list_(pa.list_(pa.float32(), 4)),
    "Transform3D:child_frame": pa.list_(pa.string()),
    "Transform3D:parent_frame": pa.list_(pa.string()),
    "CoordinateFrame:frame": pa.list_(pa.string()),
    "SeriesLines:names": pa.list_(pa.string()),
    "Pinhole:image_from_camera": pa.list_(pa.list_(pa.float32(), 9)),
    "Image:buffer": pa.list_(pa.list_(pa.uint8())),
    "EncodedImage:blob": pa.list_(pa.binary()),
    "VideoStream:sample": pa.list_(pa.list_(pa.uint8())),
    "VideoStream:codec": pa.list_(pa.uint32()),
    "Image:format": pa.list_(IMAGE_FORMAT),
}
_COMPONENT_TYPES = {"Transform3D:quaternion": "rerun.components.RotationQuat"}

Column = list[Any]


class Topic:
    """The rows of an entity: times by timeline (none: static) and a list for each cell, by component."""

    def __init__(self, times: dict[str, npt.NDArray[np.int64]]) -> None:
        self.times = times
        self.columns: dict[str, Column] = {}

    @property
    def rows(self) -> int:
        return len(next(iter(self.times.values()))) if self.times else 1

    def take(self, rows: npt.NDArray[np.int64]) -> None:
        self.times = {name: times[rows] for name, times in self.times.items()}
        self.columns = {name: [column[i] for i in rows] for name, column in self.columns.items()}

    def chunks(self, entity: str) -> list[Chunk]:
        cut = []
        for start in range(0, self.rows, ROWS_A_CHUNK):
            rows = slice(start, start + ROWS_A_CHUNK)
            times = {name: pa.array(t[rows], pa.timestamp("ns")) for name, t in self.times.items()}
            columns = [
                (ComponentDescriptor(name, None, _COMPONENT_TYPES.get(name)), pa.array(column[rows], _TYPES[name]))
                for name, column in self.columns.items()
            ]
            cut.append(Chunk.build(entity, times, columns))
        return cut


Drive = dict[str, Topic]


def topic(rate: float, seed: int) -> Topic:
    """Times of a topic that jitters by a tenth of its interval, and arrives after some milliseconds."""
    noise = np.random.default_rng(seed)
    count = int(LENGTH * rate)
    stamps = START + ((np.arange(count) + noise.uniform(-0.1, 0.1, count)) / rate * SECOND).astype(np.int64)
    return Topic({"log_time": stamps + noise.integers(1, 3, count) * 1_000_000, "sensor_time": stamps})


def drive() -> Drive:
    """A drive of 20 s without a fault."""
    noise = np.random.default_rng(7)
    imu, names = topic(100, 1), Topic({})
    imu.columns["Scalars:scalars"] = noise.normal([0, 0, 9.8, 0, 0, 0], 0.2, (imu.rows, 6)).tolist()
    names.columns["SeriesLines:names"] = [
        [f"{kind}/{axis}" for kind in ("linear_acceleration", "gyro") for axis in "xyz"]
    ]
    pose = topic(25, 2)
    angles = np.linspace(0, 1, pose.rows)
    pose.columns["pose.Pose:quaternion"] = [
        [{"x": 0.0, "y": 0.0, "z": float(np.sin(a / 2)), "w": float(np.cos(a / 2))}] for a in angles
    ]
    pose.columns["InstancePoses3D:translations"] = [[[float(a), 0.0, 0.0]] for a in angles]
    pose.columns["CoordinateFrame:frame"] = [["odom"]] * pose.rows
    transforms = Topic({})
    transforms.columns = {
        "Transform3D:child_frame": [["base"]],
        "Transform3D:parent_frame": [["odom"]],
        "Transform3D:quaternion": [[[0.0, 0.0, 0.0, 1.0]]],
    }
    made = {"/imu": imu, "/imu/names": names, "/pose": pose, "/tf_static": transforms}
    made["/imu"].columns["CoordinateFrame:frame"] = [["base"]] * imu.rows
    for name in ("front", "rear"):
        made[f"/{name}/image"] = camera(name)
        made[f"/{name}/camera_info"] = calibration()
    return made


def camera(name: str) -> Topic:
    """Raw images in front, PNGs behind."""
    noise = np.random.default_rng(len(name))
    made = topic(10, 3)
    pictures = noise.integers(0, 255, (made.rows, 6, 8, 3)).astype(np.uint8)
    if name == "front":
        form = {"width": 8, "height": 6, "pixel_format": None, "color_model": 2, "channel_datatype": 6}
        made.columns["Image:buffer"] = [[list(picture.tobytes())] for picture in pictures]
        made.columns["Image:format"] = [[form]] * made.rows
    else:
        made.columns["EncodedImage:blob"] = [[png(picture)] for picture in pictures]
    return made


def calibration() -> Topic:
    made = Topic({})
    made.columns["Pinhole:image_from_camera"] = [[[8.0, 0, 0, 0, 8.0, 0, 4.0, 3.0, 1.0]]]
    return made


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


def write_rrd(path: Path, made: Drive) -> Path:
    chunks = [chunk for entity, rows in made.items() for chunk in rows.chunks(entity)]
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="test", recording_id=path.stem, executor="inline")
    return path


# --- what plants faults; each is given a drive, and changes it

Plant = Callable[[Drive], None]


def shifted(entity: str, row: int, seconds: float, *timelines: str) -> Plant:
    """All times from a row on moved by some seconds."""

    def plant(made: Drive) -> None:
        for name in timelines:
            made[entity].times[name][row:] += int(seconds * SECOND)

    return plant


def paced(entity: str, timeline: str, share: float) -> Plant:
    """A clock that is too fast by this share."""

    def plant(made: Drive) -> None:
        times = made[entity].times[timeline]
        times += ((times - times[0]) * share).astype(np.int64)

    return plant


def kept(entity: str, choose: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]) -> Plant:
    """Only the chosen rows of a topic."""

    def plant(made: Drive) -> None:
        rows = np.arange(made[entity].rows)
        made[entity].take(rows[choose(rows)])

    return plant


def moved(entity: str, rows: slice, to: int) -> Plant:
    """Rows stored later than they belong."""

    def plant(made: Drive) -> None:
        order = np.arange(made[entity].rows)
        late = order[rows]
        rest = np.delete(order, late)
        made[entity].take(np.insert(rest, to, late))

    return plant


def set_times(entity: str, rows: slice, time: int | None, *timelines: str) -> Plant:
    """Rows that all have one time, by default that of the first."""

    def plant(made: Drive) -> None:
        for name in timelines:
            times = made[entity].times[name]
            times[rows] = times[rows][0] if time is None else time

    return plant


def set_number(entity: str, column: int, change: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> Plant:
    """One of the numbers of ``Scalars`` changed in all rows."""

    def plant(made: Drive) -> None:
        values = np.array(made[entity].columns["Scalars:scalars"])
        values[:, column] = change(values[:, column])
        made[entity].columns["Scalars:scalars"] = values.tolist()

    return plant


def set_cells(entity: str, component: str, rows: slice, cell: Any) -> Plant:
    """The same cell in some rows; a function makes it of the first one."""

    def plant(made: Drive) -> None:
        column = made[entity].columns[component]
        value = cell(column[rows.start or 0]) if callable(cell) else cell
        for row in range(*rows.indices(len(column))):
            column[row] = value

    return plant


def added(entity: str, **columns: Column) -> Plant:
    """A static entity more; ``__`` is the colon of components."""

    def plant(made: Drive) -> None:
        made[entity] = Topic({})
        made[entity].columns = {name.replace("__", ":"): column for name, column in columns.items()}

    return plant


def without(*entities: str) -> Plant:
    def plant(made: Drive) -> None:
        for entity in entities:
            del made[entity]

    return plant


def edge(entity: str, child: str, parent: str) -> Plant:
    """One transform more."""
    return added(entity, Transform3D__child_frame=[[child]], Transform3D__parent_frame=[[parent]])


KEY, OTHER = bytes([0, 0, 0, 1, 0x65, 0x88]), bytes([0, 0, 0, 1, 0x41, 0x9A])
_SETS = bytes.fromhex("0000000167640015acd941a0ff93700000000168ebe3cb22c0")


def video(entity: str, is_key: Callable[[int], bool]) -> Plant:
    """A video stream more, whose samples have nothing but the heads that say what they are."""

    def plant(made: Drive) -> None:
        made[entity] = rows = topic(10, 5)
        samples = [_SETS + KEY if is_key(row) else OTHER for row in range(rows.rows)]
        rows.columns["VideoStream:sample"] = [[list(sample)] for sample in samples]
        rows.columns["VideoStream:codec"] = [[0x61766331]] * rows.rows

    return plant


# --- MCAP

Message = tuple[str, int, int]


def write_mcap(path: Path, messages: list[Message], silent: tuple[str, ...] = ()) -> Path:
    """JSON messages of topics, each with its log and publish time, in this order; and topics without messages."""
    from mcap.writer import CompressionType, Writer

    schema = {"type": "object", "properties": {"value": {"type": "number"}}}
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=4096, compression=CompressionType.NONE)
        writer.start()
        number = writer.register_schema("Value", "jsonschema", json.dumps(schema).encode())
        channels = {
            name: writer.register_channel(name, "json", number)
            for name in dict.fromkeys([*(m[0] for m in messages), *silent])
        }
        for at, (name, log, publish) in enumerate(messages):
            writer.add_message(channels[name], log, json.dumps({"value": float(at)}).encode(), publish)
        writer.finish()
    return path


def messages(rate: float = 50, topics: tuple[str, ...] = ("/a", "/b")) -> list[Message]:
    """Messages of topics by turns, published 2 ms before they are logged."""
    times = [START + int(row / rate * SECOND) for row in range(int(LENGTH * rate))]
    return [(name, time + 2_000_000, time) for time in times for name in topics]


# --- LeRobot

FPS = 10
EPISODES = (40, 50, 60)


def lerobot_table(episode: int, **changes: Any) -> pa.Table:
    """The frames of an episode; ``changes`` are columns."""
    count, first = EPISODES[episode], sum(EPISODES[:episode])
    noise = np.random.default_rng(episode)
    columns = {
        "observation.state": pa.array(noise.normal(size=(count, 2)).tolist(), pa.list_(pa.float32())),
        "timestamp": pa.array(np.arange(count) / FPS, pa.float32()),
        "frame_index": pa.array(range(count)),
        "episode_index": pa.array([episode] * count),
        "index": pa.array(range(first, first + count)),
        "task_index": pa.array([0] * count),
    }
    return pa.table({**columns, **{name: pa.array(values) for name, values in changes.items()}})


def write_lerobot(
    root: Path,
    version: int,
    tables: dict[int, pa.Table] | None = None,
    lengths: dict[int, int] | None = None,
    videos: dict[int, bytes] | None = None,
) -> Path:
    """A dataset of version 2 (a file for each episode) or 3 (one for all)."""
    content = {episode: (tables or {}).get(episode, lerobot_table(episode)) for episode in range(len(EPISODES))}
    told = [(lengths or {}).get(episode, length) for episode, length in enumerate(EPISODES)]
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": [2], "names": ["a", "b"]},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    }
    if videos is not None:
        features["cam"] = {"dtype": "video", "shape": [48, 64, 3], "names": ["height", "width", "channel"]}
    info: dict[str, Any] = {"fps": FPS, "robot_type": "arm", "features": features, "chunks_size": 1000}
    meta = root / "meta"
    meta.mkdir(parents=True)
    if version == 2:
        info |= {"codebase_version": "v2.1", "data_path": "data/episode_{episode_index:06d}.parquet"}
        info["video_path"] = "videos/{video_key}/episode_{episode_index:06d}.mp4"
        lines = [{"episode_index": e, "length": n, "tasks": ["pick"]} for e, n in enumerate(told)]
        (meta / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (meta / "tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "pick"}) + "\n")
        files = {f"data/episode_{e:06d}.parquet": table for e, table in content.items()}
    else:
        info |= {"codebase_version": "v3.0", "data_path": "data/file-{file_index:03d}.parquet", "video_path": None}
        count = len(EPISODES)
        rows = {"episode_index": range(count), "length": told, "tasks": [["pick"]] * count}
        places = {f"data/{name}": [0] * count for name in ("chunk_index", "file_index")}
        (meta / "episodes").mkdir()
        pq.write_table(pa.table({**rows, **places}), meta / "episodes/file-000.parquet")
        pq.write_table(pa.table({"task_index": [0], "task": ["pick"]}), meta / "tasks.parquet")
        files = {"data/file-000.parquet": pa.concat_tables(content.values())}
    (meta / "info.json").write_text(json.dumps(info))
    for name, table in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, root / name)
    for episode, data in (videos or {}).items():
        place = root / f"videos/cam/episode_{episode:06d}.mp4"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return root
