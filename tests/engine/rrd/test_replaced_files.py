"""Chunks that are held by place: what becomes of them when another file gets the name, or none has it any more."""

from __future__ import annotations

import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import ReadError, SourceMissingError
from chunkmill.engine.rrd import RrdFile
from chunkmill.engine.rrd.messages import STREAM_FOOTER_SIZE, parse_stream_footer, stream_footer
from chunkmill.engine.rrd.payloads import message_digest
from chunkmill.engine.storage import positional
from chunkmill.engine.storage.positional import GROWING, PositionalFile
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import RrdReader

FIRST, SECOND = 1.2345678901234567, 2.3456789012345678
REPLACED = "was replaced since it was opened"


def write(path: Path, value: float, chunks: int = 3) -> Path:
    """The same layout for every value, byte for byte but for the values and ids."""
    given = [
        Chunk.from_columns(f"/{n}", [TimeColumn("frame", sequence=[n])], [ComponentColumn("x", [value])])
        for n in range(chunks)
    ]
    LazyChunkStream.from_iter(given).write_rrd(path, application_id="a", recording_id="r", executor="inline")
    return path


def edited(path: Path, into: Path) -> Path:
    """A copy with other values and digests, the same otherwise: layout, size and all ids."""
    data = path.read_bytes()
    old, new = (struct.pack("<d", value) for value in (FIRST, SECOND))
    assert data.count(old) == 3
    data = data.replace(old, new)
    file = RrdFile(path)
    for entry in file.entries(file.stores()[0]) or ():
        assert entry.digest is not None
        data = data.replace(entry.digest, message_digest(data[entry.offset : entry.offset + entry.size]))
    footer = parse_stream_footer(data[-STREAM_FOOTER_SIZE:])
    assert footer is not None
    payload = data[footer.start : footer.start + footer.length]
    into.write_bytes(data[:-STREAM_FOOTER_SIZE] + stream_footer(footer.start, payload))
    return into


def values(chunks: Iterable[Chunk]) -> list[float]:
    return [v for c in chunks for (v,) in c.to_record_batch().column("x").to_pylist()]


def listed(path: Path) -> list[Chunk]:
    return RrdReader(path).stream().to_chunks(executor="inline")


def iterated(path: Path) -> Any:
    return iter(RrdReader(path).stream())


def stored(path: Path) -> Any:
    return RrdReader(path).store()


def by_rename(path: Path, other: Path) -> None:
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)


def by_removal(path: Path, other: Path) -> None:
    other.unlink()
    path.unlink()


def in_place(path: Path, other: Path) -> None:
    shutil.copyfile(other, path)
    later = path.stat().st_mtime_ns + 1_000_000
    os.utime(path, ns=(later, later))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "a.rrd", FIRST)


@pytest.mark.parametrize("get", [listed, iterated, stored])
@pytest.mark.parametrize("change", [by_rename, by_removal])
def test_what_is_open_stays_open(
    get: Callable[[Path], Any], change: Callable[[Path, Path], None], source: Path, tmp_path: Path
) -> None:
    chunks = get(source)
    change(source, edited(source, tmp_path / "b"))
    chunks = list(chunks)
    LazyChunkStream.from_iter(chunks).write_rrd(tmp_path / "c.rrd", application_id="a", recording_id="r")
    assert values(chunks) == values(listed(tmp_path / "c.rrd")) == [FIRST] * 3
    if source.exists():
        assert values(listed(source)) == [SECOND] * 3


@pytest.mark.parametrize("get", [listed, iterated, stored])
@pytest.mark.parametrize("use", [values, lambda chunks: LazyChunkStream.from_iter(chunks).collect(executor="inline")])
def test_a_file_that_is_written_over_is_told(
    get: Callable[[Path], Any], use: Callable[[Any], Any], source: Path, tmp_path: Path
) -> None:
    chunks = get(source)
    in_place(source, edited(source, tmp_path / "b"))
    with pytest.raises(ReadError, match=REPLACED) as caught:
        use(list(chunks))
    assert caught.value.path == str(source)


@pytest.mark.parametrize("change", [by_rename, in_place])
def test_other_processes_tell_it(
    change: Callable[[Path, Path], None], source: Path, tmp_path: Path, spark: object
) -> None:
    store = RrdReader(source).store()
    chunks = pickle.loads(pickle.dumps(list(store)))
    assert values(chunks) == [FIRST] * 3
    chunks = pickle.loads(pickle.dumps(list(store)))
    change(source, edited(source, tmp_path / "b"))
    with pytest.raises(ReadError, match=REPLACED):
        values(chunks)
    stream = store.stream().map(lambda c: c)
    with pytest.raises(ReadError, match=REPLACED):
        stream.write_rrd(tmp_path / "c.rrd", application_id="a", recording_id="r", executor="spark")
    assert not (tmp_path / "c.rrd").exists()


def test_files_beyond_those_that_stay_open(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positional, "_MOST_HELD", 0)
    chunks, store = listed(source), RrdReader(source).store()
    assert values(store) == [FIRST] * 3
    by_rename(source, edited(source, tmp_path / "b"))
    with pytest.raises(ReadError, match=REPLACED):
        values(chunks)
    source.unlink()
    with pytest.raises(SourceMissingError):
        values(chunks)


def test_a_file_is_open_once_and_as_long_as_its_chunks(source: Path) -> None:
    def count() -> int:
        return sum(fd.is_symlink() and fd.readlink() == source for fd in Path("/proc/self/fd").iterdir())

    before = count()
    chunks = [RrdReader(source).store() for _ in range(5)] + [listed(source)]
    assert values(chunks[0]) == [FIRST] * 3
    assert count() == before + 1
    del chunks
    assert count() == before


def test_versions(source: Path) -> None:
    with PositionalFile(str(source)) as file:
        version = str(file.version)
        for fine in (None, "", version, version + GROWING):
            file.check(fine)
        size, time, inode = version.split("-")
        for wrong in (
            f"{size}-{int(time) - 1}-{inode}",
            f"{size}-{time}-1",
            f"{int(size) + 1}-{time}-{inode}{GROWING}",
        ):
            with pytest.raises(ReadError, match=REPLACED):
                file.check(wrong)
        file.check(f"{int(size) - 1}-{int(time) - 1}-{inode}{GROWING}")
        with pytest.raises(ReadError, match=REPLACED):
            file.check(f"{int(size) - 1}-{int(time) - 1}-{inode}")


def test_inodes_that_do_not_last_are_not_compared(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PositionalFile(str(source)) as file:
        size, time, _ = str(file.version).split("-")
        monkeypatch.setattr("chunkmill.engine.storage.positional._inodes_last", lambda device: False)
        file.check(f"{size}-{time}-1")


@pytest.mark.filterwarnings("ignore:.*no end message")
def test_a_recording_without_footer_may_grow(source: Path, tmp_path: Path) -> None:
    ends = [e.offset + e.size for e in RrdFile(source).entries(RrdReader(source).recordings()[0]) or []]
    whole, growing = source.read_bytes(), tmp_path / "growing.rrd"
    growing.write_bytes(whole[: ends[1]])
    chunks = listed(growing)
    waiting = pickle.loads(pickle.dumps(RrdReader(growing).stream().to_chunks(executor="inline")))
    with growing.open("ab") as file:
        file.write(whole[ends[1] : ends[2]])
    assert values(chunks) == values(waiting) == [FIRST] * 2
    assert values(listed(growing)) == [FIRST] * 3
