"""The part of a file that is being read: the bytes and errors are those of the file, the reads are few."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadError
from chunkmill.readers.mcap import file as file_module
from chunkmill.readers.mcap.file import McapFile, Window

from tests.readers.mcap.mcap_bytes import channel, chunk_of, mcap, message, times_of, written

DATA = random.Random(3).randbytes(300_000)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where the file was read through windows, and how far."""
    places: list[tuple[int, int]] = []
    plain = McapFile.read_some

    def read_some(self: McapFile, offset: int, out: memoryview) -> int:
        places.append((offset, len(out)))
        return plain(self, offset, out)

    monkeypatch.setattr(McapFile, "read_some", read_some)
    return places


@pytest.mark.parametrize("largest", [100, 40_000, 4_000_000])
def test_bytes_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    monkeypatch.setattr(file_module, "_LARGEST", largest)
    chance = random.Random(largest)
    with McapFile(str(written(tmp_path, DATA))) as file:
        view, at = Window(file), 0
        for _ in range(1000):
            size = chance.choice([0, 1, 9, 300, 5000, 70_000])
            at = chance.randrange(len(DATA)) if chance.random() < 0.1 or at > len(DATA) - 10 else at
            size = min(size, len(DATA) - at)
            known = bytes(view.known_at(at))
            assert DATA[at:].startswith(known)
            assert view.at(at, size, what="a test") == DATA[at : at + size]
            at += size


@pytest.mark.parametrize(("at", "size"), [(0, 300_001), (299_999, 2), (300_000, 9), (299_000, 2**40)])
def test_errors_are_those_of_the_file(tmp_path: Path, at: int, size: int) -> None:
    with McapFile(str(written(tmp_path, DATA))) as file:
        with pytest.raises(ReadError) as plain:
            file.read_at(at, size, what="a test")
        with pytest.raises(ReadError) as caught:
            Window(file).at(at, size, what="a test")
    assert str(caught.value) == str(plain.value)
    assert caught.value.offset == plain.value.offset


def test_a_file_that_is_cut_meanwhile(tmp_path: Path) -> None:
    path = written(tmp_path, DATA)
    with McapFile(str(path)) as file:
        path.write_bytes(DATA[:100_000])
        view = Window(file)
        assert view.at(99_900, 100, what="a test") == DATA[99_900:100_000]
        with pytest.raises(ReadError, match="ends inside a test"):
            view.at(99_901, 100, what="a test")


def test_what_cannot_be_read_ahead_does_not_matter(tmp_path: Path) -> None:
    class Broken:
        """A disk that cannot read what lies behind its first thousand bytes."""

        def __init__(self) -> None:
            self.place = 0

        def seek(self, place: int) -> None:
            self.place = place

        def tell(self) -> int:
            return self.place

        def readinto(self, out: memoryview) -> int:
            out[:] = self.read(len(out))
            return len(out)

        def read(self, size: int) -> bytes:
            if self.place + size > 1000:
                raise OSError(5, "Input/output error")
            return DATA[self.place : self.place + size]

        def close(self) -> None:
            pass

    with McapFile(str(written(tmp_path, DATA))) as file:
        file._file.close()
        file._file = Broken()  # type: ignore[assignment]
        view = Window(file)
        assert view.at(10, 990, what="a test") == DATA[10:1000]
        with pytest.raises(ReadError, match="Input/output error") as caught:
            view.at(11, 990, what="a test")
        assert caught.value.offset == 11
        assert caught.value.transient


def test_a_chunk_and_its_indexes_cost_one_read(tmp_path: Path, reads: list[tuple[int, int]]) -> None:
    channels = [channel(i, f"/t{i}") for i in range(1, 9)]
    noise = random.Random(4)
    runs = [chunk_of([message(1 + t % 8, 40 * i + t, noise.randbytes(900)) for t in range(40)]) for i in range(30)]
    path = written(tmp_path, mcap([*channels, *runs], channels))
    assert times_of(path) == list(range(1200))
    assert len(reads) <= 2 + len(runs)
    assert sum(size for _, size in reads) < 2 * path.stat().st_size
