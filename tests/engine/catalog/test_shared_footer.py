"""Files with many recordings: their footer is parsed once, not once for each recording."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunk_making import made
from chunkmill import CatalogClient, RrdReader
from chunkmill.engine.rrd import RrdFile, RrdWriter, StoreEntry, footer
from chunkmill.readers import detect_format

COUNT = 300
IDS = [f"r{number:03}" for number in range(COUNT)]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    path = tmp_path / "many.rrd"
    write(path, IDS)
    return path


def write(path: Path, ids: list[str]) -> None:
    with RrdWriter(path) as writer:
        for name in ids:
            store = StoreEntry("recording", "many", name)
            writer.begin_store(store)
            writer.append(store, made(range(3)))
        writer.finish()


@pytest.fixture
def manifests(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One item for each manifest that is parsed in this process."""
    parsed: list[None] = []
    parse = footer.parse_manifest

    def counted(sealed: footer.SealedManifest) -> footer.Manifest:
        parsed.append(None)
        return parse(sealed)

    monkeypatch.setattr(footer, "parse_manifest", counted)
    return parsed


def test_the_streams_of_a_file_share_its_footer(many: Path, manifests: list[None]) -> None:
    streams = [stream for _, stream in detect_format(many).open(many).stores()]
    assert [len(stream.to_chunks(executor="inline")) for stream in streams] == [1] * COUNT
    assert len(manifests) == COUNT


@pytest.mark.parametrize("copy", [True, False])
def test_registering_parses_the_footer_a_few_times(
    many: Path, manifests: list[None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, copy: bool
) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    dataset = CatalogClient(tmp_path / "catalog").create_dataset("many")
    dataset.register(many, copy=copy).wait()
    assert sorted(dataset.segment_ids()) == IDS
    assert len(manifests) <= 3 * COUNT


def test_a_replaced_file_is_read_anew(many: Path) -> None:
    old = RrdFile(many)
    assert len(old.stores()) == COUNT
    write(many, ["other"])
    assert [store.recording_id for store in RrdReader(many).recordings()] == ["other"]
    assert [store.recording_id for store in old.again().stores()] == ["other"]
