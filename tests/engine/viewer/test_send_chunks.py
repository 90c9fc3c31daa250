"""Chunks in a live recording, as Rerun reads them afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import UsageError
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.engine.viewer import send_chunks
from chunkmill.readers import McapReader, RrdReader
from comparison import cells, rerun_chunks

rr = pytest.importorskip("rerun")


def chunk(entity: str) -> Chunk:
    return Chunk.from_columns(entity, [TimeColumn("frame", sequence=[3, 1])], [ComponentColumn("volume", [1.0, 2.0])])


class Saved:
    """A recording that is saved, and what Rerun finds in it when it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stream = rr.RecordingStream("app", recording_id="live", send_properties=False)
        self.stream.save(path)

    def chunks(self) -> list[Chunk]:
        self.stream.disconnect()
        return rerun_chunks(self.path)["recording app live"]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return Saved(tmp_path / "live.rrd")


def test_a_recording_arrives_as_it_was_read(saved: Saved, data: Path) -> None:
    stream = McapReader(data / "mcap" / "rosbag2__cdr_test_0.mcap").stream()
    wanted = stream.to_chunks(executor="inline")
    send_chunks(wanted, recording=saved.stream)
    found = saved.chunks()
    assert [c.id for c in found] == [c.id for c in wanted]
    assert cells(found) == cells(wanted)
    assert [c.data.row_ids.to_pylist() for c in found] == [c.data.row_ids.to_pylist() for c in wanted]


def test_everything_that_holds_chunks_can_be_sent(saved: Saved, tmp_path: Path) -> None:
    path = tmp_path / "source.rrd"
    LazyChunkStream.from_iter([chunk("/stored")]).write_rrd(
        path, application_id="other", recording_id="id", executor="inline"
    )
    for sent in (
        chunk("/one"),
        (c for c in [chunk("/iterated")]),
        LazyChunkStream.from_iter([chunk("/streamed")]).map(lambda c: c),
        LazyChunkStream.from_iter([chunk("/collected")]).collect(executor="inline"),
        RrdReader(path).store(),
        [],
    ):
        send_chunks(sent, recording=saved.stream)
    assert [c.entity_path for c in saved.chunks()] == ["/one", "/iterated", "/streamed", "/collected", "/stored"]


def test_odd_chunks_arrive(saved: Saved) -> None:
    odd = [
        Chunk.build("/only times", {"frame": pa.array([1, 2])}, []),
        Chunk.build("/nothing", {}, []),
        Chunk.from_columns("/none", [], [ComponentColumn("v", pa.array([], pa.float64()))]),
        Chunk.from_columns("/nested", [], [ComponentColumn("v", pa.array([{"a": [1, None]}, None]))]),
    ]
    with pytest.warns(UserWarning, match=r"/only\\ times: .* has rows but no component") as caught:
        send_chunks(odd, recording=saved.stream)
    assert len(caught) == 1
    found = {c.id: c for c in saved.chunks()}
    assert cells([found[odd[-1].id]]) == cells([odd[-1]])
    assert not {"/only\\ times", "/nothing"} & {c.entity_path for c in found.values()}


def test_what_is_no_chunk_is_refused(saved: Saved) -> None:
    with pytest.raises(TypeError, match="expects a chunk, a stream, a store or an iterable of chunks, got 'int'"):
        send_chunks(5, recording=saved.stream)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expects Chunk objects in the iterable, got 'str'"):
        send_chunks([chunk("/first"), "second"], recording=saved.stream)  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"expected a rerun.RecordingStream, got 'str'"):
        send_chunks(chunk("/a"), recording="r")
    assert [c.entity_path for c in saved.chunks()] == ["/first"]


def test_errors_of_the_stream_come_through(saved: Saved) -> None:
    def broken() -> Iterator[Chunk]:
        yield chunk("/before")
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        send_chunks(broken(), recording=saved.stream)
    assert [c.entity_path for c in saved.chunks()] == ["/before"]


def test_the_active_recording_is_the_default(saved: Saved) -> None:
    with pytest.raises(UsageError, match="no active recording"):
        send_chunks(chunk("/a"))
    with saved.stream:
        send_chunks(chunk("/a"))
    assert [c.entity_path for c in saved.chunks()] == ["/a"]


@pytest.mark.parametrize("call", ["send_chunks([])", "ViewerClient.connect()", "ViewerClient.spawn()"])
def test_without_rerun_the_extra_is_named(call: str) -> None:
    code = (
        "import sys; sys.modules['rerun'] = None\n"
        "from chunkmill.engine.viewer import ViewerClient, send_chunks\n"
        f"try:\n    {call}\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs rerun-sdk: pip install '.[viewer]' (in the clone" in done.stdout
