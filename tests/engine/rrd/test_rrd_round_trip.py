"""What is written is what is read: values, ids, order, stores, parts, splits."""

from __future__ import annotations

import errno
import io
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.errors import NoSpaceError, UsageError, WriteError
from chunkmill.engine.rrd import ChunkEntry, MessageWriter, RrdFile, RrdWriter, StoreEntry
from file_limits import largest_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rrd_bytes import STORE, content, image, rrd_bytes, scalars, static, without_footer, write_rrd

BLUEPRINT = StoreEntry("blueprint", "app", "rec")


def read(path: Path, store: StoreEntry = STORE) -> list[object]:
    return [content(c) for c in RrdFile(path).chunks(store)]


# --- any chunk

VALUES = {
    pa.float64(): st.floats(allow_nan=False),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.list_(pa.uint8()): st.lists(st.integers(0, 255), max_size=4),
    pa.list_(pa.float32(), 2): st.lists(st.integers(-9, 9).map(float), min_size=2, max_size=2),
    pa.struct([("a", pa.int32()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.integers(-9, 9), "b": st.none() | st.text(max_size=3)}
    ),
}
INDEXES = st.sampled_from([pa.int64(), pa.timestamp("ns"), pa.duration("ns")])
NAMES = st.text(min_size=1, max_size=6)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    rows = draw(st.integers(0, 5))
    kinds = {"t": pa.int64(), "u": pa.timestamp("ns"), "v w": pa.duration("ns")}
    names = draw(st.lists(st.sampled_from(sorted(kinds)), unique=True))
    times = {n: pa.array(draw(st.lists(INT64, min_size=rows, max_size=rows)), kinds[n]) for n in names}
    components = []
    for component in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        datatype = draw(st.sampled_from(list(VALUES)))
        row = st.none() | st.lists(VALUES[datatype], max_size=3)
        values = pa.array(draw(st.lists(row, min_size=rows, max_size=rows)), pa.list_(datatype))
        archetype = draw(st.none() | st.sampled_from(["rerun.archetypes.A", "my.B"]))
        components.append((ComponentDescriptor(component, archetype, draw(st.none() | NAMES)), values))
    return Chunk.build("/" + draw(NAMES), times, components)


INT64 = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(chunks(), max_size=4))
def test_write_and_read_is_the_identity(tmp_path_factory: pytest.TempPathFactory, given_chunks: list[Chunk]) -> None:
    path = tmp_path_factory.mktemp("identity") / "a.rrd"
    path.write_bytes(rrd_bytes(*given_chunks))
    if not given_chunks:
        assert RrdFile(path).stores() == []
        return
    wanted = [content(c) for c in given_chunks]
    assert read(path) == wanted
    for lazy, chunk in zip(RrdFile(path).chunks(STORE), given_chunks, strict=True):
        found, known = lazy.header, chunk.header
        assert (found.entity_path, found.num_rows, found.is_static) == (
            known.entity_path,
            known.num_rows,
            known.is_static,
        )
        assert found.timelines == known.timelines
    path.write_bytes(without_footer(path.read_bytes()))
    assert read(path) == wanted


# --- several stores


def test_stores_interleave(tmp_path: Path) -> None:
    other = StoreEntry("recording", "aaa", "zzz")
    given_chunks = {STORE: [scalars(), static()], BLUEPRINT: [static("/view")], other: [scalars("/x"), scalars("/y")]}
    path = tmp_path / "a.rrd"
    with RrdWriter(path) as writer:
        for store in given_chunks:
            writer.begin_store(store)
            writer.begin_store(store)
        for i in range(2):
            for store, found in given_chunks.items():
                if i < len(found):
                    writer.append(store, found[i])
        writer.finish()
    for data in (path.read_bytes(), without_footer(path.read_bytes())):
        path.write_bytes(data)
        assert RrdFile(path).stores() == [other, STORE, BLUEPRINT]
        for store, found in given_chunks.items():
            assert read(path, store) == [content(c) for c in found]


def test_a_store_that_was_not_begun() -> None:
    with pytest.raises(UsageError, match="was not announced"):
        RrdWriter(io.BytesIO()).append(STORE, scalars())


def test_an_empty_application_id() -> None:
    with pytest.raises(WriteError, match="application id must not be empty"):
        RrdWriter(io.BytesIO()).begin_store(StoreEntry("recording", "", "b"))


def test_store_entries_are_values() -> None:
    entry = StoreEntry("recording", "a", "b")
    assert repr(entry) == "StoreEntry(kind='recording', application_id='a', recording_id='b')"
    assert entry == pickle.loads(pickle.dumps(entry))
    assert StoreEntry("blueprint", "a", 'q"').text == 'StoreId(Blueprint, "a", "q\\"")'
    with pytest.raises(ValueError, match="kind"):
        StoreEntry("segment", "a", "b")


# --- parts


def write_part(path: Path, found: list[Chunk], prefix: bytes = b"") -> list[ChunkEntry]:
    with path.open("wb", buffering=0) as file:
        file.write(prefix)
        writer = MessageWriter(file, STORE, path=str(path))
        entries = [writer.append(c) for c in found]
        writer.flush()
        assert file.tell() == len(prefix) + entries[-1].offset + entries[-1].size
    return entries


def test_parts_are_stitched(tmp_path: Path) -> None:
    first, second = [scalars(), image(), static()], [image(start=7), scalars(start=50)]
    entries = write_part(tmp_path / "1.part", first), write_part(tmp_path / "2.part", second)
    with RrdWriter(tmp_path / "a.rrd") as writer:
        writer.begin_store(STORE)
        writer.append(STORE, scalars("/own"))
        writer.append_part(STORE, tmp_path / "1.part", entries[0])
        writer.append_part(STORE, tmp_path / "2.part", entries[1])
        writer.finish()
    wanted = [*map(content, first), *map(content, second)]
    assert read(tmp_path / "a.rrd")[1:] == wanted
    (tmp_path / "a.rrd").write_bytes(without_footer((tmp_path / "a.rrd").read_bytes()))
    assert read(tmp_path / "a.rrd")[1:] == wanted


def test_a_range_of_a_part(tmp_path: Path) -> None:
    found = [scalars(), image(), static()]
    entries = write_part(tmp_path / "1.part", found)
    start, stop = entries[1].offset - 16, entries[1].offset + entries[1].size
    with RrdWriter(tmp_path / "a.rrd") as writer:
        writer.begin_store(STORE)
        writer.append_part(STORE, tmp_path / "1.part", entries[1:2], start, stop - start)
        writer.finish()
    assert read(tmp_path / "a.rrd") == [content(found[1])]


# --- splits


def test_splits_cover_the_file_in_order(tmp_path: Path) -> None:
    found = [image(start=i) for i in range(7)]
    file = RrdFile(write_rrd(tmp_path / "a.rrd", found))
    table = file.listing(STORE)
    assert table is not None
    runs = table.runs(1_000_000)
    assert [len(r) for r in runs] == [2, 2, 2, 1]
    again = pickle.loads(pickle.dumps((file, runs)))
    assert [content(c) for run in again[1] for c in again[0].chunks(STORE, run.entries())] == [
        content(c) for c in found
    ]
    assert file.entries(STORE) == [e for run in runs for e in run.entries()]


def test_without_a_footer_there_are_no_splits(tmp_path: Path) -> None:
    (tmp_path / "a.rrd").write_bytes(without_footer(rrd_bytes(scalars())))
    file = RrdFile(tmp_path / "a.rrd")
    assert file.listing(STORE) is None
    assert file.entries(STORE) is None


# --- failures of the destination


@pytest.mark.parametrize("size", [0, 100, 300_000, 900_000])
def test_no_space(tmp_path: Path, size: int) -> None:
    source = RrdFile(write_rrd(tmp_path / "a.rrd", [image(), image(start=1), image(start=2)]))
    with largest_file(size), pytest.raises(NoSpaceError) as caught:
        write_rrd(tmp_path / "b.rrd", list(source.chunks(STORE)))
    assert caught.value.path == str(tmp_path / "b.rrd")
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.EFBIG


def test_a_destination_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No such file"):
        RrdWriter(tmp_path / "none" / "a.rrd")
    with pytest.raises(WriteError, match="directory"):
        RrdWriter(tmp_path)


def test_a_closed_destination(tmp_path: Path) -> None:
    with (tmp_path / "full").open("wb", buffering=0) as file:
        writer = RrdWriter(file, path="there.rrd")
        writer.begin_store(STORE)
        import os

        null = os.open("/dev/full", os.O_WRONLY)
        os.dup2(null, file.fileno())
        os.close(null)
        with pytest.raises(NoSpaceError, match=r"there\.rrd"):
            writer.finish()


def test_a_component_without_a_name_is_read_back(tmp_path: Path) -> None:
    """A footer would have two columns of one name, so there is none."""
    path, values = tmp_path / "a.rrd", pa.array([[1], [2]], pa.list_(pa.int64()))
    given_chunks = [Chunk.build("/a", {"t": pa.array([1, 2])}, [(ComponentDescriptor(""), values)]), scalars()]
    path.write_bytes(rrd_bytes(*given_chunks))
    assert not RrdFile(path).has_footer
    assert read(path) == [content(c) for c in given_chunks]
