"""Every split knows how many messages it has to find, where index and statistics agree on it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.readers.mcap import McapSource, McapSplit
from chunkmill.readers.mcap.decoders import McapOptions

from tests.readers.mcap.mcap_bytes import ChunkOf, channel, chunk_of, mcap, message, record, times_of, written

DEFINITIONS = (channel(1, "/a"), channel(2, "/b"))


@pytest.fixture(autouse=True)
def _small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkmill.readers.mcap.plan.SPLIT_BYTES", 300)


def runs_of(*, index: bool = True, crc: bool = True) -> list[ChunkOf]:
    return [chunk_of([message(1 + t % 2, 10 * i + t) for t in range(10)], "", index=index, crc=crc) for i in range(4)]


def recording(runs: list[ChunkOf], messages: int = 40) -> bytes:
    counts = struct.pack("<IHQHQ", 20, 1, messages // 2, 2, messages - messages // 2)
    stats = record(11, struct.pack("<QHIIIIQQ", messages, 0, 2, 0, 0, 4, 0, 39) + counts)
    return mcap([*DEFINITIONS, *runs], [*DEFINITIONS, stats])


def planned(path: Path) -> tuple[McapSource, list[McapSplit]]:
    source = McapSource(str(path), McapOptions.checked(decoders=["raw"]))
    return source, list(source.splits())


def test_the_splits_of_a_file_count_all_of_its_messages(tmp_path: Path) -> None:
    path = written(tmp_path, recording(runs_of()))
    _, splits = planned(path)
    assert [split.messages for split in splits] == [10] * 4
    assert times_of(path) == list(range(40))


def test_a_message_that_is_gone_is_missed(tmp_path: Path) -> None:
    data = bytearray(recording(runs_of(crc=False)))
    path = written(tmp_path, bytes(data))
    source, splits = planned(path)
    at = data.index(message(2, 25))
    data[at] = 0x85  # a private record, which readers have to skip
    path.write_bytes(data)
    assert sum(c.num_rows for c in source.read(splits[1])) == 10
    with (
        pytest.warns(ReadWarning, match="lists 1 missing messages"),
        pytest.raises(ReadError, match="expected 10 messages here, but found 9"),
    ):
        list(source.read(splits[2]))


def test_statistics_that_the_indexes_contradict_are_checked_by_one_reader(tmp_path: Path) -> None:
    path = written(tmp_path, recording(runs_of(), messages=41))
    _, splits = planned(path)
    assert len(splits) == 1
    with pytest.raises(ReadError, match="the summary counts 41 messages, but there are 40"):
        times_of(path)


def test_without_message_indexes_nothing_is_known(tmp_path: Path) -> None:
    path = written(tmp_path, recording(runs_of(index=False)))
    _, splits = planned(path)
    assert [split.messages for split in splits] == [None] * 4
    assert times_of(path) == list(range(40))
