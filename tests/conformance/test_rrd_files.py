"""Every real RRD survives reading and writing, as Rerun's own reader sees it; older formats are named."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import UnsupportedError
from chunkmill.engine.stream import write_stores
from chunkmill.readers import RrdReader
from comparison import cells, rerun_chunks, rerun_verify
from places import recordings

OLD = {
    "rerun__example.4bb525.rrd": "0.12",
    "rerun__example.rrd": "0.23.0-alpha",
    "rnl__output_map.rrd": "0.22.1",
}
"""Written before the format of today; Rerun does not read them either."""


def _source_chunks(path: Path) -> dict[str, list[Chunk]]:
    """The chunks as Rerun sees them; where it sees none or refuses (a draft of a footer, an empty one), as we do."""
    try:
        found = rerun_chunks(path)
    except RuntimeError:
        found = {}
    if found:
        return found
    reader = RrdReader(path)
    stores = [*reader.recordings(), *reader.blueprints()]
    return {
        f"{s.kind} {s.application_id} {s.recording_id}": reader.stream(store=s).to_chunks(executor="inline")
        for s in stores
    }


@pytest.mark.parametrize("path", recordings("rrd/*.rrd", "rrd/*.rbl"))
def test_an_rrd_survives(path: Path, tmp_path: Path) -> None:
    rerun = pytest.importorskip("rerun.chunk")
    assert rerun
    if path.name in OLD:
        with pytest.raises(UnsupportedError, match=OLD[path.name]):
            RrdReader(path).recordings()
        return
    out = tmp_path / path.name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = RrdReader(path)
        stores = [(s, reader.stream(store=s)) for s in [*reader.recordings(), *reader.blueprints()]]
        result = write_stores(out, stores)
        theirs, ours = _source_chunks(path), rerun_chunks(out)
    assert theirs
    assert sorted(ours) == sorted(k for k, chunks in theirs.items() if chunks)
    for store, chunks in ours.items():
        assert [c.id for c in chunks] == [c.id for c in theirs[store]]
        assert cells(chunks) == cells(theirs[store])
    assert result.chunks == sum(map(len, ours.values()))
    rerun_verify(out)
