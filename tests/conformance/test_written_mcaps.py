"""Rerun reads the same of an MCAP that is written as of the one that it is a copy of."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chunkmill.readers import McapReader
from comparison import cells, normalised
from places import recordings

rerun_chunk = pytest.importorskip("rerun.chunk")  # Rerun's own reader of MCAPs, by this name since 0.37


def seen_by_rerun(path: Path) -> Counter[Any] | None:
    """Every cell of messages, attachments and metadata; None where Rerun cannot read the file.

    Numbers of channels and schemas are those of the file, and statistics say how it is divided.
    """
    try:
        chunks = [normalised(c.to_record_batch()) for c in rerun_chunk.McapReader(path).stream().to_chunks()]
    except Exception:  # noqa: BLE001 - Rerun has no error of its own
        return None
    return Counter(map(repr, filter(_is_content, cells(chunks))))


def _is_content(cell: Any) -> bool:
    text = repr(cell)
    numbers = ("McapStatistics", "McapChannel:id", "McapSchema:id", "offset")
    return not any(word in text for word in numbers)


@pytest.mark.parametrize("path", recordings("*.mcap", "mcap/*.mcap", "generated/[fru]*.mcap"))
@pytest.mark.filterwarnings("ignore")
def test_rerun_reads_a_copy_as_its_original(path: Path, tmp_path: Path) -> None:
    expected = seen_by_rerun(path)
    if expected is None:
        pytest.skip("Rerun cannot read it")
    out = tmp_path / "out.mcap"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        McapReader(path).stream().write_mcap(out, executor="inline")
    found = seen_by_rerun(out)
    assert found is not None
    assert found - expected == Counter()
    assert expected - found == Counter()
