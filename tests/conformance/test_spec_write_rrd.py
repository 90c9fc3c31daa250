"""The table of ``write_rrd`` in the format's specification, on streams and both kinds of store; and what is decoded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import WriteError
from chunkmill.engine.rrd import EncodedPayload, FramedPayload, StoreEntry
from chunkmill.engine.store import ChunkStore, LazyStore
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import RrdReader
from comparison import rerun_chunks, rerun_verify

IDS = {"application_id": "a", "recording_id": "r"}

Writable = LazyChunkStream | ChunkStore | LazyStore


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")


def chunk(path: str, start: int = 0, rows: int = 2) -> Chunk:
    frames = TimeColumn("frame", sequence=range(start, start + rows))
    return Chunk.from_columns(path, [frames], [ComponentColumn("x", pa.array([1.0] * rows, pa.float64()))])


def several() -> list[Chunk]:
    name = Chunk.from_columns("/__properties", [], [ComponentColumn("RecordingInfo:name", ["n"])])
    return [chunk("/b"), name, chunk("/a"), chunk("/b", 2)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    LazyChunkStream.from_iter(several()).write_rrd(tmp_path / "source.rrd", **IDS)
    return tmp_path / "source.rrd"


@pytest.fixture(params=["LazyChunkStream", "ChunkStore", "LazyStore"])
def writable(request: pytest.FixtureRequest, source: Path) -> Writable:
    """Each of the three things that can be written; all hold the chunks of ``source``."""
    reader = RrdReader(source)
    made: dict[str, Callable[[], Writable]] = {
        "LazyChunkStream": reader.stream,
        "ChunkStore": lambda: ChunkStore.from_chunks(reader.stream()),
        "LazyStore": reader.store,
    }
    return made[request.param]()


# --- arguments


def test_ids_are_wanted(writable: Writable, tmp_path: Path) -> None:
    missing = "missing 2 required keyword-only arguments: 'application_id' and 'recording_id'"
    with pytest.raises(TypeError, match=rf"^\w+\.write_rrd\(\) {missing}$"):
        writable.write_rrd(tmp_path / "out.rrd")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes 2 positional arguments but 4 were given"):
        writable.write_rrd(tmp_path / "out.rrd", "a", "r")  # type: ignore[misc]
    for name in IDS:
        with pytest.raises(TypeError, match=f"argument '{name}': 'int' object is not an instance of 'str'"):
            writable.write_rrd(tmp_path / "out.rrd", **{**IDS, name: 5})  # type: ignore[arg-type]
    assert not (tmp_path / "out.rrd").exists()


def test_empty_ids(writable: Writable, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="application id must not be empty"):
        writable.write_rrd(tmp_path / "out.rrd", application_id="", recording_id="r")
    assert not (tmp_path / "out.rrd").exists()
    writable.write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="")
    assert RrdReader(tmp_path / "out.rrd").recordings() == [StoreEntry("recording", "a", "")]


def test_destinations_that_are_refused(writable: Writable, tmp_path: Path) -> None:
    for path, text in (
        (tmp_path / "no" / "out.rrd", r"No such file or directory \(os error 2\)"),
        (tmp_path, "is a folder"),
        ("", "is a folder"),
    ):
        with pytest.raises(WriteError, match=text) as caught:
            writable.write_rrd(path, **IDS)
        assert isinstance(caught.value, RuntimeError)
        assert caught.value.hint


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_that_exists_is_replaced(writable: Writable, kind: Callable[[Path], Any], tmp_path: Path) -> None:
    (tmp_path / "any.name").write_bytes(bytes(100_000))
    writable.write_rrd(kind(tmp_path / "any.name"), **IDS)
    rerun_verify(tmp_path / "any.name")
    assert len(RrdReader(tmp_path / "any.name").store()) == 4


# --- what is written


def test_chunks_are_written_in_the_order_of_the_stream_and_nothing_is_added(tmp_path: Path) -> None:
    chunks = several()[::-1]
    LazyChunkStream.from_iter(chunks).write_rrd(tmp_path / "out.rrd", **IDS)
    (found,) = rerun_chunks(tmp_path / "out.rrd").values()
    assert [c.id for c in found] == [c.id for c in RrdReader(tmp_path / "out.rrd").stream()] == [c.id for c in chunks]


def test_no_properties_are_invented(tmp_path: Path) -> None:
    LazyChunkStream.from_iter([chunk("/a")]).write_rrd(tmp_path / "out.rrd", **IDS)
    assert RrdReader(tmp_path / "out.rrd").store().summary().startswith("/a rows=2")
    assert len(RrdReader(tmp_path / "out.rrd").store()) == 1


def test_an_empty_store_is_a_valid_file_without_stores(tmp_path: Path) -> None:
    """Header, store, end message without a body, footer: 155 bytes, of which the writer's name takes 31 at Rerun's."""
    for i, empty in enumerate((ChunkStore.from_chunks([]), LazyChunkStream.merge(), LazyChunkStream.from_iter([]))):
        path = tmp_path / f"{i}.rrd"
        empty.write_rrd(path, application_id="a", recording_id="b")
        data = path.read_bytes()
        assert len(data) == 155 - len("rerun-sdk-python-chunk-pipeline") + len("chunkmill")
        assert data[-48:-32] == bytes(16)
        assert data[-24:].hex() == bytes(8).hex() + "7136972a" + b"RRF2FOOT\1\0\0\0".hex()
        assert RrdReader(path).recordings() == RrdReader(path).blueprints() == []
        with pytest.raises(ValueError, match="No recording store found in RRD file"):
            RrdReader(path).stream()


def test_chunks_without_rows_are_written_and_streamed_back(tmp_path: Path) -> None:
    empty, one = chunk("/z", rows=0), chunk("/a")
    LazyChunkStream.from_iter([empty, one]).write_rrd(tmp_path / "out.rrd", **IDS)
    rerun_verify(tmp_path / "out.rrd")
    reader = RrdReader(tmp_path / "out.rrd")
    assert len(reader.store()) == 2
    assert "/z rows=0" in reader.store().summary()
    for stream in (reader.stream(), reader.store().stream()):
        assert [(c.id, c.num_rows) for c in stream] == [(empty.id, 0), (one.id, 2)]
        assert [c.id for c in stream.collect()] == [one.id]


def test_chunks_given_twice_are_written_twice_and_collected_once(tmp_path: Path) -> None:
    one = chunk("/a")
    LazyChunkStream.from_iter([one, one]).write_rrd(tmp_path / "out.rrd", **IDS)
    rerun_verify(tmp_path / "out.rrd")
    store = RrdReader(tmp_path / "out.rrd").store()
    assert [c.id for c in store.stream()] == [c.id for c in RrdReader(tmp_path / "out.rrd").stream()] == [one.id] * 2
    line = "/a rows=2 static=False timelines=['frame'] cols=['frame', 'x']"
    assert store.summary() == f"{line}\n{line}"
    assert [c.id for c in store.stream().collect()] == [one.id]


# --- what goes wrong


def test_a_failure_in_the_middle_leaves_what_was_there(source: Path, tmp_path: Path) -> None:
    def fail(c: Chunk) -> Chunk:
        if c.entity_path == "/a":
            raise ZeroDivisionError("division by zero")
        return c

    out = tmp_path / "out.rrd"
    for before in (None, b"before"):
        if before is not None:
            out.write_bytes(before)
        with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
            RrdReader(source).stream().map(fail).write_rrd(out, **IDS)
        assert caught.value.__notes__
        assert (out.read_bytes() if out.exists() else None) == before
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["source.rrd", *(["out.rrd"] if before else [])])


def test_a_source_is_never_written_onto(writable: Writable, source: Path, tmp_path: Path) -> None:
    if isinstance(writable, ChunkStore):
        writable = RrdReader(source).stream().collect()
        writable.write_rrd(source, **IDS)  # its chunks lie elsewhere by now
        assert len(RrdReader(source).store()) == len(writable)
        return
    before = source.read_bytes()
    link = tmp_path / "link.rrd"
    link.symlink_to(source)
    for path in (source, str(source), link):
        with pytest.raises(WriteError, match="is a source of the same pipeline"):
            writable.write_rrd(path, **IDS)
    assert source.read_bytes() == before


# --- what is decoded


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of all payloads that are decoded from here on."""
    found: list[int] = []

    def counting(original: Callable[[Any], pa.RecordBatch]) -> Callable[[Any], pa.RecordBatch]:
        def load(payload: Any) -> pa.RecordBatch:
            found.append(payload.offset)
            return original(payload)

        return load

    for kind in (FramedPayload, EncodedPayload):
        for way in ("load", "load_data"):
            monkeypatch.setattr(kind, way, counting(getattr(kind, way)))
    original = EncodedPayload._stream
    monkeypatch.setattr(EncodedPayload, "_stream", lambda self, data: (found.append(-1), original(self, data))[1])
    return found


Selection = dict[str, Any]


@pytest.mark.parametrize(
    ("selection", "entities"),
    [
        ({"content": "/b/**"}, ["/b", "/b"]),
        ({"content": "/** - /b"}, ["/a"]),
        ({"is_static": True}, ["/__properties"]),
        ({"has_timeline": "frame"}, ["/b", "/a", "/b"]),
        ({"content": "/nothing"}, []),
    ],
)
@pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.UnmatchedWarning")
def test_filters_decode_nothing(selection: Selection, entities: list[str], source: Path, decoded: list[int]) -> None:
    for make in (lambda: RrdReader(source).stream(), lambda: RrdReader(source).store().stream()):
        chunks = make().filter(**selection).to_chunks()
        assert [c.entity_path for c in chunks] == entities
        assert all(c.num_rows and c.id and (c.is_static or c.timeline_names) for c in chunks)
        make().drop(**selection).to_chunks()
        one, two = make().split(**selection)
        assert len(LazyChunkStream.merge(one, two).to_chunks()) == 4
    assert decoded == []
    for c in chunks:
        c.to_record_batch()
    assert len([offset for offset in decoded if offset > 0]) == len(entities)


def test_writing_what_nobody_touched_decodes_nothing(source: Path, tmp_path: Path, decoded: list[int]) -> None:
    for i, stream in enumerate((RrdReader(source).stream(), RrdReader(source).store().stream())):
        stream.write_rrd(tmp_path / f"copy{i}.rrd", **IDS)
    RrdReader(source).store().write_rrd(tmp_path / "store.rrd", **IDS)
    RrdReader(source).stream().filter(content="/b").write_rrd(tmp_path / "filtered.rrd", **IDS)
    RrdReader(source).stream().write_rrd(tmp_path / "shards", shards=True, shard_bytes=1, **IDS)
    assert decoded == []
    first = RrdReader(source).stream().to_chunks()
    for name in ("copy0.rrd", "copy1.rrd", "store.rrd"):
        again = RrdReader(tmp_path / name).stream().to_chunks()
        assert [c.id for c in again] == [c.id for c in first]
    assert len(RrdReader(tmp_path / "filtered.rrd").store()) == 2


def test_a_store_is_described_without_decoding(source: Path, decoded: list[int]) -> None:
    store = RrdReader(source).store()
    assert len(store) == 4
    assert len(store.summary().splitlines()) == 4
    assert len(store.schema().component_columns()) == 3
    assert decoded == []


def test_a_recording_of_the_sdk_is_filtered_and_written_without_decoding(tmp_path: Path, decoded: list[int]) -> None:
    rr = pytest.importorskip("rerun")
    recording = rr.RecordingStream("app", recording_id="rec")
    recording.save(tmp_path / "sdk.rrd")
    for i in range(10):
        recording.set_time("frame", sequence=i)
        recording.log(f"arm/{i % 3}", rr.Scalars(float(i)))
    recording.log("about", rr.TextDocument("hi"), static=True)
    recording.disconnect()
    reader = RrdReader(tmp_path / "sdk.rrd")
    entities = [c.entity_path for c in reader.stream().to_chunks()]
    assert {"/arm/0", "/arm/1", "/arm/2", "/about", "/__properties"} <= set(entities)
    found = reader.stream().filter(content="/arm/**").to_chunks()
    assert [c.entity_path for c in found] == [e for e in entities if e.startswith("/arm/")]
    result = reader.stream().write_rrd(tmp_path / "copy.rrd", **IDS)
    assert result.chunks == len(reader.store()) == len(entities)
    assert decoded == []
