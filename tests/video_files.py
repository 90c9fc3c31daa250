"""Small videos, made by PyAV: each frame shows its number as a bar and a brightness."""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
from chunkmill.engine.errors import ChunkmillError, ReadWarning

CODECS = ("h264", "hevc", "av1", "vp9")
_ENCODERS = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1", "vp9": "libvpx-vp9"}
_WITHOUT_B_FRAMES = {
    "h264": {"bf": "0", "sc_threshold": "0"},
    "hevc": {"x265-params": "bframes=0:scenecut=0:log-level=none"},
    "av1": {"svtav1-params": "pred-struct=1"},
    "vp9": {"lag-in-frames": "0"},
}


def picture(number: int, width: int = 64, height: int = 48) -> npt.NDArray[np.uint8]:
    """Return frame ``number``: a bar that moves over a field that gets brighter."""
    image = np.full((height, width, 3), 40 + number * 3 % 200, np.uint8)
    image[:, number * 2 % width : number * 2 % width + 8] = (220, 30, 30)
    return image


def video(
    codec: str = "h264",
    count: int = 30,
    *,
    gop: int = 10,
    rate: int = 30,
    b_frames: bool = False,
    times: Sequence[int] | None = None,
    options: dict[str, str] | None = None,
    container: str = "mp4",
    container_options: dict[str, str] | None = None,
    audio: bool = False,
    tracks: int = 1,
) -> bytes:
    """Return a file of ``count`` frames. ``times`` are in units of 1/``rate`` seconds."""
    import av

    out = io.BytesIO()
    with av.open(out, "w", format=container, options=container_options or {}) as file:
        streams = [_stream(file, codec, gop, rate, b_frames, options) for _ in range(tracks)]
        sound = file.add_stream("aac", rate=8000) if audio else None
        for stream in streams:
            for number in range(count):
                frame = av.VideoFrame.from_ndarray(picture(number), format="rgb24")
                frame.pts = number if times is None else times[number]
                file.mux(stream.encode(frame))
            file.mux(stream.encode())
        if sound is not None:
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            frame.sample_rate = 8000
            file.mux(sound.encode(frame))
            file.mux(sound.encode())
    return out.getvalue()


def _stream(file: Any, codec: str, gop: int, rate: int, b_frames: bool, options: dict[str, str] | None) -> Any:
    chosen = {} if b_frames else _WITHOUT_B_FRAMES.get(codec, {})
    stream = file.add_stream(_ENCODERS.get(codec, codec), rate=rate, options={**chosen, **(options or {})})
    stream.width, stream.height, stream.pix_fmt, stream.gop_size = 64, 48, "yuv420p", gop
    stream.thread_count = 1  # the same bytes each time
    return stream


def box(kind: bytes, *parts: bytes) -> bytes:
    """Return a box of an MP4."""
    body = b"".join(parts)
    return struct.pack(">I", 8 + len(body)) + kind + body


def boxes(data: bytes) -> Iterable[tuple[int, bytes, int]]:
    """Yield place, kind and size of each box at the top level."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield at, data[at + 4 : at + 8], size
        at += size


def edited(data: bytes, *edits: tuple[int, int]) -> bytes:
    """Return a video with other edits: the milliseconds and the first tick of each. Its index is behind its samples."""
    entries = [struct.pack(">IiI", milliseconds, ticks, 1 << 16) for milliseconds, ticks in edits]
    new = box(b"edts", box(b"elst", bytes(4), struct.pack(">I", len(edits)), *entries))
    out = bytearray(data)
    at = out.index(b"edts") - 4
    size = int.from_bytes(out[at : at + 4], "big")
    for kind in (b"moov", b"trak"):
        head = out.index(kind) - 4
        out[head : head + 4] = struct.pack(">I", int.from_bytes(out[head : head + 4], "big") + len(new) - size)
    out[at : at + size] = new
    return bytes(out)


def mutants(data: bytes, count: int, seed: int, path: Path, read: Callable[[Path], object]) -> dict[str, int]:
    """Read ``count`` damaged copies; how many were read, were errors, and ended the process that read them."""
    random, counts = Random(seed), {"read": 0, "errors": 0, "crashed": 0}
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(random.choice((1, 4, 30))):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        if not random.randrange(4):
            del damaged[random.randrange(len(damaged)) :]
        path.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadWarning)
            try:
                read(path)
                counts["read"] += 1
            except ChunkmillError as error:
                counts["crashed" if "crashed" in str(error) else "errors"] += 1
    return counts
