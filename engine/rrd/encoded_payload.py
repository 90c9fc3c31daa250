"""Payloads that still lie, compressed, where they were found, and chunks out of their Arrow IPC streams.

A schema that came before is not read again: streams of one shape begin with the same bytes but for the digits of the
chunk id, and reading them, and finding out what the columns are, takes longer than the batch behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from ..chunk import sorbet, tuid
from ..chunk.data import ChunkData
from ..errors import ReadError
from ..task_context import lasting
from . import messages
from .arrow_ipc import (
    ARROW_ERRORS,
    Compression,
    check_compression,
    check_message,
    check_sizes,
    decode_batch,
    decompress,
    has_dictionary,
)
from .arrow_message import LocatedMessage, locate
from .open_files import HeldFile, open_briefly, open_positional
from .positional import PositionalFile

_CONTINUED: Final = b"\xff\xff\xff\xff"
_PREFIX: Final = b"chunk_"
_ID_SIZE: Final = len(_PREFIX) + 32
_LARGEST_SCHEMA: Final = 1 << 16
_MOST_SHAPES: Final = 1024

_Key = tuple[int, bytes]
"""Where the id is in a schema message, and the message without it."""


@dataclass(slots=True)
class _Shape:
    """A schema, and where its columns go.

    ``told`` is the head of a batch without compression: another one like it need not be checked again.
    """

    schema: pa.Schema
    layout: sorbet.BatchLayout
    told: bytes = b""


class _Shapes(dict[_Key, _Shape]):
    """The schemas that a thread has seen."""


def decode_chunk(stream: bytes | memoryview, *, path: str, offset: int | None, what: str) -> ChunkData:
    """The chunk in an Arrow IPC stream; every buffer and offset in it is checked, as :func:`decode_batch` does.

    Raises :class:`ReadError` for bytes that are no such stream, ``ValueError`` for a batch that is no chunk.
    """
    head = _head_of(stream)
    key = _key_of(head)
    shape = lasting(_Shapes).get(key) if key is not None else None
    if key is not None and shape is not None:
        found = _decoded(stream, head, key[0], shape)
        if found is not None:
            return found
    batch = decode_batch(stream, path=path, offset=offset, what=what)
    data, layout = sorbet.taken_apart(batch)
    if key is not None and shape is None and layout is not None:
        _keep(head, key, batch.schema, layout, data)
    return data


def _head_of(stream: bytes | memoryview) -> bytes:
    """The schema message that opens a stream; empty where the stream does not begin in the usual way."""
    if stream[:4] != _CONTINUED:
        return b""
    stop = 8 + int.from_bytes(stream[4:8], "little")
    return b"" if stop > min(len(stream), _LARGEST_SCHEMA) else bytes(stream[:stop])


def _key_of(head: bytes) -> _Key | None:
    """None where there is no schema, or no id in it."""
    at = head.find(_PREFIX, 8)
    return None if at < 0 or at + _ID_SIZE > len(head) else (at, head[:at] + head[at + _ID_SIZE :])


def _decoded(stream: bytes | memoryview, head: bytes, at: int, shape: _Shape) -> ChunkData | None:
    """The chunk; None where something is unusual, or wrong: then it is read with all care."""
    start = len(head)
    told = bytes(stream[start : start + 8 + int.from_bytes(stream[start + 4 : start + 8], "little")])
    try:
        chunk_id = bytes.fromhex(head[at + len(_PREFIX) : at + _ID_SIZE].decode("ascii"))
        message = pa.ipc.read_message(pa.py_buffer(stream).slice(start))
        if len(chunk_id) != 16 or message.type != "record batch":
            return None
        if told != shape.told and not check_message(message):
            shape.told = told
        batch = pa.ipc.read_record_batch(message, shape.schema)
        batch.validate(full=True)
    except ARROW_ERRORS:
        return None
    return shape.layout.chunk(batch, chunk_id)


def _keep(head: bytes, key: _Key, schema: pa.Schema, layout: sorbet.BatchLayout, data: ChunkData) -> None:
    """Remember a schema, if its id is what was left out of the key, and nothing more is to be done with its columns."""
    at, _ = key
    digits = head[at + len(_PREFIX) : at + _ID_SIZE]
    is_plain = not any(has_dictionary(t) or isinstance(t, pa.BaseExtensionType) for t in schema.types)
    is_id = digits == tuid.to_text(data.chunk_id, "").encode() and head.count(digits) == 1
    if is_plain and is_id:
        shapes = lasting(_Shapes)
        if len(shapes) >= _MOST_SHAPES:
            shapes.clear()
        shapes[key] = _Shape(schema, layout)


_WHAT = "the payload of a chunk"
_CHANGED = "The file was changed after it was opened, or its footer is wrong."


@dataclass(frozen=True, slots=True)
class EncodedPayload:
    """The compressed Arrow IPC bytes of one chunk: ``size`` bytes at ``offset`` of ``path``, or ``data`` in memory.

    Small, and pickles; with ``data`` as large as that. ``digest`` is that of the message around, if it was verified.
    """

    path: str
    offset: int
    size: int
    uncompressed_size: int
    compression: Compression
    data: bytes | memoryview | None = field(default=None, repr=False)
    version: str | None = field(default=None, kw_only=True)
    held: HeldFile | None = field(default=None, kw_only=True, repr=False, compare=False)
    digest: bytes | None = field(default=None, kw_only=True)

    def load(self) -> pa.RecordBatch:
        """Read, check and decode the batch. Raises ``ReadError``."""
        if self.data is not None:
            return self._decode(self.data)
        with open_positional(self.path, self.version, self.held) as file:
            return self.load_from(file)

    def load_from(self, file: PositionalFile) -> pa.RecordBatch:
        """Like :meth:`load`, from the file when it is open already."""
        if self.data is not None:
            return self._decode(self.data)
        return self._decode(file.read(self.offset, self.size, what=_WHAT))

    def load_data(self) -> ChunkData:
        """The chunk in the batch. Raises ``ReadError``, and ``ValueError`` for a batch that is none."""
        if self.data is not None:
            return self._chunk(self.data)
        with open_briefly(self.path, self.version, self.held) as file:
            return self.load_data_from(file)

    def load_data_from(self, file: PositionalFile) -> ChunkData:
        """Like :meth:`load_data`, from the file when it is open already."""
        return self._chunk(file.read(self.offset, self.size, what=_WHAT) if self.data is None else self.data)

    def _decode(self, data: bytes | memoryview) -> pa.RecordBatch:
        return decode_batch(self._stream(data), path=self.path, offset=self.offset, what=_WHAT)

    def _chunk(self, data: bytes | memoryview) -> ChunkData:
        return decode_chunk(self._stream(data), path=self.path, offset=self.offset, what=_WHAT)

    def _stream(self, data: bytes | memoryview) -> bytes | memoryview:
        return decompress(
            data, self.compression, self.uncompressed_size, path=self.path, offset=self.offset, what=_WHAT
        )


@dataclass(frozen=True, slots=True)
class FramedPayload:
    """A payload inside the ``ArrowMsg`` of ``size`` bytes at ``offset`` of ``path``; small, and pickles.

    ``chunk_id`` is the chunk expected there, where a footer says so: a file that was replaced in the meantime raises
    instead of giving another chunk's data. ``version`` is that of the file, which is asked for on reading; ``held`` the
    file, where this process has it open.
    """

    path: str
    offset: int
    size: int
    chunk_id: bytes | None = None
    version: str | None = field(default=None, kw_only=True)
    held: HeldFile | None = field(default=None, kw_only=True, repr=False, compare=False)

    def load(self) -> pa.RecordBatch:
        """Read, check and decode the batch. Raises ``ReadError``."""
        with open_positional(self.path, self.version, self.held) as file:
            batch = self._encoded(self._locate(file)).load_from(file)
        self._check_id(_schema_id(batch))
        return batch

    def load_data(self) -> ChunkData:
        """The chunk in the batch. Raises ``ReadError``, and ``ValueError`` for a batch that is none."""
        with open_briefly(self.path, self.version, self.held) as file:
            found = self._locate(file, whole=True)
            compression, size = self._sizes(found)
            payload = found.payload
            if payload is None:
                payload = file.read(found.payload_offset, found.payload_size, what=_WHAT)
        path, offset = self.path, found.payload_offset
        stream = decompress(payload, compression, size, path=path, offset=offset, what=_WHAT)
        data = decode_chunk(stream, path=path, offset=offset, what=_WHAT)
        if data.chunk_id != self.chunk_id:
            self._check_id(data.chunk_id.hex())
        return data

    def located(self, file: PositionalFile) -> EncodedPayload:
        """The exact place of the compressed bytes; reads the message around them only. Raises ``ReadError``."""
        return self._checked(self._locate(file), file)

    def _checked(self, found: LocatedMessage, file: PositionalFile) -> EncodedPayload:
        encoded = self._encoded(found)
        if self.chunk_id is not None and found.chunk_id != self.chunk_id:
            self._check_id(_schema_id(encoded.load_from(file)))
        return encoded

    def _locate(self, file: PositionalFile, *, whole: bool = False) -> LocatedMessage:
        return locate(file, self.offset, self.size, whole=whole)

    def _sizes(self, found: LocatedMessage) -> tuple[Compression, int]:
        """The compression of the payload, and the size that it expands to."""
        message = found.message
        if message.encoding != messages.ENCODING_ARROW_IPC:
            raise ReadError(
                f"a chunk has the encoding {message.encoding}; Arrow IPC (1) is the only one there is",
                path=self.path,
                offset=self.offset,
                hint="The file is damaged, or its writer is.",
            )
        compression = check_compression(message.compression, path=self.path, offset=self.offset)
        size = message.uncompressed_size if compression == Compression.LZ4 else found.payload_size
        check_sizes(found.payload_size, compression, size, path=self.path, offset=found.payload_offset, what=_WHAT)
        return compression, size

    def _encoded(self, found: LocatedMessage) -> EncodedPayload:
        compression, size = self._sizes(found)
        return EncodedPayload(
            self.path,
            found.payload_offset,
            found.payload_size,
            size,
            compression,
            found.payload,
            version=self.version,
            held=self.held,
        )

    def _check_id(self, found: str | None) -> None:
        if self.chunk_id is not None and (found is None or found.lower() != self.chunk_id.hex()):
            raise ReadError(
                f"chunk {self.chunk_id.hex()} should lie here, but {found or 'another'} does",
                path=self.path,
                offset=self.offset,
                hint=_CHANGED,
            )


def _schema_id(batch: pa.RecordBatch) -> str | None:
    """The hex digits of the chunk id in the batch's schema."""
    metadata = batch.schema.metadata or {}
    text = metadata.get(b"rerun:id", metadata.get(b"rerun.id"))
    return None if text is None else text.decode("utf-8", "replace").removeprefix("chunk_").rjust(32, "0")


RrdPayload = EncodedPayload | FramedPayload
"""What the writer copies instead of encoding anew."""
