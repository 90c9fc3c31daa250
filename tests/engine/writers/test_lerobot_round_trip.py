"""LeRobot to a lake or RRDs and back: numbers, pictures, videos and tasks are equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from chunkmill import CatalogClient, LazyChunkStream, LeRobotReader, RrdReader
from chunkmill.engine.writers.lerobot import write_lerobot
from test_lerobot_writing import film, rows_of, shown, video, with_keys

pytest.importorskip("av")

MADE: Mapping[str, Any] = {
    "fps": 30,
    "task": "pour",
    "features": {
        "observation.state": {"entity": "/arm", "rule": "nearest", "names": ["joint"]},
        "observation.images.top": {"entity": "/camera", "dtype": "video", "rule": "nearest"},
    },
}

BACK: Mapping[str, Any] = {
    "fps": 30,
    "timeline": "timestamp",
    "task": {"entity": "/task", "timeline": "timestamp"},
    "features": {
        "observation.state": {
            "entity": "/observation/state",
            "component": "Scalars:scalars",
            "rule": "nearest",
            "names": ["joint"],
        },
        "observation.images.top": {"entity": "/observation/images/top", "dtype": "video", "rule": "nearest"},
    },
}


def kept_as_rrds(root: Path, where: Path) -> Iterator[LazyChunkStream]:
    """The episodes, by way of RRDs."""
    where.mkdir()
    for episode in LeRobotReader(root).episodes():
        path = where / f"{episode}.rrd"
        LeRobotReader(root).stream(episode).write_rrd(path, application_id="arm", recording_id=str(episode))
        yield RrdReader(path).stream()


def kept_in_a_lake(root: Path, where: Path) -> Iterator[LazyChunkStream]:
    """The episodes, by way of a dataset of a lake."""
    list(kept_as_rrds(root, where.with_name("rrds")))
    dataset = CatalogClient(where).create_dataset("arm")
    dataset.register([str(path) for path in sorted(where.with_name("rrds").iterdir())]).wait()
    for episode in LeRobotReader(root).episodes():
        yield dataset.segment_store(str(episode)).stream()


@pytest.mark.heavy
@pytest.mark.parametrize("way", [kept_as_rrds, kept_in_a_lake])
def test_values_are_equal(way: Any, tmp_path: Path) -> None:
    seconds = [number / 30 for number in range(44)]
    given = {"a": video(seconds, film(44)), "b": video(seconds[:24], film(24))}
    cut = with_keys("episodes", {"by": "ranges", "ranges": [[0.2, 9]]}, MADE)  # which leaves a lead-in in the video
    write_lerobot(given, tmp_path / "set", cut, executor="inline")
    streams = {f"{number:03d}": stream for number, stream in enumerate(way(tmp_path / "set", tmp_path / "kept"))}
    report = write_lerobot(streams, tmp_path / "back", BACK, executor="inline")
    accounts = [(a.written, a.dropped, a.reencoded, a.task) for a in report.accounts]
    assert accounts == [(38, 0, 0, "pour"), (18, 0, 0, "pour")]
    assert rows_of(tmp_path / "back") == rows_of(tmp_path / "set")
    for name in ("info.json", "stats.json"):
        assert (tmp_path / "back/meta" / name).read_text() == (tmp_path / "set/meta" / name).read_text()
    for episode in (0, 1):
        assert shown(tmp_path / "back", episode) == shown(tmp_path / "set", episode)
    tables = [pq.read_table(tmp_path / name / "meta/tasks.parquet").to_pylist() for name in ("back", "set")]
    assert tables[0] == tables[1]
