"""Bags, recordings of rosbag2, LeRobot datasets and stores over a server: nothing of them comes from outside."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import bag_bytes
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import CatalogService, ProtocolError, ServiceOptions, Status
from chunkmill.engine.catalog.server.protocol import rows_in
from rosbag2_making import compress, metadata, some, write_bag, write_database, write_mcap
from served import Caller, recording


def bag(path: Path) -> Path:
    path.write_bytes(bag_bytes.recording())
    return path


def database(path: Path) -> Path:
    return write_database(path, some(8))


def rosbag2(path: Path) -> Path:
    return write_bag(path, [some(8), some(8)])


def mcaps(path: Path) -> Path:
    path.mkdir()
    write_mcap(path / "m_0.mcap", some(8))
    (path / "metadata.yaml").write_text(metadata(["m_0.mcap"], storage="mcap"))
    return path


def lerobot(path: Path, data: str = "data/episode_{episode_index:06d}.parquet") -> Path:
    features = {name: {"dtype": kind, "shape": [1], "names": None} for name, kind in (("timestamp", "float32"),)}
    info = {"codebase_version": "v2.1", "fps": 10, "data_path": data, "features": features, "chunks_size": 1000}
    (path / "meta").mkdir(parents=True)
    (path / "data").mkdir()
    (path / "meta/info.json").write_text(json.dumps(info))
    (path / "meta/episodes.jsonl").write_text('{"episode_index": 0, "length": 2, "tasks": ["lift"]}\n')
    (path / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "lift"}\n')
    columns = {name: [0, 1] for name in ("frame_index", "index")} | {"episode_index": [0, 0], "task_index": [0, 0]}
    columns["timestamp"] = [0.0, 0.1]
    pq.write_table(pa.table(columns), path / "data/episode_000000.parquet")
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {
    "drive.bag": bag,
    "drive.bag.active": bag,
    "drive.db3": database,
    "drive": rosbag2,
    "drives": mcaps,
    "set": lerobot,
}


@pytest.fixture
def call(catalog: CatalogClient, tmp_path: Path) -> Caller:
    """A server that may read the folder ``files`` alone."""
    call = Caller(catalog, catalog.create_dataset("more"))
    call.service = CatalogService(catalog, ServiceOptions(readable=[str(tmp_path / "files")]))
    (tmp_path / "secret").mkdir()
    return call


def registered(call: Caller, url: str) -> dict[str, list[str]]:
    response = call("RegisterWithDataset", data_sources=[{"storage_url": url, "typ": 1}], on_duplicate=3)
    return rows_in(response.data).to_pydict()


def denied(call: Caller, url: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        registered(call, url)
    assert caught.value.code is Status.PERMISSION_DENIED, caught.value
    assert "--allow" in caught.value.text


@pytest.mark.parametrize("name", MAKERS)
def test_formats_are_registered_from_allowed_places_alone(
    call: Caller, catalog: CatalogClient, tmp_path: Path, name: str
) -> None:
    inside, outside = (MAKERS[name](tmp_path / folder / name) for folder in ("files", "secret"))
    link = tmp_path / "files" / f"link_{name}"
    link.symlink_to(outside)
    for url in (outside.as_uri(), str(outside), link.as_uri(), f"file://{inside.parent}/../secret/{name}"):
        denied(call, url)
    assert catalog.get_dataset("more").segment_ids() == []
    (segment,) = registered(call, inside.as_uri())["rerun_segment_id"]
    assert segment.startswith(name.split(".")[0])
    assert catalog.get_dataset("more").segment_ids() == [segment]


def moved(place: Path, to: Path) -> None:
    """Put what is at a place outside, and a link to it in its place."""
    shutil.move(place, to)
    place.symlink_to(to)


LINKED = {
    "drive": ("drive_0.db3", "drive_1.db3", "metadata.yaml"),
    "drives": ("m_0.mcap", "metadata.yaml"),
    "set": (
        "meta",
        "data",
        "meta/info.json",
        "meta/episodes.jsonl",
        "meta/tasks.jsonl",
        "data/episode_000000.parquet",
    ),
}


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in LINKED.items() for part in parts])
def test_parts_of_folders_do_not_lie_outside(call: Caller, tmp_path: Path, name: str, part: str) -> None:
    folder = MAKERS[name](tmp_path / "files" / name)
    moved(folder / part, tmp_path / "secret" / "part")
    denied(call, folder.as_uri())


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_what_sqlite_reads_beside_a_database_does_not_lie_outside(call: Caller, tmp_path: Path, end: str) -> None:
    (tmp_path / "secret" / "log").write_bytes(b"somebody's")
    alone, folder = database(tmp_path / "files" / "a.db3"), rosbag2(tmp_path / "files" / "drive")
    for file in (alone, folder / "drive_1.db3"):
        Path(f"{file}{end}").symlink_to(tmp_path / "secret" / "log")
    for place in (alone, folder, folder / "drive_1.db3"):
        denied(call, place.as_uri())


def test_compressed_parts_do_not_lie_outside(call: Caller, tmp_path: Path) -> None:
    folder = rosbag2(tmp_path / "files" / "drive")
    packed = compress(folder / "drive_1.db3")
    moved(packed, tmp_path / "secret" / packed.name)
    denied(call, folder.as_uri())


def test_links_through_links_and_in_circles_are_followed(call: Caller, tmp_path: Path) -> None:
    folder = lerobot(tmp_path / "files" / "set")
    images = tmp_path / "files" / "images"
    images.mkdir()
    (folder / "images").symlink_to(images)
    (images / "again").symlink_to(folder)  # within what is allowed, and no reason to walk for ever
    assert registered(call, folder.as_uri())["rerun_segment_id"] == ["set-episode_000000"]
    (tmp_path / "secret" / "a.png").write_bytes(b"secret")
    (images / "a.png").symlink_to(tmp_path / "secret" / "a.png")
    denied(call, folder.as_uri())


def test_a_template_leads_nowhere(call: Caller, catalog: CatalogClient, tmp_path: Path) -> None:
    lerobot(tmp_path / "secret" / "set")
    for number, data in enumerate(("../../secret/set/data/episode_000000.parquet", f"{tmp_path}/secret/set/x.parquet")):
        folder = lerobot(tmp_path / "files" / f"set{number}", data)
        assert registered(call, folder.as_uri())["rerun_segment_id"] == [""]
    assert catalog.get_dataset("more").segment_ids() == []


def test_a_store_that_names_files_elsewhere_is_not_read(call: Caller, tmp_path: Path) -> None:
    other = CatalogClient(tmp_path / "other")
    theirs = other.create_dataset("theirs")
    theirs.register(recording(tmp_path, "hidden").rename(tmp_path / "secret" / "hidden.rrd"), executor="inline").wait()
    store = tmp_path / "files" / "store"
    shutil.copytree(next((tmp_path / "other" / "datasets").iterdir()), store)
    if not (store / "versions").is_dir():
        store = next(path.parent for path in store.rglob("versions"))
    denied(call, store.as_uri())


def test_paths_are_checked_as_they_are_opened(call: Caller, tmp_path: Path) -> None:
    """What ``..`` behind a link means depends on who follows it: the server opens the path without both."""
    bag(tmp_path / "secret" / "drive.bag")
    deep = tmp_path / "files" / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (tmp_path / "files" / "link").symlink_to(deep)
    bag(tmp_path / "files" / "a" / "drive.bag")
    path = f"{tmp_path}/files/link/../../secret/drive.bag"
    assert os.path.realpath(path).startswith(str(tmp_path / "files"))
    denied(call, path)


def test_folders_below_a_prefix_are_looked_into(call: Caller, tmp_path: Path) -> None:
    recording(tmp_path, "plain")
    folder = rosbag2(tmp_path / "files" / "drive.rrd")
    moved(folder / "drive.rrd_0.db3", tmp_path / "secret" / "drive.rrd_0.db3")
    source = {"storage_url": (tmp_path / "files").as_uri(), "typ": 1, "prefix": True}
    with pytest.raises(ProtocolError) as caught:
        call("RegisterWithDataset", data_sources=[source], on_duplicate=3)
    assert caught.value.code is Status.PERMISSION_DENIED
