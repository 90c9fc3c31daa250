"""Texts as a feature."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import LazyChunkStream, LeRobotReader, ReadError, UsageError
from chunkmill.engine.writers.lerobot import ExportedRecording, write_lerobot
from chunkmill.engine.writers.lerobot_spec import ExportSpec
from test_lerobot_writing import column, numbers, rows_of, with_keys

SPEC: Any = {
    "fps": 10,
    "features": {
        "observation.state": {"entity": "/arm"},
        "language": {"entity": "/voice", "dtype": "string"},
    },
}


def spoken(*texts: str) -> LazyChunkStream:
    """Two seconds, in which texts are said one second after the other."""
    times = np.arange(21) / 10
    said = column("/voice", np.arange(len(texts)) * 10**9, "TextDocument:text", pa.array([[text] for text in texts]))
    return LazyChunkStream.from_iter([numbers("/arm", times, times[:, None]), said])


def test_frames_have_the_last_text(tmp_path: Path) -> None:
    where = tmp_path / "set"
    write_lerobot([ExportedRecording("a", spoken("go", "ö", ""), "1")], where, SPEC, executor="inline")
    write_lerobot([ExportedRecording("b", spoken("x", "y", "z"), "1")], where, SPEC, executor="inline", append=True)
    rows = rows_of(where)
    assert [row["language"] for row in rows[:21]] == ["go"] * 10 + ["ö"] * 10 + [""]
    assert [row["language"] for row in rows[21:]] == ["x"] * 10 + ["y"] * 10 + ["z"]
    info = json.loads((where / "meta/info.json").read_text())["features"]["language"]
    assert info == {"dtype": "string", "shape": [1], "names": None}
    assert "language" not in json.loads((where / "meta/stats.json").read_text())
    chunks = [c for c in LeRobotReader(where).stream(0).to_chunks(executor="inline") if c.entity_path == "/language"]
    texts = [v for c in chunks if not c.is_static for x in c.data.components for v in x.values.flatten().to_pylist()]
    assert texts == [row["language"] for row in rows[:21]]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rule", "linear", "linear interpolates values, which string does not support"),
        ("shape", [2], r"a frame has a single text, but the shape is \[2\]"),
        ("names", ["a"], "texts have none"),
    ],
)
def test_what_texts_do_not_have(key: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ExportSpec.of(with_keys(f"features/language/{key}", value, SPEC))


def test_a_number_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"features\.language: 0\.0 is not text"):
        write_lerobot({"a": spoken("x")}, tmp_path / "set", with_keys("features/language/entity", "/arm", SPEC))
