"""RRD to RRD through a filter: chunks nobody touched are copied, not decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import RrdReader
from conftest import MB, Duel

peer = pytest.importorskip("rerun.chunk")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An RRD of about ``MB`` megabytes: scalars in 40 entities, images in 4, with a footer."""
    random = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("rrd") / "recording.rrd"
    images = max(4, MB * 1_000_000 // 230_400 // 2)

    def chunks() -> Any:
        for i in range(MB * 10):
            values = [[v] for v in random.normal(0, 1, 1000)]
            times = TimeColumn("frame", sequence=range(i * 1000, i * 1000 + 1000))
            yield Chunk.from_columns(f"/robot/joint_{i % 40}", [times], [ComponentColumn("Scalars:scalars", values)])
        for i in range(images):
            blob = pa.array([[random.bytes(230_400)]], pa.list_(pa.binary()))
            yield Chunk.from_columns(
                f"/camera_{i % 4}/image", [TimeColumn("frame", sequence=[i])], [ComponentColumn("blob", blob)]
            )

    LazyChunkStream.from_iter(chunks()).write_rrd(path, application_id="bench", recording_id="bench", executor="inline")
    return path


@pytest.mark.parametrize(
    ("what", "selection"),
    [("keep_robot", {"content": "/robot/**"}), ("drop_one_camera", {"content": "/** -/camera_0/**"})],
)
def test_filter(
    what: str, selection: dict[str, Any], benchmark: Any, duel: Duel, recording: Path, tmp_path: Path
) -> None:
    """Guards the pass-through of untouched chunks."""

    def ours() -> None:
        RrdReader(recording).stream().filter(**selection).write_rrd(
            tmp_path / "ours.rrd", application_id="bench", recording_id="bench", executor="spark"
        )

    def theirs() -> None:
        peer.RrdReader(recording).stream().filter(**selection).write_rrd(
            tmp_path / "theirs.rrd", application_id="bench", recording_id="bench"
        )

    duel.name = f"rrd_{what}"
    duel.run(benchmark, ours, theirs, bar=1.0)
