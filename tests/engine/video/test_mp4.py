"""The index of plain MP4 files: the same samples as PyAV gives, and no trust in what a file says."""

from __future__ import annotations

import struct
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest
from chunkmill.engine.errors import ChunkmillError, MissingExtraError, ReadError, ReadWarning
from chunkmill.engine.storage.positional import open_positional
from chunkmill.engine.video import VideoSample, VideoTrack, coding, decode, demultiplex, mp4, mux
from chunkmill.engine.video.bitstream import nal_units, without_repeats
from video_files import CODECS, boxes, video

Read = tuple[VideoTrack, list[VideoSample], list[str]]
WITH_UNITS = (0x61766331, 0x68657631)
TIMES = [0, 1, 2, 5, 6, 9, 20, 21, 22, 40]

PLAIN: dict[str, Callable[[], bytes]] = {
    **{codec: lambda codec=codec: video(codec) for codec in CODECS},
    "only key frames": lambda: video("h264", gop=1),
    "QuickTime": lambda: video("h264", container="mov"),
    "H.265 in QuickTime": lambda: video("hevc", 10, times=TIMES, container="mov"),
    "uneven times": lambda: video("h264", 10, times=TIMES),
    "other tracks": lambda: video("h264", audio=True, tracks=2),
    "full range": lambda: video("h264", options={"x264-params": "fullrange=on"}),
    "many slices": lambda: video("h264", options={"x264-params": "slices=3:aud=1"}),
    "sets in band": lambda: video("hevc", options={"x265-params": "bframes=0:repeat-headers=1:log-level=none"}),
}
WINDOWS: list[dict[str, Fraction]] = [
    {},
    {"start": Fraction(13, 30), "end": Fraction(22, 30)},
    {"start": Fraction(20, 30)},
    {"start": Fraction(90)},
    {"end": Fraction(0)},
    {"start": Fraction(-1), "end": Fraction(1, 3)},
]


def read(path: Path, **window: Fraction) -> Read:
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", ReadWarning)
        with open_positional(str(path)) as file, demultiplex(file, **window) as opened:
            samples = [_normal(sample, opened.track.codec) for sample in opened.samples()]
    return opened.track, samples, [str(warning.message) for warning in raised]


def _normal(sample: VideoSample, codec: int) -> VideoSample:
    """The same with start codes of one size."""
    if codec not in WITH_UNITS:
        return sample
    units = [sample.data[begin:end].rstrip(b"\0") for begin, end in nal_units(sample.data)]
    return sample._replace(data=b"\0\0\1".join(units))


@pytest.fixture
def by_pyav(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Read]:
    def not_plain(*_: object) -> None:
        raise mp4.NotPlainError("a test asks for PyAV")

    def read_by_pyav(path: Path, **window: Fraction) -> Read:
        with monkeypatch.context() as patch:
            patch.setattr(coding, "read_video", not_plain)
            return read(path, **window)

    return read_by_pyav


def is_plain(path: Path) -> bool:
    with open_positional(str(path)) as file:
        try:
            mp4.read_video(file, mp4.read_boxes(file), 0)
        except mp4.NotPlainError:
            return False
    return True


@pytest.mark.process
@pytest.mark.parametrize("name", PLAIN)
def test_samples_are_those_of_pyav(name: str, tmp_path: Path, by_pyav: Callable[..., Read]) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(PLAIN[name]())
    assert is_plain(path)
    for window in WINDOWS:
        assert read(path, **window) == by_pyav(path, **window)


@pytest.mark.process
def test_samples_are_read_in_windows(
    tmp_path: Path, by_pyav: Callable[..., Read], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mp4, "_WINDOW_BYTES", 500)
    for name in ("h264", "other tracks"):
        (tmp_path / "v.mp4").write_bytes(PLAIN[name]())
        for window in WINDOWS:
            assert read(tmp_path / "v.mp4", **window) == by_pyav(tmp_path / "v.mp4", **window)


@pytest.mark.process
@pytest.mark.parametrize("codec", CODECS)
def test_damaged_files_give_the_same_where_both_are_read(
    codec: str, tmp_path: Path, by_pyav: Callable[..., Read]
) -> None:
    """Damage in the index; where a file is still plain, its samples are those of PyAV."""
    data, path, random = video(codec), tmp_path / "v.mp4", Random(7)
    (at, _, size) = next(each for each in boxes(data) if each[1] == b"moov")
    same = 0
    for _ in range(60):
        damaged = bytearray(data)
        damaged[random.randrange(at + 8, at + size)] = random.randrange(256)
        path.write_bytes(damaged)
        if is_plain(path):
            try:
                (mine, samples, _), (other, expected, _) = read(path), by_pyav(path)
            except ChunkmillError:
                continue
            assert (mine.codec, mine.time_base, mine.rate) == (other.codec, other.time_base, other.rate)
            assert [(s.pts, s.dts) for s in samples] == [(s.pts, s.dts) for s in expected]
            same += samples == expected
    assert same > 5


OTHER: dict[str, Callable[[], bytes]] = {
    "B-frames": lambda: video("h264", b_frames=True),
    "fragments": lambda: video("h264", container_options={"movflags": "frag_keyframe+empty_moov"}),
    "another codec": lambda: video("mpeg4"),
    "samples behind the end": lambda: _forged(video("h264"), b"stco", 8, 0x7FFFFFFF),
    "samples over each other": lambda: _forged(video("h264"), b"stsz", 4, 1500, 5_000_000),
    "billions of samples": lambda: _forged(video("h264"), b"stsz", 4, 1, 0xFFFFFFF0),
    "billions of times": lambda: _forged(video("h264"), b"stts", 8, 0xFFFFFFFF, 0xFFFFFFFF),
    "billions of chunks": lambda: _forged(video("h264"), b"stsc", 8, 1, 0xFFFFFFFF, 1),
    "tables beyond their box": lambda: _forged(video("h264"), b"stss", 4, 0xFFFFFFFF),
    "an edit": lambda: _forged(video("h264"), b"elst", 8, 100, 512),
    "an edit that cuts": lambda: _forged(video("h264"), b"elst", 8, 500),
    "no time scale": lambda: _forged(video("h264"), b"mdhd", 12, 0),
    "another size": lambda: _forged(video("h264"), b"avc1", 24, 0xFFFFFFFF),
}


def _forged(data: bytes, kind: bytes, at: int, *words: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(f">{len(words)}I", out, data.rindex(kind) + 4 + at, *words)
    return bytes(out)


@pytest.mark.parametrize("name", OTHER)
def test_other_files_need_pyav(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(OTHER[name]())
    assert not is_plain(path)
    monkeypatch.setattr(coding, "has_video_extra", lambda: False)
    with pytest.raises(MissingExtraError, match=r"v\.mp4 needs PyAV, because .*pip install '\.\[video\]'"):
        read(path)


def test_units_that_do_not_end_in_their_sample_are_an_error_with_its_place(tmp_path: Path) -> None:
    data, path = video("h264"), tmp_path / "v.mp4"
    begin = data.index(b"mdat") + 4
    path.write_bytes(data[:begin] + b"\xff" * 4 + data[begin + 4 :])
    with pytest.raises(ReadError, match="sample 0: a NAL unit does not end within it") as raised:
        read(path)
    assert raised.value.offset == begin


@pytest.mark.parametrize("size", [1, 2, 4])
def test_units_have_lengths_of_several_sizes(size: int, tmp_path: Path) -> None:
    units = [b"\x67ab", b"", b"\x68c", b"\x06d"] * 40
    sample = b"".join(len(unit).to_bytes(size, "big") + unit for unit in units)
    assert mp4._units(sample, size) == [unit for unit in units if unit]
    with pytest.raises(ValueError, match="does not end within it"):
        mp4._units(sample[:-1], size)


def test_parameter_sets_in_band_win_over_those_of_the_file(tmp_path: Path) -> None:
    parts = []
    for name, more in (("a", ""), ("b", ":qp=10")):
        settings = {"x265-params": "bframes=0:scenecut=0:log-level=none" + more}
        path = tmp_path / f"{name}.mp4"
        path.write_bytes(video("hevc", 10, gop=5, options=settings))
        with open_positional(str(path)) as file, demultiplex(file) as opened:
            parts.append((opened.track, list(opened.samples())))
    wanted = [frame.image for track, samples in parts for frame in decode(track, samples)]
    (track, first), (_, second) = parts
    step = first[1].pts - first[0].pts
    with (tmp_path / "both.mp4").open("wb") as out:
        mux(track, [*first, *(s._replace(pts=s.pts + 10 * step, dts=s.dts + 10 * step) for s in second)], out)
    with open_positional(str(tmp_path / "both.mp4")) as file, demultiplex(file) as opened:
        read = [frame.image for frame in decode(opened.track, list(opened.samples()))]
    assert len(read) == 20 and all(np.array_equal(a, b) for a, b in zip(read, wanted, strict=True))


def test_very_many_parameter_sets_take_no_long_time() -> None:
    sets = b"".join(b"\0\0\0\1\x44\1" + number.to_bytes(3, "big").replace(b"\0", b"\1") for number in range(60_000))
    begun = time.process_time()
    assert without_repeats(sets) and time.process_time() - begun < 5
