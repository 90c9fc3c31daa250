"""Our datasets with Rerun's names give the samples that Rerun's give of the same lake, served by us."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import CatalogClient, Chunk, LazyChunkStream, OptimizationProfile, ServedDataset
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.video import SampleBatch, VideoFrame, VideoTrack, encode, stream_chunks
from PIL import Image

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytest.importorskip("grpc")
theirs = pytest.importorskip("rerun.experimental.dataloader")

from chunkmill import training as ours  # noqa: E402 - not without torch
from served_tests import Served  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

SEGMENTS, ROWS, SIDE, GROUP = 4, 60, 64, 12
SECOND = 1_000_000_000
TIMES = {"frame": np.arange(ROWS), "time": np.arange(ROWS) * SECOND // 30}
JOINTS = "/arm:Scalars:scalars"
GRIP = "/grip:Scalars:scalars"
JPEG = "/jpeg:EncodedImage:blob"
VIDEO = "/video:VideoStream:sample"


def lines(rows: Any) -> dict[str, pa.Array]:
    """Both indexes of some rows."""
    times = pa.array(TIMES["time"][rows], pa.int64()).cast(pa.duration("ns"))
    return {"frame": pa.array(TIMES["frame"][rows]), "time": times}


def write(path: Path, number: int) -> None:
    """A recording of numbers, a gripper that begins late, JPEG at every second row, and H.264."""
    random = np.random.default_rng(number)
    rows = ROWS - 7 * number
    every = np.arange(rows)
    base = np.kron(random.integers(0, 255, (8, 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    shown = [np.roll(base, 2 * n, 1) for n in range(rows)]
    pictures = []
    for image in shown[::2]:
        out = io.BytesIO()
        Image.fromarray(image).save(out, "JPEG", quality=80)
        pictures.append([np.frombuffer(out.getvalue(), np.uint8)])
    track = VideoTrack(0x61766331, SIDE, SIDE, Fraction(1, 30), Fraction(30))
    samples = encode(track, [VideoFrame(n, image) for n, image in enumerate(shown)], keyframe_interval=GROUP)
    scalars = ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar")
    blob = ComponentDescriptor("EncodedImage:blob", "rerun.archetypes.EncodedImage", "rerun.components.Blob")
    late = np.arange(5, rows, 3)
    chunks = [
        Chunk.build("/arm", lines(every), [(scalars, pa.array(random.normal(size=(rows, 7)).tolist()))]),
        Chunk.build("/grip", lines(late), [(scalars, pa.array(random.normal(size=(len(late), 1)).tolist()))]),
        Chunk.build("/jpeg", lines(every[::2]), [(blob, pa.array(pictures, pa.list_(pa.list_(pa.uint8()))))]),
        *stream_chunks("/video", track, [SampleBatch.of(samples)], lambda ticks: lines(np.array(ticks))),
    ]
    store = LazyChunkStream.from_iter(chunks).collect(optimize=OptimizationProfile.OBJECT_STORE, executor="inline")
    store.write_rrd(path, application_id="tests", recording_id=path.stem)


class Lake(NamedTuple):
    """A source of the folder for our datasets, one of a server of it for Rerun's, and one of the same for ours."""

    folder: Any
    server: Any
    served: Any


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Some recordings in a lake, served."""
    from rerun.catalog import CatalogClient as Client

    folder = tmp_path_factory.mktemp("lake")
    (folder / "files").mkdir()
    paths = [folder / "files" / f"segment_{number}.rrd" for number in range(SEGMENTS)]
    for number, path in enumerate(paths):
        write(path, number)
    dataset = CatalogClient(folder / "lake").create_dataset("drives")
    dataset.register([path.as_uri() for path in paths]).wait()
    command = f"{sys.executable} -m chunkmill serve {folder / 'lake'} --port {{port}} --allow {folder / 'files'}"
    server = Served(command, folder, str(folder / "server.log"))
    try:
        client = Client(f"rerun+http://127.0.0.1:{server.port}")
        served = ServedDataset(f"rerun+http://127.0.0.1:{server.port}", "drives")
        yield Lake(ours.DataSource(dataset), theirs.DataSource(client.get_dataset("drives")), ours.DataSource(served))
    finally:
        server.kill()


def numbers(side: Any) -> dict[str, Any]:
    """Numbers at each row."""
    return {"joints": side.Field(JOINTS, decode=side.NumericDecoder())}


def windows(side: Any) -> dict[str, Any]:
    """Numbers, and a window of what comes before and behind."""
    return {**numbers(side), "near": side.Field(JOINTS, decode=side.NumericDecoder(), window=(-3, 0, 4))}


def late(side: Any) -> dict[str, Any]:
    """Numbers that are not there at the beginning."""
    return {**numbers(side), "grip": side.Field(GRIP, decode=side.NumericDecoder())}


def one_offset(side: Any) -> dict[str, Any]:
    """A window of one value keeps its axis."""
    return {"next": side.Field(JOINTS, decode=side.NumericDecoder(), window=(1,))}


def pictures(side: Any) -> dict[str, Any]:
    """JPEG, and two of them."""
    return {
        "now": side.Field(JPEG, decode=side.ImageDecoder()),
        "both": side.Field(JPEG, decode=side.ImageDecoder(), window=(-4, 0)),
    }


def video(side: Any) -> dict[str, Any]:
    """H.264, and numbers beside it."""
    return {**numbers(side), "view": side.Field(VIDEO, decode=side.VideoFrameDecoder(codec="h264"))}


def video_windows(side: Any) -> dict[str, Any]:
    """Frames over the bounds of groups of pictures."""
    return {"views": side.Field(VIDEO, decode=side.VideoFrameDecoder(codec="h264"), window=(-11, -1, 0))}


def planes(side: Any) -> dict[str, Any]:
    """Frames as planes of YUV, and windows of them."""
    decoder = side.VideoFrameDecoder(codec="h264", output_format="yuv420p")
    return {"view": side.Field(VIDEO, decode=decoder), "views": side.Field(VIDEO, decode=decoder, window=(-11, 0))}


def seconds(side: Any) -> dict[str, Any]:
    """Windows in seconds."""
    return {
        "near": side.Field(JOINTS, decode=side.NumericDecoder(), window=(-0.11, 0.0, 0.05)),
        "view": side.Field(VIDEO, decode=side.VideoFrameDecoder(codec="h264")),
    }


def own(side: Any) -> dict[str, Any]:
    """A decoder of a user's own, which says what it was asked for."""

    class Asked(side.ColumnDecoder):  # type: ignore[misc]
        def decode(self, batch: Any, requests: Any) -> list[Any]:
            return [
                torch.tensor(
                    [
                        len(batch.take_output_rows(some)),
                        len(some.decode_row_indices),
                        int(some.index_value),
                        float(sum(value for row in batch.take_output_rows(some).to_pylist() for value in row)),
                    ],
                    dtype=torch.float64,
                )
                for some in requests
            ]

    return {"asked": side.Field(JOINTS, decode=Asked(), window=(-1, 0, 2))}


def own_of_video(side: Any) -> dict[str, Any]:
    """One that begins at key frames."""

    class Packets(side.ColumnDecoder):  # type: ignore[misc]
        def decode(self, batch: Any, requests: Any) -> list[Any]:
            return [
                torch.tensor(
                    [some.starts_at_keyframe, *(len(row[0]) for row in batch.take_decode_rows(some).to_pylist())][-13:]
                )
                for some in requests
            ]

        def prior_keyframe_path(self, field_path: str) -> str:
            return field_path.replace(":sample", ":is_keyframe")

    return {"packets": side.Field(VIDEO, decode=Packets())}


Fields = Callable[[Any], dict[str, Any]]
CASES: list[tuple[Fields, str, float | None]] = [
    (numbers, "frame", None),
    (windows, "frame", None),
    (late, "frame", None),
    (one_offset, "frame", None),
    (pictures, "frame", None),
    (video, "frame", None),
    (video_windows, "frame", None),
    (planes, "frame", None),
    (own, "frame", None),
    (own_of_video, "frame", None),
    (numbers, "time", 30),
    (seconds, "time", 7),
    (seconds, "time", 29.97),
]
STRATEGIES = {"NoShuffle": (), "SampleShuffle": (), "BlockShuffle": (24,)}


def samples(side: Any, source: Any, fields: Fields, index: str, rate: float | None, strategy: str) -> list[Any]:
    """All samples of an epoch, and their number, as the dataset says it."""
    chosen = getattr(side, strategy)(*STRATEGIES[strategy])
    sampling = None if rate is None else side.FixedRateSampling(rate)
    dataset = side.RerunIterableDataset(
        source, index, fields(side), timeline_sampling=sampling, fetch_block_size=32, shuffle_strategy=chosen
    )
    dataset.set_epoch(3)
    return [len(dataset), *dataset]


def as_bytes(sample: dict[str, Any]) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    """A sample as something that compares and sorts: names, types, shapes and values."""
    flat: dict[str, Any] = {}
    for name, value in sample.items():
        if isinstance(value, (ours.Yuv420Frame, theirs.Yuv420Frame)):
            flat |= {f"{name} y {value.color_space} {value.color_range}": value.y, f"{name} uv": value.uv}
        else:
            flat[name] = value
    return [(name, str(v.dtype), tuple(v.shape), v.contiguous().numpy().tobytes()) for name, v in flat.items()]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("fields", "index", "rate"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_samples_are_those_of_rerun(lake: Lake, fields: Fields, index: str, rate: float | None, strategy: str) -> None:
    made, *mine = samples(ours, lake.folder, fields, index, rate, strategy)
    expected, *peer = samples(theirs, lake.server, fields, index, rate, strategy)
    assert made == expected and len(peer) > 20
    found, wanted = [as_bytes(some) for some in mine], [as_bytes(some) for some in peer]
    if strategy != "NoShuffle":
        assert found != wanted, "orders differ: docs/differences.md says so"
        found, wanted = sorted(found), sorted(wanted)
    assert found == wanted


@pytest.mark.parametrize(("fields", "index", "rate"), [(windows, "frame", None), (seconds, "time", 29.97)])
def test_samples_of_a_server_are_those_of_rerun(lake: Lake, fields: Fields, index: str, rate: float | None) -> None:
    made, *mine = samples(ours, lake.served, fields, index, rate, "NoShuffle")
    expected, *peer = samples(theirs, lake.server, fields, index, rate, "NoShuffle")
    assert made == expected and len(peer) > 20
    assert [as_bytes(some) for some in mine] == [as_bytes(some) for some in peer]


@pytest.mark.parametrize("fields", [windows, late, pictures, video])
def test_samples_by_number_are_those_of_rerun(lake: Lake, fields: Fields) -> None:
    mine = ours.RerunMapDataset(lake.folder, "frame", fields(ours))
    peer = theirs.RerunMapDataset(lake.server, "frame", fields(theirs))
    assert len(mine) == len(peer)
    chosen = [0, 50, 3, len(peer) - 1]
    for some, other in zip(mine.__getitems__(chosen), peer.__getitems__(chosen), strict=True):
        assert {name: value is None for name, value in some.items()} == {n: v is None for n, v in other.items()}
        there = {name for name, value in some.items() if value is not None}
        assert as_bytes({n: some[n] for n in there}) == as_bytes({n: other[n] for n in there})


@pytest.mark.parametrize(("fields", "index", "rate"), [(windows, "frame", None), (seconds, "time", 29.97)])
def test_places_are_those_of_rerun(lake: Lake, fields: Fields, index: str, rate: float | None) -> None:
    found = []
    for side, source in ((ours, lake.folder), (theirs, lake.server)):
        sampling = None if rate is None else side.FixedRateSampling(rate)
        space = side.SampleIndex.build(source, index, fields(side), timeline_sampling=sampling)
        if side is ours:
            made = ours.RerunIterableDataset(source, index, fields(ours), timeline_sampling=sampling)
            space = made.sample_index
        segment, value = space.global_to_local(70)
        shown = [vars(some) for some in space.segments]
        found.append([shown, space.segment_offsets.tolist(), space.total_samples, vars(segment), value, type(value)])
    assert found[0] == found[1]


def test_a_manifest_has_the_samples_of_rerun(lake: Lake) -> None:
    rows = []
    for side, source in ((ours, lake.folder), (theirs, lake.server)):
        made = side.Manifest.generate(source, "frame", late(side), fetch_block_size=16)
        table = made.to_arrow()
        rows.append([(str(a), b) for a, b in zip(table["segment_id"], table["anchor"].to_pylist(), strict=True)])
    assert rows[0] == rows[1]
