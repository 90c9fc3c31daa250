"""Arrow bytes made to harm: nothing crashes, nothing takes memory that the file does not justify."""

from __future__ import annotations

import pickle
import random
import resource
import struct
import time
from pathlib import Path

import lz4.block
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.engine.rrd import RrdFile
from chunkmill.engine.rrd.arrow_ipc import decode_batch, decode_schema
from chunkmill.engine.rrd.messages import ArrowMsg
from chunkmill.readers import ParquetReader
from rrd_bytes import STORE, frame, image, ipc, join, rrd_bytes, scalars, static, with_arrow_msg, without_footer

GIB = 1 << 30


def peak() -> int:
    """Peak memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def nested() -> Chunk:
    rows = [[{"a": "x", "b": [1, 2]}], None, [], [{"a": None, "b": None}]]
    datatype = pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(pa.int32()))]))
    words = pa.array([["one"], ["two", "three"], None, []], pa.list_(pa.string()))
    return Chunk.build(
        "/n",
        {"t": pa.array([1, 2, 3, 4])},
        [(ComponentDescriptor("c"), pa.array(rows, datatype)), (ComponentDescriptor("w"), words)],
    )


class Forbidden(pa.ExtensionType):
    """What refuses to be read as ``pyarrow-hotfix`` does, whatever pyarrow is here."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.forbidden")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> pa.ExtensionType:
        raise RuntimeError("Disallowed deserialization of it:\npickle disassembly:\n   0: .    STOP")


def test_an_extension_type_that_is_refused_is_a_read_error(tmp_path: Path) -> None:
    pa.register_extension_type(Forbidden())
    try:
        pickled = {"ARROW:extension:name": "tests.forbidden", "ARROW:extension:metadata": "."}
        schema = pa.schema([pa.field("a", pa.int64(), metadata=pickled)])
        batch = pa.record_batch([pa.array([1])], schema=schema)
        for decode in (decode_batch, decode_schema):
            with pytest.raises(ReadError, match="Disallowed deserialization of it") as caught:
                decode(ipc(batch), path="x", offset=0, what="it")
            assert "pickle" not in str(caught.value)
        pq.write_table(pa.Table.from_batches([batch]), tmp_path / "x.parquet")
        with pytest.raises(ReadError, match="Disallowed deserialization of it") as caught:
            ParquetReader(tmp_path / "x.parquet").stream().to_chunks(executor="inline")
        assert "pickle" not in str(caught.value)
    finally:
        pa.unregister_extension_type("tests.forbidden")


def test_pickled_types_run_nothing() -> None:
    """Below pyarrow 21 they are refused; from there on they are what they store."""
    pickled = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(print)}
    batch = pa.record_batch([pa.array([1])], schema=pa.schema([pa.field("a", pa.int64(), metadata=pickled)]))
    if hasattr(pa, "PyExtensionType"):
        with pytest.raises(ReadError, match="Disallowed deserialization"):
            decode_batch(ipc(batch), path="x", offset=0, what="it")
    else:
        assert decode_batch(ipc(batch), path="x", offset=0, what="it").schema.types == [pa.int64()]


def test_mutated_streams_give_a_batch_or_a_read_error() -> None:
    """Every value of what passes the checks can be visited."""
    rng = random.Random(20_240)
    original = ipc(nested().to_record_batch())
    refused = 0
    for _ in range(1500):
        data = bytearray(original)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(data))
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            batch = decode_batch(bytes(data), path="x", offset=0, what="it")
        except ReadError:
            refused += 1
            continue
        batch.to_pylist()
        str(batch.schema)
    assert refused > 300


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffers_that_lie(codec: str) -> None:
    """The sizes before Arrow's own compressed buffers are not taken on trust."""
    zeros = pa.array([bytes(1 << 20)], pa.binary())
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"z": zeros})
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    size = struct.pack("<q", 1 << 20)
    for lie in (2 * GIB, 2**62):
        before = peak()
        with pytest.raises(ReadError, match="declare"):
            decode_batch(struct.pack("<q", lie).join(data.rsplit(size, 1)), path="x", offset=0, what="it")
        assert peak() - before < 64 << 20


def test_a_bomb_is_refused_quickly(tmp_path: Path) -> None:
    bomb = lz4.block.compress(bytes(GIB + GIB // 8), store_size=False)

    def change(message: object) -> None:
        message.payload, message.uncompressed_size = bomb, GIB + GIB // 8  # type: ignore[attr-defined]

    (tmp_path / "x.rrd").write_bytes(with_arrow_msg(change))
    file = RrdFile(tmp_path / "x.rrd")
    before, started = peak(), time.process_time()
    with pytest.raises(ReadError, match="uncompressed size"):
        list(file.chunks(STORE))
    assert time.process_time() - started < 1
    assert peak() - before < 256 << 20


def test_what_compresses_well_is_read(tmp_path: Path) -> None:
    rows = pa.array([[bytes(30 << 20)]], pa.list_(pa.binary()))
    chunk = Chunk.build("/zeros", {"t": pa.array([1])}, [(ComponentDescriptor("z"), rows)])
    (tmp_path / "x.rrd").write_bytes(rrd_bytes(chunk))
    (found,) = RrdFile(tmp_path / "x.rrd").chunks(STORE)
    assert len(found.to_record_batch().column("z")[0].as_py()[0]) == 30 << 20


def test_names_that_are_not_text(tmp_path: Path) -> None:
    data = ipc(scalars().to_record_batch()).replace(b"frame", b"fr\xffme")
    with pytest.raises(ReadError):
        decode_batch(data, path="x", offset=0, what="it")


def test_dictionaries_are_read() -> None:
    batch = pa.record_batch({"d": pa.array(["a", "b", "a"]).dictionary_encode()})
    assert decode_batch(ipc(batch), path="x", offset=0, what="it").to_pydict() == batch.to_pydict()


def everything(path: Path) -> None:
    file = RrdFile(path)
    for store in file.stores():
        for chunk in file.chunks(store):
            chunk.to_record_batch().to_pydict()


def failure(path: Path) -> ReadError | None:
    """How reading everything fails, if it does; nothing but a read error is let through."""
    try:
        everything(path)
    except ReadError as error:
        return error
    return None


@pytest.mark.parametrize("footer", [True, False])
@pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")
@pytest.mark.heavy
def test_mutated_files_fail_with_a_read_error_or_not_at_all(tmp_path: Path, footer: bool) -> None:
    data = rrd_bytes(scalars(), static(), nested(), scalars("/b", 7))
    original = data if footer else without_footer(data)
    rng = random.Random(7)
    path = tmp_path / "x.rrd"
    for i in range(250):
        mutant = bytearray(original)
        kind = rng.randrange(5)
        at = rng.randrange(len(mutant))
        if kind == 0:
            del mutant[at:]
        elif kind == 1:
            mutant[at : at + 8] = struct.pack("<Q", rng.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1)))
        elif kind == 2:
            other = rng.randrange(len(mutant))
            mutant[at : at + 40] = original[other : other + 40]
        else:
            mutant[at] ^= 1 << rng.randrange(8)
        path.write_bytes(mutant)
        error = failure(path)
        assert error is None or (error.path == str(path) and error.hint), i


def test_cuts_never_pass_for_the_whole(tmp_path: Path) -> None:
    """A cut inside a message is an error; at a boundary, where nothing can tell, it is a warning."""
    data = rrd_bytes(scalars(), image(5_000), static())
    boundaries = [12]
    while boundaries[-1] < len(data) - 32:
        boundaries.append(boundaries[-1] + 16 + struct.unpack_from("<Q", data, boundaries[-1] + 8)[0])
    *between, end = boundaries
    path = tmp_path / "x.rrd"
    for cut in sorted({b + d for b in boundaries for d in (-2, -1, 0, 1, 2)} - {end}):
        path.write_bytes(data[:cut])
        expected = pytest.warns(ReadWarning, match="no end") if cut in between else pytest.raises(ReadError)
        with expected:
            everything(path)
    path.write_bytes(data[:end])
    everything(path)


def test_a_megabyte_of_head_is_too_much(tmp_path: Path) -> None:
    message = ArrowMsg()
    message.store_id.recording_id = "r" * 2_000_000
    (tmp_path / "x.rrd").write_bytes(join([(2, message.SerializeToString())], end=frame(0, b"")))
    (tmp_path / "x.rrd").write_bytes(join([(1, b""), (2, message.SerializeToString())], end=frame(0, b"")))
    with pytest.raises(ReadError):
        RrdFile(tmp_path / "x.rrd").stores()
