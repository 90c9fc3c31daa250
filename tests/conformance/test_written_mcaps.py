"""Rerun reads the same of an MCAP that is written as of the one that it is a copy of."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.errors import ReadError
from chunkmill.readers import McapReader
from comparison import normalised
from places import recordings

rerun_chunk = pytest.importorskip("rerun.chunk")  # Rerun's own reader of MCAPs, by this name since 0.37


SMALL = 400_000
NUMBERS = ("McapStatistics", "McapChannel:id", "McapSchema:id", "RecordingInfo:start_time")
"""Components with numbers of channels and schemas, counts and times of statistics: those of the file itself."""


def seen_by_rerun(path: Path) -> Counter[tuple[Any, ...]] | None:
    """Every row of every component; None where Rerun cannot read the file."""
    try:
        chunks = [normalised(c.to_record_batch()) for c in rerun_chunk.McapReader(path).stream().to_chunks()]
    except Exception:  # noqa: BLE001 - Rerun has no error of its own
        return None
    rows: Counter[tuple[Any, ...]] = Counter()
    for chunk in chunks:
        times = [(t.name, t.ticks.tolist()) for t in chunk.data.timelines]
        for component in chunk.data.components:
            d = component.descriptor
            if d.component.startswith(NUMBERS) or (d.archetype == "McapAttachment" and d.component == "metadata"):
                continue
            for row in range(chunk.num_rows):
                at = tuple((name, ticks[row]) for name, ticks in times)
                value = pa.record_batch([component.values.take([row])], ["value"])
                digest = hashlib.sha256(value.serialize()).hexdigest()
                rows[chunk.entity_path, component.descriptor, at, digest] += 1
    return rows


@pytest.mark.parametrize("path", recordings("*.mcap", "mcap/*.mcap", "generated/[fru]*.mcap"))
@pytest.mark.filterwarnings("ignore")
def test_rerun_reads_a_copy_as_its_original(path: Path, tmp_path: Path) -> None:
    if "corrupt" in path.name or path.stat().st_size > SMALL:
        pytest.skip("too large to be compared row by row, or damaged, which Rerun waits on")
    expected = seen_by_rerun(path)
    if expected is None:
        pytest.skip("Rerun cannot read it")
    out = tmp_path / "out.mcap"
    try:
        McapReader(path).stream().write_mcap(out, executor="inline")
    except ReadError:
        assert "crc" in path.name  # Rerun leaves out what is damaged, and says so in its log
        return
    found = seen_by_rerun(out)
    assert found is not None
    assert expected - found == Counter()
    if not path.name.startswith("rob_"):  # of files without a whole index Rerun reads less
        assert found - expected == Counter()
