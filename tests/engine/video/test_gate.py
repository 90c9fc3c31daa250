"""Forged files: each is a clear error, soon, and nothing beside the file is opened."""

from __future__ import annotations

import os
import signal
import struct
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chunkmill.engine import sandbox
from chunkmill.engine.errors import ReadError, ReadWarning, UnsupportedError
from chunkmill.engine.storage.positional import open_positional
from chunkmill.engine.video import VideoSample, decode, demultiplex
from video_files import box, boxes, mutants, video

pytestmark = pytest.mark.process


def open_all(path: Path) -> int:
    """Read and decode everything; the number of frames."""
    with open_positional(str(path)) as file, demultiplex(file, b_frames="keep") as opened:
        return sum(1 for _ in decode(opened.track, list(opened.samples()), path=str(path)))


def patched(data: bytes, kind: bytes, change: Callable[[bytearray, int], None]) -> bytes:
    """Change the content of a box, which begins at the given place."""
    out = bytearray(data)
    change(out, data.index(kind) + 4)
    return bytes(out)


def words(at: int, *values: int) -> Callable[[bytearray, int], None]:
    def change(out: bytearray, begin: int) -> None:
        out[begin + at : begin + at + 4 * len(values)] = struct.pack(f">{len(values)}I", *values)

    return change


def without(data: bytes, kind: bytes) -> bytes:
    return b"".join(data[at : at + size] for at, name, size in boxes(data) if name != kind)


def renamed(data: bytes, kind: bytes, name: bytes) -> bytes:
    return data.replace(kind, name)


def nested(depth: int) -> bytes:
    out = b""
    for _ in range(depth):
        out = box(b"moov", out)
    return out


PLAIN = video("h264")
PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:neighbour.mp4\n"

FORGED: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "ffconcat": lambda: b"ffconcat version 1.0\nfile 'neighbour.mp4'\n",
    "playlist": lambda: PLAYLIST,
    "playlist_in_free": lambda: box(b"free", PLAYLIST) + PLAYLIST,
    "sdp": lambda: b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5000 RTP/AVP 96\n",
    "another_container": lambda: video("mpeg4", container="avi"),
    "cut_in_data": lambda: PLAIN[: len(PLAIN) // 3],
    "cut_in_index": lambda: PLAIN[:-40],
    "cut_in_a_head": lambda: PLAIN[:3],
    "without_index": lambda: without(PLAIN, b"moov"),
    "without_data": lambda: without(PLAIN, b"mdat"),
    "box_of_no_size": lambda: PLAIN + struct.pack(">I", 3) + b"free",
    "box_beyond_64_bits": lambda: PLAIN + struct.pack(">I4sQ", 1, b"free", 1 << 62),
    "nested_boxes": lambda: box(b"ftyp", b"isom\0\0\0\0") + nested(20_000),
    "samples_beyond_the_file": lambda: patched(PLAIN, b"stco", words(8, 0x7FFFFFFF)),
    "sample_of_2_gib": lambda: patched(PLAIN, b"stsz", words(12, 0x7FFFFFFF)),
    "billions_of_samples": lambda: patched(PLAIN, b"stsz", words(4, 1, 0xFFFFFFF0)),
    "samples_over_each_other": lambda: patched(PLAIN, b"stsz", words(4, 1500, 5_000_000)),
    "time_scale_of_zero": lambda: patched(PLAIN, b"mdhd", words(12, 0)),
    "frames_of_65535": lambda: patched(
        PLAIN, b"avc1", lambda out, at: out.__setitem__(slice(at + 24, at + 28), b"\xff" * 4)
    ),
    "unknown_codec": lambda: renamed(PLAIN, b"avc1", b"zzzz"),
    "other_codec": lambda: video("mpeg4"),
    "only_sound": lambda: renamed(PLAIN, b"vide", b"soun"),
    "external_data": lambda: patched(PLAIN, b"url ", lambda out, at: out.__setitem__(slice(at, at + 4), bytes(4))),
    "damaged_parameters": lambda: patched(
        PLAIN, b"avcC", lambda out, at: out.__setitem__(slice(at + 6, at + 30), b"\xff" * 24)
    ),
    "damaged_samples": lambda: patched(
        PLAIN, b"mdat", lambda out, at: out.__setitem__(slice(at, at + 900), b"\xa5" * 900)
    ),
}
RIGHT = {"external_data", "frames_of_65535"}
"""Forged in what is not looked at: data lie in the file itself, and frames have the size that their samples say."""
SAID = {"time_scale_of_zero": "whole seconds, or no time scale"}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_an_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.mp4"
    path.write_bytes(FORGED[name]())
    (tmp_path / "neighbour.mp4").write_bytes(PLAIN)
    begin = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)
        if name in SAID:
            with pytest.warns(ReadWarning, match=SAID[name]):
                open_all(path)
            return
        if name in RIGHT:
            assert open_all(path) == 30
            return
        with pytest.raises((ReadError, UnsupportedError)) as raised:
            open_all(path)
    assert time.monotonic() - begin < 10
    assert raised.value.path == str(path)
    assert raised.value.hint


def test_there_are_twenty() -> None:
    assert len(FORGED) >= 20


def test_places_of_cuts_are_said(tmp_path: Path) -> None:
    places = {kind: at for at, kind, _ in boxes(PLAIN)}
    path = tmp_path / "v.mp4"
    for size, kind in ((places[b"moov"] - 5, b"mdat"), (len(PLAIN) - 1, b"moov")):
        path.write_bytes(PLAIN[:size])
        with pytest.raises(ReadError, match="left") as raised:
            open_all(path)
        assert raised.value.offset == places[kind]


def test_mutants_are_read_or_are_errors(tmp_path: Path) -> None:
    """A slice; ``tests/fuzz/video_files_damaged.py`` has more."""
    assert mutants(PLAIN, 60, 31, tmp_path / "v.mp4", open_all)["crashed"] == 0


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGKILL, "crashed, or used too much memory"),
        (signal.SIGSTOP, "the process that read the file gave no answer"),
    ],
)
def test_a_process_that_dies_or_hangs_is_an_error(
    number: signal.Signals, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(PLAIN)
    with open_positional(str(path)) as file, demultiplex(file) as opened:
        track, samples = opened.track, list(opened.samples())
    monkeypatch.setattr(sandbox, "_SILENT_SECONDS", 0.5)
    (worker, *_) = [process for process in sandbox._idle if "video" in process.program]

    def given() -> Iterator[VideoSample]:
        yield from samples[:5]
        os.kill(worker._process.pid, number)
        yield from samples[5:]

    with pytest.raises(ReadError, match=message):
        list(decode(track, given(), path=str(path)))
    assert worker._process.returncode == -signal.SIGKILL
    monkeypatch.undo()
    assert open_all(path) == 30


def test_the_process_can_open_no_file_and_its_memory_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(PLAIN)
    assert open_all(path) == 30
    (worker, *_) = [process for process in sandbox._idle if "video" in process.program]
    limits = Path(f"/proc/{worker._process.pid}/limits").read_text()
    rows = {line[:26].strip(): line[26:].split() for line in limits.splitlines()}
    files = [int(place.name) for place in Path(f"/proc/{worker._process.pid}/fd").iterdir()]
    assert int(rows["Max open files"][0]) <= max(files) + 1
    assert int(rows["Max address space"][0]) == 4 << 30


def test_the_process_cannot_cut_the_shared_memory(tmp_path: Path) -> None:
    """Whoever looks at memory that is not there any more is killed."""
    path = tmp_path / "v.mp4"
    path.write_bytes(PLAIN)
    assert open_all(path) == 30
    (worker, *_) = [process for process in sandbox._idle if "video" in process.program]
    places = Path(f"/proc/{worker._process.pid}/fd").iterdir()
    (shared,) = [place for place in places if "memfd:sandbox" in str(place.readlink())]
    with shared.open("r+b") as file, pytest.raises(PermissionError):
        file.truncate(0)
