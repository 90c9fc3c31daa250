"""Recordings whose samples are known: numbers, text, pictures and video, on an index of numbers and one of times."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from chunkmill import CatalogClient, Chunk, LazyChunkStream
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.video import VideoFrame, VideoTrack, decode, encode
from PIL import Image

FRAMES = 45
GROUP = 10
SIDE = 32
SECOND = 1_000_000_000
TRACK = VideoTrack(0x61766331, SIDE, SIDE, Fraction(1, 30), Fraction(30))
_SAMPLE = ComponentDescriptor("VideoStream:sample", "rerun.archetypes.VideoStream", "rerun.components.VideoSample")
_CODEC = ComponentDescriptor("VideoStream:codec", "rerun.archetypes.VideoStream", "rerun.components.VideoCodec")
_MARK = ComponentDescriptor("VideoStream:is_keyframe", "rerun.archetypes.VideoStream", "rerun.components.IsKeyframe")
_BLOB = ComponentDescriptor("EncodedImage:blob", "rerun.archetypes.EncodedImage", "rerun.components.Blob")


@dataclass
class Drive:
    """What one recording holds: ``joints`` and ``frames`` at each of its frames, a picture at every third."""

    joints: npt.NDArray[np.float64]
    pictures: dict[int, npt.NDArray[np.uint8]] = field(default_factory=dict)
    frames: dict[int, npt.NDArray[np.uint8]] = field(default_factory=dict)


def times(frames: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
    """Both indexes of some frames: 30 frames a second."""
    return {
        "frame": pa.array(frames),
        "time": pa.array(frames * SECOND // 30, pa.int64()).cast(pa.duration("ns")),
    }


def blobs(data: list[bytes]) -> pa.Array:
    """Bytes as Rerun has them: one blob in each row."""
    return pa.array([[np.frombuffer(some, np.uint8)] for some in data], pa.list_(pa.list_(pa.uint8())))


def drive(number: int) -> tuple[Drive, list[Chunk]]:
    """A recording, and its chunks."""
    random = np.random.default_rng(number)
    known = Drive(random.normal(size=(FRAMES, 7)))
    every = np.arange(FRAMES)
    joints = [(ComponentDescriptor("Scalars:scalars"), pa.array(known.joints.tolist()))]
    halves = [slice(20, FRAMES), slice(0, 20)]  # the later half comes first
    chunks = [
        Chunk.build("/arm", times(every[half]), [(d, v.take(pa.array(every[half]))) for d, v in joints])
        for half in halves
    ]
    kept: list[bytes] = []
    for frame in range(0, FRAMES, 3):
        pixels = random.integers(0, 255, (8, 12, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "PNG")
        known.pictures[frame] = pixels.transpose(2, 0, 1)
        kept.append(out.getvalue())
    chunks.append(Chunk.build("/top", times(every[::3]), [(_BLOB, blobs(kept))]))
    base = random.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
    shown = [VideoFrame(frame, np.roll(base, frame, axis=1)) for frame in range(FRAMES)]
    samples = list(encode(TRACK, shown, keyframe_interval=GROUP))
    known.frames = {frame.pts: frame.image.transpose(2, 0, 1) for frame in decode(TRACK, samples)}
    chunks.append(Chunk.build("/front", {}, [(_CODEC, pa.array([[TRACK.codec]], pa.list_(pa.uint32())))]))
    chunks += [
        Chunk.build(
            "/front",
            times(every[begin : begin + 15]),
            [(_SAMPLE, blobs([s.data for s in samples[begin : begin + 15]]))],
        )
        for begin in range(0, FRAMES, 15)  # not where groups of pictures begin
    ]
    chunks.append(
        Chunk.build("/task", {}, [(ComponentDescriptor("TextDocument:text"), pa.array([[f"task {number}"]]))])
    )
    some = np.array([5, 6, 30])
    chunks.append(
        Chunk.build("/grip", times(some), [(ComponentDescriptor("Scalars:scalars"), pa.array([[0.5], [0.6], [3.0]]))])
    )
    chunks.append(
        Chunk.build("/grip", times(np.array([20])), [(ComponentDescriptor("Clear:is_recursive"), pa.array([[False]]))])
    )
    return known, chunks


def marks(number: int) -> Chunk:
    """Marks of key frames, for those who cut blocks by them."""
    frames = np.arange(0, FRAMES, GROUP)
    return Chunk.build("/front", times(frames), [(_MARK, pa.array([[True]] * len(frames)))])


def lake(folder: Path, count: int, *, marked: bool = False) -> tuple[list[Drive], DatasetEntry]:
    """A dataset of some recordings, and what they hold."""
    known: list[Drive] = []
    files: list[str] = []
    for number in range(count):
        made, chunks = drive(number)
        known.append(made)
        path = folder / f"drive_{number}.rrd"
        stream = LazyChunkStream.from_iter([*chunks, marks(number)] if marked else chunks)
        stream.write_rrd(path, application_id="tests", recording_id=path.stem, executor="inline")
        files.append(str(path))
    dataset = CatalogClient(folder / "lake").create_dataset("drives")
    dataset.register(files).wait()
    return known, dataset
