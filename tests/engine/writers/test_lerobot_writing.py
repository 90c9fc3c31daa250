"""Recordings become a LeRobot dataset: what is in it, what its account says, and what it takes at the next run."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill import Chunk, LazyChunkStream, LeRobotReader, McapReader, ReadError, UsageError
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ReadWarning, UnsupportedError, WriteError
from chunkmill.engine.writers import ExportedRecording, write_lerobot
from chunkmill.engine.writers.lerobot_spec import ExportSpec

SECOND = 1_000_000_000


def column(entity: str, times: Any, name: str, values: pa.Array) -> Chunk:
    """A chunk of one component on the timeline ``time``."""
    ticks = pa.array(np.asarray(times, np.int64)).cast(pa.timestamp("ns"))
    return Chunk.build(entity, {"time": ticks}, [(ComponentDescriptor(name), values)])


def numbers(entity: str, seconds: Any, values: Any) -> Chunk:
    """A chunk of numbers, a list for each time."""
    ticks = np.rint(np.asarray(seconds) * SECOND)
    return column(
        entity, ticks, "Scalars:scalars", pa.array(np.asarray(values, float).tolist(), pa.list_(pa.float64()))
    )


def jpeg(shade: int, size: tuple[int, int] = (16, 8)) -> bytes:
    """A JPEG of one shade."""
    image = pytest.importorskip("PIL.Image").new("RGB", size, (shade, 0, 255 - shade))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=95)
    return out.getvalue()


def images(entity: str, seconds: Any, blobs: list[bytes]) -> Chunk:
    """A chunk of encoded images."""
    kind = pa.list_(pa.list_(pa.uint8()))
    values = pa.array([[list(blob)] for blob in blobs], kind)
    return column(entity, np.rint(np.asarray(seconds) * SECOND), "EncodedImage:blob", values)


def recording(seconds: float = 2.0, start: float = 0.0) -> LazyChunkStream:
    """Two numbers at 50 Hz that are the time and its square, and an image at 10 Hz."""
    fast = start + np.arange(int(seconds * 50) + 1) / 50
    slow = start + np.arange(int(seconds * 10) + 1) / 10
    chunks = [
        numbers("/arm", fast, np.stack([fast, fast**2], axis=1)),
        images("/camera", slow, [jpeg(i % 256) for i in range(len(slow))]),
    ]
    return LazyChunkStream.from_iter(chunks)


SPEC: Mapping[str, Any] = {
    "fps": 10,
    "task": "lift",
    "features": {
        "observation.state": {"entity": "/arm", "names": ["t", "tt"]},
        "observation.images.top": {"entity": "/camera", "dtype": "image"},
    },
}


def with_keys(path: str, value: Any, given: Mapping[str, Any] = SPEC) -> dict[str, Any]:
    """The specification with another value at a path of keys."""
    copied = json.loads(json.dumps(given))
    *keys, last = path.split("/")
    inner = copied
    for key in keys:
        inner = inner[key]
    inner[last] = value
    return dict(copied)


def rows_of(root: Path) -> list[dict[str, Any]]:
    """All rows of the data."""
    return [row for file in sorted(root.glob("data/*/*.parquet")) for row in pq.read_table(file).to_pylist()]


def export(where: Path, spec: Mapping[str, Any] = SPEC, **given: Any) -> Any:
    """Write recordings by name, on this process."""
    recordings = {name: value for name, value in given.items() if isinstance(value, LazyChunkStream)}
    return write_lerobot(recordings or {"a": recording()}, where, spec, executor="inline")


def test_frames_have_the_values_of_their_times(tmp_path: Path) -> None:
    report = export(tmp_path / "set")
    rows = rows_of(tmp_path / "set")
    assert (report.episodes, report.frames, len(rows)) == (1, 21, 21)
    for number, row in enumerate(rows):
        t = np.float32(number / 10)
        assert row["timestamp"] == t
        assert np.allclose(row["observation.state"], [t, t * t], atol=1e-6)
        assert row["observation.images.top"]["bytes"] == jpeg(number)
        assert [row[key] for key in ("frame_index", "episode_index", "index", "task_index")] == [number, 0, number, 0]
    (account,) = json.loads((tmp_path / "set/meta/chunkmill.json").read_text())["episodes"]
    assert account["features"]["observation.state"] == {
        "exact": 21, "held": 0, "interpolated": 0, "missing": 0, "staleness": 0
    }  # fmt: skip


def test_our_reader_reads_it(tmp_path: Path) -> None:
    export(tmp_path / "set", a=recording(), b=recording(1.0))
    reader = LeRobotReader(tmp_path / "set")
    assert list(reader.episodes()) == [0, 1]
    chunks = {c.entity_path: c for c in reader.stream(1).to_chunks(executor="inline") if not c.is_static}
    assert chunks["/observation/state"].num_rows == chunks["/observation/images/top"].num_rows == 11
    assert chunks["/task"].data.components[0].values.to_pylist() == [["lift"]]


def test_the_demo_recording(data: Path, tmp_path: Path) -> None:
    features = {
        "action": {"entity": "/nissan/vehicle_steering", "selector": ".data"},
        "observation.state": {"entity": "/nissan/gps/duro/imu", "component": "Scalars:scalars", "rule": "linear"},
    }
    spec = {"fps": 30, "timeline": "message_log_time", "features": features}
    report = write_lerobot({"demo": McapReader(data / "demo.mcap").stream()}, tmp_path / "set", spec, executor="inline")
    assert report.frames == 469
    stats = json.loads((tmp_path / "set/meta/stats.json").read_text())
    values = np.array([row["action"] for row in rows_of(tmp_path / "set")])
    assert stats["action"]["mean"] == pytest.approx([values.mean()], rel=1e-6)
    assert stats["action"]["count"] == [469]


def test_a_selector_of_a_missing_field_is_named_with_suggestions(data: Path, tmp_path: Path) -> None:
    spec = {"fps": 30, "features": {"action": {"entity": "/nissan/vehicle_steering", "selector": ".dat"}}}
    message = (
        r"features\.action\.selector: \.dat gives no values of .+:message at /nissan/vehicle_steering\. "
        r"There is no field 'dat'\. Did you mean data\?"
    )
    with pytest.raises(UsageError, match=message):
        write_lerobot(
            {"demo": McapReader(data / "demo.mcap").stream()},
            tmp_path / "set",
            {**spec, "timeline": "message_log_time"},
            executor="inline",
        )


@pytest.mark.parametrize(
    ("episodes", "lengths"),
    [
        ("recording", [21]),
        ({"by": "ranges", "ranges": [[0, 0.5], [1, 9]]}, [6, 11]),
        ({"by": "column", "entity": "/button", "equals": 1}, [5]),
        ({"by": "events", "start": {"entity": "/button", "equals": 1}, "end": {"entity": "/button", "equals": 0}}, [6]),
    ],
)
def test_episodes(episodes: Any, lengths: list[int], tmp_path: Path) -> None:
    pressed = numbers("/button", [0.1, 0.5, 1.0, 1.9], [[0], [1], [0], [0]])
    stream = LazyChunkStream.merge(recording(), LazyChunkStream.from_iter([pressed]))
    report = export(tmp_path / "set", with_keys("episodes", episodes), a=stream)
    assert [account.written for account in report.accounts] == lengths


def test_rejected_takes_stay_out(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("recording,start,end,verdict,task\na,0,0.5,good,one\na,0.5,1,bad,two\nb,0,1,good,three\n")
    spec = with_keys("episodes", {"by": "labels", "table": str(table), "keep": ["good"]})
    report = export(tmp_path / "set", spec, a=recording(), b=recording())
    assert [(a.recording, a.task, a.written) for a in report.accounts] == [("a", "one", 6), ("b", "three", 11)]


@pytest.mark.parametrize(("outside", "frames"), [("hold", 41), ("drop_frame", 22), ("drop_episode", 0), ("error", -1)])
def test_outside_of_the_tolerance(outside: str, frames: int, tmp_path: Path) -> None:
    times = np.concatenate([np.arange(11), np.arange(30, 41)]) / 10  # two seconds are lost
    stream = LazyChunkStream.from_iter([numbers("/arm", times, times[:, None])])
    state = {"entity": "/arm", "tolerance": 0.04, "outside": outside}
    spec = {"fps": 10, "features": {"observation.state": state}}
    if frames <= 0:
        with pytest.raises(UsageError, match=r"the frame at 1\.100 s has no value within its tolerance"):
            export(tmp_path / "set", spec, a=stream)
        assert not (tmp_path / "set").exists()
        return
    (account,) = export(tmp_path / "set", spec, a=stream).accounts
    facts = account.features["observation.state"]
    assert (account.written, facts.exact, account.dropped) == (frames, 22, 41 - frames)
    assert facts.staleness == (1_900_000_000 if outside == "hold" else 0)


def test_append_takes_new_recordings_and_replaces_changed_ones(tmp_path: Path) -> None:
    where = tmp_path / "set"

    def run(**digests: str) -> Any:
        given = [ExportedRecording(n, recording(1.0 if d == "new" else 2.0), d) for n, d in digests.items()]
        return write_lerobot(given, where, SPEC, executor="inline", append=True)

    assert run(a="1").frames == 21
    before = {path: path.stat().st_mtime_ns for path in where.rglob("*")}
    assert run(a="1").skipped == ("a",)
    assert {path: path.stat().st_mtime_ns for path in where.rglob("*")} == before
    report = run(a="1", b="1")
    assert (report.skipped, report.episodes, report.frames) == (("a",), 2, 42)
    report = run(a="new", b="1")
    assert (report.episodes, report.frames) == (2, 32)
    rows = rows_of(where)
    assert [row["index"] for row in rows] == list(range(32))
    assert not [path for path in tmp_path.iterdir() if path != where]
    with pytest.raises(WriteError, match="another specification"):
        write_lerobot({"c": recording()}, where, with_keys("fps", 5), executor="inline", append=True)
    with pytest.raises(WriteError, match="is there already"):
        export(where)


def test_a_failure_leaves_the_destination_as_it_was(tmp_path: Path) -> None:
    broken = LazyChunkStream.from_iter(
        [numbers("/arm", [0, 1], [[0, 0], [1, 1]]), images("/camera", [0, 1], [jpeg(1), b"x"])]
    )
    with pytest.raises(ReadError, match="an image is neither JPEG nor PNG: it begins with 78"):
        export(tmp_path / "set", a=recording(), b=broken)
    assert not list(tmp_path.iterdir())


def test_images_of_two_sizes(tmp_path: Path) -> None:
    pictures = images("/camera", [0, 1], [jpeg(1), jpeg(1, (8, 8))])
    stream = LazyChunkStream.from_iter([numbers("/arm", [0, 1], [[0, 0], [1, 1]]), pictures])
    with pytest.raises(ReadError, match=r"an image is 8 x 8, not 16 x 8"):
        export(tmp_path / "set", a=stream)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("fps", 0, "fps: 0 is not"),
        ("fps", "30", "fps: '30' is not int"),
        ("fsp", 30, "fsp: there is no such key; did you mean 'fps'"),
        ("features", {}, "features: there is none"),
        ("features/observation.state/rule", "next", r"features\.observation\.state\.rule: 'next' is not one of latest"),
        ("features/observation.state/tolerance", -1, r"tolerance: it cannot be negative"),
        ("features/observation.state/shape", [0], r"shape: \[0\] is not a list of numbers above zero"),
        ("features/observation.state/names", [1], "names: a name must be text"),
        ("features/observation.images.top/rule", "linear", "linear interpolates values"),
        ("features/timestamp", {"entity": "/x"}, "the name of a standard column"),
        ("episodes", "season", r"episodes\.by: 'season' is not one of"),
        ("episodes", {"by": "ranges", "ranges": [[1, 0]]}, r"episodes\.ranges: \[1, 0\] is not a start"),
        ("minimum", float("nan"), "minimum: nan is not a number of seconds"),
    ],
)
def test_a_specification_that_cannot_be(path: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ExportSpec.of(with_keys(path, value))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "features/observation.state/entity",
            "/leg",
            r"features\.observation\.state\.entity: there is no data at /leg",
        ),
        ("features/observation.state/component", "Nope", r"there is no Nope at /arm"),
        ("timeline", "log", r"there is no 'log'; /arm has time"),
        ("features/observation.state/names", ["a"], "names: there are 1 names for 2 numbers"),
        ("features/observation.state", {"entity": "/arm", "shape": [3]}, "values have 2 numbers, not 3"),
        ("features/observation.state/dtype", "int32", "a value does not fit int32"),
    ],
)
def test_a_specification_that_does_not_fit(path: str, value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, ReadError), match=message):
        export(tmp_path / "set", with_keys(path, value))


def test_a_specification_in_yaml(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(dict(SPEC), sort_keys=False))
    assert ExportSpec.load(tmp_path / "spec.yaml") == ExportSpec.of(SPEC)
    (tmp_path / "spec.yaml").write_text("fps: [")
    with pytest.raises(ReadError, match="is not YAML"):
        ExportSpec.load(tmp_path / "spec.yaml")


def test_spark_writes_the_same(spark: Any, tmp_path: Path, data: Path) -> None:
    spec = {"fps": 20, "timeline": "message_log_time", "features": {
        "action": {"entity": "/nissan/vehicle_steering", "selector": ".data"}}}  # fmt: skip
    stream: Callable[[], LazyChunkStream] = McapReader(data / "demo.mcap").stream
    for executor in ("inline", "spark"):
        write_lerobot({"a": stream(), "b": stream()}, tmp_path / executor, spec, executor=executor)
    assert rows_of(tmp_path / "inline") == rows_of(tmp_path / "spark")


# ---------------------------------------------------------------------------------------------------------- video


def shades(count: int) -> list[Any]:
    """Frames of 64 x 48 whose shade says their number."""
    return [np.full((48, 64, 3), 40 + 4 * number, np.uint8) for number in range(count)]


def film(count: int, group: int = 10) -> list[bytes]:
    """Samples in H.264, a key frame for each group."""
    from fractions import Fraction

    from chunkmill.engine.video import VideoFrame, VideoTrack, encode

    pytest.importorskip("av")
    track = VideoTrack(0x61766331, 64, 48, Fraction(1, 30), Fraction(30))
    frames = (VideoFrame(number, image) for number, image in enumerate(shades(count)))
    return [sample.data for sample in encode(track, frames, keyframe_interval=group, keyframes=range(0, count, group))]


def video(seconds: Any, samples: list[bytes]) -> LazyChunkStream:
    """A recording with a video at /camera, and the number of each sample at /arm."""
    kind = pa.list_(pa.list_(pa.uint8()))
    values = pa.array([[list(sample)] for sample in samples], kind)
    codec = ComponentDescriptor("VideoStream:codec")
    times = np.rint(np.asarray(seconds) * SECOND)
    return LazyChunkStream.from_iter(
        [
            Chunk.build("/camera", {}, [(codec, pa.array([[0x61766331]], pa.list_(pa.uint32())))]),
            column("/camera", times, "VideoStream:sample", values),
            numbers("/arm", seconds, np.arange(len(samples))[:, None]),
        ]
    )


def shown(root: Path, episode: int = 0) -> list[int]:
    """The numbers of the frames of an episode, by their shades."""
    from chunkmill.engine.storage.positional import PositionalFile
    from chunkmill.engine.video import decode, demultiplex

    row = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet").to_pylist()[episode]
    start, end = (row[f"videos/observation.images.top/{key}_timestamp"] for key in ("from", "to"))
    path = root / f"videos/observation.images.top/chunk-000/file-{episode:03d}.mp4"
    with PositionalFile(str(path)) as file, demultiplex(file) as opened:
        frames = [(frame.pts * opened.track.time_base, frame.image) for frame in decode(opened.track, opened.samples())]
    return [round((float(image.mean()) - 40) / 4) for t, image in frames if start - 1e-6 <= float(t) < end - 1e-6]


FILM: Mapping[str, Any] = {
    "fps": 30,
    "features": {
        "observation.state": {"entity": "/arm", "rule": "nearest"},
        "observation.images.top": {"entity": "/camera", "dtype": "video", "rule": "nearest"},
    },
}


@pytest.mark.parametrize("name", ["whole", "cut", "jitter", "lost"])
def test_a_video_is_copied_where_it_fits(name: str, tmp_path: Path) -> None:
    samples, seconds = film(40), np.arange(40) / 30
    spec, reencoded = FILM, 0
    if name == "cut":
        spec = with_keys("episodes", {"by": "ranges", "ranges": [[0.5, 1.1]]}, FILM)
    elif name == "jitter":
        seconds = seconds + np.random.default_rng(1).uniform(-0.003, 0.003, 40)
        seconds[0] = 0
    elif name == "lost":
        samples, seconds = samples[:14] + samples[15:], np.delete(seconds, 14)
        reencoded = None
    report = export(tmp_path / "set", spec, a=video(seconds, samples))
    (account,) = report.accounts
    assert reencoded is None or account.reencoded == reencoded
    if name != "lost":
        states = [round(row["observation.state"]) for row in rows_of(tmp_path / "set")]
        assert shown(tmp_path / "set") == states
    else:
        assert len(shown(tmp_path / "set")) == report.frames == 40
        assert account.reencoded == 10


def test_images_become_a_video(tmp_path: Path) -> None:
    report = export(tmp_path / "set", with_keys("features/observation.images.top/dtype", "video"))
    assert report.accounts[0].reencoded == report.frames == 21
    info = json.loads((tmp_path / "set/meta/info.json").read_text())["features"]["observation.images.top"]
    assert (info["shape"], info["info"]["video.codec"]) == ([8, 16, 3], "h264")


@pytest.mark.parametrize("append", [False, True])
def test_two_exports_at_once_lose_nothing(append: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkmill.engine.writers import lerobot

    if append:
        export(tmp_path / "set", first=recording())
    publish = lerobot._publish

    def late(new: Path, place: Path, account: bytes | None) -> None:
        monkeypatch.setattr(lerobot, "_publish", publish)
        write_lerobot({"b": recording()}, tmp_path / "set", SPEC, executor="inline", append=append)
        publish(new, place, account)

    monkeypatch.setattr(lerobot, "_publish", late)
    with pytest.raises(WriteError, match="meanwhile written by another export"):
        write_lerobot({"a": recording()}, tmp_path / "set", SPEC, executor="inline", append=append)
    (name,) = {e["recording"] for e in account_of(tmp_path / "set")} - {"first"}
    assert name == "b" and len(rows_of(tmp_path / "set")) == 21 * (1 + append)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]


def account_of(root: Path) -> list[dict[str, Any]]:
    """The accounts of a dataset."""
    return list(json.loads((root / "meta/chunkmill.json").read_text())["episodes"])


def test_another_file_of_the_same_name_is_an_error(tmp_path: Path) -> None:
    def night(digest: str, origin: str | None) -> Any:
        given = ExportedRecording("rec_0", recording(), digest, origin)
        return write_lerobot([given], tmp_path / "set", SPEC, executor="inline", append=True)

    night("1", "a")
    with pytest.raises(UsageError, match="has a recording rec_0 from another file"):
        night("2", "b")
    assert night("1", "b").skipped == ("rec_0",)  # the same file, moved
    assert night("2", "b").episodes == 1
    with pytest.raises(UsageError, match="from another file"):
        night("3", "a")


@pytest.mark.parametrize(("mode", "is_kept"), [("RGB", True), ("L", False), ("RGBA", False), ("I;16", None)])
def test_images_have_three_channels(mode: str, is_kept: bool | None, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    held = io.BytesIO()
    image.new(mode, (8, 6), 7).save(held, "PNG")
    seconds = np.arange(21) / 10
    stream = LazyChunkStream.from_iter(
        [numbers("/arm", seconds, seconds[:, None]), images("/camera", seconds, [held.getvalue()] * 21)]
    )
    spec = with_keys("features/observation.state", {"entity": "/arm"})
    if is_kept is None:
        with pytest.raises(UnsupportedError, match="kind I;16"):
            export(tmp_path / "set", spec, a=stream)
        return
    export(tmp_path / "set", spec, a=stream)
    blob = rows_of(tmp_path / "set")[0]["observation.images.top"]["bytes"]
    assert (blob == held.getvalue()) is is_kept
    with image.open(io.BytesIO(blob)) as opened, image.open(io.BytesIO(held.getvalue())) as given:
        assert opened.mode == "RGB" and np.array_equal(np.asarray(opened), np.asarray(given.convert("RGB")))


def test_labels_are_of_one_recording(tmp_path: Path) -> None:
    rows = ["recording,start,end,verdict", "0001,0,1,true", "cup.1,0,1,true", "lid,1,2,true", "none,0,1,true"]
    (tmp_path / "l.csv").write_text("\n".join(rows) + "\n")
    spec = with_keys("episodes", {"by": "labels", "table": str(tmp_path / "l.csv"), "keep": ["true"]})
    given = {name: recording() for name in ("0001", "1", "cup.1", "cup", "bags/lid.mcap")}
    with pytest.warns(ReadWarning, match="no recording for 1 label, such as none"):
        report = write_lerobot(given, tmp_path / "set", spec, executor="inline")
    assert [a.recording for a in report.accounts] == ["0001", "cup.1", "bags/lid.mcap"]
    with pytest.raises(UsageError, match=r"lid matches a/lid\.mcap, b/lid\.mcap"):
        write_lerobot({f"{n}/lid.mcap": recording() for n in "ab"}, tmp_path / "other", spec, executor="inline")


def test_a_take_that_is_rejected_later_goes(tmp_path: Path) -> None:
    table = tmp_path / "l.csv"
    spec = with_keys("episodes", {"by": "labels", "table": str(table), "keep": ["good"]})
    given = [ExportedRecording("bags/run1.mcap", recording(), "d", "o")]
    counts = []
    for verdict in ("good", "bad"):
        table.write_text(f"recording,start,end,verdict\nrun1,0,1,good\nrun1,1,2,{verdict}\n")
        counts.append(write_lerobot(given, tmp_path / "set", spec, executor="inline", append=True).episodes)
    assert counts == [2, 1]


def test_what_is_no_truth_is_not_taken_for_one(tmp_path: Path) -> None:
    times = np.array([0, 1, 2, 2, 2.0])
    arm = np.arange(21) / 10

    def pressed(values: pa.Array) -> LazyChunkStream:
        ticks = np.rint(times[: len(values)] * SECOND)
        arms = [numbers("/arm", arm, arm[:, None]), images("/camera", arm, [jpeg(1)] * 21)]
        return LazyChunkStream.from_iter([*arms, column("/button", ticks, "State:value", values)])

    spec = with_keys("episodes", {"by": "column", "entity": "/button"})
    spec = with_keys("features/observation.state", {"entity": "/arm"}, spec)
    with pytest.raises(UsageError, match="'false' is neither true nor false"):
        export(tmp_path / "set", spec, a=pressed(pa.array([["false"], ["true"], ["false"]])))
    report = export(tmp_path / "set", spec, a=pressed(pa.array([[True], [True], [False], [True], [True]])))
    assert [account.written for account in report.accounts] == [21]


def test_a_whole_number_that_a_float_cannot_hold_is_an_error(tmp_path: Path) -> None:
    ticks = np.arange(21) * SECOND // 10
    counts = column("/arm", ticks, "Counter:value", pa.array([[16_777_217 + i] for i in range(21)]))
    spec = {"fps": 10, "task": "count", "features": {"observation.state": {"entity": "/arm"}}}
    with pytest.raises(ReadError, match="does not fit float32"):
        export(tmp_path / "set", spec, a=LazyChunkStream.from_iter([counts]))
    wide = with_keys("features/observation.state/dtype", "float64", spec)
    assert export(tmp_path / "set", wide, a=LazyChunkStream.from_iter([counts])).frames == 21
