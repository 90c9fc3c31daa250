"""chunkmill verify: every format and stores, whole and damaged in more than one place."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from chunkmill.engine import LazyChunkStream, ReadError, RecordingStore, verify
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.rrd import RrdFile
from chunkmill.engine.rrd.verification import _MOST_FAULTS
from chunkmill.readers import FileSource, Format, register, unregister
from click.testing import CliRunner, Result
from mcap.writer import CompressionType, Writer


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, ["verify", *map(str, arguments)])


def text(result: Result) -> str:
    return " ".join(result.output.split())


def flipped(path: Path, *places: int) -> Path:
    data = bytearray(path.read_bytes())
    for at in places:
        data[at] ^= 4
    path.chmod(0o644)
    path.write_bytes(data)
    return path


def chunks(entity: str, count: int = 3) -> Iterator[Chunk]:
    for at in range(count):
        column = ComponentColumn("value", [[float(i)] for i in range(500)])
        yield Chunk.from_columns(entity, [TimeColumn("tick", sequence=range(at * 500, at * 500 + 500))], [column])


def rrd_of(path: Path, count: int = 3) -> Path:
    stream = LazyChunkStream.from_iter(chunks("/a", count))
    stream.write_rrd(path, application_id="app", recording_id="rec", executor="inline")
    return path


def middles(path: Path) -> list[int]:
    """A byte of each chunk of an RRD."""
    file = RrdFile(path)
    return [e.offset + e.size // 2 for store in file.stores() for e in file.entries(store) or ()]


@pytest.fixture(scope="module")
def recordings(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each format, and a store."""
    folder = tmp_path_factory.mktemp("recordings")
    shutil.copy(data / "demo.mcap", folder)
    shutil.copy(data / "generated" / "pq_base.parquet", folder)
    rrd_of(folder / "made.rrd")
    several = (chunk for entity in "abc" for chunk in chunks(f"/{entity}", 1))
    LazyChunkStream.from_iter(several).collect(into=folder / "store", executor="inline")
    return folder


WHOLE = {
    "demo.mcap": "demo.mcap: 3,523 rows in 16 chunks, all decoded; all checksums match",
    "pq_base.parquet": "all decoded; all checksums match",
    "made.rrd": "made.rrd: 1,500 rows in 3 chunks, all digests match",
    "store": "store: 1,500 rows in 3 chunks, all digests match",
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_whole(name: str, recordings: Path) -> None:
    done = run(recordings / name)
    assert (done.exit_code, WHOLE[name] in text(done)) == (0, True), done.output
    assert not done.stderr
    assert run("-q", recordings / name).output == ""


def test_a_line_for_each_fault_of_an_rrd(tmp_path: Path) -> None:
    path = rrd_of(tmp_path / "a.rrd")
    first, _, last = middles(path)
    flipped(path, first, last)
    found = verify(path)
    assert (found.chunks, found.rows, len(found.faults)) == (1, 500, 2)
    assert [fault.path for fault in found.faults] == [str(path)] * 2
    done = run(path)
    assert done.exit_code == 1
    assert text(done).count("its digest differs") == 2
    with pytest.raises(ReadError, match="its digest differs"):
        found.checked()


def test_a_damaged_footer_does_not_keep_chunks_from_being_read(tmp_path: Path) -> None:
    path = rrd_of(tmp_path / "a.rrd")
    flipped(path, path.stat().st_size - 60)
    found = verify(path)
    assert ("the checksum of the footer" in str(found.faults[0]), found.chunks) == (True, 3)


def test_behind_a_broken_frame_chunks_are_read_by_the_footer(tmp_path: Path) -> None:
    path = rrd_of(tmp_path / "a.rrd")
    store = RrdFile(path).stores()[0]
    second = (RrdFile(path).entries(store) or [])[1]
    flipped(path, second.offset - 16 + 2)
    found = verify(path)
    assert (len(found.faults), found.chunks) == (1, 3)
    assert "unknown message kind" in str(found.faults[0])


@pytest.mark.heavy
def test_many_faults_are_counted(tmp_path: Path) -> None:
    made = (next(chunks("/a", 1)) for _ in range(_MOST_FAULTS + 7))
    path = tmp_path / "a.rrd"
    LazyChunkStream.from_iter(made).write_rrd(path, application_id="a", recording_id="b", executor="inline")
    flipped(path, *middles(path))
    found = verify(path)
    assert (len(found.faults), found.more_faults) == (_MOST_FAULTS, 7)
    assert "and 7 more" in text(run(path))


def mcap_of(path: Path) -> Path:
    """An MCAP of some chunks with CRCs."""
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=4000, compression=CompressionType.NONE)
        writer.start()
        channel = writer.register_channel("/n", "json", 0)
        for at in range(300):
            writer.add_message(channel, at, b'{"value": %d, "more": "%s"}' % (at, b"x" * 100), at)
        writer.finish()
    return path


@pytest.mark.parametrize(
    ("damage", "faults", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:20_000]), 1, "does not end with"),
        (lambda path: flipped(path, 5000, 30_000), 2, "CRC"),
        (lambda path: flipped(path, path.stat().st_size - 40), 1, "CRC"),
    ],
    ids=["cut", "two chunks", "summary"],
)
def test_an_mcap(damage: Callable[[Path], object], faults: int, said: str, tmp_path: Path) -> None:
    path = mcap_of(tmp_path / "a.mcap")
    assert verify(path).faults == ()
    damage(path)
    found = verify(path)
    done = run(path)
    assert (done.exit_code, said in text(done), "--recover" in text(done)) == (1, True, True), done.output
    assert len(found.faults) >= faults
    assert {fault.path for fault in found.faults} == {str(path)}
    assert done.stderr.count("chunkmill: error:") == len(found.faults)


def test_a_page_of_a_parquet_file(data: Path) -> None:
    done = run(data / "generated" / "pq_badpage.parquet")
    assert (done.exit_code, "pq_badpage.parquet" in done.stderr) == (1, True)


def first_shard(store: Path) -> Path:
    return next((store / "shards").iterdir())


STORE_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "chunks": (lambda store: flipped(first_shard(store), *middles(first_shard(store))[1:]), "its digest differs"),
    "footer of a shard": (
        lambda store: flipped(first_shard(store), first_shard(store).stat().st_size - 60),
        "the checksum of the footer",
    ),
    "lost shard": (lambda store: first_shard(store).unlink(), "a shard of the store is missing"),
    "manifest": (lambda store: flipped(next((store / "manifests").iterdir()), 300), "the manifest of recording"),
    "lost manifest": (lambda store: next((store / "manifests").iterdir()).unlink(), "manifest"),
    "table": (lambda store: flipped(next((store / "tables").iterdir()), 300), "a table of recordings cannot be read"),
    "lost table": (lambda store: next((store / "tables").iterdir()).unlink(), "a table of recordings cannot be read"),
    "version": (lambda store: flipped(next((store / "versions").iterdir()), 30), "this version cannot be read"),
}


@pytest.mark.parametrize("kind", STORE_DAMAGE)
def test_a_damaged_store(kind: str, recordings: Path, tmp_path: Path) -> None:
    damage, said = STORE_DAMAGE[kind]
    store = tmp_path / "store"
    shutil.copytree(recordings / "store", store)
    damage(store)
    done = run(store)
    assert (done.exit_code, said in text(done)) == (1, True), done.output
    assert "Unexpected error" not in done.output
    assert len(verify(store).faults) == (2 if kind == "chunks" else 1)


def test_a_store_of_many_recordings(recordings: Path, data: Path, tmp_path: Path) -> None:
    landing, store = tmp_path / "landing", tmp_path / "store"
    landing.mkdir()
    shutil.copy(data / "demo.mcap", landing)
    rrd_of(landing / "made.rrd")
    done = CliRunner().invoke(
        commands, ["ingest", str(landing), "--into", str(store), "--once", "--settle", "0s", "-q"]
    )
    assert done.exit_code == 0, done.output
    found = verify(store)
    assert (found.faults, found.rows) == ((), sum(entry.rows for entry in RecordingStore.open(store)))
    assert found.chunks == found.digests


def test_a_folder_and_its_total(recordings: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("demo.mcap", "pq_base.parquet"):
        shutil.copy(recordings / name, folder)
    flipped(rrd_of(folder / "bad.rrd"), *middles(folder / "bad.rrd")[:2])
    done = run(folder)
    assert done.exit_code == 1
    assert re.search(r"3 verified, 1 with faults \(2 in all\): [\d,]+ rows in [\d,]+ chunks", text(done))
    (folder / "bad.rrd").unlink()
    assert "2 verified, no faults" in text(run(folder))


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [("missing.rrd", 1, "no such file"), ("note.txt", 1, "neither an MCAP nor"), ("empty", 1, "contains no recording")],
)
def test_what_is_no_recording(name: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a note")
    (tmp_path / "empty").mkdir()
    done = run(tmp_path / name)
    assert (done.exit_code, said in text(done)) == (code, True), done.output


@dataclass(frozen=True)
class Lines(FileSource):
    """A number a line."""

    def read(self, split):  # type: ignore[no-untyped-def]
        for line in self.path.read_text().splitlines():
            if not line.isdigit():
                raise ReadError("a line is no number", path=str(self.path))
            yield Chunk.from_columns("/n", [TimeColumn("t", sequence=[int(line)])], [ComponentColumn("v", [[1.0]])])


def test_a_format_of_ones_own(tmp_path: Path) -> None:
    register(Format("lines", "a file of lines", Lines, suffixes=(".lines",)))
    try:
        (tmp_path / "a.lines").write_text("1\n2\n")
        assert "2 rows in 2 chunks, all decoded" in text(run(tmp_path / "a.lines"))
        (tmp_path / "a.lines").write_text("1\nx\n")
        done = run(tmp_path / "a.lines")
        assert (done.exit_code, "a line is no number" in text(done)) == (1, True)
    finally:
        unregister("lines")


def test_what_cannot_be_decoded_is_warned_of(data: Path) -> None:
    done = run(data / "mcap" / "pj-mcap-server__test_unsupported_encoding.mcap")
    assert (done.exit_code, "warning" in done.stderr) == (0, bool(done.stderr))


_ALONE = """
import sys, atexit, resource
sys.argv = ["chunkmill", "verify", "-q", {path!r}]
seen = {{'pandas', 'lance', 'asyncio', 'chunkmill.engine.catalog.client', 'chunkmill.engine.optimisation.collect'}}
atexit.register(lambda: print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt, *sorted(seen & sys.modules.keys())))
from chunkmill.engine.cli import main; main()
"""


def test_a_file_is_verified_without_catalogs_and_in_memory_that_is_used_again(tmp_path: Path) -> None:
    images = [[[bytes([at % 256]) * 1_000_000]] for at in range(300)]
    stream = LazyChunkStream.from_iter(
        Chunk.from_columns("/a", [], [ComponentColumn("blob", image)]) for image in images
    )
    stream.write_rrd(tmp_path / "a.rrd", application_id="app", recording_id="rec", executor="inline")
    code = _ALONE.format(path=str(tmp_path / "a.rrd"))
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    faults, *loaded = done.stdout.split()
    assert loaded == []
    if "glibc" in platform.libc_ver():
        assert int(faults) < 60_000, "each chunk has 244 pages"
