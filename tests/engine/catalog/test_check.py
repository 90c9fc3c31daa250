"""``check`` finds what is not as it was: files that were registered, and the files of catalogs and stores."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.errors import NotFoundError, ReadError
from small_recordings import ingest, rrd_at


@pytest.fixture
def drives(tmp_path: Path) -> DatasetEntry:
    """A dataset with a layer in place, of two, and one that was ingested; and one into which nothing has come."""
    client = CatalogClient(tmp_path / "lake")
    client.create_dataset("empty")
    dataset = client.create_dataset("drives")
    ingest(tmp_path / "landing", ["a", "b"], dataset)
    dataset.register(str(rrd_at(tmp_path / "poses.rrd", "a")), layer_name="poses").wait()
    return dataset


def store_of(drives: DatasetEntry) -> Path:
    return Path(os.fspath(drives))


def test_what_is_as_it_was_has_no_fault(drives: DatasetEntry) -> None:
    assert drives.catalog.check() == []
    assert drives.catalog.check(["drives", "empty"]) == []
    with pytest.raises(NotFoundError, match=r"No entry found with name 'drive'.*Did you mean 'drives'"):
        drives.catalog.check(["drive"])


def test_a_file_that_was_replaced_or_removed_is_told_with_both_identities(drives: DatasetEntry, tmp_path: Path) -> None:
    path = tmp_path / "poses.rrd"
    before = path.stat()
    path.write_bytes(path.read_bytes() + b"more")
    (fault,) = drives.catalog.check()
    assert (fault.dataset, fault.segment_id, fault.layer, fault.error.path) == ("drives", "a", "poses", str(path))
    assert f"it has {before.st_size + 4:,} bytes" in fault.error.message
    assert f"not {before.st_size:,} bytes" in fault.error.message
    path.unlink()
    (fault,) = drives.catalog.check()
    assert "No such file" in fault.error.message
    assert f"it was registered with {before.st_size:,} bytes" in fault.error.message
    assert fault.to_dict()["code"] == "chunkmill.missing"
    with pytest.raises(ReadError, match=f"it was registered with {before.st_size:,} bytes, modified at"):
        [chunk.to_record_batch() for chunk in drives.segment_store("a")]


def lost(*pattern: str) -> Callable[[Path], Path]:
    def lose(root: Path) -> Path:
        path = next(root.glob("/".join(pattern)))
        path.unlink()
        return path

    return lose


def flipped(*pattern: str) -> Callable[[Path], Path]:
    def flip(root: Path) -> Path:
        path = sorted(root.glob("/".join(pattern)))[0]
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        return path

    return flip


@pytest.mark.parametrize(
    "damage",
    [
        *(lost(name, "*") for name in ("tables", "schemas", "manifests", "shards")),
        *(flipped(name, "*") for name in ("versions", "tables", "schemas", "manifests")),
    ],
)
@pytest.mark.heavy
def test_damage_of_a_store_is_found(drives: DatasetEntry, damage: Callable[[Path], Path]) -> None:
    path = damage(store_of(drives))
    faults = drives.catalog.check()
    assert faults and {fault.dataset for fault in faults} == {"drives"}
    assert {fault.error.path for fault in faults} == {str(path)}


def test_damage_of_the_catalog_is_found(drives: DatasetEntry, tmp_path: Path) -> None:
    path = flipped("catalog", "versions", "*1.json")(tmp_path / "lake")
    (fault,) = drives.catalog.check()
    assert (fault.dataset, fault.error.path) == (None, str(path))
    flipped("catalog", "versions", "*2.json")(tmp_path / "lake")
    with pytest.raises(ReadError, match=r"00000002\.json"):
        drives.catalog.check()
