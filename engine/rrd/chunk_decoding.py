"""Chunks out of Arrow IPC streams: a schema that came before is not read again.

Streams of one shape begin with the same bytes but for the digits of the chunk id; reading them, and finding out what
the columns are, takes longer than the batch behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..chunk import sorbet, tuid
from ..chunk.data import ChunkData
from ..task_context import lasting
from .arrow_ipc import ARROW_ERRORS, decode_batch, has_dictionary
from .ipc_bounds import check_message

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
