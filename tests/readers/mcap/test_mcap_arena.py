"""Memory that is used again for other messages only when nobody looks at it any more."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.task_context import lasting
from chunkmill.readers.mcap import McapSource, plan, records, section
from chunkmill.readers.mcap.decoders import McapOptions
from chunkmill.readers.mcap.records import take_arena

from tests.readers.mcap.mcap_bytes import channel, chunk_of, mcap, message, schema, written

SIZE = 1000
GROUPS = 12
STRING = b"\0\1\0\0\2\0\0\0a\0"


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    lasting(records._Arenas).memories = []
    yield
    lasting(records._Arenas).memories = []


def address(memory: np.ndarray) -> int:
    return int(memory.__array_interface__["data"][0])


class TestArenas:
    def test_one_that_nobody_has_is_given_again(self) -> None:
        first = take_arena(SIZE)
        place = address(first)
        del first
        assert address(take_arena(SIZE)) == place
        assert len(take_arena(SIZE - 1)) == SIZE - 1

    @pytest.mark.parametrize(
        "hold",
        [
            lambda a: a,
            lambda a: a[3:9],
            lambda a: a[3:90][1:][::2],
            lambda a: a.data,
            lambda a: a[5:50].data[1:3],
            lambda a: a[0:8].view("<u8"),
            lambda a: np.frombuffer(a[8:16].data, "<u4"),
            lambda a: np.ndarray((4,), "<u2", buffer=a.data, strides=(1,)),
            lambda a: np.lib.stride_tricks.sliding_window_view(a[10:50], 4),
            lambda a: pa.py_buffer(a[7:70]),
            lambda a: pa.py_buffer(a.data).slice(5, 6),
            lambda a: pa.array(a[20:30]),
            lambda a: pa.Array.from_buffers(pa.uint8(), 8, [None, pa.py_buffer(a)]).slice(2, 3),
        ],
    )
    def test_one_that_somebody_looks_at_is_not(self, hold: Callable[[np.ndarray], object]) -> None:
        first = take_arena(SIZE)
        first[:] = 1
        place, held = address(first), hold(first)
        del first
        gc.collect()
        others = [take_arena(SIZE) for _ in range(3)]
        for other in others:
            other[:] = 2
        assert place not in map(address, others)
        assert held is not None
        del held, other, others
        assert all(kept.lent() is None for kept in lasting(records._Arenas).memories)

    def test_few_are_kept_and_no_large_ones(self) -> None:
        held = [take_arena(SIZE) for _ in range(5)]
        assert len({address(a) for a in held}) == 5
        assert len(lasting(records._Arenas).memories) == 2
        take_arena(64 * 2**20)
        assert {len(kept.memory) for kept in lasting(records._Arenas).memories} == {SIZE}


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Groups of one chunk with a string and what is none, so that it is shown as it lies in the arena."""
    monkeypatch.setattr(section, "GROUP_BYTES", 60_000)
    chunks = [chunk_of([message(1, 2 * i, STRING), message(1, 2 * i + 1, content(i))]) for i in range(GROUPS)]
    definitions = [schema(1, "std_msgs/msg/String", "ros2msg", b"string data"), channel(1, encoding="cdr", schema_id=1)]
    return written(tmp_path, mcap([*definitions, *chunks], definitions))


def content(i: int) -> bytes:
    return b"\xff" * 8 + bytes([i]) * 40_000


def read(path: Path) -> Iterator[Chunk]:
    """The chunks of messages that are no strings, one a group."""
    source = McapSource(str(path), McapOptions.checked(decoders=["ros2_reflection", "raw"]))
    chunks = (chunk for split in source.splits() for chunk in source.read(split))
    return (chunk for chunk in chunks if "McapMessage:data" in chunk.to_record_batch().schema.names)


def bytes_of(chunk: Chunk) -> bytes:
    (row,) = chunk.to_record_batch().column("McapMessage:data").to_pylist()
    return bytes(row[0])


@pytest.mark.filterwarnings("ignore:.*could not be decoded")
class TestReading:
    def test_chunks_stay_as_they_are_while_later_ones_are_read(self, recording: Path) -> None:
        kept = list(read(recording))
        assert [bytes_of(chunk) for chunk in kept] == [content(i) for i in range(GROUPS)]

    @pytest.mark.parametrize("every", [2, 3, 5])
    def test_also_where_some_are_kept(self, recording: Path, every: int) -> None:
        kept = {i: chunk for i, chunk in enumerate(read(recording)) if i % every == 0}
        assert {i: bytes_of(chunk) for i, chunk in kept.items()} == {i: content(i) for i in range(0, GROUPS, every)}

    def test_and_where_two_recordings_are_read_in_turn(self, recording: Path) -> None:
        for i, (first, second) in enumerate(zip(read(recording), read(recording), strict=True)):
            assert bytes_of(first) == bytes_of(second) == content(i)

    def test_two_arenas_do_for_who_keeps_no_chunk(self, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "SPLIT_BYTES", 100_000)
        places = set()

        def take(size: int) -> np.ndarray:
            taken = take_arena(size)
            places.add(address(taken))
            return taken

        monkeypatch.setattr(section, "take_arena", take)
        assert [bytes_of(chunk) for chunk in read(recording)] == [content(i) for i in range(GROUPS)]
        assert 1 <= len(places) <= 2
