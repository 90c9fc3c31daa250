"""Videos whose samples come with jitter and loss: most groups of pictures are copied, and all frames are right."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill import LazyChunkStream, LeRobotReader
from chunkmill.engine.video.bitstream import nal_units
from test_lerobot_writing import FILM, export, film, numbers, rows_of, video, with_keys

pytest.importorskip("av")

GROUP = 15


def moving(count: int) -> Any:
    """Frames of 64 x 48 on which a block moves, over a shade that changes."""
    for number in range(count):
        image = np.full((48, 64, 3), 60 + number % 37, np.uint8)
        image[number % 40 : number % 40 + 8, number % 56 : number % 56 + 8] = 220
        yield image


def units(sample: bytes) -> list[bytes]:
    """The NAL units of a sample; start codes have 3 bytes or 4."""
    return [sample[begin:end].rstrip(b"\0") for begin, end in nal_units(sample)]


def decoded(path: Path, start: float, end: float) -> list[Any]:
    """The frames of an MP4 from a time on, up to another."""
    from chunkmill.engine.storage.positional import PositionalFile
    from chunkmill.engine.video import decode, demultiplex

    with PositionalFile(str(path)) as file, demultiplex(file) as opened:
        frames = [(float(f.pts * opened.track.time_base), f.image) for f in decode(opened.track, opened.samples())]
    return [image for time, image in frames if start - 1e-6 <= time < end - 1e-6]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_most_groups_of_pictures_are_copied(seed: int, tmp_path: Path) -> None:
    from chunkmill.engine.video import VideoFrame, VideoSample, VideoTrack, decode, encode

    count, random = 3000, np.random.default_rng(seed)
    track = VideoTrack(0x61766331, 64, 48, Fraction(1, 30), Fraction(30))
    given = (VideoFrame(number, image) for number, image in enumerate(moving(count)))
    samples = list(encode(track, given, keyframe_interval=GROUP, keyframes=range(0, count, GROUP)))
    kept = random.random(count) >= 0.001
    for number in range(0, count, GROUP):
        kept[number] = True  # a lost key frame costs its whole group
    numbers = np.flatnonzero(kept)
    seconds = numbers / 30 + random.uniform(-0.003, 0.003, len(numbers))
    # What a player shows of the samples that are left, each by its own place.
    left = (VideoSample(int(n), int(n), n % GROUP == 0, samples[n].data) for n in numbers)
    source = [frame.image for frame in decode(track, left)]
    assert len(source) == len(numbers) < count

    (account,) = export(tmp_path / "set", FILM, a=video(seconds, [samples[n].data for n in numbers])).accounts
    states = [round(row["observation.state"]) for row in rows_of(tmp_path / "set")]
    row = pq.read_table(tmp_path / "set/meta/episodes/chunk-000/file-000.parquet").to_pylist()[0]
    ends = (row[f"videos/observation.images.top/{key}_timestamp"] for key in ("from", "to"))
    shown = decoded(tmp_path / "set/videos/observation.images.top/chunk-000/file-000.mp4", *ends)
    assert len(shown) == len(states) == account.written >= count - 1

    differs: set[int] = set()
    for image, state in zip(shown, states, strict=True):
        difference = np.abs(image.astype(int) - source[state])
        if difference.any():
            differs.add(int(numbers[state]) // GROUP)
            assert difference.mean() < 4  # encoded anew, and the same picture: the block makes 11 of another one
    assert len(differs) * GROUP <= account.reencoded + GROUP
    assert 0 < account.reencoded <= 0.05 * account.written
    assert len(differs) <= 0.05 * count / GROUP


def test_a_long_episode_begins_with_a_key_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkmill.engine.writers import lerobot_video

    spec = with_keys("episodes", {"by": "ranges", "ranges": [[0.5, 1.1]]}, FILM)
    samples = film(40)
    (account,) = export(tmp_path / "short", spec, a=video(np.arange(40) / 30, samples)).accounts
    assert account.reencoded == 0
    monkeypatch.setattr(lerobot_video, "LONGEST_WITH_LEAD", 0.5)
    (account,) = export(tmp_path / "long", spec, a=video(np.arange(40) / 30, samples)).accounts
    assert 0 < account.reencoded < 19
    starts = []
    for name in ("short", "long"):
        row = pq.read_table(tmp_path / name / "meta/episodes/chunk-000/file-000.parquet").to_pylist()[0]
        starts.append(row["videos/observation.images.top/from_timestamp"])
    assert starts[0] > 0 == starts[1]


@pytest.mark.slow
def test_an_episode_of_forty_minutes(tmp_path: Path) -> None:
    from chunkmill.engine.video import SampleBatch, VideoFrame, VideoTrack, encode, stream_chunks

    count, fps = 72_000, 30
    track = VideoTrack(0x61766331, 64, 48, Fraction(1, fps), Fraction(fps))
    frames = (VideoFrame(number, image) for number, image in enumerate(moving(300)))
    samples = list(encode(track, frames, keyframe_interval=GROUP))

    def times(pts: Any) -> dict[str, pa.Array]:
        return {"time": pa.array(np.rint(pts * 1e9 / fps).astype(np.int64)).cast(pa.timestamp("ns"))}

    numbered = (samples[n % len(samples)]._replace(pts=n, dts=n) for n in range(count))
    shown = [SampleBatch.of(numbered)]
    state = numbers("/arm", np.arange(count) / fps, np.arange(count)[:, None])
    (account,) = export(
        tmp_path / "set", FILM, a=LazyChunkStream.from_iter([*stream_chunks("/camera", track, shown, times), state])
    ).accounts
    assert (account.written, account.reencoded) == (count, 0)

    stream = LeRobotReader(tmp_path / "set").stream(0)
    read = [c for c in stream.to_chunks(executor="inline") if c.entity_path == "/observation/images/top"]
    batches = [chunk.to_record_batch() for chunk in read]
    columns = [batch.column("VideoStream:sample") for batch in batches if "VideoStream:sample" in batch.schema.names]
    data = [bytes(row[0].values.to_numpy()) for column in columns for row in column]
    wanted = [units(sample.data) for sample in samples]
    assert [units(sample) for sample in data] == wanted * (count // len(samples))
