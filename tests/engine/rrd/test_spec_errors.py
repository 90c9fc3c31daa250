"""The tables of errors in the format's specification: which damage is found by which call, and what is tolerated.

The damage itself is tested part by part in the other files here; these rows go through ``RrdReader``, as users do.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import lz4.frame
import pyarrow as pa
import pytest
from chunkmill.engine.errors import ReadError, ReadWarning, UnsupportedError, UsageError
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.rrd.messages import stream_header
from chunkmill.readers import RrdReader
from rrd_bytes import (
    STORE,
    drop_columns,
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
    with_manifest,
    with_store_info,
    without_footer,
)

CALLS: dict[str, Callable[[RrdReader], object]] = {
    "recordings": lambda r: r.recordings(),
    "stream": lambda r: [c.data for c in r.stream().to_chunks(executor="inline")],
    "store": lambda r: r.store().summary(),
    "load": lambda r: [c.data for c in r.store().stream().to_chunks(executor="inline")],
}
"""``load`` is what only reading the chunks of a store finds."""


class Case(NamedTuple):
    """Bytes, and the error class of each call; calls that are not named succeed."""

    data: bytes
    errors: dict[str, type[Exception]]


def failing(data: bytes, error: type[Exception] = ReadError, *calls: str) -> Case:
    return Case(data, dict.fromkeys(calls or CALLS, error))


def legacy(data: bytes, error: type[Exception] | None = None, *calls: str) -> Case:
    """A file without a footer: ``store()`` fails as such, what else fails is named."""
    lazy = {"store": ReadError, "load": ReadError}
    return Case(data, lazy | (dict.fromkeys(calls or ("recordings", "stream"), error) if error else {}))


def header(magic: bytes = b"RRF2", version: bytes = b"\0\x21\1\0", options: bytes = b"\1\2\0\0") -> bytes:
    """A whole recording without a footer, with another stream header."""
    return magic + version + options + without_footer(rrd_bytes(scalars()))[12:]


def relabelled(version: bytes) -> bytes:
    """A recording with its footer that says it was written by ``version``."""
    data = bytearray(rrd_bytes(scalars()))
    data[4:8] = version
    return bytes(data)


STREAM_HEADERS = {
    "empty": failing(b""),
    "11 bytes": failing(stream_header()[:11]),
    "RRF0": failing(header(b"RRF0"), UnsupportedError),
    "RRF1": failing(header(b"RRF1"), UnsupportedError),
    "RRF3": failing(header(b"RRF3")),
    "PNG": failing(header(b"\x89PNG")),
    "compression 2": failing(header(options=b"\2\2\0\0"), UnsupportedError),
    "serializer 1": failing(header(options=b"\1\1\0\0"), UnsupportedError),
    "serializer 3": failing(header(options=b"\1\3\0\0"), UnsupportedError),
    "reserved": failing(header(options=b"\1\2\1\0"), UnsupportedError),
    "0.22.1": failing(header(version=b"\0\x16\1\0"), UnsupportedError),
    "0.22.1 with a footer": failing(relabelled(b"\0\x16\1\0"), UnsupportedError),
    "newer": legacy(header(version=b"\0\x63\0\0")),
    "newer with a footer": Case(relabelled(b"\1\0\0\0"), {}),
    "header only": failing(stream_header(), UsageError, "stream", "store", "load"),
    "no store": failing(stream_header() + frame(0, b""), UsageError, "stream", "store", "load"),
    "only a blueprint": failing(
        rrd_bytes(static(), store=StoreEntry("blueprint", "a", "b")), UsageError, "stream", "store", "load"
    ),
}

MESSAGES = frames(rrd_bytes(scalars(), static()))[:-1]
BATCH = scalars().to_record_batch()


def cleared(*path: str) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        for name in path[:-1]:
            message = getattr(message, name)
        message.ClearField(path[-1])

    return change


def assigned(**values: object) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        for name, value in values.items():
            setattr(message, name, value)

    return change


def empty_application_id(message: Any) -> None:
    message.info.store_id.application_id.id = ""


FRAMES = {
    "unknown kind": legacy(join([*MESSAGES, (4, b"")]), ReadError),
    "cut header": legacy(join(MESSAGES, end=frame(2, b"")[:9]), ReadError),
    "cut payload": legacy(join(MESSAGES)[:-5], ReadError),
    "length 10^12": legacy(join(MESSAGES) + struct.pack("<QQ", 2, 10**12), ReadError),
    "no end": legacy(join(MESSAGES)),
    "empty end": legacy(join(MESSAGES, end=frame(0, b""))),
    "garbage protobuf": legacy(join([MESSAGES[0], (2, b"\xff" * 30)], end=frame(0, b"")), ReadError, "stream"),
    "empty ArrowMsg": legacy(join([MESSAGES[0], (2, b"")], end=frame(0, b"")), ReadError, "stream"),
    "ArrowMsg.store_id": legacy(with_arrow_msg(cleared("store_id")), ReadError, "stream"),
    "SetStoreInfo.row_id": legacy(with_store_info(cleared("row_id")), ReadError),
    "StoreInfo.store_source": legacy(with_store_info(cleared("info", "store_source")), ReadError),
    "StoreSource.extra": legacy(with_store_info(cleared("info", "store_source", "extra"))),
    "blueprint activation": legacy(join([*MESSAGES, (3, b"\x10\x01")], end=frame(0, b""))),
    "both application ids": legacy(with_store_info(cleared("info", "store_id", "application_id")), ReadError),
    "chunk_id": legacy(with_arrow_msg(cleared("chunk_id"))),
    "another chunk_id": legacy(with_arrow_msg(lambda m: assigned(inc=7)(m.chunk_id))),
}

PAYLOADS = {
    "encoding 0": assigned(encoding=0),
    "encoding 2": assigned(encoding=2),
    "compression 3": assigned(compression=3),
    "compression 9": assigned(compression=9),
    "an LZ4 frame": assigned(payload=lz4.frame.compress(b"x" * 500)),
    "garbage": assigned(payload=b"\xff" * 100),
    "size too small": assigned(uncompressed_size=10),
    "size absurd": assigned(uncompressed_size=10**9),
    "no Arrow": assigned(compression=1, payload=b"nothing of the kind"),
    "no batch": assigned(compression=1, payload=ipc_schema(BATCH.schema)),
    "no chunk": assigned(compression=1, payload=ipc(pa.record_batch({"a": [1]}))),
}
ARROW = {
    name: legacy(with_arrow_msg(change), UnsupportedError if name.startswith("compression") else ReadError, "stream")
    for name, change in PAYLOADS.items()
} | {
    "further batches": legacy(with_arrow_msg(assigned(compression=1, payload=ipc(BATCH, BATCH)))),
    "uncompressed": legacy(with_arrow_msg(assigned(compression=1, payload=ipc(BATCH)))),
}

WHOLE = rrd_bytes(scalars(), static())


def footer(at: int, value: bytes) -> bytes:
    data = bytearray(WHOLE)
    data[at : at + len(value) or None] = value
    return bytes(data)


def replaced(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    return batch.set_column(at, pa.field(name, values.type, metadata=batch.schema.field(at).metadata), values)


def manifest(change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> bytes:
    return with_manifest(WHOLE, change)


def part(name: str, value: object) -> bytes:
    return with_footer(WHOLE, lambda f: setattr(f.manifests[0].data, name, value))  # type: ignore[attr-defined]


def shifted(batch: pa.RecordBatch) -> pa.RecordBatch:
    offsets = [n - 3 for n in batch["chunk_byte_offset"].to_pylist()]
    return replaced(batch, "chunk_byte_offset", pa.array(offsets, pa.uint64()))


TWO = pa.array([1, 2])
FOOTERS = {
    "other magic": legacy(footer(-12, b"RRFX")),
    "FOOX": legacy(footer(-8, b"FOOX")),
    "no entries": legacy(footer(-4, b"\0")),
    "two entries": legacy(footer(-4, b"\2")),
    "checksum": failing(footer(-16, bytes([WHOLE[-16] ^ 1]))),
    "span beyond the file": failing(footer(-32, struct.pack("<QQ", len(WHOLE), 100))),
    "sha missing": failing(with_footer(WHOLE, lambda f: f.manifests[0].ClearField("sorbet_schema_sha256"))),  # type: ignore[attr-defined]
    "sha short": failing(with_footer(WHOLE, lambda f: assigned(sorbet_schema_sha256=b"x")(f.manifests[0]))),  # type: ignore[attr-defined]
    "any sha": Case(with_footer(WHOLE, lambda f: assigned(sorbet_schema_sha256=bytes(32))(f.manifests[0])), {}),  # type: ignore[attr-defined]
    "encoder 0": failing(part("encoder_version", 0), UnsupportedError),
    "encoder 9": failing(part("encoder_version", 9), UnsupportedError),
    "part compression": failing(part("compression", 7), UnsupportedError),
    "part size": failing(part("uncompressed_size", 10)),
    "column missing": failing(manifest(lambda b: drop_columns(b, "chunk_id"))),
    "column type": failing(
        manifest(lambda b: replaced(b, "chunk_entity_path", b["chunk_entity_path"].cast(pa.large_string())))
    ),
    "group B": failing(manifest(lambda b: drop_columns(b, "has_static_data"))),
    "group C": failing(manifest(lambda b: drop_columns(b, "frame:start", "frame:end"))),
    "group C type": failing(manifest(lambda b: replaced(b, "frame:start", b["frame:start"].cast(pa.timestamp("ns"))))),
    "start without end": failing(manifest(lambda b: drop_columns(b, "scalars:end"))),
    "num_rows": Case(manifest(lambda b: drop_columns(b, ":num_rows")), {}),
    "null num_rows": failing(manifest(lambda b: replaced(b, "chunk_num_rows", pa.array([1, None], pa.uint64())))),
    "extra column": failing(manifest(lambda b: b.append_column("foo", TWO))),
    "extra suffix": failing(manifest(lambda b: b.append_column("a:foo", TWO))),
    "dangling": failing(manifest(lambda b: b.append_column("zz:start", TWO).append_column("zz:end", TWO))),
    "wrong offset": failing(manifest(shifted), ReadError, "stream", "store", "load"),
}

CASES = {
    f"{table}: {name}": case
    for table, cases in (("header", STREAM_HEADERS), ("framing", FRAMES), ("arrow", ARROW), ("footer", FOOTERS))
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_every_row_fails_where_it_should(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    (tmp_path / "x.rrd").write_bytes(case.data)
    for call, use in CALLS.items():
        error = case.errors.get(call)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadWarning)
            if error is None:
                use(RrdReader(tmp_path / "x.rrd"))
                continue
            with pytest.raises(error) as caught:
                use(RrdReader(tmp_path / "x.rrd"))
        assert type(caught.value) is error, call
        assert isinstance(caught.value, (ReadError, UsageError))
        assert caught.value.path == str(tmp_path / "x.rrd"), call
        assert caught.value.hint or "stream().collect()" in str(caught.value), call


def test_legacy_files_say_so_only_where_it_matters(tmp_path: Path) -> None:
    (tmp_path / "x.rrd").write_bytes(without_footer(WHOLE))
    reader = RrdReader(tmp_path / "x.rrd")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reader.recordings() == [STORE]
    text = r"Legacy RRD without footer: .*x\.rrd\. Use RrdReader\.stream\(\)\.collect\(\) to read it eagerly into a Ch"
    with pytest.raises(RuntimeError, match=text):
        reader.store()
    assert len(reader.stream().collect(executor="inline")) == 2


def test_what_lies_before_a_damage_is_delivered(tmp_path: Path) -> None:
    """One undecodable message ends the stream, after the chunks before it."""
    data = bytearray(without_footer(rrd_bytes(scalars(), static(), scalars("/last"))))
    found = [p for k, p in frames(bytes(data)) if k == 2]
    at = bytes(data).index(found[1])
    data[at : at + len(found[1])] = b"\xff" * len(found[1])
    (tmp_path / "x.rrd").write_bytes(data)
    chunks = iter(RrdReader(tmp_path / "x.rrd").stream())
    assert next(chunks).entity_path == "/arm"
    with pytest.raises(ReadError) as caught:
        next(chunks)
    assert caught.value.offset is not None
    assert at - 16 <= caught.value.offset <= at + len(found[1])


def test_empty_application_ids_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.rrd").write_bytes(with_store_info(empty_application_id))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)
        assert RrdReader(tmp_path / "x.rrd").recordings() == [StoreEntry("recording", "", STORE.recording_id)]
