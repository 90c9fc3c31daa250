"""Samples out of containers and back, frames out of samples and back."""

from __future__ import annotations

import io
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from chunkmill.engine.errors import MissingExtraError, ReadError, ReadWarning, UnsupportedError, UsageError
from chunkmill.engine.storage.positional import open_positional
from chunkmill.engine.video import (
    SampleBatch,
    VideoFrame,
    VideoSample,
    VideoTrack,
    chunks,
    coding,
    decode,
    demultiplex,
    detect_gop_start,
    encode,
    mux,
    pack_groups,
    transcode,
)
from chunkmill.engine.video.bitstream import nal_units, without_repeats
from video_files import CODECS, box, edited, picture, video

H264, H265 = 0x61766331, 0x68657631
TICKS = 512
"""Of a frame: the muxer takes 1/15360 seconds for 30 frames a second."""


def read(path: Path, data: bytes, **options: object) -> tuple[VideoTrack, list[VideoSample]]:
    path.write_bytes(data)
    with open_positional(str(path)) as file, demultiplex(file, **options) as opened:
        return opened.track, list(opened.samples())


def packets(data: bytes) -> list[tuple[int, bool, bytes]]:
    """What PyAV itself says."""
    import av

    with av.open(io.BytesIO(data), format="mp4") as file:
        return [(p.pts, p.is_keyframe, bytes(p)) for p in file.demux(video=0) if p.size]


def units(sample: bytes) -> list[bytes]:
    return [sample[begin:end].rstrip(b"\0") for begin, end in nal_units(sample)]


@pytest.mark.process
@pytest.mark.parametrize("codec", CODECS)
def test_samples_are_the_packets_of_the_file(codec: str, tmp_path: Path) -> None:
    data = video(codec)
    track, samples = read(tmp_path / "v.mp4", data)
    assert (track.width, track.height, track.time_base, track.rate) == (64, 48, Fraction(1, 15360), 30)
    raw = packets(data)
    assert [s.pts for s in samples] == [TICKS * i for i in range(30)] == [pts for pts, _, _ in raw]
    assert [s.is_keyframe for s in samples] == [i % 10 == 0 for i in range(30)] == [key for _, key, _ in raw]
    assert [track.nanoseconds(s.pts) for s in samples[:3]] == [0, 33_333_333, 66_666_667]
    if codec in ("av1", "vp9"):
        assert [s.data for s in samples] == [packet for _, _, packet in raw]
        return
    for sample in samples:
        kinds = [u[0] & 31 if track.codec == H264 else u[0] >> 1 & 63 for u in units(sample.data)]
        wanted = {7, 8} if track.codec == H264 else {32, 33, 34}
        assert wanted <= set(kinds) if sample.is_keyframe else not wanted & set(kinds)
        assert detect_gop_start(sample.data, track.codec) == sample.is_keyframe
        assert len(set(kinds) & wanted) == len([k for k in kinds if k in wanted])


@pytest.mark.process
@pytest.mark.parametrize("codec", CODECS)
def test_samples_decode_to_the_frames_and_back(codec: str, tmp_path: Path) -> None:
    track, samples = read(tmp_path / "v.mp4", video(codec))
    frames = list(decode(track, samples))
    assert [f.pts for f in frames] == [s.pts for s in samples]
    assert all(np.abs(f.image.astype(int) - picture(i)).mean() < 12 for i, f in enumerate(frames))
    made = list(encode(track, frames, keyframe_interval=7, keyframes=[TICKS * 10] if codec == "h264" else ()))
    assert [s.pts for s in made] == [s.pts for s in samples]
    assert {0, 7} <= {i for i, s in enumerate(made) if s.is_keyframe}
    assert codec != "h264" or made[10].is_keyframe
    again = list(decode(track, made))
    assert all(np.abs(a.image.astype(int) - b.image).mean() < 12 for a, b in zip(frames, again, strict=True))


@pytest.mark.process
def test_wanted_frames_come_with_every_nth_pixel(tmp_path: Path) -> None:
    track, samples = read(tmp_path / "v.mp4", video("h264"))
    frames = list(decode(track, samples))
    some = list(decode(track, samples, wanted={TICKS * 3, TICKS * 20}, step=4, threads=1))
    assert [f.pts for f in some] == [TICKS * 3, TICKS * 20]
    assert all(np.array_equal(f.image, frames[f.pts // TICKS].image[::4, ::4]) for f in some)


@pytest.mark.process
@pytest.mark.parametrize("codec", CODECS)
def test_samples_are_made_anew_in_another_order(codec: str, tmp_path: Path) -> None:
    track, samples = read(tmp_path / "v.mp4", video(codec))
    frames = [frame.image for frame in decode(track, samples)]
    order = [5, 5, 9, 7, 7, 7, 8, 25, 29]
    given = [sample._replace(pts=place, dts=place) for place, sample in enumerate(samples)]
    both = list(transcode(track, given, order, keyframe_interval=4, shown={7, 28}, step=2, path="v.mp4"))
    shown = {each.pts: each.image for each in both if isinstance(each, VideoFrame)}
    assert shown.keys() == {7, 28} and all(np.array_equal(i, frames[p][::2, ::2]) for p, i in shown.items())
    made = [each for each in both if isinstance(each, VideoSample)]
    assert [sample.pts for sample in made] == [TICKS * place for place in range(len(order))]
    assert {place for place, sample in enumerate(made) if sample.is_keyframe} >= {0, 4, 8}
    again = list(decode(track, made))
    assert all(np.abs(f.image.astype(int) - frames[o]).mean() < 6 for f, o in zip(again, order, strict=True))
    with pytest.raises(ReadError, match="1 frames are missing"):
        list(transcode(track, given[:20], [19, 20]))
    with pytest.raises(ReadError, match=r"v\.mp4.*sample 1 cannot be decoded|v\.mp4.*samples decode to"):
        list(transcode(track, [given[0], given[1]._replace(data=b"\xff" * 40)], [0, 1], path="v.mp4"))
    with pytest.raises(UsageError, match="needs even sizes"):
        list(transcode(VideoTrack(track.codec, 63, 48, track.time_base), given, [0]))


@pytest.mark.process
@pytest.mark.parametrize("codec", CODECS)
def test_muxed_samples_are_read_as_they_were(codec: str, tmp_path: Path) -> None:
    track, samples = read(tmp_path / "v.mp4", video(codec))
    out = io.BytesIO()
    mux(track, samples, out)
    again, read_again = read(tmp_path / "again.mp4", out.getvalue())
    assert (again.codec, again.width, again.time_base) == (track.codec, track.width, track.time_base)
    assert [(s.pts, s.is_keyframe, units(s.data) if track.codec in (H264, H265) else s.data) for s in read_again] == [
        (s.pts, s.is_keyframe, units(s.data) if track.codec in (H264, H265) else s.data) for s in samples
    ]


@pytest.mark.process
def test_two_encoders_in_one_track_decode(tmp_path: Path) -> None:
    track, first = read(tmp_path / "a.mp4", video("h264", options={"crf": "30", "profile": "baseline"}))
    _, second = read(tmp_path / "b.mp4", video("h264", options={"crf": "18", "refs": "4"}))
    joined = [*first, *(s._replace(pts=s.pts + 30 * TICKS, dts=s.dts + 30 * TICKS) for s in second)]
    out = io.BytesIO()
    mux(track, joined, out)
    _, samples = read(tmp_path / "joined.mp4", out.getvalue())
    frames = list(decode(track, samples))
    assert all(np.abs(f.image.astype(int) - picture(i % 30)).mean() < 12 for i, f in enumerate(frames))
    assert len(frames) == 60


@pytest.mark.process
@pytest.mark.parametrize("codec", CODECS)
def test_a_window_within_a_group_has_its_lead_in(codec: str, tmp_path: Path) -> None:
    data = video(codec)
    _, whole = read(tmp_path / "v.mp4", data)
    _, samples = read(tmp_path / "v.mp4", data, start=Fraction(13, 30), end=Fraction(22, 30))
    assert samples == whole[10:22]
    _, samples = read(tmp_path / "v.mp4", data, start=Fraction(20, 30))
    assert samples == whole[20:]
    assert read(tmp_path / "v.mp4", data, start=Fraction(90))[1] == []
    assert read(tmp_path / "v.mp4", data, end=Fraction(0))[1] == []


@pytest.mark.process
@pytest.mark.parametrize(("codec", "name"), [("h264", "H.264 by libx264"), ("hevc", "H.265 by libx265")])
def test_b_frames_are_encoded_anew_and_said(codec: str, name: str, tmp_path: Path) -> None:
    data = video(codec, b_frames=True)
    with pytest.warns(ReadWarning, match=rf"B-frames.*encoded as {name} \(constant rate factor 18\)"):
        track, samples = read(tmp_path / "v.mp4", data)
    assert [s.pts for s in samples] == sorted(pts for pts, _, _ in packets(data))
    assert {s.pts for s in samples if s.is_keyframe} == {pts for pts, key, _ in packets(data) if key}
    frames = list(decode(track, samples))
    assert all(np.abs(f.image.astype(int) - picture(i)).mean() < 12 for i, f in enumerate(frames))
    with pytest.warns(ReadWarning, match="constant rate factor 30"):
        _, samples = read(tmp_path / "v.mp4", data, start=Fraction(13, 30), end=Fraction(22, 30), quality=30)
    assert [s.pts for s in samples] == [TICKS * i for i in range(13, 22)]
    assert samples[0].is_keyframe
    with pytest.raises(UnsupportedError, match=r"has B-frames.*b_frames="):
        read(tmp_path / "v.mp4", data, b_frames="error")
    _, kept = read(tmp_path / "v.mp4", data, b_frames="keep")
    assert [s.pts for s in kept] == [pts for pts, _, _ in packets(data)]


@pytest.mark.process
def test_b_frames_are_those_of_the_window(tmp_path: Path) -> None:
    """Each picture alone needs none, so the window before the others is given as it is."""
    data = video("h264", 20, gop=1, b_frames=True)
    _, samples = read(tmp_path / "v.mp4", data)
    assert len(samples) == 20


@pytest.mark.process
def test_variable_rates_fragments_and_quicktime(tmp_path: Path) -> None:
    times = [0, 1, 2, 5, 6, 9, 20, 21, 22, 40]
    track, samples = read(tmp_path / "v.mp4", video("h264", 10, times=times))
    assert [s.pts * track.time_base * 30 for s in samples] == times
    fragments = {"movflags": "frag_keyframe+empty_moov"}
    whole = read(tmp_path / "v.mp4", video("h264"))[1]
    track, samples = read(tmp_path / "v.mp4", video("h264", container_options=fragments))
    assert [(s.pts, units(s.data)) for s in samples] == [(s.pts, units(s.data)) for s in whole]
    window = read(tmp_path / "v.mp4", video("h264", container_options=fragments), start=Fraction(13, 30))[1]
    assert [s.pts for s in window] == [s.pts for s in whole[10:]]
    films = (read(tmp_path / "v.mov", video("h264", container="mov"))[1] for _ in range(3))  # x264 may differ by a byte
    assert any([s.data for s in samples] == [s.data for s in whole] for samples in films)


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*is re-encoded")
@pytest.mark.parametrize("b_frames", [False, True])
@pytest.mark.parametrize(("begin", "count"), [(0, 15), (5, 15), (13, 7), (21, 9)])
def test_frames_that_an_edit_leaves_out_are_not_shown(begin: int, count: int, b_frames: bool, tmp_path: Path) -> None:
    data = video("h264", b_frames=b_frames)
    data = edited(data, (count * 1000 // 30, (begin + 2 * b_frames) * TICKS))
    track, samples = read(tmp_path / "v.mp4", data)
    frames = [frame for frame in decode(track, samples) if frame.pts >= 0]
    assert [frame.pts for frame in frames] == [i * TICKS for i in range(count)]
    for i, frame in enumerate(frames):
        assert np.abs(frame.image.astype(int) - picture(begin + i)).mean() < 12
    if not b_frames:
        assert [s.pts for s in samples if s.pts < 0] == [-i * TICKS for i in range(begin % 10, 0, -1)]


@pytest.mark.process
@pytest.mark.parametrize("codec", [*CODECS, "b_frames"])
@pytest.mark.parametrize("parts", [(0, 20), (20, 0), (12, 12), (3, 9)])
def test_several_edits_are_encoded_anew_or_refused(codec: str, parts: tuple[int, int], tmp_path: Path) -> None:
    """Two parts of nine frames each, which lie apart, in another order or over each other."""
    lead = 2 * (codec == "b_frames")
    data = video("h264", b_frames=True) if lead else video(codec)
    data = edited(data, *((300, (begin + lead) * TICKS) for begin in parts))
    with pytest.warns(ReadWarning, match="an edit list with several parts.*is re-encoded"):
        track, samples = read(tmp_path / "v.mp4", data)
    frames = list(decode(track, samples))
    assert [frame.pts for frame in frames] == [i * TICKS for i in range(18)]
    for i, frame in enumerate(frames):
        wanted = picture(parts[i // 9] + i % 9)
        assert np.abs(frame.image.astype(int) - wanted).mean() < 12
    if parts == (3, 9):
        return  # of which FFmpeg makes samples that follow each other
    with pytest.raises(UnsupportedError, match=r"(?s)an edit list with several parts.*Re-encode it"):
        read(tmp_path / "v.mp4", data, b_frames="keep")


@pytest.mark.process
def test_an_edit_that_leaves_out_what_is_needed_is_refused(tmp_path: Path) -> None:
    data = edited(video("h264", b_frames=True), (367, 2 * TICKS))
    with pytest.raises(UnsupportedError, match="leaves out a frame that a shown frame needs"):
        read(tmp_path / "v.mp4", data, b_frames="keep")


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*are marked as key frames")
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_lead_in_begins_at_a_real_key_frame(codec: str, tmp_path: Path) -> None:
    """Without a table of key frames each sample counts as one; the box at the end lets PyAV read it."""
    whole = read(tmp_path / "v.mp4", video(codec))[1]
    data = video(codec).replace(b"stss", b"free") + box(b"uuid", bytes(16))
    _, samples = read(tmp_path / "v.mp4", data, start=Fraction(15, 30))
    assert [(s.pts, s.is_keyframe) for s in samples] == [(s.pts, s.is_keyframe) for s in whole[10:]]


@pytest.mark.process
def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    with pytest.warns(ReadWarning, match="only video track 0 is read; other tracks: 1 more video, audio"):
        read(tmp_path / "v.mp4", video("h264", audio=True, tracks=2))
    with pytest.raises(UsageError, match="no video track 3"):
        read(tmp_path / "v.mp4", video("h264"), track=3)


@pytest.mark.process
def test_samples_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "v.mp4").write_bytes(video("h264"))
    with open_positional(str(tmp_path / "v.mp4")) as file:
        with demultiplex(file) as opened:
            assert next(opened.samples()).is_keyframe
        with demultiplex(file) as opened:
            assert len(list(opened.samples())) == 30


@pytest.mark.process
def test_threads_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "v.mp4").write_bytes(video("h264"))
    sizes: list[int] = []

    def count() -> None:
        with open_positional(str(tmp_path / "v.mp4")) as file, demultiplex(file) as opened:
            sizes.append(len(list(decode(opened.track, opened.samples()))))

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == [30, 30, 30]


@pytest.mark.process
def test_frames_and_samples_that_do_not_fit() -> None:
    track = VideoTrack(H264, 64, 48, Fraction(1, 30))
    image = picture(0)
    with pytest.raises(UsageError, match=r"expected a frame of uint8 .* with shape \(2, 2, 3\)"):
        list(encode(track, [VideoFrame(0, image[:2, :2])]))
    with pytest.raises(UsageError, match="a frame at tick 0 follows one at 0"):
        list(encode(track, [VideoFrame(0, image), VideoFrame(0, image)]))
    with pytest.raises(UsageError, match="even sizes"):
        list(encode(VideoTrack(H264, 63, 48, Fraction(1, 30)), []))
    with pytest.raises(UsageError, match="constant rate factor must be 0 to 51, not 90"):
        list(encode(track, [], quality=90))
    with pytest.raises(UsageError, match="no encoder for VP8"):
        list(encode(VideoTrack(0x76703038, 64, 48, Fraction(1, 30)), []))
    with pytest.raises(UsageError, match="a sample at tick 0 follows one at 0"):
        mux(track, [VideoSample(0, 0, True, b"x")] * 3, io.BytesIO())
    with pytest.raises(ReadError, match="cannot be decoded"):
        list(decode(track, [VideoSample(0, 0, True, b"\0\0\0\1\x65" + b"z" * 99)]))


@pytest.mark.process
def test_decoding_from_the_middle_is_an_error(tmp_path: Path) -> None:
    track, samples = read(tmp_path / "v.mp4", video("h264"))
    with pytest.raises(ReadError):
        list(decode(track, samples[3:8]))


def test_without_pyav_the_hint_says_how(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(coding, "has_video_extra", lambda: False)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[video\]'"):
        list(decode(VideoTrack(H264, 2, 2, Fraction(1)), []))


def samples_of(sizes: list[int], keyframes: set[int]) -> list[VideoSample]:
    return [VideoSample(i, i, i in keyframes, bytes([i]) * size) for i, size in enumerate(sizes)]


def packed(samples: list[VideoSample], *size: int, each: int = 100) -> list[list[int]]:
    """The times of samples in each pack, which come in batches of some each."""
    batches = [SampleBatch.of(samples[at : at + each]) for at in range(0, len(samples), each)]
    packs = [list(pack) for pack in pack_groups(batches, *size)]
    assert [sample for pack in packs for sample in pack] == samples
    return [[sample.pts for sample in pack] for pack in packs]


def test_groups_are_packed_whole() -> None:
    samples = samples_of([4, 1, 1, 4, 1, 1, 9, 1, 4], {0, 3, 6, 8})
    for each in (1, 2, 4, 100):
        assert packed(samples, 12, each=each) == [[0, 1, 2, 3, 4, 5], [6, 7], [8]]
        assert packed(samples, 1, each=each) == [[0, 1, 2], [3, 4, 5], [6, 7], [8]]
        assert packed(samples, each=each) == [list(range(9))]
    assert packed([]) == []


def test_a_group_that_is_too_large_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_LARGEST_BYTES", 10)
    samples = samples_of([4] * 8 + [3], {0, 7})
    for each in (1, 3, 100):
        assert packed(samples, 5, each=each) == [[0, 1, 2], [3, 4, 5], [6], [7, 8]]


def test_repeated_parameter_sets_go() -> None:
    a, b, key = b"\x40\x01a", b"\x42\x01b", b"\x26\x01key"
    start = b"\0\0\0\1"
    assert without_repeats(start + a + start + b + start + a + start + b + start + key) == start.join([b"", a, b, key])
    assert without_repeats(start + a + start + key) == start + a + start + key
