"""Files compressed as a whole are read like others, in bounded space."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO, Any

import lz4.frame
import pytest
import zstandard
from chunkmill.engine.errors import NoSpaceError, ReadError, ReadWarning
from chunkmill.readers import McapReader
from chunkmill.readers.mcap import McapSource
from chunkmill.readers.mcap import file as mcap_file

from tests.conftest import DATA
from tests.readers.mcap.mcap_bytes import channel, chunk_of, chunks_of, mcap, message, times_of, written

DATA_OF = {
    "zstd": zstandard.compress,
    "zstd in two frames": lambda raw: zstandard.compress(raw[:100]) + zstandard.compress(raw[100:]),
    "lz4": lz4.frame.compress,
}


def sound() -> bytes:
    return mcap([channel(1), chunk_of([message(1, t) for t in range(5)]), message(1, 5)])


@pytest.mark.parametrize("how", DATA_OF)
@pytest.mark.parametrize("name", ["drive.mcap.zstd", "drive.mcap"])
def test_it_is_read_whatever_its_name(tmp_path: Path, how: str, name: str) -> None:
    path = written(tmp_path, DATA_OF[how](sound()), name)
    assert times_of(path) == list(range(6))
    (split,) = McapSource(str(path)).splits()
    assert split.size == path.stat().st_size


def test_a_recording_is_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, zstandard.compress((DATA / "demo.mcap").read_bytes()))

    def told(file: Path) -> list[tuple[str, int, list[str]]]:
        return [(c.entity_path, c.num_rows, c.timeline_names) for c in McapReader(file).stream().to_chunks()]

    assert told(path) == told(DATA / "demo.mcap")
    info = McapReader(path).info()
    assert info.messages == McapReader(DATA / "demo.mcap").info().messages
    assert info.bytes == path.stat().st_size


def test_nothing_is_left_in_the_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("CHUNKMILL_SCRATCH", str(scratch))
    folders: list[Any] = []
    plain = tempfile.TemporaryFile

    def temporary(dir: Any = None) -> IO[bytes]:  # noqa: A002 (the name of the original's)
        folders.append(dir)
        return plain(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", temporary)
    path = written(tmp_path, zstandard.compress(sound()))
    assert times_of(path) == list(range(6))
    assert folders == [scratch]
    assert list(scratch.iterdir()) == []


def test_planning_decompresses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, zstandard.compress(sound()))
    monkeypatch.setattr(mcap_file, "_read", lambda *_: pytest.fail("decompressed"))
    McapSource(str(path)).splits()


@pytest.mark.parametrize("compress", [zstandard.compress, lz4.frame.compress])
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: Any) -> None:
    monkeypatch.setattr(mcap_file, "FREE_EXPANSION", 10_000)
    path = written(tmp_path, compress(bytes(20_000_000)))
    with pytest.raises(ReadError, match="expands to more than"):
        chunks_of(path)


def test_damage_is_found(tmp_path: Path) -> None:
    data = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(sound()))
    data[-1] ^= 1
    with pytest.raises(ReadError, match="cannot be decompressed beyond"):
        chunks_of(written(tmp_path, bytes(data)))


def test_a_cut_one_can_be_recovered(tmp_path: Path) -> None:
    raw = mcap([channel(1), *[message(1, t, bytes([t]) * 1000) for t in range(200)]])
    pieces = zstandard.ZstdCompressor().compressobj()
    data = b"".join(pieces.compress(raw[i : i + 5000]) + pieces.flush(1) for i in range(0, len(raw), 5000))
    path = written(tmp_path, data[: len(data) // 2])
    with pytest.raises(ReadError, match="does not end with the magic bytes"):
        chunks_of(path)
    with pytest.warns(ReadWarning, match="recovered"):
        chunks = chunks_of(path, recover=True)
    assert 50 < sum(c.num_rows for c in chunks) < 150


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> IO[bytes]:
        return Path("/dev/full").open("wb", buffering=0)  # type: ignore[return-value]

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(NoSpaceError):
        chunks_of(written(tmp_path, zstandard.compress(sound())))
