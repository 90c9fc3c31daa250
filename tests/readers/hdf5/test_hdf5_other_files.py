"""HDF5 files that refer to others: those in the folder of the input are read, and nothing outside of it is opened."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from chunkmill.engine.errors import ChunkmillError, ReadError, ReadWarning, SourceMissingError
from chunkmill.engine.storage.positional import open_inside
from chunkmill.readers import Hdf5Reader
from chunkmill.readers.hdf5.file import Hdf5File
from zlib_ng import zlib_ng

pytestmark = pytest.mark.process

SECRET = np.arange(1000, 1004)


def columns(path: Path, **options: Any) -> dict[str, list[Any]]:
    """The values of each column by entity and name, without structs."""
    chunks = Hdf5Reader(path).stream(use_structs=False, **options).to_chunks(executor="inline")
    return {
        f"{chunk.entity_path.rstrip('/')}/{component.descriptor.component}": [
            row[0] for row in component.values.to_pylist()
        ]
        for chunk in chunks
        for component in chunk.data.components
    }


def source(path: Path, values: Any = SECRET, **storage: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("s", data=values, **storage)
        file["g/back"] = h5py.ExternalLink("episode.hdf5", "/")


def link(file: h5py.File, name: str) -> None:
    file["out"] = h5py.ExternalLink(name, "/s")


def soft_link(file: h5py.File, name: str) -> None:
    file["other"] = h5py.ExternalLink(name, "/")
    file["out"] = h5py.SoftLink("/other/s")


def storage(file: h5py.File, name: str) -> None:
    file.create_dataset("out", (4,), "u1", external=[(name, 0, 4)])


def view(file: h5py.File, name: str, path: str = "s") -> None:
    layout = h5py.VirtualLayout((4,), "i8")
    layout[:] = h5py.VirtualSource(name, path, (4,))
    file.create_virtual_dataset("out", layout)


def view_of_link(file: h5py.File, name: str) -> None:
    file["other"] = h5py.ExternalLink(name, "/s")
    view(file, ".", "other")


def chain(file: h5py.File, name: str) -> None:
    """A link to a file in the folder, where the link out of it is."""
    with h5py.File(Path(file.filename).with_name("between.h5"), "w") as between:
        between["s"] = h5py.ExternalLink(name, "/s")
    file["out"] = h5py.ExternalLink("between.h5", "/s")


WAYS: dict[str, Callable[[h5py.File, str], None]] = {
    "link": link,
    "soft link": soft_link,
    "storage": storage,
    "view": view,
    "view of a link": view_of_link,
    "chain": chain,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "input").mkdir()
    return tmp_path / "input/episode.hdf5"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that this process opens. The one that runs h5py can open none."""
    places: list[str] = []
    real = os.open

    def recorded(*given: Any, **options: Any) -> int:
        descriptor = real(*given, **options)
        places.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        return descriptor

    monkeypatch.setattr(os, "open", recorded)
    return places


def strangers(opened: list[str], path: Path) -> list[str]:
    """Those of opened files that are not in the folder of the input; a process that is started takes /dev/null."""
    return [place for place in opened if not f"{place}/".startswith((f"{path.parent}/", "/dev/null/", "pipe:"))]


def outside(path: Path, name: str) -> str:
    """Make what a name leads to, and return what the file says of it."""
    folder = path.parent
    source(folder.parent / "secret.h5")
    if name == "absolute":
        return str(folder.parent / "secret.h5")
    if name == "link":
        (folder / "link.h5").symlink_to("../secret.h5")
        return "link.h5"
    if name == "folder":
        (folder / "sub").symlink_to("..")
        return "sub/secret.h5"
    if name == "neighbour":
        source(folder.with_name("input2") / "secret.h5")
        return "../input2/secret.h5"
    if name == "pipe":
        os.mkfifo(folder / "pipe")
        return "pipe"
    if name == "unreadable":
        (folder / "sub").mkdir()
        return "sub"
    return {"above": "../secret.h5", "system": "/etc/hostname", "device": "/dev/zero", "missing": "none.h5"}[name]


@pytest.mark.parametrize(
    "name", ["absolute", "above", "link", "folder", "neighbour", "system", "device", "pipe", "unreadable", "missing"]
)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_outside_of_the_folder_is_read(path: Path, way: str, name: str, opened: list[str]) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(4)
        WAYS[way](file, outside(path, name))
        named = set(file)
    opened.clear()
    start = time.monotonic()
    with pytest.raises(ChunkmillError, match="another file") as caught:
        columns(path)
    assert time.monotonic() - start < 10
    assert str(path) in str(caught.value)
    ignored = ["out", "other"] if "other" in named else ["out"]
    assert columns(path, ignore_datasets=ignored) == {"/x": [0, 1, 2, 3]}
    assert strangers(opened, path) == []


@pytest.mark.parametrize("name", ["other.h5", "./sub/../other.h5", "absolute", "link"])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "storage"])
def test_files_in_the_folder_are_read(path: Path, way: str, name: str) -> None:
    source(path.with_name("other.h5"), np.arange(4) * 3)
    (path.parent / "sub").mkdir()
    (path.parent / "link.h5").symlink_to("other.h5")
    with h5py.File(path, "w") as file:
        WAYS[way](file, {"absolute": str(path.with_name("other.h5")), "link": "link.h5"}.get(name, name))
    assert columns(path, ignore_datasets=["other"] if way == "soft link" else ())["/out"] == [0, 3, 6, 9]


@pytest.mark.parametrize(
    "stored",
    [{}, {"chunks": (3,), "compression": "gzip", "shuffle": True}, {"chunks": (2,), "compression": "lzf"}],
)
def test_a_linked_group_is_read_with_all_that_is_in_it(path: Path, stored: dict[str, Any]) -> None:
    other = path.parent / "sub/other.h5"
    source(other, np.arange(9) * 7, **stored)
    with h5py.File(other, "a") as file:
        file["text"] = [f"row {i}" for i in range(9)]
        file["third"] = h5py.ExternalLink("third.h5", "/s")
        file["g"].attrs["rate"] = 5
    source(other.with_name("third.h5"), np.arange(9) * 2)
    with h5py.File(path, "w") as file:
        file["cam"] = h5py.ExternalLink("sub/other.h5", "/")
    with pytest.warns(ReadWarning, match="ignore_datasets:"):
        values = columns(path, ignore_datasets=["cam/g/back", "none"])
    assert values == {
        "/__hdf5_properties/cam/g/rate": [5],
        "/cam/s": [7 * i for i in range(9)],
        "/cam/text": [f"row {i}" for i in range(9)],
        "/cam/third": [2 * i for i in range(9)],
    }


def test_files_that_link_to_each_other_end(path: Path) -> None:
    source(path.with_name("other.h5"), np.arange(4))
    with h5py.File(path, "w") as file:
        file["cam"] = h5py.ExternalLink("other.h5", "/")
    with pytest.warns(ReadWarning, match="/cam/g/back is a link to a surrounding group"):
        assert columns(path) == {"/cam/s": [0, 1, 2, 3]}


def test_external_storage_is_read_segment_by_segment(path: Path) -> None:
    values = np.arange(30, dtype=">f4").reshape(10, 3)
    raw = values.tobytes()
    path.with_name("a.raw").write_bytes(b"head" + raw[:50])
    path.with_name("b.raw").write_bytes(raw[50:])
    segments = [("a.raw", 4, 50), ("b.raw", 0, h5py.h5f.UNLIMITED)]
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (10, 3), ">f4", external=segments)
    assert columns(path) == {"/x": values.tolist()}
    with Hdf5File(str(path)) as opened:
        (dataset,) = opened.tree().datasets
        for start, stop in pairwise(range(11)):
            assert opened.array(dataset, start, stop).to_pylist() == values[start:stop].tolist()
    path.with_name("b.raw").write_bytes(raw[50:-1])
    with pytest.raises(ReadError, match=r"b\.raw: the length of rows 0 to 10 of /x"):
        columns(path)


def blocks() -> Iterator[tuple[tuple[int, ...], list[tuple[Any, Any, tuple[int, ...]]]]]:
    """Shapes of views; of each part its place, that in the source, and the source's shape."""
    yield (12, 3), [(np.s_[4 * i : 4 * i + 4], np.s_[:], (4, 3)) for i in range(3)]
    yield (3, 8, 2), [(np.s_[i], np.s_[:], (8, 2)) for i in range(3)]
    yield (8, 3), [(np.s_[:, i], np.s_[:], (8,)) for i in range(3)]
    yield (12,), [(np.s_[i::3], np.s_[:], (4,)) for i in range(3)]
    yield (6, 6), [(np.s_[3 * i : 3 * i + 3, 3 * j : 3 * j + 3], np.s_[:], (3, 3)) for i in (0, 1) for j in (0, 1)]
    yield (9, 4), [(np.s_[1:5], np.s_[2:10:2], (11, 4)), (np.s_[6:8, 1:3], np.s_[:2, ::2], (5, 4))]
    yield (4, 4), [(np.s_[:], np.s_[:], (16,))]
    yield (10,), [(np.s_[2:8], np.s_[:], (2, 3))]


@pytest.mark.parametrize("number", range(len(list(blocks()))))
def test_views_have_the_values_of_h5py(path: Path, number: int) -> None:
    shape, parts = list(blocks())[number]
    layout = h5py.VirtualLayout(shape, "i8")
    chance = np.random.default_rng(number)
    for i, (place, part, size) in enumerate(parts):
        source(path.with_name(f"{i}.h5"), chance.integers(0, 1000, size), chunks=True, compression="lzf")
        layout[place] = h5py.VirtualSource(f"{i}.h5", "s", size)[part]
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout, fillvalue=-5)
    with h5py.File(path) as file:
        expected = file["x"][:]
    with Hdf5File(str(path)) as opened:
        (dataset,) = opened.tree().datasets
        opened.check([dataset])
        ask = random.Random(number)
        for _ in range(12):
            opened._blocks.clear()
            start, stop = sorted(ask.sample(range(shape[0] + 1), 2))
            values = opened._ask("rows", dataset, start, stop)
            assert np.frombuffer(values, "i8").reshape(-1, *shape[1:]).tolist() == expected[start:stop].tolist()


def test_views_of_text_and_compound_types(path: Path) -> None:
    pairs = np.array([(i, i / 2) for i in range(4)], [("a", "i4"), ("b", "f8")])
    with h5py.File(path.with_name("other.h5"), "w") as file:
        file["text"] = ["a", "bc", "", "é"]
        file["pairs"] = pairs
    with h5py.File(path, "w") as file:
        for name, kind in (("text", h5py.string_dtype()), ("pairs", pairs.dtype)):
            layout = h5py.VirtualLayout((6,), kind)
            layout[1:5] = h5py.VirtualSource("other.h5", name, (4,), kind)
            file.create_virtual_dataset(name, layout)
    empty = {"a": 0, "b": 0.0}
    rows = [{"a": i, "b": i / 2} for i in range(4)]
    assert columns(path) == {"/text": ["", "a", "bc", "", "é", ""], "/pairs": [empty, *rows, empty]}


def test_an_endless_view_of_the_same_file_is_read_and_of_others_is_an_error(path: Path) -> None:
    source(path.with_name("other.h5"), np.arange(4), maxshape=(None,), chunks=(2,))
    for name, why in ((".", None), ("other.h5", "another file of unlimited size")):
        with h5py.File(path, "w") as file:
            file.create_dataset("s", data=np.arange(4), maxshape=(None,), chunks=(2,))
            layout = h5py.VirtualLayout((4,), "i8", maxshape=(None,))
            layout[: h5py.h5s.UNLIMITED] = h5py.VirtualSource(name, "s", (4,), maxshape=(None,))[: h5py.h5s.UNLIMITED]
            file.create_virtual_dataset("out", layout)
        if why is None:
            assert columns(path)["/out"] == [0, 1, 2, 3]
        else:
            with pytest.raises(ReadError, match=why):
                columns(path)


@pytest.mark.parametrize("way", ["link", "view", "storage"])
def test_another_file_that_is_replaced_while_it_is_read_is_an_error(path: Path, way: str) -> None:
    source(path.with_name("other.h5"))
    with h5py.File(path, "w") as file:
        WAYS[way](file, "other.h5")
    stream = Hdf5Reader(path).stream()
    source(path.with_name("third.h5"), SECRET + 1)
    path.with_name("third.h5").replace(path.with_name("other.h5"))
    with pytest.raises(ReadError, match=r"replaced since|another file"):
        list(stream.to_chunks(executor="inline"))


def test_a_file_that_becomes_a_link_between_looking_and_opening_is_not_followed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, inner = path.parent, path.parent / "sub/other.h5"
    source(inner)
    assert open_inside(str(folder), str(inner)).size == inner.stat().st_size
    real = os.path.relpath

    def exchanged(*places: Any) -> str:
        (folder / "sub").rename(folder / "before")
        (folder / "sub").symlink_to(folder.parent)
        return real(*places)

    monkeypatch.setattr(os.path, "relpath", exchanged)
    (folder.parent / "other.h5").write_bytes(b"secret")
    with pytest.raises(SourceMissingError, match=r"cannot be opened|missing"):
        open_inside(str(folder), str(inner))


def circle_of_links(path: Path, file: h5py.File) -> None:
    with h5py.File(path.with_name("other.h5"), "w") as other:
        other["b"] = h5py.ExternalLink(path.name, "/a")
    file["a"] = h5py.ExternalLink("other.h5", "/b")


def view_of_itself(_path: Path, file: h5py.File) -> None:
    view(file, ".", "out")


def view_of_less(path: Path, file: h5py.File) -> None:
    source(path.with_name("other.h5"), np.arange(3))
    view(file, "other.h5")


def view_of_a_group(path: Path, file: h5py.File) -> None:
    source(path.with_name("other.h5"))
    view(file, "other.h5", "g")


def view_of_text(path: Path, file: h5py.File) -> None:
    path.with_name("other.h5").write_text("text")
    view(file, "other.h5")


def link_to_text(path: Path, file: h5py.File) -> None:
    path.with_name("other.h5").write_text("text")
    link(file, "other.h5")


def link_to_nothing(path: Path, file: h5py.File) -> None:
    source(path.with_name("other.h5"))
    file["out"] = h5py.ExternalLink("other.h5", "/none")


def many_files(_path: Path, file: h5py.File) -> None:
    for i in range(300):
        file[f"g/{i}"] = h5py.ExternalLink(f"{i}.h5", "/")


def storage_that_ends(path: Path, file: h5py.File) -> None:
    path.with_name("a.raw").write_bytes(bytes(3))
    storage(file, "a.raw")


def storage_far_behind(path: Path, file: h5py.File) -> None:
    path.with_name("a.raw").write_bytes(bytes(3))
    file.create_dataset("out", (4,), "u1", external=[("a.raw", 1 << 62, 4)])


def stored_chunk(file: h5py.File, data: bytes, **filters: Any) -> None:
    dataset = file.create_dataset("z", (8,), "i4", chunks=(8,), **filters)
    dataset.id.write_direct_chunk((0,), data)


def deflated_garbage(_path: Path, file: h5py.File) -> None:
    stored_chunk(file, b"garbage", compression="gzip", shuffle=True)


def deflated_bomb(_path: Path, file: h5py.File) -> None:
    stored_chunk(file, zlib_ng.compress(bytes(1 << 20)), compression="gzip", shuffle=True)


def deflated_less(_path: Path, file: h5py.File) -> None:
    stored_chunk(file, zlib_ng.compress(bytes(30)), compression="gzip", shuffle=True)


def short_chunk(_path: Path, file: h5py.File) -> None:
    stored_chunk(file, b"short")


def damaged_lzf(_path: Path, file: h5py.File) -> None:
    stored_chunk(file, b"\xff" * 9, compression="lzf")


def deep_groups(_path: Path, file: h5py.File) -> None:
    file.create_group("/".join("g" * 100))


def doubled_groups(_path: Path, file: h5py.File) -> None:
    """Two links to each group: 2 to the power of 30 paths."""
    group = file
    for _ in range(30):
        group["a"] = below = file.create_group(None)
        group["b"] = below
        group = below


def far_more_than_it_holds(_path: Path, file: h5py.File) -> None:
    file.create_dataset("z", (1 << 50,), "u1", chunks=(1 << 20,))


FORGED: list[Callable[[Path, h5py.File], None]] = [
    circle_of_links,
    view_of_itself,
    view_of_less,
    view_of_a_group,
    view_of_text,
    link_to_text,
    link_to_nothing,
    many_files,
    storage_that_ends,
    storage_far_behind,
    deflated_garbage,
    deflated_bomb,
    deflated_less,
    short_chunk,
    damaged_lzf,
    deep_groups,
    doubled_groups,
    far_more_than_it_holds,
]


@pytest.mark.parametrize("make", FORGED, ids=lambda make: make.__name__)
def test_forged_files_are_an_error_with_their_place(
    path: Path, make: Callable[[Path, h5py.File], None], opened: list[str]
) -> None:
    with h5py.File(path, "w") as file:
        make(path, file)
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)
        with pytest.raises(ChunkmillError) as caught:
            columns(path)
    assert time.monotonic() - start < 10
    assert str(path.parent) in str(caught.value)
    assert strangers(opened, path) == []
