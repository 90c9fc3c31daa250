"""A small lake, and who calls its server without a connection."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from served import Caller, small_lake


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogClient:
    return small_lake(tmp_path)


@pytest.fixture
def dataset(catalog: CatalogClient) -> DatasetEntry:
    return catalog.get_dataset("drives")


@pytest.fixture
def call(catalog: CatalogClient, dataset: DatasetEntry) -> Caller:
    return Caller(catalog, dataset)
