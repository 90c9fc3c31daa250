"""A LeRobot dataset that follows the store of an ingestion."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import Chunk, Ingest, LazyChunkStream, UsageError
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import WriteError
from chunkmill.engine.ingest import query

SPEC = {"fps": 10, "features": {"action": {"entity": "/arm"}}}


def land(landing: Path, name: str, seconds: float, numbers: int = 1) -> None:
    """A recording with some numbers at 10 Hz."""
    ticks = (np.arange(round(seconds * 10) + 1) * 100_000_000).astype("datetime64[ns]")
    values = pa.array([[1.0] * numbers] * len(ticks), pa.list_(pa.float64()))
    chunk = Chunk.build("/arm", {"time": pa.array(ticks)}, [(ComponentDescriptor("v"), values)])
    path = landing / f"{name}.rrd"
    LazyChunkStream.from_iter([chunk]).write_rrd(path, application_id="t", recording_id=name, executor="inline")


def ingest(landing: Path, lake: Path, **given: Any) -> None:
    options = {"lerobot": lake.with_name("set"), "lerobot_spec": SPEC, "executor": "inline", "settle": 0, **given}
    Ingest(landing, into=lake, **options).start(once=True).await_termination()


def episodes(lake: Path) -> dict[str, Any]:
    """The frames of the recordings, or why there are none."""
    accounts = json.loads((lake.with_name("set") / "meta/chunkmill.json").read_text())["episodes"]
    return {each["recording"]: each["reason"] or each["written"] for each in accounts}


def test_it_follows_the_store(landing: Path, lake: Path) -> None:
    land(landing, "a", 1)
    ingest(landing, lake)
    assert episodes(lake) == {"a": 11}
    before = (lake.with_name("set") / "meta/info.json").stat().st_mtime_ns
    ingest(landing, lake)
    assert (lake.with_name("set") / "meta/info.json").stat().st_mtime_ns == before
    land(landing, "a", 2)
    land(landing, "b", 3)
    ingest(landing, lake, max_files_per_trigger=1)
    assert episodes(lake) == {"a": 21, "b": 31}


def test_a_store_that_was_there_before_is_taken_whole(landing: Path, lake: Path) -> None:
    land(landing, "a", 1)
    ingest(landing, lake, lerobot=None, lerobot_spec=None)
    assert not lake.with_name("set").exists()
    ingest(landing, lake)
    assert episodes(lake) == {"a": 11}


def test_what_was_cut_between_commit_and_dataset_is_made_up_for(
    landing: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(landing, "a", 1)

    def cut(*_: Any, **__: Any) -> None:
        raise WriteError("the disk is full", path="set")

    with monkeypatch.context() as patch:
        patch.setattr(query, "write_lerobot", cut)
        with pytest.raises(WriteError, match="the disk is full"):
            ingest(landing, lake)
    assert not lake.with_name("set").exists()
    ingest(landing, lake)
    assert episodes(lake) == {"a": 11}


def test_a_recording_that_does_not_fit_stops_nothing(
    landing: Path, lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    land(landing, "odd", 1, numbers=0)
    with caplog.at_level(logging.INFO, "chunkmill.ingest"):
        ingest(landing, lake)
    assert "is unchanged: CM501: there is no episode to write" in caplog.text
    land(landing, "a", 1)
    land(landing, "b", 1, numbers=2)
    land(landing, "c", 2)
    with caplog.at_level(logging.INFO, "chunkmill.ingest"):
        ingest(landing, lake)
    facts = episodes(lake)
    assert (facts["a"], facts["c"]) == (11, 21)
    assert "the shape is [2], but [1] in an earlier recording" in facts["b"]
    assert "b has no episode: " in caplog.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lerobot_spec": None}, "needs a folder and a specification"),
        ({"lerobot_spec": {"fps": 0}}, "fps: 0 is not"),
        ({"into": None, "rrds": "rrds"}, "needs a store"),
        ({"lerobot": "landing/set"}, "is in"),
    ],
)
def test_what_makes_no_sense(
    given: dict[str, Any], message: str, landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"into": "lake", "lerobot": "set", "lerobot_spec": SPEC, **given}
    with pytest.raises(UsageError, match=message):
        Ingest(landing, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["landing"]


def test_on_spark(spark: Any, landing: Path, lake: Path) -> None:
    land(landing, "a", 1)
    ingest(landing, lake, executor="spark")
    assert episodes(lake) == {"a": 11}
