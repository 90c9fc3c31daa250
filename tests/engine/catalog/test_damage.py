"""Versions that say what they cannot, and places that cannot be read or written."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.errors import ReadError, UnreachableError, WriteError
from file_limits import largest_file


@pytest.mark.parametrize(
    ("field", "value"),
    [("place", "../../etc"), ("place", 5), ("kind", 9), ("id", "zz"), ("name", None), ("created_ns", "now")],
)
def test_what_a_version_cannot_say_is_an_error_though_its_digest_fits(
    tmp_path: Path, field: str, value: object
) -> None:
    client = CatalogClient(tmp_path)
    client.create_dataset("a")
    log = client._log
    data = log._files.read(1)
    data["entries"][0][field] = value
    log._files.create(2, data)
    with pytest.raises(ReadError, match=r"00000002\.json: this version cannot be read"):
        CatalogClient(tmp_path)


def test_two_entries_of_one_name_are_damage(tmp_path: Path) -> None:
    client = CatalogClient(tmp_path)
    client.create_dataset("a")
    data = client._log._files.read(1)
    data["entries"][1]["name"] = "a"
    client._log._files.create(2, json.loads(json.dumps(data)))
    with pytest.raises(ReadError, match="the same name"):
        client.entries()


def test_places_that_are_no_catalog_cannot_be_reached(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnreachableError, match="Not a directory"):
        CatalogClient(tmp_path / "file")
    (tmp_path / "store" / "versions").mkdir(parents=True)
    (tmp_path / "store" / "versions" / "00000001.json").write_text("{}")
    with pytest.raises(ConnectionError, match="store of recordings, not a catalog"):
        CatalogClient(tmp_path / "store")


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    client = CatalogClient(tmp_path / "lake")
    dataset = client.create_dataset("a")
    with largest_file(100), pytest.raises(WriteError) as caught:
        client.create_dataset("b")
    assert caught.value.path == str(tmp_path / "lake")
    assert CatalogClient(tmp_path / "lake").entries() == [dataset]
    client.create_dataset("b")


def test_without_file_handles_nothing_changes(tmp_path: Path) -> None:
    client = CatalogClient(tmp_path / "lake")
    dataset = client.create_dataset("a")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(ReadError, match="Too many open files") as caught:
            client.create_dataset("b")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.path is not None and caught.value.path.startswith(str(tmp_path))
    assert client.entries() == [dataset]
