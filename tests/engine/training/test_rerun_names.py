"""The names of Rerun's loader: its arguments and its rules, on our readers."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.errors import ForeignFileError, ReadError, ReadWarning, UsageError
from chunkmill.lenses import Selector
from drives import FRAMES, GROUP, Drive, lake

torch = pytest.importorskip("torch")

from chunkmill import training  # noqa: E402 - not without torch
from chunkmill.training import (  # noqa: E402
    BlockShuffle,
    ColumnDecoder,
    DataSource,
    DecodeRequest,
    Field,
    FieldBatch,
    FixedRateSampling,
    IterableSamples,
    Manifest,
    NoShuffle,
    NumericDecoder,
    PooledBatchCollator,
    RerunIterableDataset,
    RerunMapDataset,
    SampleIndex,
    SampleReader,
    SampleShuffle,
    ShuffleStrategy,
    VideoFrameDecoder,
    Yuv420Collator,
    Yuv420Frame,
)

NAMES = """
    BlockShuffle ColumnDecoder DataSource DecodeRequest Field FieldBatch FixedRateSampling ImageDecoder IndexValue
    Manifest NoShuffle NumericDecoder PooledBatchCollator RerunIterableDataset RerunMapDataset SampleIndex SampleShuffle
    SegmentMetadata ShuffleStrategy VideoFrameDecoder Yuv420Collator Yuv420Frame
"""
JOINTS = "/arm:Scalars:scalars"
GRIP = "/grip:Scalars:scalars"
VIDEO = "/front:VideoStream:sample"
FIELDS = {"joints": Field(JOINTS, decode=NumericDecoder(), window=(-2, 0, 1))}
LATE = {"grip": Field(GRIP, decode=NumericDecoder())}
LATE_FRAMES = [*range(5, 20), *range(30, FRAMES)]
"""The frames at which the gripper has a value: it begins late, and is cleared for a while."""


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Drive], DatasetEntry]:
    """Three recordings."""
    return lake(tmp_path_factory.mktemp("drives"), 3, marked=True)


@pytest.fixture
def source(drives: tuple[list[Drive], DatasetEntry]) -> DataSource:
    """All of them."""
    return DataSource(drives[1])


def values(samples: Any) -> list[bytes]:
    """What tells samples from each other."""
    return [next(iter(sample.values())).numpy().tobytes() for sample in samples]


def in_order(source: DataSource, fields: dict[str, Field] = FIELDS, **options: Any) -> RerunIterableDataset:
    """Samples as they were recorded."""
    return RerunIterableDataset(source, "frame", fields, shuffle_strategy=NoShuffle(), **options)


def test_each_name_is_there() -> None:
    rerun = pytest.importorskip("rerun.experimental.dataloader")
    assert set(rerun.__all__) - {"tracing_scope", "with_tracing"} == set(NAMES.split())
    assert all(hasattr(training, name) for name in NAMES.split())


def test_samples_are_their_fields_alone_and_windows_stay_inside(
    drives: tuple[list[Drive], DatasetEntry], source: DataSource
) -> None:
    made = in_order(source)
    samples = list(made)
    assert len(made) == len(samples) == 3 * (FRAMES - 3)
    assert all(list(sample) == ["joints"] for sample in samples)
    first = drives[0][1].joints[[0, 2, 3]]
    assert samples[FRAMES - 3]["joints"].tolist() == first.tolist()
    padded = in_order(source, {"joints": Field(JOINTS, NumericDecoder(), window=(-2, 0), edges="pad")})
    assert next(iter(padded))["joints_is_pad"].tolist() == [True, False], "who asks for padding gets its mask"


@pytest.mark.parametrize("strategy", [SampleShuffle(), BlockShuffle(16, 2), BlockShuffle(None)])
def test_an_epoch_is_the_same_until_another_one_is_set(source: DataSource, strategy: ShuffleStrategy) -> None:
    made = RerunIterableDataset(source, "frame", FIELDS, shuffle_strategy=strategy, fetch_block_size=10)
    first, again = values(made), values(made)
    assert first == again
    made.set_epoch(1)
    assert values(made) != first
    assert sorted(values(made)) == sorted(first) == sorted(values(in_order(source)))


def test_a_sample_without_a_value_is_left_out_with_a_warning(source: DataSource) -> None:
    made = in_order(source, LATE)
    with pytest.warns(RuntimeWarning, match="field 'grip' are skipped") as warned:
        samples = list(made)
    assert len(warned) == 1
    assert len(samples) == 3 * len(LATE_FRAMES) < len(made) == 3 * FRAMES


@pytest.mark.filterwarnings("ignore:samples without:RuntimeWarning")
def test_so_many_in_a_row_may_be_left_out(source: DataSource) -> None:
    assert len(list(in_order(source, LATE, max_consecutive_skipped_samples=10))) == 3 * len(LATE_FRAMES)
    with pytest.raises(RuntimeError, match=r"10 samples in a row .* more than .*=9 \(grip: "):
        list(in_order(source, LATE, max_consecutive_skipped_samples=9))
    with pytest.raises(ValueError, match="expected 0 or more, got -1"):
        in_order(source, LATE, max_consecutive_skipped_samples=-1)


def test_workers_give_each_sample_once(source: DataSource) -> None:
    made = RerunIterableDataset(source, "frame", FIELDS)
    batches = torch.utils.data.DataLoader(made, batch_size=16, num_workers=2, multiprocessing_context="spawn")
    found = [row.numpy().tobytes() for batch in batches for row in batch["joints"]]
    assert sorted(found) == sorted(values(in_order(source)))


def test_ranks_give_each_sample_once(source: DataSource, monkeypatch: pytest.MonkeyPatch) -> None:
    made = RerunIterableDataset(source, "frame", FIELDS)
    found, sizes = [], []
    for rank in range(4):
        with monkeypatch.context() as patched:
            patched.setattr(torch.distributed, "is_initialized", lambda: True)
            patched.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
            patched.setattr(torch.distributed, "get_world_size", lambda: 4)
            in_worker = pickle.dumps(made)
        samples = values(pickle.loads(in_worker))  # as in a worker that is spawned, which has no process group
        sizes.append(len(samples))
        found += samples
    assert len(made) == 126 and sizes == [32, 32, 32, 30]
    assert sorted(found) == sorted(values(in_order(source)))


@pytest.mark.filterwarnings("ignore:samples without:RuntimeWarning")
@pytest.mark.parametrize("taken", [0, 1, 20, 31, 40, 74])
def test_it_goes_on_where_a_state_was_taken(source: DataSource, taken: int) -> None:
    made = RerunIterableDataset(source, "frame", LATE)
    made.set_epoch(2)
    whole = values(made)
    passing = iter(made)
    begun = [next(passing) for _ in range(taken)]
    state = json.loads(json.dumps(made.state_dict()))
    other = RerunIterableDataset(source, "frame", LATE)
    other.load_state_dict(state)
    assert values(begun) + values(other) == whole
    assert values(other) == whole, "the next pass is a whole one"


def test_samples_by_number(drives: tuple[list[Drive], DatasetEntry], source: DataSource) -> None:
    made = RerunMapDataset(source, "frame", {**LATE, "arm": Field(JOINTS, decode=NumericDecoder())})
    assert len(made) == 3 * FRAMES and made.sample_index.total_samples == len(made)
    assert list(made[7]) == ["grip", "arm"]
    assert made[0]["grip"] is None and made[7]["grip"].tolist() == [0.6]
    assert made[FRAMES + 2]["arm"].tolist() == drives[0][1].joints[2].tolist()
    with pytest.raises(IndexError):
        made[3 * FRAMES]


def test_a_rate_has_no_effect_on_an_index_of_numbers(source: DataSource) -> None:
    with pytest.warns(ReadWarning, match="has no effect: the index 'frame' is a sequence"):
        made = in_order(source, timeline_sampling=FixedRateSampling(10))
    assert len(made) == 3 * (FRAMES - 3)
    with pytest.raises(TypeError, match="timeline_sampling"):
        RerunIterableDataset(source, "time", FIELDS)


def test_a_step_is_rounded_and_begins_behind_the_window(source: DataSource) -> None:
    fields = {"joints": Field(JOINTS, decode=NumericDecoder(), window=(-0.1, 0.0))}
    made = RerunIterableDataset(source, "time", fields, timeline_sampling=FixedRateSampling(7))
    times = made.sample_index.times[:4]
    assert times.tolist() == [100_000_000 + step * 142_857_143 for step in range(4)]
    assert made.sample_index.global_to_local(1)[1] == np.timedelta64(242_857_143, "ns")


# --- decoders of a user's own


class Bytes(ColumnDecoder):
    """The sizes of the samples of video from a key frame on."""

    def decode(self, batch: FieldBatch, requests: Any) -> list[Any]:
        """Return them."""
        return [
            torch.tensor([len(row[0]) for row in batch.take_decode_rows(request).to_pylist()])
            for request in requests
            if request.starts_at_keyframe and request.segment_id
        ]

    def prior_keyframe_path(self, field_path: str) -> str:
        """The marks beside it."""
        return field_path.replace(":sample", ":is_keyframe")


class Exact(NumericDecoder, ColumnDecoder):
    """Numbers at the very times at which there are some."""

    fill_latest_at = False

    def decode(self, batch: FieldBatch, requests: list[DecodeRequest]) -> list[Any]:  # type: ignore[override]
        """Return them."""
        return [torch.tensor(batch.take_output_rows(request).to_pylist()).double() for request in requests]


def test_own_decoders_begin_at_key_frames(source: DataSource) -> None:
    samples = list(in_order(source, {"sizes": Field(VIDEO, decode=Bytes())}))
    assert [len(sample["sizes"]) for sample in samples] == [frame % GROUP + 1 for frame in range(FRAMES)] * 3


@pytest.mark.filterwarnings("ignore:samples without:RuntimeWarning")
def test_own_decoders_may_want_no_earlier_value(source: DataSource) -> None:
    samples = list(in_order(source, {"grip": Field(GRIP, decode=Exact())}))
    assert [sample["grip"].tolist() for sample in samples] == [[[0.5]], [[pytest.approx(0.6)]], [[3.0]]] * 3


def test_own_decoders_that_give_too_few_values(source: DataSource) -> None:
    class Few(ColumnDecoder):
        def decode(self, batch: FieldBatch, requests: Any) -> list[Any]:
            return []

    with pytest.raises(ReadError, match=r"Few\(\) made 0 values of /arm"):
        next(iter(in_order(source, {"few": Field(JOINTS, decode=Few())})))


def test_own_orders(source: DataSource) -> None:
    class Backwards(ShuffleStrategy):
        def epoch_order(self, sample_index: SampleIndex, *, fetch_block_size: int, seed: int) -> Any:
            assert fetch_block_size == 16
            return np.roll(np.arange(sample_index.total_samples)[::-1], seed), None

    class Twice(ShuffleStrategy):
        def epoch_order(self, sample_index: SampleIndex, *, fetch_block_size: int, seed: int) -> Any:
            return np.zeros(sample_index.total_samples, np.int64), None

    made = RerunIterableDataset(source, "frame", FIELDS, shuffle_strategy=Backwards(), fetch_block_size=16)
    whole = values(in_order(source))
    assert values(made) == whole[::-1]
    made.set_epoch(1)
    assert values(made) == [whole[0], *whole[:0:-1]]
    with pytest.raises(ValueError, match="must have each of 126 samples exactly once"):
        list(RerunIterableDataset(source, "frame", FIELDS, shuffle_strategy=Twice()))


# --- manifests


def test_a_manifest_lists_the_order_of_a_live_dataset(source: DataSource, tmp_path: Path) -> None:
    made = Manifest.generate(source, "frame", FIELDS, fetch_block_size=10, num_ranks=2, num_workers_per_rank=3)
    shuffled = made.shuffle(BlockShuffle(16, 2), seed=4)
    shuffled.write_parquet(tmp_path / "epoch.parquet")
    read = Manifest.from_parquet(tmp_path / "epoch.parquet")
    assert read.metadata == shuffled.metadata and read.to_arrow().equals(shuffled.to_arrow())
    assert made.metadata.shuffle_strategy == "NoShuffle()" and read.metadata.seed == 4
    assert read.num_rows == 126 and read.metadata.dropped == 0
    live = RerunIterableDataset(source, "frame", FIELDS, shuffle_strategy=BlockShuffle(16, 2), fetch_block_size=10)
    live.set_epoch(4)
    places = [live.sample_index.place(number) for number in live.job.plan.epoch(4).samples.tolist()]
    table = read.to_arrow()
    assert list(zip(table["segment_id"].to_pylist(), table["anchor"].to_pylist(), strict=True)) == places
    assert table["place"].to_pylist() == list(range(126))
    parts = [read.worker_assignments(rank, worker) for rank in range(2) for worker in range(3)]
    assert sorted(pa.concat_tables(parts)["place"].to_pylist()) == list(range(126))
    assert Counter(table["rank"].to_pylist()) == {0: 63, 1: 63}
    frozen = RerunIterableDataset.from_manifest(read, source, FIELDS)
    assert values(frozen) == values(live)
    by_place = RerunMapDataset.from_manifest(read, source, FIELDS)
    assert values([by_place[5]]) == values(live)[5:6] and len(by_place) == 126
    read.validate_topology(2, 3)
    with pytest.raises(ValueError, match=r"2 x 3 .* not to 1 x 1"):
        read.validate_topology(1, 1)


def test_a_manifest_leaves_out_samples_without_a_value(source: DataSource) -> None:
    fields = {**FIELDS, **LATE}
    made = Manifest.generate(source, "frame", fields)
    kept = [frame for frame in LATE_FRAMES if 2 <= frame < FRAMES - 1]
    assert made.to_arrow()["anchor"].to_pylist() == kept * 3
    assert made.metadata.dropped == 3 * (FRAMES - 3 - len(kept))
    assert Manifest.generate(source, "frame", fields, required_fields=["joints"]).metadata.dropped == 0
    fresh = {"grip": Field(GRIP, decode=NumericDecoder(), max_staleness=3)}
    assert Manifest.generate(source, "frame", fresh).to_arrow()["anchor"].to_pylist()[:9] == [
        *range(5, 10),
        *range(30, 34),
    ]
    with pytest.raises(ValueError, match="no field 'other'"):
        Manifest.generate(source, "frame", fields, required_fields=["other"])


def test_a_manifest_is_read_by_any_workers_and_some_of_its_fields(source: DataSource) -> None:
    fields = {"arm": Field(JOINTS, decode=NumericDecoder(), window=(-0.2, 0.0)), **LATE}
    made = Manifest.generate(source, "time", fields, timeline_sampling=FixedRateSampling(30), num_ranks=8)
    frozen = RerunIterableDataset.from_manifest(made.shuffle(seed=1), source, LATE)
    batches = torch.utils.data.DataLoader(frozen, batch_size=4, num_workers=2, multiprocessing_context="spawn")
    assert sum(len(batch["grip"]) for batch in batches) == made.num_rows == len(frozen) > 60


def test_a_manifest_is_of_its_contents_alone(source: DataSource, tmp_path: Path) -> None:
    made = Manifest.generate(source, "frame", FIELDS)
    fewer = source.filter_segments(["drive_0"])
    with pytest.raises(ValueError, match="was made for other contents"):
        RerunIterableDataset.from_manifest(made, fewer, FIELDS)
    with pytest.raises(ValueError, match="no sample at 2 in segment drive_0"):
        made.job(source, {"joints": Field(JOINTS, decode=NumericDecoder(), window=(-4, 0))})
    pq.write_table(made.to_arrow().replace_schema_metadata({"manifest_format_version": "1"}), tmp_path / "other")
    with pytest.raises(ForeignFileError, match="not a manifest of chunkmill"):
        Manifest.from_parquet(tmp_path / "other")


# --- arguments of Rerun's


def test_arguments_without_an_effect_say_so() -> None:
    with pytest.warns(ReadWarning, match="max_decoder_sessions has no effect"):
        VideoFrameDecoder(codec="h264", max_decoder_sessions=2)
    with pytest.warns(ReadWarning, match="window_storage='view' has no effect"):
        VideoFrameDecoder(window_storage="view")
    with pytest.warns(ReadWarning, match="min_fill has no effect"):
        BlockShuffle(buffer_size=10, min_fill=2)
    with pytest.warns(ReadWarning, match="slots_per_field has no effect"):
        PooledBatchCollator(slots_per_field=2)


def test_arguments_that_are_wrong_or_not_supported() -> None:
    assert VideoFrameDecoder(thread_count=3).threads == 3
    assert VideoFrameDecoder(thread_count=0).threads is None
    with pytest.raises(UsageError, match="expected rgb or yuv420p"):
        VideoFrameDecoder(output_format="nv12")
    with pytest.raises(UsageError, match="codec: expected one of"):
        VideoFrameDecoder(codec="mpeg2")
    with pytest.raises(UsageError, match="thread_count: expected 0 or more"):
        VideoFrameDecoder(thread_count=-1)
    with pytest.raises(UsageError, match="min_fill needs a buffer_size"):
        BlockShuffle(None, min_fill=2)


def test_a_codec_that_a_recording_denies(source: DataSource) -> None:
    made = in_order(source, {"view": Field(VIDEO, decode=VideoFrameDecoder(codec="h265"))})
    with pytest.raises(ReadError, match="has codec 0x61766331, not h265"):
        next(iter(made))


def test_blocks_that_are_not_mixed(source: DataSource) -> None:
    made = RerunIterableDataset(
        source, "frame", FIELDS, shuffle_strategy=BlockShuffle(None, lanes=1), fetch_block_size=14
    )
    order = made.job.plan.epoch(0).samples
    assert (np.diff(order.reshape(9, 14)) == 1).all()
    assert order[::14].tolist() != sorted(order[::14].tolist())


def test_a_state_of_our_own_class_goes_on_in_rerun_s(source: DataSource) -> None:
    """And the other way round: the plan is the same where fields and order are."""
    fields = {"joints": Field(JOINTS, decode=NumericDecoder())}
    for size in (None, 7):
        ours = IterableSamples(source, "frame", fields, batch_size=size)
        whole = ours.job.with_run(size or 32).plan.epoch(0).samples.tolist()
        for _ in zip(range(5), ours, strict=False):
            pass
        theirs = RerunIterableDataset(source, "frame", fields)
        theirs.load_state_dict(json.loads(json.dumps(ours.state_dict())))
        known = SampleReader(theirs.sample_index).read(np.arange(len(theirs)))
        rest = [sample["joints"].tolist() for sample in theirs]
        assert rest == [known[number]["joints"].tolist() for number in whole[5 * (size or 1) :]]
        theirs = RerunIterableDataset(source, "frame", fields)
        for _ in zip(range(40), theirs, strict=False):
            pass
        ours = IterableSamples(source, "frame", fields)
        ours.load_state_dict(theirs.state_dict())
        assert [sample["sample"] for sample in ours] == theirs.job.plan.epoch(0).samples[40:].tolist()


def test_a_manifest_leaves_out_what_a_selector_makes_nothing_of(source: DataSource) -> None:
    small = Selector(".").pipe(lambda v: pc.if_else(pc.less(v, 1), v, pa.scalar(None, v.type)))
    fields = {"grip": Field(GRIP, decode=NumericDecoder(), select=small)}
    with pytest.warns(RuntimeWarning, match="'grip' are skipped"):
        live = [sample["grip"].tolist() for sample in RerunIterableDataset(source, "frame", fields)]
    made = Manifest.generate(source, "frame", fields)
    assert made.to_arrow().filter(pc.equal(made.to_arrow()["segment_id"], "drive_0"))["anchor"].to_pylist() == [
        *range(5, 20)
    ]
    assert made.num_rows == len(live) == 45
    nothing = {"grip": Field(GRIP, decode=NumericDecoder(), select=".missing?")}
    assert Manifest.generate(source, "frame", nothing).num_rows == 0


# --- frames as planes


def yuv(height: int, width: int, space: str = "bt709", numbers: str = "limited") -> tuple[Yuv420Frame, Any]:
    """A frame as planes, and as PyAV makes RGB of them."""
    av = pytest.importorskip("av")
    rows, columns = np.mgrid[:height, :width]
    smooth = np.stack([250 - rows * 4, columns * 3, 20 + rows], -1).astype(np.uint8)
    frame = av.VideoFrame.from_ndarray(smooth, format="rgb24")
    spaces, ranges = {"bt709": 1, "bt601": 5}, {"limited": 1, "full": 2}
    planar = frame.reformat(format="yuv420p", dst_colorspace=spaces[space], dst_color_range=ranges[numbers])
    planes = [np.frombuffer(p, np.uint8).reshape(p.height, p.line_size)[:, : p.width] for p in planar.planes]
    y, u, v = (torch.from_numpy(plane.copy()) for plane in planes)
    return Yuv420Frame(y[None], torch.stack([u, v]), space, numbers), smooth


@pytest.mark.parametrize(("space", "numbers"), [("bt709", "limited"), ("bt601", "full")])
def test_planes_become_rgb(space: str, numbers: str) -> None:
    frame, smooth = yuv(30, 40, space, numbers)
    found = frame.to_rgb(normalize=False)
    assert found.shape == (3, 30, 40) and found.dtype == torch.float32
    error = np.abs(found.numpy() - smooth.transpose(2, 0, 1)).mean()
    assert error < 3
    assert torch.allclose(frame.to_rgb() * 255, found)
    other = frame.to_rgb(normalize=False, color_space="bt2020")
    assert np.abs(other.numpy() - smooth.transpose(2, 0, 1)).mean() > 3 * error


def test_planes_in_batches() -> None:
    frame, _ = yuv(6, 8)
    samples = [{"view": frame, "arm": torch.tensor([1.0])}, {"view": frame.clone(), "arm": torch.tensor([2.0])}]
    for collate in (Yuv420Collator(), PooledBatchCollator()):
        batch = collate(samples)
        assert batch["view"].y.shape == (2, 1, 6, 8) and batch["view"].uv.shape == (2, 2, 3, 4)
        assert batch["view"].to_rgb().shape == (2, 3, 6, 8) and batch["arm"].tolist() == [[1.0], [2.0]]
    with pytest.raises(UsageError, match="no value of the field 'arm'"):
        Yuv420Collator()([{"arm": None}])
    with pytest.raises(UsageError, match="the same colour space"):
        Yuv420Frame.stack([frame, yuv(6, 8, "bt601")[0]])
    with pytest.raises(UsageError, match=r"not YUV 4:2:0"):
        Yuv420Frame(frame.y, frame.uv[..., :2], "bt709", "limited")
    plain = Yuv420Frame(frame.y, frame.uv, "unspecified", "limited")
    with pytest.warns(ReadWarning, match="bt601, limited"):
        plain.to_rgb()
