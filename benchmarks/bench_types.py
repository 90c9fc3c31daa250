"""MCAPs of one type of message each to RRD: a warm session against rerun-sdk in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chunkmill.readers import McapReader
from conftest import Duel
from made_types import types, write_type

peer = pytest.importorskip("rerun.chunk")

TYPES = types()


@pytest.mark.parametrize("name", TYPES)
def test_convert_one_type(name: str, benchmark: Any, duel: Duel, tmp_path: Path) -> None:
    """Guards: at most rerun's time, for each type."""
    source = tmp_path / f"{name}.mcap"
    write_type(source, TYPES[name])
    ids = {"application_id": "bench", "recording_id": "bench"}

    def ours() -> None:
        McapReader(source).stream().write_rrd(tmp_path / "ours.rrd", **ids, executor="spark")

    def theirs() -> None:
        peer.McapReader(source).stream().write_rrd(tmp_path / "theirs.rrd", **ids)

    duel.name = f"convert_{name}"
    duel.run(benchmark, ours, theirs, bar=1.0)
