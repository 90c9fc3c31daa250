"""Digests of chunks: in every file that is written, taken along by what is passed on, and compared on the way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine import ChunkStore, LazyChunkStream, OptimizationProfile
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError
from chunkmill.engine.rrd import MessageWriter, RrdFile, StoreEntry
from chunkmill.engine.rrd.manifest_reading import digests_from_bytes
from chunkmill.engine.rrd.manifest_writing import digests_to_bytes
from chunkmill.engine.rrd.payloads import (
    VerifiedPayload,
    digest_rows,
    message_digest,
    verified_after_store,
)
from chunkmill.engine.rrd.verification import Verification, verify_file
from chunkmill.readers import RrdReader
from click.testing import CliRunner
from rrd_bytes import STORE, frames, image, rrd_bytes, scalars, static, undigested, with_footer, write_rrd

CHUNKS = [scalars(), image(2_000_000), static(), scalars("/leg", rows=30_000), image(start=3), scalars("/arm", start=9)]
IDS = {"application_id": "app", "recording_id": "another"}


def digests(path: Path) -> list[bytes | None]:
    """Those in the footers of a file, in their order."""
    file = RrdFile(path)
    return [entry.digest for store in file.stores() for entry in file.entries(store) or ()]


def made_of_bytes(path: Path) -> list[bytes]:
    """Those of the messages that lie in the file."""
    data, file = path.read_bytes(), RrdFile(path)
    entries = [entry for store in file.stores() for entry in file.entries(store) or ()]
    return [message_digest(data[entry.offset : entry.offset + entry.size]) for entry in entries]


def flipped(path: Path, at: int) -> Path:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)
    return path


def same(chunk: Any) -> Any:
    return chunk


WAYS: dict[str, Callable[[Path, str], Any]] = {
    "given": lambda _, executor: LazyChunkStream.from_iter(CHUNKS),
    "mapped": lambda _, executor: LazyChunkStream.from_iter(CHUNKS).map(same),
    "passed": lambda path, executor: RrdReader(path).stream(),
    "passed beside changed": lambda path, executor: LazyChunkStream.merge(
        RrdReader(path).stream().filter(content="/leg").map(same), RrdReader(path).stream().drop(content="/leg")
    ),
    "store of a file": lambda path, executor: RrdReader(path).store().stream(),
    "collected": lambda path, executor: RrdReader(path).stream().collect(executor=executor).stream(),
    "optimised": lambda path, executor: (
        RrdReader(path).stream().collect(executor=executor, optimize=OptimizationProfile.OBJECT_STORE).stream()
    ),
    "in memory": lambda _, executor: ChunkStore.from_chunks(CHUNKS).stream(),
}


@pytest.fixture(params=["inline", "spark"])
def executor(request: pytest.FixtureRequest) -> str:
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


@pytest.mark.parametrize("way", WAYS)
def test_every_file_that_is_written_has_them(way: str, executor: str, tmp_path: Path) -> None:
    source = write_rrd(tmp_path / "source.rrd", CHUNKS)
    target = tmp_path / "target.rrd"
    WAYS[way](source, executor).write_rrd(target, executor=executor, **IDS)
    assert digests(target) == made_of_bytes(target) != []
    assert verify_file(target).checked().digests == len(digests(target))


def test_shards_and_kept_stores_have_them(tmp_path: Path) -> None:
    stream = LazyChunkStream.from_iter(CHUNKS)
    stream.write_rrd(tmp_path / "shards", shards=True, shard_bytes=1_000_000, executor="inline", **IDS)
    stream.collect(into=tmp_path / "kept", executor="inline", **IDS)
    for path in (*(tmp_path / "shards").iterdir(), *(tmp_path / "kept" / "shards").iterdir()):
        assert digests(path) == made_of_bytes(path) != []
    kept = {chunk.payload.digest for chunk in ChunkStore.open(tmp_path / "kept")}  # type: ignore[union-attr]
    assert kept == {d for path in (tmp_path / "kept" / "shards").iterdir() for d in digests(path)}


def test_they_stay_when_the_recording_gets_another_name(tmp_path: Path) -> None:
    source = write_rrd(tmp_path / "source.rrd", CHUNKS)
    RrdReader(source).stream().write_rrd(tmp_path / "target.rrd", executor="inline", **IDS)
    assert RrdFile(tmp_path / "target.rrd").stores() != RrdFile(source).stores()
    assert digests(tmp_path / "target.rrd") == digests(source)


@pytest.mark.parametrize("recording_id", ["rec", "another"])
@pytest.mark.heavy
def test_many_small_messages_among_large_ones(recording_id: str, tmp_path: Path) -> None:
    many = [scalars(f"/{n % 3}", start=n) for n in range(1500)]
    source = write_rrd(tmp_path / "source.rrd", [*many[:700], image(524_000), *many[700:], image(900_000), static()])
    target = tmp_path / "target.rrd"
    stream = RrdReader(source).stream().drop(content="/1")
    stream.write_rrd(target, application_id="app", recording_id=recording_id, executor="inline")
    assert verify_file(target) == Verification(1003, 4003, 1003)
    assert digests(target) == made_of_bytes(target)


def test_a_file_of_chunks_with_and_without(tmp_path: Path) -> None:
    source = tmp_path / "source.rrd"
    source.write_bytes(undigested(rrd_bytes(*CHUNKS)))
    assert digests(source) == [None] * len(CHUNKS)
    mixed = LazyChunkStream.merge(RrdReader(source).stream(), LazyChunkStream.from_iter([static("/more")]))
    mixed.write_rrd(tmp_path / "mixed.rrd", executor="inline", **IDS)
    found = digests(tmp_path / "mixed.rrd")
    assert found[-1] == made_of_bytes(tmp_path / "mixed.rrd")[-1]
    assert {digest for digest in found if digest is not None} <= set(made_of_bytes(tmp_path / "mixed.rrd"))
    assert verify_file(tmp_path / "mixed.rrd").checked().chunks == len(CHUNKS) + 1


@pytest.mark.parametrize("number", range(len(CHUNKS)))
def test_a_changed_byte_is_told_by_whoever_reads_or_copies(number: int, executor: str, tmp_path: Path) -> None:
    source = write_rrd(tmp_path / "source.rrd", CHUNKS)
    entry = (RrdFile(source).entries(STORE) or [])[number]
    flipped(source, entry.offset + entry.size // 2)
    target = tmp_path / "target.rrd"
    runs: list[Callable[[], object]] = [lambda: RrdReader(source).stream().write_rrd(target, executor=executor, **IDS)]
    if executor == "inline":
        runs += [
            lambda: [chunk.data for chunk in RrdReader(source).store()],
            lambda: RrdReader(source).stream().write_rrd(target, application_id="app", recording_id="rec"),
            lambda: RrdReader(source).store().write_rrd(target, **IDS),
            lambda: RrdReader(source).stream().collect(executor="inline"),
            lambda: verify_file(source).checked(),
        ]
    for run in runs:
        with pytest.raises(ReadError, match="its digest differs") as caught:
            run()
        assert (caught.value.path, caught.value.offset) == (str(source), entry.offset)
        assert not target.exists()


@pytest.mark.parametrize("size", [16, 16 * len(CHUNKS) - 1, 16 * len(CHUNKS) + 16])
def test_as_many_as_chunks_or_none(size: int, tmp_path: Path) -> None:
    def change(footer: Any) -> None:
        footer.manifests[0].chunk_digests = bytes(size)

    path = tmp_path / "wrong.rrd"
    path.write_bytes(with_footer(rrd_bytes(*CHUNKS), change))
    with pytest.raises(ReadError, match=f"digests of {len(CHUNKS)} chunks have {size} bytes"):
        RrdReader(path).stream()
    assert len(RrdReader(path, recover=True).stream().to_chunks(executor="inline")) == len(CHUNKS)


def test_nulls_are_zeros_in_a_footer() -> None:
    given = pa.array([b"a" * 16, None, b"b" * 16, None], pa.binary(16))
    assert digests_to_bytes(given) == b"a" * 16 + bytes(16) + b"b" * 16 + bytes(16)
    assert digests_from_bytes(digests_to_bytes(given), 4).equals(given)
    assert digests_from_bytes(digests_to_bytes(given.slice(1, 2)), 2).to_pylist() == [None, b"b" * 16]
    assert digests_to_bytes(given.slice(1, 1)) == b""
    assert digests_from_bytes(b"", 2).null_count == 2


def test_a_message_of_another_form_gets_one_of_its_own(tmp_path: Path) -> None:
    """One with a field more, as a later release may write it, loses that where it is written anew."""
    chunk = scalars()
    (message,) = [payload + b"\xc0\x3e\x01" for kind, payload in frames(rrd_bytes(chunk)) if kind == 2]
    source = tmp_path / "source"
    source.write_bytes(message)
    payload = VerifiedPayload(str(source), 0, len(message), chunk.header.chunk_id, message_digest(message))
    with (tmp_path / "part").open("wb", buffering=0) as out:
        writer = MessageWriter(out, STORE, path="part")
        entry = writer.append(Chunk.lazy(chunk.header, payload))
        writer.flush()
    written = (tmp_path / "part").read_bytes()[entry.offset : entry.offset + entry.size]
    assert entry.digest == message_digest(written) != message_digest(message)


class TestVerify:
    def test_counts(self, tmp_path: Path) -> None:
        path = write_rrd(tmp_path / "a.rrd", [scalars(), static()])
        assert verify_file(path) == Verification(2, 5, 2)
        path.write_bytes(undigested(path.read_bytes()))
        assert verify_file(path) == Verification(2, 5, 0)

    @pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")
    @pytest.mark.heavy
    def test_every_byte_of_a_file(self, tmp_path: Path) -> None:
        """What is not noticed says nothing of chunks: the version of the file, who recorded it, and when."""
        path = write_rrd(tmp_path / "a.rrd", [scalars(rows=1)])
        whole = path.read_bytes()
        said = verify_file(path)
        (entry,) = RrdFile(path).entries(STORE) or []
        for at in (*range(4), *range(8, 12), *range(entry.offset - 16, len(whole))):
            flipped(path, at)
            os.utime(path, ns=(at, at))  # a change within one tick of the clock may go unnoticed by what reads again
            with pytest.raises(ReadError) as caught:
                verify_file(path).checked()
            assert caught.value.path == str(path)
            path.write_bytes(whole)
        for at in (*range(4, 8), *range(12, entry.offset - 16)):
            flipped(path, at)
            with contextlib.suppress(ReadError):
                assert verify_file(path).checked() == said
            path.write_bytes(whole)

    def test_a_store_that_is_not_announced(self, tmp_path: Path) -> None:
        path = tmp_path / "a.rrd"
        whole = rrd_bytes(scalars())
        path.write_bytes(whole.replace(b"rec", b"oth", 1))
        with pytest.raises(ReadError, match="does not announce"):
            verify_file(path).checked()

    def test_the_command(self, tmp_path: Path) -> None:
        whole = write_rrd(tmp_path / "whole.rrd", [scalars()])
        other = write_rrd(tmp_path / "other.rrd", [scalars()])
        (entry,) = RrdFile(other).entries(STORE) or []
        flipped(other, entry.offset + 90)
        (tmp_path / "note.txt").write_text("no recording")
        for arguments, code, told in (
            ([whole], 0, "4 rows in 1 chunk, all digests match"),
            ([tmp_path], 1, "its digest differs"),
            ([tmp_path / "note.txt"], 1, "note.txt"),
        ):
            done = CliRunner().invoke(commands, ["verify", *map(str, arguments)])
            assert (done.exit_code, told in " ".join(done.output.split())) == (code, True), done.output

    @pytest.mark.parametrize("inputs", [1, 2])
    def test_a_conversion_that_brings_damage_along(self, inputs: int, tmp_path: Path) -> None:
        source, target = tmp_path / "in", tmp_path / "out"
        source.mkdir()
        for number in range(inputs):
            path = write_rrd(source / f"{number}.rrd", [scalars()], StoreEntry("recording", "app", f"{number}"))
            path.write_bytes(undigested(path.read_bytes()))
        (entry,) = RrdFile(path).entries(StoreEntry("recording", "app", f"{number}")) or []
        flipped(path, path.read_bytes().index(b"\x20\1\x2a", entry.offset) + 5)  # the first byte that is compressed
        convert = ["convert", str(source), "-o", f"{target}/", "--executor", "inline"]
        done = CliRunner().invoke(commands, [*convert, "--verify"])
        assert done.exit_code == 1, done.output
        assert sorted(p.name for p in target.glob("*.rrd")) == [f"{n}.rrd" for n in range(inputs - 1)]
        assert CliRunner().invoke(commands, convert).exit_code == 0
        assert len(list(target.glob("*.rrd"))) == inputs


def message_and_digest(path: Path) -> tuple[bytes, bytes]:
    """The first message of a file, and the digest that its footer has of it."""
    entry = next(iter(RrdFile(path).entries(STORE) or ()))
    assert entry.digest
    return path.read_bytes()[entry.offset : entry.offset + entry.size], entry.digest


@pytest.mark.parametrize("chunk", [scalars(), image(200_000), static()], ids=["small", "large", "static"])
def test_a_message_that_is_as_written_is_verified_without_being_taken_apart(chunk: Chunk, tmp_path: Path) -> None:
    message, digest = message_and_digest(write_rrd(tmp_path / "source.rrd", [chunk]))
    id_ = chunk.header.chunk_id
    known: dict[str, Any] = {"is_static": chunk.is_static, "digest": digest, "store": STORE}
    rest = verified_after_store(memoryview(message), id_, **known)
    assert rest is not None
    assert message_digest(b"\n\0" + bytes(rest)) == digest
    assert message.endswith(bytes(rest))
    assert verified_after_store(memoryview(message), id_, **{**known, "digest": b"", "store": None}) == rest
    assert verified_after_store(memoryview(message), bytes(16), **known) is None
    assert verified_after_store(memoryview(message), id_, **{**known, "is_static": not chunk.is_static}) is None
    another = StoreEntry("recording", "app", "another")
    assert verified_after_store(memoryview(message), id_, **{**known, "store": another}) is None


def test_no_message_with_a_flipped_bit_passes_for_one_as_written(tmp_path: Path) -> None:
    chunk = scalars()
    message, digest = message_and_digest(write_rrd(tmp_path / "source.rrd", [chunk]))
    id_ = chunk.header.chunk_id
    for at in range(len(message)):
        flipped_one = bytearray(message)
        flipped_one[at] ^= 1 << at % 8
        found = verified_after_store(memoryview(flipped_one), id_, is_static=False, digest=digest, store=STORE)
        assert found is None


def test_sizes_that_cannot_be_are_left_to_who_takes_a_message_apart(tmp_path: Path) -> None:
    chunk = scalars()
    message, _ = message_and_digest(write_rrd(tmp_path / "source.rrd", [chunk]))
    id_ = chunk.header.chunk_id
    rest = verified_after_store(memoryview(message), id_, is_static=False, digest=b"", store=None)
    assert rest is not None
    at = message.index(bytes(rest)) + 3  # behind compression: the number of bytes that it expands to
    end = at + next(n for n, byte in enumerate(message[at:]) if byte < 0x80)
    for expanded in (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"):
        told = memoryview(message[:at] + expanded + message[end + 1 :])
        assert verified_after_store(told, id_, is_static=False, digest=b"", store=None) is None


def test_rows_of_digests_have_zeros_where_there_is_none() -> None:
    digest = bytes(range(16))
    column = pa.array([None, digest, None, digest], pa.binary(16))
    assert digest_rows(column).tobytes() == bytes(16) + digest + bytes(16) + digest
    assert digest_rows(column[1:2]).tobytes() == digest
    assert digest_rows(column[2:3]).tobytes() == bytes(16)
