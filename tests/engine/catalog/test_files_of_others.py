"""RRDs that other releases wrote, some without a footer, are verified when they are registered, and read by that."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from chunkmill.engine import verify
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.errors import ReadWarning
from chunkmill.readers import RrdReader


@pytest.mark.heavy
def test_verified_files_of_others_read_back_as_they_are(data: Path, tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("others")
    paths = sorted((data / "rrd").glob("*.rrd"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)
        results = list(dataset.register([str(p) for p in paths], verify=True, executor="inline").iter_results())
        failed = {result.uri: result.error or "" for result in results if result.is_error}
        assert all("can be read" in error for error in failed.values()), "written before 0.23"
        read = [result for result in results if result.is_success]
        assert len(read) > 5
        for result in read:
            whole = RrdReader(result.uri).stream().to_chunks(executor="inline")
            kept = list(dataset.segment_store(result.segment_id or ""))
            assert {c.id: c.to_record_batch() for c in kept} == {c.id: c.to_record_batch() for c in whole}
        assert not verify(dataset).faults
    assert dataset.catalog.check() == []
