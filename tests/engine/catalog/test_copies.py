"""Registration of files that are copied: RRDs where that is asked for, and all other formats."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunk_making import FLOATS, content
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry, layers
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.errors import WriteError
from chunkmill.engine.recordings import RecordingsFolder, verify_store
from chunkmill.readers import LeRobotDataset, McapReader, ParquetReader, RrdReader
from small_recordings import rrd_at


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetEntry:
    return CatalogClient(tmp_path / "lake").create_dataset("drives")


def parquet_at(path: Path, **columns: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"speed": [1.0, 2.0, 3.0]}), path)
    return path


def lerobot_at(root: Path, episodes: int = 2) -> Path:
    """A LeRobot dataset of version 2.1 whose episodes have three frames."""
    path = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    features = {"action": {"dtype": "float32", "shape": [1], "names": None}}
    info = {"codebase_version": "v2.1", "data_path": path, "fps": 10, "chunks_size": 10, "features": features}
    (root / "meta").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(info))
    lines = [{"episode_index": e, "length": 3, "tasks": ["pick"]} for e in range(episodes)]
    (root / "meta/episodes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (root / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "pick"}))
    for e in range(episodes):
        frames = {
            "action": [[float(i)] for i in range(3)],
            "timestamp": [i / 10 for i in range(3)],
            "frame_index": [0, 1, 2],
            "episode_index": [e] * 3,
            "index": [0, 1, 2],
            "task_index": [0] * 3,
        }
        parquet_at(root / path.format(episode_chunk=0, episode_index=e), **frames)
    return root


def left_over(dataset: DatasetEntry) -> list[Path]:
    """Staging folders beside and in the store, some time after the last result."""
    store, until = Path(dataset.__fspath__()), time.monotonic() + 20
    while True:
        found = [path for folder in (store.parent, store) for path in folder.iterdir() if path.name.startswith(".")]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.01)


def same(store: Any, stream: LazyChunkStream) -> bool:
    wanted = content(stream.collect(), with_row_ids=False)
    return bool(wanted) and content(store, with_row_ids=False) == wanted


def test_every_format_becomes_segments_by_copy(
    dataset: DatasetEntry, tmp_path: Path, data: Path, executor: str
) -> None:
    mcap = Path(shutil.copy(data / "generated/rob_comp_none.mcap", tmp_path / "drive.mcap"))
    rrd, parquet, arm = (
        rrd_at(tmp_path / "one.rrd", "one"),
        parquet_at(tmp_path / "v.parquet"),
        lerobot_at(tmp_path / "arm"),
    )
    wanted = {
        "one": LazyChunkStream.from_iter(list(RrdReader(rrd).stream())),
        "drive": LazyChunkStream.from_iter(list(McapReader(mcap).stream())),
        "v": LazyChunkStream.from_iter(list(ParquetReader(parquet).stream())),
        "arm-episode_000000": LazyChunkStream.from_iter(list(LeRobotDataset(arm).episode(0).stream())),
        "arm-episode_000001": LazyChunkStream.from_iter(list(LeRobotDataset(arm).episode(1).stream())),
    }
    handle = dataset.register([str(rrd), str(mcap), str(parquet), str(arm)], copy=True)
    assert handle.wait(300).segment_ids == list(wanted) == dataset.segment_ids()
    for path in (rrd, mcap, parquet):
        path.unlink()
    shutil.rmtree(arm)
    for name, stream in wanted.items():
        assert same(dataset.segment_store(name), stream), name
    assert not left_over(dataset)
    assert not verify_store(RecordingsFolder(dataset)).faults


def test_a_copy_tells_what_a_registration_in_place_tells(dataset: DatasetEntry, tmp_path: Path) -> None:
    rrd = rrd_at(tmp_path / "one.rrd", "one")
    other = CatalogClient(tmp_path / "lake").create_dataset("copies")
    dataset.register(str(rrd)).wait()
    other.register(str(rrd), copy=True, executor="inline", layer_name="base").wait()
    for table in ("segment_table", "manifest", "get_index_ranges"):
        one, copied = (getattr(d, table)().to_arrow_table() for d in (dataset, other))
        different = [name for name in one.column_names if one[name] != copied[name]]
        assert one.schema == copied.schema and {n.rstrip("s") for n in different} <= {
            "rerun_storage_url", "rerun_last_updated_at", "rerun_registration_time"
        }  # fmt: skip
    assert dataset.schema() == other.schema()


def test_each_file_succeeds_or_fails_by_itself(dataset: DatasetEntry, tmp_path: Path) -> None:
    bad, cut = tmp_path / "bad.mcap", tmp_path / "cut.rrd"
    bad.write_bytes(b"no recording")
    cut.write_bytes(rrd_at(tmp_path / "whole.rrd", "cut").read_bytes()[:-200])
    words = parquet_at(tmp_path / "words.parquet", speed=["fast", "slow"])
    good = [parquet_at(tmp_path / "good.parquet"), rrd_at(tmp_path / "one.rrd", "one")]
    handle = dataset.register(list(map(str, [bad, *good, cut, words])), copy=True, executor="inline")
    results = {Path(result.uri).name: result for result in handle.iter_results(60)}
    assert dataset.segment_ids() == ["good", "one"]
    assert {name for name, result in results.items() if result.is_error} == {"bad.mcap", "cut.rrd", "words.parquet"}
    for name, text in (
        ("bad.mcap", "magic bytes of MCAP"),
        ("cut.rrd", str(cut)),
        ("words.parquet", "'words', layer 'base'"),
    ):
        assert text in (results[name].error or "")
    assert not left_over(dataset)


@pytest.mark.parametrize(("on_duplicate", "left"), [("replace", 2.0), ("skip", 1.0), ("error", 1.0)])
def test_a_layer_that_is_there(dataset: DatasetEntry, tmp_path: Path, on_duplicate: str, left: float) -> None:
    path = parquet_at(tmp_path / "v.parquet", speed=[1.0])
    dataset.register(str(path), executor="inline").wait()
    parquet_at(path, speed=[2.0])
    handle = dataset.register(str(path), on_duplicate=on_duplicate, executor="inline")
    (result,) = handle.iter_results(60)
    assert ("Layer 'base' already exists" in (result.error or "")) == (on_duplicate == "error")
    assert repr([left]) in [key[-1] for key in content(dataset.segment_store("v"))]
    dataset.register(str(path), layer_name="more", executor="inline").wait()
    assert [row["rerun_layer_names"] for row in dataset.segment_table().to_pylist()] == [["base", "more"]]


def test_a_folder_of_all_formats(dataset: DatasetEntry, tmp_path: Path) -> None:
    root = tmp_path / "files"
    rrd_at(root / ".cache" / "one.rrd", "one")
    parquet_at(root / "monday" / "v.parquet")
    parquet_at(root / "tuesday" / "v.parquet")
    parquet_at(root / "tuesday" / ".v.parquet")
    lerobot_at(root / "arms" / "arm", episodes=1)
    (root / "notes.txt").write_text("none")
    wanted = ["one", "arms-arm-episode_000000", "monday-v", "tuesday-v"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHUNKMILL_EXECUTOR", "inline")
        assert dataset.register_prefix(str(root)).wait(60).segment_ids == wanted
        alone = CatalogClient(tmp_path / "lake").create_dataset("alone")
        assert alone.register_prefix(str(root / "arms" / "arm")).wait(60).segment_ids == ["arm-episode_000000"]
    manifest = {row["rerun_segment_id"]: row["rerun_storage_url"] for row in dataset.manifest().to_pylist()}
    assert manifest["one"] == (root / ".cache" / "one.rrd").as_uri() and "/shards/" in manifest["monday-v"]


def test_what_stops_all_of_them_leaves_nothing(
    dataset: DatasetEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet_at(tmp_path / "v.parquet")

    def full(*_: object, **__: object) -> None:
        raise WriteError("no space left on device", path=str(tmp_path))

    monkeypatch.setattr("chunkmill.engine.recordings.vacuum.NewShards.add", full)
    (result,) = dataset.register(str(path), executor="inline").iter_results(60)
    assert "no space left" in (result.error or "")
    assert dataset.segment_ids() == [] and not left_over(dataset)
    assert not [f for f in Path(dataset.__fspath__()).rglob("*") if f.is_file()]


def test_a_file_that_changes_meanwhile_is_an_error(
    dataset: DatasetEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet_at(tmp_path / "v.parquet")
    run_laid_out = layers.run_laid_out

    def slowly(*arguments: Any, **options: Any) -> Any:
        found = run_laid_out(*arguments, **options)
        parquet_at(path, speed=[9.0])
        return found

    monkeypatch.setattr(layers, "run_laid_out", slowly)
    (result,) = dataset.register(str(path), executor="inline").iter_results(60)
    assert "was changed during its registration" in (result.error or "") and dataset.segment_ids() == []


def test_a_copy_has_the_columns_that_hold_nothing_but_nulls_too(dataset: DatasetEntry, tmp_path: Path) -> None:
    path = tmp_path / "nulls.rrd"
    values = [(ComponentDescriptor(name), pa.array(some, FLOATS)) for name, some in (("a", [[1.0]]), ("b", [None]))]
    chunk = Chunk.build("/e", {"t": pa.array([0])}, values)
    LazyChunkStream.from_iter([chunk]).write_rrd(path, application_id="a", recording_id="s", executor="inline")
    dataset.register(str(path), copy=True, executor="inline").wait()
    assert dataset.schema().column_names() == ["t", "/e:a", "/e:b"]
