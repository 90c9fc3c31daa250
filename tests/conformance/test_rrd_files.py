"""Every real RRD survives reading and writing, as Rerun's own reader sees it; older formats are named."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from comparison import cells, rerun_chunks, rerun_verify
from conftest import DATA, SHARED_DATA

from chunkmill.engine.errors import UnsupportedError
from chunkmill.engine.stream import write_stores
from chunkmill.readers import RrdReader

OLD = {"rerun__example.4bb525.rrd": "0.12", "rnl__output_map.rrd": "0.22.1"}
EMPTY = {"rerun__example.rrd"}


def recordings() -> list[Path]:
    folder = SHARED_DATA / "rrd" if SHARED_DATA.is_dir() else DATA / "rrd"
    return sorted(p for p in folder.iterdir() if p.suffix in (".rrd", ".rbl"))


@pytest.mark.parametrize("path", recordings(), ids=lambda p: p.name)
def test_an_rrd_survives(path: Path, tmp_path: Path) -> None:
    rerun = pytest.importorskip("rerun.chunk")
    assert rerun
    if path.name in OLD:
        with pytest.raises(UnsupportedError, match=OLD[path.name]):
            RrdReader(path).recordings()
        return
    if path.name in EMPTY:
        assert RrdReader(path).recordings() == []
        return
    out = tmp_path / path.name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = RrdReader(path)
        stores = [(s, reader.stream(store=s)) for s in [*reader.recordings(), *reader.blueprints()]]
        result = write_stores(out, stores)
        theirs, ours = rerun_chunks(path), rerun_chunks(out)
    assert sorted(ours) == sorted(k for k, chunks in theirs.items() if chunks)
    for store, chunks in ours.items():
        assert [c.id for c in chunks] == [c.id for c in theirs[store]]
        assert cells(chunks) == cells(theirs[store])
    assert result.chunks == sum(map(len, ours.values()))
    rerun_verify(out)
