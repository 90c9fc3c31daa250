"""LeRobot datasets: 50 episodes read beside rerun-sdk, and written from recordings with cameras of 640 x 480.

Each episode has 10 s of an arm with seven joints at 100 Hz, and one camera in H.264 at 30 Hz, a key frame a second.
Copied: the grid has the camera's rate. Encoded: the grid has 24 Hz, so that no group of pictures fits. Statistics of
images are part of it, for which LeRobot's rule has a third of such an episode's frames decoded.
"""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import Chunk, LazyChunkStream, McapReader, RrdReader, get_session, write_lerobot
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.video import SampleBatch, VideoFrame, VideoSample, VideoTrack, encode, stream_chunks
from chunkmill.readers import LeRobotReader
from conftest import ABSOLUTE, AT_LEAST, Duel
from made_recordings import SCHEMAS, Cdr
from mcap.writer import CompressionType, Writer

pytest.importorskip("av")

EPISODES, SECONDS, FPS, WIDTH, HEIGHT = 50, 10, 30, 640, 480
SPEC = {
    "timeline": "time",
    "task": "put the cup on the plate",
    "features": {
        "observation.state": {"entity": "/state", "component": "Scalars:scalars", "rule": "linear", "tolerance": 0.05},
        "action": {"entity": "/action", "component": "Scalars:scalars", "tolerance": 0.05},
        "observation.images.top": {"entity": "/camera", "dtype": "video", "rule": "nearest", "tolerance": 0.05},
    },
}
SCALARS = ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar")


def moving(count: int) -> Iterator[np.ndarray]:
    """Frames of a textured ground that moves, with a block before it."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    shade = (np.sin(columns / 23) + np.cos(rows / 31)) * 40 + 120
    texture = random.normal(0, 12, (HEIGHT, WIDTH))
    for n in range(count):
        image = np.stack([np.roll(shade + texture, 3 * n, 1), np.roll(shade, 2 * n, 0), shade + n % 50], -1)
        image[5 * n % 400 : 5 * n % 400 + 60, 7 * n % 560 : 7 * n % 560 + 60] = [220, 40, 60]
        yield np.clip(image, 0, 255).astype(np.uint8)


def joints(entity: str, seconds: int) -> Chunk:
    """Seven numbers at 100 Hz."""
    ticks = pa.array(np.arange(seconds * 100) * 10_000_000).cast(pa.timestamp("ns"))
    values = np.random.default_rng(0).random((seconds * 100, 7))
    return Chunk.build(entity, {"time": ticks}, [(SCALARS, pa.array(list(values), pa.list_(pa.float64())))])


@cache
def film() -> tuple[VideoTrack, list[VideoSample]]:
    """Ten seconds of video."""
    track = VideoTrack(0x61766331, WIDTH, HEIGHT, Fraction(1, FPS), Fraction(FPS))
    frames = (VideoFrame(n, image) for n, image in enumerate(moving(SECONDS * FPS)))
    return track, list(encode(track, frames, keyframe_interval=FPS, quality=23))


def write_episode(path: Path, seconds: int = SECONDS) -> Path:
    """A recording of one episode; one longer than the film shows it again."""
    track, samples = film()

    def times(pts: np.ndarray) -> dict[str, pa.Array]:
        return {"time": pa.array(np.rint(pts * 1e9 / FPS).astype(np.int64)).cast(pa.timestamp("ns"))}

    def shown() -> Iterator[SampleBatch]:
        for second in range(0, seconds, SECONDS):
            first, last = second * FPS, min(second + SECONDS, seconds) * FPS
            yield SampleBatch.of(samples[n - first]._replace(pts=n, dts=n) for n in range(first, last))

    arm = [joints("/state", seconds), joints("/action", seconds)]
    chunks = chain(stream_chunks("/camera", track, shown(), times), arm)
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="bench", recording_id=path.stem, executor="inline")
    return path


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LazyChunkStream]:
    """A recording of each episode."""
    folder = tmp_path_factory.mktemp("episodes")
    paths = [write_episode(folder / f"episode_{number:02d}.rrd") for number in range(EPISODES)]
    return {path.stem: RrdReader(path).stream() for path in paths}


def written(recordings: dict[str, LazyChunkStream], fps: int, folder: Path) -> float:
    """The seconds that an export takes in a warm session."""
    get_session()
    write_lerobot(dict(list(recordings.items())[:2]), folder / "warm", {**SPEC, "fps": fps}, executor="spark")
    started = time.perf_counter()
    report = write_lerobot(recordings, folder / "set", {**SPEC, "fps": fps}, executor="spark")
    took = time.perf_counter() - started
    assert report.episodes == EPISODES
    encoded = sum(account.reencoded for account in report.accounts)
    assert encoded == (0 if fps == FPS else report.frames)
    return took


@pytest.mark.parametrize(("fps", "least"), [(FPS, 20.0), (24, 5.0)], ids=["copied", "encoded"])
def test_videos_out(
    fps: int, least: float, benchmark: Any, recordings: dict[str, LazyChunkStream], tmp_path: Path
) -> None:
    """Guards: 20 times real time where groups of pictures are copied, 5 times where they are encoded anew."""
    took = benchmark.pedantic(lambda: written(recordings, fps, tmp_path), rounds=1)
    AT_LEAST.append((f"videos_out[{fps} Hz]", EPISODES * SECONDS / took, least, "x"))


def test_native_videos(benchmark: Any, duel: Duel, recordings: dict[str, LazyChunkStream], tmp_path: Path) -> None:
    """Guards: 50 episodes with their videos as RRD files take at most 0.5 x rerun's time."""
    peer = pytest.importorskip("rerun.experimental")
    write_lerobot(recordings, tmp_path / "set", {**SPEC, "fps": FPS}, executor="spark")

    def files(reader: Any, name: str, **options: Any) -> None:
        out = tmp_path / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        for episode in reader.episodes():
            stream = reader.stream(episode, video_mode="native")
            stream.write_rrd(out / f"{episode}.rrd", application_id="bench", recording_id=f"{episode}", **options)

    duel.run(
        benchmark,
        lambda: files(LeRobotReader(tmp_path / "set"), "ours", executor="inline"),
        lambda: files(peer.LeRobotReader(tmp_path / "set"), "theirs"),
        bar=0.5,
    )


def test_jpegs_kept(benchmark: Any, tmp_path: Path) -> None:
    """Guards: an MCAP with a camera of JPEGs becomes a dataset of images in less than 30 s a GB."""
    image = pytest.importorskip("PIL.Image")
    path, size = tmp_path / "camera.mcap", 300_000_000
    pictures = []
    for frame in moving(30):
        held = io.BytesIO()
        image.fromarray(frame).save(held, "JPEG", quality=90)
        pictures.append(held.getvalue())
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=4 << 20, compression=CompressionType.NONE)
        writer.start("ros2", "chunkmill benchmarks")
        name = "sensor_msgs/msg/CompressedImage"
        schema = writer.register_schema(name, "ros2msg", SCHEMAS[name].encode())
        channel, number = writer.register_channel("/camera", "cdr", schema), 0
        while file.tell() < size:
            at = 1_700_000_000_000_000_000 + number * 33_333_333
            message = Cdr(at, "camera")
            message.text("jpeg")
            message.blob(pictures[number % len(pictures)])
            writer.add_message(channel, at, bytes(message.data), at, number)
            number += 1
        writer.finish()
    feature = {"entity": "/camera", "dtype": "image", "rule": "nearest", "tolerance": 0.05}
    spec = {"fps": FPS, "timeline": "message_log_time", "task": "look", "features": {"observation.images.top": feature}}

    def export() -> float:
        started = time.perf_counter()
        write_lerobot({"camera": McapReader(path).stream()}, tmp_path / "set", spec, executor="spark")
        return time.perf_counter() - started

    get_session()
    took = benchmark.pedantic(export, rounds=1)
    ABSOLUTE.append(("jpegs_kept", took * 1e9 / path.stat().st_size, 30.0, "s/GB"))
