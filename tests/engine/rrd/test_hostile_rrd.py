"""What is tolerated and what is refused, input by input; every refusal says where and what to do."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import lz4.block
import lz4.frame
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import ReadError, ReadWarning, SourceMissingError, UnsupportedError, UsageError
from chunkmill.engine.rrd import RrdFile, StoreEntry
from chunkmill.engine.rrd.messages import stream_header
from rrd_bytes import (
    STORE,
    frame,
    frames,
    ipc,
    ipc_schema,
    join,
    rrd_bytes,
    scalars,
    static,
    with_arrow_msg,
    with_footer,
    with_store_info,
    without_footer,
)

NO_END = "no end message"


def save(tmp_path: Path, data: bytes) -> RrdFile:
    path = tmp_path / "x.rrd"
    path.write_bytes(data)
    return RrdFile(path)


def read(file: RrdFile) -> list[Chunk]:
    """Everything in the file, decoded."""
    chunks = [c for s in file.stores() for c in file.chunks(s)]
    for chunk in chunks:
        assert chunk.data.num_rows == chunk.num_rows
    return chunks


def refused(file: RrdFile, words: str, kind: type[ReadError] = ReadError) -> ReadError:
    with pytest.raises(kind, match=words) as caught:
        read(file)
    error = caught.value
    assert error.path == file.path
    assert error.hint
    assert str(error.offset) != "None"
    return error


# --- files


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="No such file"):
        RrdFile(tmp_path / "none.rrd").stores()


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="not a file"):
        RrdFile(tmp_path).stores()


def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReadError, match="not a file"):
        RrdFile(tmp_path / "pipe").stores()


@pytest.mark.parametrize("size", [0, 1, 11])
def test_too_small(tmp_path: Path, size: int) -> None:
    refused(save(tmp_path, stream_header()[:size]), "too small")


def test_header_only_has_no_stores(tmp_path: Path) -> None:
    with pytest.warns(ReadWarning, match=NO_END):
        assert save(tmp_path, stream_header()).stores() == []


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    file = save(tmp_path, rrd_bytes(scalars()))
    with pytest.raises(UsageError, match=r'Store StoreId\(Recording, "a", "b"\) not found in RRD file'):
        list(file.chunks(StoreEntry("recording", "a", "b")))


# --- framing


def messages(*chunks: Chunk) -> list[tuple[int, bytes]]:
    return frames(rrd_bytes(*chunks))[:-1]


def test_unknown_kind(tmp_path: Path) -> None:
    data = join([*messages(scalars()), (4, b"")])
    assert refused(save(tmp_path, data), "unknown message kind 4").offset == len(data) - 16


@pytest.mark.parametrize("cut", [1, 100, 15])
def test_cut_payload(tmp_path: Path, cut: int) -> None:
    data = join(messages(scalars(), scalars()))
    assert refused(save(tmp_path, data[:-cut]), "ends inside a message") is not None


@pytest.mark.parametrize("left", [1, 15])
def test_cut_header(tmp_path: Path, left: int) -> None:
    data = join(messages(scalars()), end=frame(2, b"")[:left])
    assert refused(save(tmp_path, data), "ends inside a message header").offset == len(data) - left


def test_no_end_message_is_read_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(ReadWarning, match=NO_END):
        assert len(read(save(tmp_path, join(messages(scalars(), static()))))) == 2


@pytest.mark.parametrize("length", [10**12, 2**64 - 1, 2**63])
def test_length_beyond_the_file(tmp_path: Path, length: int) -> None:
    refused(save(tmp_path, stream_header() + struct.pack("<QQ", 2, length) + bytes(99)), "ends inside a message")


def test_cut_footer(tmp_path: Path) -> None:
    refused(save(tmp_path, rrd_bytes(scalars())[:-1]), "ends inside its footer")


def test_trailing_bytes_are_passed_over_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(ReadWarning, match="5 bytes after the end"):
        assert len(read(save(tmp_path, rrd_bytes(scalars()) + b"extra"))) == 1


def test_joined_files(tmp_path: Path) -> None:
    data = rrd_bytes(scalars(), static())
    refused(save(tmp_path, data + rrd_bytes(scalars())), "checksum|outside")
    refused(save(tmp_path, without_footer(data) + without_footer(data)), "second stream", UnsupportedError)
    refused(save(tmp_path, join(messages(scalars())) + data[:50]), "second stream", UnsupportedError)


# --- protobuf


@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"\x0a\x7f", b"\x2a\xff\xff\xff\xff\xff\x7f", b"\x0b", b"\x0c"])
@pytest.mark.parametrize("pad", [0, 70_000])
def test_garbage_instead_of_a_message(tmp_path: Path, garbage: bytes, pad: int) -> None:
    store_info = messages()[0]
    data = join([store_info, (2, garbage + b"\x2a\xf0\xa2\x04" + bytes(pad) if pad else garbage)], end=frame(0, b""))
    refused(save(tmp_path, data), "damaged|encoding|required")


def test_endless_fields_are_bounded(tmp_path: Path) -> None:
    refused(save(tmp_path, join([messages()[0], (2, b"\x10\x01" * 100_000)], end=frame(0, b""))), "fields")


def clear(*path: str) -> Callable[[object], None]:
    def change(message: object) -> None:
        for name in path[:-1]:
            message = getattr(message, name)
        message.ClearField(path[-1])  # type: ignore[attr-defined]

    return change


@pytest.mark.parametrize("field", [("row_id",), ("info",), ("info", "store_id"), ("info", "store_source")])
def test_missing_fields_of_a_store_info(tmp_path: Path, field: tuple[str, ...]) -> None:
    refused(save(tmp_path, with_store_info(clear(*field))), f"missing required field .*{field[-1]}")


def test_missing_store_of_a_chunk(tmp_path: Path) -> None:
    refused(save(tmp_path, with_arrow_msg(clear("store_id"))), "missing required field .*ArrowMsg.store_id")


def test_unknown_fields_are_skipped(tmp_path: Path) -> None:
    unknown = b"\xf8\x06\x01" + b"\xfa\x06\x02hi"
    data = join([(k, p + unknown) for k, p in messages(scalars())], end=frame(0, b""))
    assert len(read(save(tmp_path, data))) == 1


def test_fields_in_another_order(tmp_path: Path) -> None:
    store_info, (_, payload) = messages(scalars(rows=20_000))
    found = payload.index(b"\x2a", 12)
    assert len(payload) > 70_000
    size, width, shift = 0, 0, 0
    for width, byte in enumerate(payload[found + 1 :], 1):  # noqa: B007
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    stop = found + 1 + width + size
    reordered = payload[found:stop] + payload[stop:] + payload[:found]
    assert len(read(save(tmp_path, join([store_info, (2, reordered)], end=frame(0, b""))))) == 1


def test_chunk_id_and_static_hint_do_not_matter(tmp_path: Path) -> None:
    assert len(read(save(tmp_path, with_arrow_msg(clear("chunk_id"))))) == 1
    assert len(read(save(tmp_path, with_arrow_msg(clear("is_static"))))) == 1


def test_both_application_ids_missing(tmp_path: Path) -> None:
    data = with_store_info(clear("info", "store_id", "application_id"))
    refused(save(tmp_path, data), "no application id")


def test_store_ids_of_before_0_25(tmp_path: Path) -> None:
    def change(message: object) -> None:
        message.info.store_id.ClearField("application_id")  # type: ignore[attr-defined]
        message.info.application_id.id = "old"  # type: ignore[attr-defined]

    info = frames(with_store_info(change))[0]
    chunk = frames(with_arrow_msg(clear("store_id", "application_id")))[1]
    for order in ([info, chunk], [chunk, info]):
        file = save(tmp_path, join(order, end=frame(0, b"")))
        assert file.stores() == [StoreEntry("recording", "old", "rec")]
        assert len(read(file)) == 1


def test_chunks_of_a_store_that_is_never_announced(tmp_path: Path) -> None:
    def rename(message: object) -> None:
        message.store_id.recording_id = "other"  # type: ignore[attr-defined]

    file = save(tmp_path, with_arrow_msg(rename))
    with pytest.warns(ReadWarning, match="skipped 1 chunks of .*other.* does not announce"):
        assert list(file.chunks(STORE)) == []


# --- arrow


def assign(name: str, value: object) -> Callable[[object], None]:
    return lambda message: setattr(message, name, value)


@pytest.mark.parametrize("encoding", [0, 2])
def test_unknown_encoding(tmp_path: Path, encoding: int) -> None:
    refused(save(tmp_path, with_arrow_msg(assign("encoding", encoding))), "encoding")


@pytest.mark.parametrize("compression", [3, 9])
def test_unknown_compression(tmp_path: Path, compression: int) -> None:
    file = save(tmp_path, with_arrow_msg(assign("compression", compression)))
    refused(file, f"unknown compression {compression}", UnsupportedError)


@pytest.mark.parametrize("size", [0, 10, 10**9, 2**62])
def test_lying_uncompressed_size(tmp_path: Path, size: int) -> None:
    refused(save(tmp_path, with_arrow_msg(assign("uncompressed_size", size))), "uncompressed size|decompressed")


def test_uncompressed_size_slightly_too_large_is_tolerated(tmp_path: Path) -> None:
    def change(message: object) -> None:
        message.uncompressed_size += 100  # type: ignore[attr-defined]

    assert len(read(save(tmp_path, with_arrow_msg(change)))) == 1


@pytest.mark.parametrize("payload", [b"", b"\xff" * 100, lz4.frame.compress(b"x" * 500)])
def test_payload_that_is_no_lz4_block(tmp_path: Path, payload: bytes) -> None:
    refused(save(tmp_path, with_arrow_msg(assign("payload", payload))), "decompressed|possible here")


def uncompressed(payload: bytes) -> Callable[[object], None]:
    def change(message: object) -> None:
        message.compression, message.payload = 1, payload  # type: ignore[attr-defined]

    return change


def ipc_file(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


BATCH = scalars().to_record_batch()


@pytest.mark.parametrize(
    "payload",
    [b"", b"not arrow at all", ipc_file(BATCH), ipc_schema(BATCH.schema), ipc(BATCH)[:-100], ipc(BATCH)[300:]],
)
def test_payload_that_is_no_stream_of_a_batch(tmp_path: Path, payload: bytes) -> None:
    refused(save(tmp_path, with_arrow_msg(uncompressed(payload))), "Arrow|record batch")


def test_further_batches_are_ignored(tmp_path: Path) -> None:
    (chunk,) = read(save(tmp_path, with_arrow_msg(uncompressed(ipc(BATCH, BATCH)))))
    assert chunk.num_rows == 4


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_arrow_compression_inside_is_read(tmp_path: Path, codec: str) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(BATCH)
    (chunk,) = read(save(tmp_path, with_arrow_msg(uncompressed(sink.getvalue().to_pybytes()))))
    assert chunk.to_record_batch().to_pydict() == BATCH.to_pydict()


def test_a_batch_that_is_no_chunk(tmp_path: Path) -> None:
    refused(save(tmp_path, with_arrow_msg(uncompressed(ipc(pa.record_batch({"a": [1]}))))), "not a chunk")


def test_payload_uncompressed_in_a_compressed_file(tmp_path: Path) -> None:
    assert len(read(save(tmp_path, with_arrow_msg(uncompressed(ipc(BATCH)))))) == 1


# --- footer


def test_damaged_checksum(tmp_path: Path) -> None:
    data = bytearray(rrd_bytes(scalars()))
    data[-16] ^= 1
    file = save(tmp_path, bytes(data))
    assert "checksum" in str(refused(file, "checksum"))
    with pytest.raises(ReadError, match="checksum"):
        list(file.chunks(STORE))


@pytest.mark.parametrize(("start", "length"), [(10**9, 5), (2**64 - 5, 10), (12, 2**64 - 1), (0, 20), (28, 10**9)])
def test_footer_span_outside(tmp_path: Path, start: int, length: int) -> None:
    data = rrd_bytes(scalars())
    refused(save(tmp_path, data[:-32] + struct.pack("<QQ", start, length) + data[-16:]), "footer")


@pytest.mark.parametrize(("at", "value"), [(-12, b"RRFX"), (-8, b"FOOX"), (-4, b"\0"), (-4, b"\2")])
def test_unknown_trailer_means_walking(tmp_path: Path, at: int, value: bytes) -> None:
    data = bytearray(rrd_bytes(scalars(), static()))
    data[at : at + len(value) or None] = value
    file = save(tmp_path, bytes(data))
    assert not file.has_footer
    with pytest.warns(ReadWarning, match="32 bytes after the end"):
        assert len(read(file)) == 2


def test_a_footer_that_lists_nothing(tmp_path: Path) -> None:
    data = with_footer(rrd_bytes(scalars()), lambda footer: footer.ClearField("manifests"))  # type: ignore[attr-defined]
    file = save(tmp_path, data)
    with pytest.warns(ReadWarning, match="lists none of the file's 1 chunks"):
        (store,) = file.stores()
    assert not file.has_footer
    assert len(list(file.chunks(store))) == 1


def test_a_store_without_chunks_is_not_in_the_footer(tmp_path: Path) -> None:
    file = save(tmp_path, rrd_bytes())
    assert file.has_footer
    assert file.stores() == []
