"""Footers that are read together: the same layers as of each file alone, and what is unusual is left to that."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from chunk_making import made
from chunkmill.engine.catalog.layers import FileRequest, FoundLayer, look_at, look_together
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.errors import ReadError
from chunkmill.engine.recordings.summaries import properties_in
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from chunkmill.engine.rrd.footer import Footer, read_footer


def recording(name: str, kind: str = "recording") -> StoreEntry:
    return StoreEntry(kind, "tests", name)


def properties(**values: object) -> Chunk:
    columns = [(ComponentDescriptor(name), pa.array([[value]])) for name, value in values.items()]
    return Chunk.build("/__properties", {}, columns)


def of_dictionary() -> Chunk:
    values = pa.ListArray.from_arrays([0, 1], pa.array(["red"]).dictionary_encode())
    return Chunk.build("/__properties/look", {}, [(ComponentDescriptor("colour"), values)])


def rrd_of(path: Path, stores: dict[StoreEntry, list[Chunk]]) -> Path:
    with RrdWriter(path) as writer:
        for store, chunks in stores.items():
            writer.begin_store(store)
            for chunk in chunks:
                writer.append(store, chunk)
        writer.finish()
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files of one shape, of other shapes, and of none."""
    drives = {
        f"drive-{i}": [made(range(i, 5 + i), "ab"), made(range(i), "a", entity="/b"), properties(robot=str(i), n=i)]
        for i in range(1, 4)
    }
    other = {
        "reversed": list(reversed(drives["drive-2"])),
        "other-type": [made(range(3), "ab", datatype=pa.list_(pa.int16()), value=(1,))],
        "two-timelines": [made(range(3), "ab", timelines=("t", "u")), made(range(3), timelines="u")],
        "told-twice": [properties(robot="old"), properties(robot="new", n=None), properties(place="here")],
        "static": [Chunk.build("/a", {}, [(ComponentDescriptor("a"), pa.array([[1.0]]))]), *drives["drive-1"]],
        "empty-column": [made(range(3), "a", value=()), made(range(3), "b")],
        "dictionary": [properties(kind="car"), of_dictionary()],
        "none": [],
    }
    paths = [rrd_of(tmp_path / f"{name}.rrd", {recording(name): some}) for name, some in {**drives, **other}.items()]
    both = {recording("with-look"): drives["drive-1"], recording("look", "blueprint"): [made(range(2))]}
    twins = {recording("z"): drives["drive-1"], recording("y"): drives["drive-2"]}
    paths += [rrd_of(tmp_path / "both.rrd", both), rrd_of(tmp_path / "twins.rrd", twins)]
    return [*paths, *damaged(tmp_path, paths[1])]


def damaged(folder: Path, path: Path) -> list[Path]:
    """The same file cut, without its footer, and with bytes that are others."""
    data = path.read_bytes()
    found = {
        "cut": data[:-100],
        "no-footer": data[: len(data) - len(data) // 3],
        "empty": b"",
        "text": b"no RRD at all",
    }
    for at in (3, 20, len(data) - 20, len(data) - 200, len(data) - 1000):
        found[f"flipped-{at}"] = data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :]
    paths = []
    for name, content in found.items():
        paths.append(folder / f"{name}.rrd")
        paths[-1].write_bytes(content)
    return [*paths, folder / "missing.rrd"]


def said(layer: FoundLayer) -> tuple[object, ...]:
    """All of a layer, in a form that compares."""
    summary = layer.summary
    entries = (layer.table.entries(), layer.table.part_codes[1])
    return layer.store, layer.identity, summary.schema.serialize(), summary.ranges, summary.properties, entries


@pytest.mark.parametrize("kind", ["recording", "blueprint"])
def test_layers_are_those_of_each_file_alone(files: list[Path], kind: str) -> None:
    requests = [FileRequest(str(path), str(path), "base", path.stem) for path in files]
    together = look_together(requests, kind)
    alone: dict[int, list[FoundLayer]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, request in enumerate(requests):
            try:
                alone[number] = list(look_at(request, kind))
            except (ReadError, OSError):
                continue
    assert {files[number].stem for number in alone.keys() - together.keys()} <= {"cut", "no-footer", "none"}
    assert len(together) >= (12 if kind == "recording" else 1)
    for number, layers in together.items():
        assert list(map(said, layers)) == list(map(said, alone[number])), files[number]
        if files[number].stem == "dictionary":
            (row,) = properties_in(layers[0].summary.properties).to_pylist()
            assert row == {"property:kind": ["car"], "property:look:colour": ["red"]}


def test_a_file_that_changes_meanwhile_is_left_out(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [FileRequest(str(path), str(path), "base", path.stem) for path in files[:3]]

    def changing(file: object) -> Footer | None:
        files[1].touch()
        return read_footer(file)  # type: ignore[arg-type]

    monkeypatch.setattr("chunkmill.engine.rrd.footer.read_footer", changing)
    assert set(look_together(requests, "recording")) == {0, 2}
