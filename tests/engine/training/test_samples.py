"""Samples are what the recording holds at their times, found by an oracle in numpy."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill import Chunk, LazyChunkStream, RecordingStore
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ReadError, ReadWarning, UsageError
from chunkmill.engine.training.job import JobReader, ReaderShare
from chunkmill.engine.training.samples import _grouped_cuts
from chunkmill.lenses import Selector
from chunkmill.training import (
    BlockShuffle,
    DataSource,
    Field,
    FixedRateSampling,
    ImageDecoder,
    Mixture,
    NoShuffle,
    NumericDecoder,
    RowSampling,
    SampleIndex,
    SampleReader,
    SampleShuffle,
    TextDecoder,
    TrainingJob,
    VideoFrameDecoder,
)
from drives import FRAMES, GROUP, Drive, drive, lake
from PIL import Image

JOINTS = "/arm:Scalars:scalars"
VIDEO = "/front:VideoStream:sample"
GRIP = "/grip:Scalars:scalars"


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Drive], DatasetEntry]:
    """Three recordings."""
    return lake(tmp_path_factory.mktemp("drives"), 3)


def read(dataset: Any, index: str = "frame", **fields: Field) -> dict[int, dict[str, Any]]:
    """All samples of a dataset."""
    sampling = FixedRateSampling(30) if index == "time" else None
    found = SampleIndex.build(DataSource(dataset), index, fields, timeline_sampling=sampling)
    return SampleReader(found).read(np.arange(len(found)))


@pytest.mark.parametrize("index", ["frame", "time"])
def test_all_kinds_of_values(drives: tuple[list[Drive], DatasetEntry], index: str) -> None:
    known, dataset = drives
    made = read(
        dataset,
        index,
        joints=Field(JOINTS, NumericDecoder()),
        top=Field("/top:EncodedImage:blob", ImageDecoder()),
        front=Field(VIDEO, VideoFrameDecoder()),
        task=Field("/task:TextDocument:text", TextDecoder(), max_staleness=0),
    )
    assert list(made) == list(range(3 * FRAMES))
    for number, sample in made.items():
        drive, frame = known[number // FRAMES], number % FRAMES
        assert sample["joints"].tolist() == drive.joints[frame].tolist()
        assert np.array_equal(sample["top"], drive.pictures[frame // 3 * 3]), "the latest"
        assert np.array_equal(sample["front"], drive.frames[frame])
        assert sample["task"].item() == f"task {number // FRAMES}"


def test_windows_are_padded_at_the_ends_of_a_segment(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    offsets = (-2, 0, 3)
    made = read(
        dataset,
        joints=Field(JOINTS, NumericDecoder(), window=offsets),
        front=Field(VIDEO, VideoFrameDecoder(), window=(-12, 0)),
    )
    for number, sample in made.items():
        drive, frame = known[number // FRAMES], number % FRAMES
        frames = [frame + offset for offset in offsets]
        inside = [min(max(at, 0), FRAMES - 1) for at in frames]
        assert sample["joints"].tolist() == drive.joints[inside].tolist()
        assert sample["joints_is_pad"].tolist() == [at not in range(FRAMES) for at in frames]
        assert np.array_equal(sample["front"], np.stack([drive.frames[max(frame - 12, 0)], drive.frames[frame]]))


def test_windows_in_seconds(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    made = read(dataset, "time", joints=Field(JOINTS, NumericDecoder(), window=[-0.1, 0.0]))
    assert made[10]["joints"].tolist() == known[0].joints[[7, 10]].tolist()


def test_windows_may_trim(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    made = read(dataset, joints=Field(JOINTS, NumericDecoder(), window=(-2, 4), edges="trim"))
    assert len(made) == 3 * (FRAMES - 6)
    assert made[0]["joints"].tolist() == known[0].joints[[0, 6]].tolist()
    assert "joints_is_pad" not in made[0]


def test_missing_and_old_values(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    with pytest.raises(ValueError, match=r"'grip' .* has no value at 0 in segment drive_0"):
        read(dataset, grip=Field(GRIP, NumericDecoder()))
    made = read(dataset, grip=Field(GRIP, NumericDecoder(), fill="skip"))
    there = [number for number in made if number < FRAMES]
    assert there == [*range(5, 20), *range(30, FRAMES)], "a clear takes the value away"
    assert [made[5]["grip"][0], made[19]["grip"][0], made[44]["grip"][0]] == [0.5, 0.6, 3.0]
    fresh = read(dataset, grip=Field(GRIP, NumericDecoder(), fill="skip", max_staleness=2))
    assert [number for number in fresh if number < FRAMES] == [5, 6, 7, 8, 30, 31, 32]
    filled = read(dataset, grip=Field(GRIP, NumericDecoder(), fill="nan", window=(-1, 0)))
    assert np.isnan(filled[5]["grip"]).ravel().tolist() == [True, False]
    assert len(filled) == 3 * FRAMES
    with pytest.raises(ValueError, match="no value"):
        read(dataset, top=Field("/top:EncodedImage:blob", ImageDecoder(), fill="nan", max_staleness=1))


def test_samples_at_the_rows_of_a_component(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    fields = {"joints": Field(JOINTS, NumericDecoder())}
    index = SampleIndex.build(
        DataSource(dataset), "time", fields, timeline_sampling=RowSampling("/top:EncodedImage:blob")
    )
    assert len(index) == 3 * 15
    made = SampleReader(index).read(np.arange(len(index)))
    assert made[4]["joints"].tolist() == known[0].joints[12].tolist()
    assert index.place(16) == ("drive_1", 3 * 1_000_000_000 // 30)


def test_a_selector_chooses(drives: tuple[list[Drive], DatasetEntry], tmp_path: Path) -> None:
    values = pa.array([[{"pose": {"x": float(n), "y": 0.0}}] for n in range(4)])
    chunk = Chunk.build("/robot", {"frame": pa.array(range(4))}, [(ComponentDescriptor("state"), values)])
    LazyChunkStream.from_iter([chunk]).collect(into=tmp_path / "kept", recording_id="one", executor="inline")
    made = read(RecordingStore.open(tmp_path / "kept"), x=Field("/robot:state", NumericDecoder(), select=".pose.x"))
    assert [sample["x"].tolist() for sample in made.values()] == [[0.0], [1.0], [2.0], [3.0]]
    with pytest.raises(ValueError, match="has no numbers"):
        read(RecordingStore.open(tmp_path / "kept"), x=Field("/robot:state", NumericDecoder()))
    with pytest.raises(UsageError, match=r"select: \.pos\.x gives .* no field 'pos'\. Did you mean pose\?"):
        read(RecordingStore.open(tmp_path / "kept"), x=Field("/robot:state", NumericDecoder(), select=".pos.x"))


def test_numbers_of_every_shape(tmp_path: Path) -> None:
    columns = {
        "nested": pa.array([[[1, 2], [3]], [[4, 5], [6]], None], pa.list_(pa.list_(pa.int16()))),
        "fixed": pa.array([[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]], pa.list_(pa.list_(pa.float32(), 2))),
        "ragged": pa.array([[1], [2, 3], []], pa.list_(pa.int64())),
        "holes": pa.array([[1.0, None], [2.0, 3.0], [4.0, 5.0]]),
        "truths": pa.array([[True], [False], [True]]),
    }
    chunk = Chunk.build("/a", {"frame": pa.array(range(3))}, [(ComponentDescriptor(n), v) for n, v in columns.items()])
    LazyChunkStream.from_iter([chunk]).collect(into=tmp_path / "kept", recording_id="one", executor="inline")
    store = RecordingStore.open(tmp_path / "kept")

    def values(name: str) -> dict[int, list[Any]]:
        made = read(store, v=Field(f"/a:{name}", NumericDecoder(), fill="skip"))
        return {number: sample["v"].tolist() for number, sample in made.items()}

    assert values("nested") == {0: [1, 2, 3], 1: [4, 5, 6], 2: [4, 5, 6]}
    assert values("fixed") == {0: [1.0, 2.0], 1: [3.0, 4.0], 2: [5.0, 6.0]}
    assert values("ragged") == {0: [1], 1: [2, 3]}, "an empty list is a value without numbers"
    assert values("holes") == {1: [2.0, 3.0], 2: [4.0, 5.0]}
    assert values("truths") == {0: [True], 1: [False], 2: [True]}


@pytest.mark.parametrize("strategy", [NoShuffle(), SampleShuffle(), BlockShuffle(40, 2)])
def test_groups_of_pictures_are_decoded_once(strategy: Any, tmp_path: Path) -> None:
    known, dataset = lake(tmp_path, 4, marked=True)
    job = TrainingJob.of(
        DataSource(dataset),
        "frame",
        {"front": Field(VIDEO, VideoFrameDecoder())},
        timeline_sampling=None,
        shuffle=strategy,
        seed=1,
        run=8,
        block_size=GROUP,
        cache_bytes=1 << 20,
    )
    assert job.plan.blocks[0].starts.tolist()[:6] == [0, 10, 20, 30, 40, 45]
    reader = JobReader(job)
    seen = []
    for batch in reader.batches(ReaderShare(batch_size=8)):
        for sample in batch:
            number = sample["sample"]
            assert np.array_equal(sample["front"], known[number // FRAMES].frames[number % FRAMES])
            seen.append(number)
    assert seen == job.plan.epoch(0).samples.tolist()
    if not isinstance(strategy, SampleShuffle):
        assert reader.decoded_frames == 4 * FRAMES
    reader.close()


def test_what_is_skipped_is_counted(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    fields = {"grip": Field(GRIP, NumericDecoder(), fill="skip")}
    job = TrainingJob.of(
        DataSource(dataset, ["drive_1"]), "frame", fields, timeline_sampling=None, shuffle=NoShuffle(),
        seed=0, run=10, block_size=10, cache_bytes=1 << 20,
    )  # fmt: skip
    with pytest.warns(ReadWarning, match="15 of 45 samples were skipped"):
        batches = list(JobReader(job).batches(ReaderShare(batch_size=10)))
    assert [len(batch) for batch in batches] == [5, 10, 0, 10, 5]


def test_a_source_is_pinned(tmp_path: Path) -> None:
    known, dataset = lake(tmp_path, 2)
    fields = {"joints": Field(JOINTS, NumericDecoder())}
    index = SampleIndex.build(DataSource(dataset), "frame", fields)
    digest = index.source.digest
    dataset.unregister(segments_to_drop="drive_1", layers_to_drop=[])
    again = pickle.loads(pickle.dumps(index))
    assert again.source.digest == digest
    assert SampleReader(again).read(np.array([FRAMES]))[FRAMES]["joints"].tolist() == known[1].joints[0].tolist()
    assert SampleIndex.build(DataSource(dataset), "frame", fields).source.digest != digest


def test_damage_is_an_error_with_its_place(tmp_path: Path) -> None:
    _, dataset = lake(tmp_path, 1)
    index = SampleIndex.build(DataSource(dataset), "frame", {"joints": Field(JOINTS, NumericDecoder())})
    path = tmp_path / "drive_0.rrd"
    (layer,) = index.source.segments[0].source.references()
    state = path.stat()
    with path.open("r+b") as file:
        for offset, size in zip(layer.table.offsets.tolist(), layer.table.sizes.tolist(), strict=True):
            file.seek(offset + size // 2)
            file.write(bytes(size // 4))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(ReadError, match=r"drive_0\.rrd"):
        SampleReader(index).read(np.arange(len(index)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda d: read(d, x=Field("/arm:nothing", NumericDecoder())), ValueError, "no column '/arm:nothing'"),
        (lambda d: read(d, "tim", x=Field(JOINTS, NumericDecoder())), ValueError, "Index 'tim' does not exist"),
        (lambda d: read(d), ValueError, "at least one field"),
        (
            lambda d: SampleIndex.build(DataSource(d), "time", {"x": Field(JOINTS, NumericDecoder())}),
            TypeError,
            "timeline_sampling",
        ),
        (
            lambda d: SampleIndex.build(DataSource(d, ["none"]), "frame", {"x": Field(JOINTS, NumericDecoder())}),
            ValueError,
            "'none'",
        ),
        (lambda d: read(d, x=Field(JOINTS, NumericDecoder(), window=(0.5,))), ValueError, "whole steps"),
        (lambda d: read(d, x=Field(JOINTS, ImageDecoder())), ValueError, "has no bytes"),
        (lambda d: read(d, x=Field("/front:VideoStream:sample", ImageDecoder())), ReadError, "cannot be decoded"),
        (lambda d: read(d, x=Field("/top:EncodedImage:blob", VideoFrameDecoder())), ReadError, "no codec"),
        (lambda d: read(d, sample=Field(JOINTS, NumericDecoder())), ValueError, "a reserved name"),
        (
            lambda d: SampleIndex.build(DataSource(d), "frame", {"x": Field(JOINTS, NumericDecoder())}, block_size=0),
            ValueError,
            "block_size",
        ),
        (lambda _: Field(JOINTS, NumericDecoder(), window=()), ValueError, "at least one"),
        (lambda _: Field(JOINTS, NumericDecoder(), max_staleness=-1), ValueError, "max_staleness"),
        (lambda _: Field(VIDEO, VideoFrameDecoder(), select=".x"), ValueError, "cannot be applied to video"),
        (lambda _: Field(JOINTS, NumericDecoder(), fill="zero"), ValueError, "error, skip, nan"),
        (lambda _: Field(JOINTS, NumericDecoder(), edges="wrap"), ValueError, "pad, trim"),
        (lambda _: FixedRateSampling(0), ValueError, "positive"),
        (lambda _: DataSource("lake"), TypeError, "got str"),
        (lambda d: DataSource(d).filter_segments("drive_1"), TypeError, "a list of ids"),
    ],
)
def test_what_is_wrong_is_said(
    make: Any, error: type[Exception], message: str, drives: tuple[list[Drive], DatasetEntry]
) -> None:
    with pytest.raises(error, match=message):
        make(drives[1])


def test_windows_reach_to_the_ends_of_the_segment(drives: tuple[list[Drive], DatasetEntry]) -> None:
    """Which may be beyond the first and the last sample, where these are fewer than the rows."""
    known, dataset = drives
    fields = {"joints": Field(JOINTS, NumericDecoder(), window=(-0.1, 0.0, 0.1))}
    sampling = RowSampling(GRIP)
    index = SampleIndex.build(DataSource(dataset), "time", fields, timeline_sampling=sampling)
    made = SampleReader(index).read(np.arange(3))
    for number, frame in enumerate([5, 6, 30]):
        assert made[number]["joints"].tolist() == known[0].joints[[frame - 3, frame, frame + 3]].tolist()
        assert not made[number]["joints_is_pad"].any()


def test_the_frame_before_and_after_in_seconds(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    window = (-2 / 30, -1 / 30, 0, 1 / 30)
    made = read(dataset, "time", joints=Field(JOINTS, NumericDecoder(), window=window, max_staleness=1 / 30))
    for frame in range(2, FRAMES - 1):
        assert made[frame]["joints"].tolist() == known[0].joints[[frame - 2, frame - 1, frame, frame + 1]].tolist()


def test_several_packets_of_video_at_one_value_are_an_error(tmp_path: Path) -> None:
    _, chunks = drive(0)
    video = [chunk for chunk in chunks if chunk.entity_path == "/front"]
    coarse = [
        Chunk.build(
            "/front",
            {"step": pa.array(np.asarray(chunk.data.timelines[0].ticks) // 2)},
            [(part.descriptor, part.values) for part in chunk.data.components],
        )
        if chunk.data.timelines
        else chunk
        for chunk in video
    ]
    LazyChunkStream.from_iter(coarse).collect(into=tmp_path / "kept", recording_id="one", executor="inline")
    with pytest.raises(ReadError, match="several samples of video at one value of 'step'"):
        read(RecordingStore.open(tmp_path / "kept"), "step", front=Field(VIDEO, VideoFrameDecoder()))


def test_selectors_of_one_column_are_kept_apart(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    twice, negative = (Selector(".").pipe(lambda v, by=by: pc.multiply(v, by)) for by in (2.0, -1.0))
    made = read(
        dataset,
        x=Field(JOINTS, NumericDecoder(), select=twice),
        y=Field(JOINTS, NumericDecoder(), select=negative),
    )
    assert made[3]["x"].tolist() == (2 * known[0].joints[3]).tolist()
    assert made[3]["y"].tolist() == (-known[0].joints[3]).tolist()


def test_samples_share_no_memory(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    made = read(
        dataset,
        top=Field("/top:EncodedImage:blob", ImageDecoder()),
        front=Field(VIDEO, VideoFrameDecoder(), max_staleness=9),
    )
    made[0]["top"][:] = 0
    assert np.array_equal(made[1]["top"], known[0].pictures[0])


def test_pictures_become_pixels() -> None:
    def decoded(image: Image.Image) -> Any:
        out = io.BytesIO()
        image.save(out, "PNG" if image.mode != "CMYK" else "TIFF")
        values = pa.array([[np.frombuffer(out.getvalue(), np.uint8)]], pa.list_(pa.list_(pa.uint8())))
        (pixels,) = ImageDecoder().decode(values, np.array([0]))
        return pixels

    red = Image.new("RGB", (4, 3), (200, 30, 60))
    assert decoded(red.convert("P", palette=Image.Palette.ADAPTIVE))[:, 0, 0].tolist() == [200, 30, 60]
    assert decoded(Image.new("1", (4, 3), 1)).dtype == np.uint8
    assert decoded(Image.new("I;16", (4, 3), 40_000)).tolist()[0][0][0] == 40_000
    assert decoded(red.convert("CMYK")).shape == (3, 3, 4)


def test_a_null_within_a_row_is_no_number() -> None:
    inner = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 4.0]), 2, mask=pa.array([False, True]))
    values = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), inner)
    first, second = NumericDecoder().decode(values, np.array([0, 1]))
    assert (first.tolist(), second) == ([1.0, 2.0], None)


def test_clears_are_no_rows(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    fields = {"joints": Field(JOINTS, NumericDecoder())}
    assert len(SampleIndex.build(DataSource(dataset), "frame", fields, timeline_sampling=RowSampling(GRIP))) == 9
    with pytest.raises(ValueError, match="is static in segment drive_0"):
        SampleIndex.build(
            DataSource(dataset), "frame", fields, timeline_sampling=RowSampling("/task:TextDocument:text")
        )


def test_a_segment_without_the_entity_has_no_value(tmp_path: Path) -> None:
    _, dataset = lake(tmp_path, 1)
    path = tmp_path / "other.rrd"
    numbers = pa.array(np.arange(5))
    chunk = Chunk.build("/arm", {"frame": numbers}, [(ComponentDescriptor("Scalars:scalars"), pa.array([[1.0]] * 5))])
    LazyChunkStream.from_iter([chunk]).write_rrd(path, application_id="tests", recording_id="other", executor="inline")
    dataset.register([str(path)]).wait()
    made = read(
        dataset,
        front=Field(VIDEO, VideoFrameDecoder(), fill="skip"),
        grip=Field(GRIP, NumericDecoder(), select=".", fill="skip"),
    )
    assert max(made) < FRAMES


def test_no_samples_are_an_error(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    for fields, options in (
        ({"joints": Field(JOINTS, NumericDecoder(), window=(-100,), edges="trim")}, {}),
        ({"joints": Field(JOINTS, NumericDecoder())}, {"segments": []}),
    ):
        with pytest.raises(ValueError, match="no samples"):
            TrainingJob.of(
                DataSource(dataset, **options), "frame", fields, timeline_sampling=None, shuffle=None,
                seed=0, run=8, block_size=8, cache_bytes=1 << 20,
            )  # fmt: skip
    index = SampleIndex.build(DataSource(dataset), "frame", {"joints": Field(JOINTS, NumericDecoder())})
    for number in (-1, 3 * FRAMES):
        with pytest.raises(IndexError, match="135 samples"):
            SampleReader(index).read(np.array([number]))


@pytest.mark.parametrize("is_grouped", [True, False])
def test_a_chunk_is_fetched_once_by_the_blocks_in_it(
    is_grouped: bool, drives: tuple[list[Drive], DatasetEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a cache does not hold all chunks, the blocks of one follow each other; it is kept that long."""
    monkeypatch.setattr("chunkmill.engine.training.samples.CACHE_BYTES", 0 if is_grouped else 1 << 30)
    monkeypatch.setattr("chunkmill.engine.training.job.FETCHED", 5)  # or all of these few would be read together
    fields = {"joints": Field(JOINTS, NumericDecoder())}
    options = {"shuffle": BlockShuffle(1, 1), "block_size": 5, "cache_bytes": 1, "run": 5}
    job = TrainingJob.of(DataSource(drives[1]), "frame", fields, **options)
    assert np.diff(job.plan.blocks[0].starts).tolist() == [5] * 27
    figures = job.measure()
    assert (figures.samples, figures.chunks) == (3 * FRAMES, 6)
    assert (figures.requests < 10) == is_grouped, "one for each chunk, and one for the place of all"


def test_blocks_end_with_chunks() -> None:
    times = np.arange(45)
    assert _grouped_cuts(times, [], [(np.arange(45), 1), (np.array([0, 20]), 2)], 8)[0].tolist() == [
        0,
        8,
        16,
        20,
        28,
        36,
    ]
    cuts, groups = _grouped_cuts(times, [np.arange(0, 45, 10)], [(np.array([0, 15, 30]), 1)], 10)
    assert (cuts.tolist(), groups.tolist()) == ([0, 10, 20, 30, 40], [0, 0, 1, 2, 2]), "at groups of pictures"
    assert _grouped_cuts(times, [], [(np.arange(0, 45, 3), 1)], 8)[0].tolist() == [0, 6, 12, 18, 24, 30, 36]


def test_padding_begins_where_a_division_did_not_round(drives: tuple[list[Drive], DatasetEntry]) -> None:
    """Frames are 33,333,333 ns from each other, or one more."""
    sampling = RowSampling(JOINTS)
    fields = {"joints": Field(JOINTS, NumericDecoder(), window=[step / 30 for step in range(-2, 3)])}
    index = SampleIndex.build(DataSource(drives[1]), "time", fields, timeline_sampling=sampling)
    for number, sample in SampleReader(index).read(np.arange(FRAMES)).items():
        assert sample["joints_is_pad"].tolist() == [not 0 <= number + step < FRAMES for step in range(-2, 3)]


def test_more_is_read_at_once_of_random_samples(drives: tuple[list[Drive], DatasetEntry]) -> None:
    """But for the first batch, for which somebody waits."""
    fields = {"front": Field(VIDEO, VideoFrameDecoder())}
    options = {"shuffle": SampleShuffle(), "run": 8}
    job = TrainingJob.of(DataSource(drives[1]), "frame", fields, **options)
    reader, counts = JobReader(job), []
    begin = reader.begin
    reader.begin = lambda numbers: (counts.append(len(numbers)), begin(numbers))[1]  # type: ignore[method-assign]
    seen = [sample["sample"] for sample in reader.in_order(job.plan.epoch(0), np.arange(3 * FRAMES)) if sample]
    reader.close()
    assert seen == job.plan.epoch(0).samples.tolist()
    assert counts == [8, 3 * FRAMES - 8]


def test_blocks_end_with_groups_of_pictures_where_a_division_did_not_round(tmp_path: Path) -> None:
    """The key frame at a second is sampled a nanosecond before it, and begins a block all the same."""
    _, dataset = lake(tmp_path, 2, marked=True)
    job = TrainingJob.of(
        DataSource(dataset),
        "time",
        {"front": Field(VIDEO, VideoFrameDecoder())},
        timeline_sampling=FixedRateSampling(30),
        shuffle=BlockShuffle(1, 1),
        block_size=GROUP,
    )
    figures = job.measure()
    assert (figures.samples, figures.decoded_groups, figures.decoded_frames) == (2 * FRAMES, 2 * 5, 2 * FRAMES)


def scalars(folder: Path, name: str, values: pa.Array) -> RecordingStore:
    """One recording of numbers."""
    chunk = Chunk.build("/arm", {"frame": pa.array(range(len(values)))}, [(ComponentDescriptor("s"), values)])
    LazyChunkStream.from_iter([chunk]).collect(into=folder / name, recording_id=name, executor="inline")
    return RecordingStore.open(folder / name)


def mixed(sources: dict[str, Any], decoder: NumericDecoder, size: int = 40) -> TrainingJob:
    """A job of several sources."""
    weights = dict.fromkeys(sources, 1.0)
    mixture = Mixture({name: DataSource(some) for name, some in sources.items()}, weights, size)
    return TrainingJob.of(mixture, "frame", {"x": Field("/arm:s", decoder)})


def test_sources_that_differ_are_named(tmp_path: Path) -> None:
    singles = scalars(tmp_path, "singles", pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float32())))
    doubles = scalars(tmp_path, "doubles", pa.array([[1.0, 2.0]] * 9))
    triples = scalars(tmp_path, "triples", pa.array([[1.0, 2.0, 3.0]] * 9))
    share = ReaderShare(batch_size=10)
    with pytest.raises(UsageError, match=r"'x': float32 1 in 'a' and float64 1 in 'b'") as caught:
        list(JobReader(mixed({"a": singles, "b": doubles}, NumericDecoder())).batches(share))
    assert "dtype" in str(caught.value.hint)
    job = mixed({"a": singles, "b": doubles}, NumericDecoder("float32"))
    assert {sample["x"].dtype for batch in JobReader(job).batches(share) for sample in batch} == {np.dtype("float32")}
    job = mixed({"a": doubles, "b": triples}, NumericDecoder())
    assert len(list(JobReader(job).batches(share))) == 4, "whoever pads them may have them"
    with pytest.raises(UsageError, match=r"float64 \(2,\) in 'a' and float64 \(3,\) in 'b'"):
        list(JobReader(job, stacked=True).batches(share))
    for dtype in ("text", "O", "M8[ns]"):
        with pytest.raises(UsageError, match="a type of numbers"):
            NumericDecoder(dtype)


def test_a_rare_source_does_not_hold_the_others_in_memory(tmp_path: Path) -> None:
    large = scalars(tmp_path, "large", pa.array([[float(n)] for n in range(1000)]))
    rare = scalars(tmp_path, "rare", pa.array([[float(n)] for n in range(1000)]))
    mixture = Mixture({"a": DataSource(large), "b": DataSource(rare)}, {"a": 0.999, "b": 0.001}, 20_000)
    job = TrainingJob.of(
        mixture, "frame", {"x": Field("/arm:s", NumericDecoder())}, shuffle=BlockShuffle(16, 2), block_size=10, run=4
    )
    reader = JobReader(job)
    order = job.plan.epoch(0)
    most, read = 0, reader.begin

    def begin(samples: Any) -> Any:
        nonlocal most
        most = max(most, len(samples))
        return read(samples)

    reader.begin = begin  # type: ignore[method-assign]
    assert sum(1 for _ in reader.in_order(order, np.arange(len(order)))) == 20_000
    assert most < 1000, "a block is read for the places near it, and not for all of the epoch"


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_weights_are_checked_where_a_mixture_is_made(weight: float, tmp_path: Path) -> None:
    store = scalars(tmp_path, "one", pa.array([[1.0]] * 3))
    with pytest.raises(UsageError, match="positive, finite"):
        Mixture({"a": DataSource(store), "b": DataSource(store)}, {"a": 1.0, "b": weight}, 10)
