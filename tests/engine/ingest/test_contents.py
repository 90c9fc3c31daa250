"""Digests of files: the same wherever they are taken, and one that cannot be read leaves the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadError, SourceMissingError
from chunkmill.engine.execution.stage import RunOptions
from chunkmill.engine.ingest.files import LandedFile, digest_files


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_digest_or_an_error_for_each(
    executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if executor == "spark":
        request.getfixturevalue("spark")
        monkeypatch.setattr("chunkmill.engine.ingest.files._ON_DRIVER", 0)
    for name, text in (("a", "one"), ("b", "two"), ("c", "one")):
        (tmp_path / name).write_text(text)
    files = [LandedFile(str(tmp_path / name), 3, 0) for name in "abc"]
    files.insert(1, LandedFile(str(tmp_path / "gone"), 3, 0))
    files.append(LandedFile(str(tmp_path / "a"), 99, 0))
    first, gone, second, third, grown = digest_files(files, RunOptions(executor))
    assert first == third != second
    assert len(str(first)) == 32
    assert isinstance(gone, SourceMissingError)
    assert isinstance(grown, ReadError)
    assert grown.transient
    assert "had 99" in str(grown)
