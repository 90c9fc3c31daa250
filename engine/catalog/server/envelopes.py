"""Arrow tables and schemas in messages: the envelopes that the protocol has for them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import lz4.block
import pyarrow as pa

from ...errors import ReadError, WriteError
from ...limits import MIB
from ...rrd import (
    ARROW_ERRORS,
    Compression,
    check_columns,
    decode_batch,
    encode_batch,
    expanded_size,
    stream_of,
)
from .budget import Claim, MemoryBudget
from .messages import shared
from .methods import Call, ProtocolError, Status

MOST_UNCOMPRESSED: Final = 512 * MIB
"""Bytes that a part of a client may expand to."""
_MOST_RATIO: Final = 255
_BY_ARROW: Final = MIB
_LARGE: Final = 16 * MIB
_LOOK: Final = 0.05
"""Seconds after which a call that waits is asked whether somebody still waits for it."""
_one_large: Final = threading.Lock()
_V0: Final = 1
_SMALL: Final = 4096
"""Bytes of a part that is not worth being compressed."""


def schema_message(schema: pa.Schema) -> Any:
    """A schema as a message."""
    return shared("Schema")(arrow_schema=schema.serialize().to_pybytes())


def schema_in(message: Any) -> pa.Schema:
    """The inverse of :func:`schema_message`. Raises :class:`ProtocolError`."""
    try:
        head = pa.ipc.read_message(pa.py_buffer(message.arrow_schema))
        check_columns(head)
        return pa.ipc.read_schema(head)
    except ARROW_ERRORS as error:
        raise _bad(f"the schema is no Arrow schema: {error}") from error


def part_of(rows: pa.Table | pa.RecordBatch) -> Any:
    """Rows as a part: one batch, whatever they came in."""
    batch = rows if isinstance(rows, pa.RecordBatch) else _one_batch(rows)
    compression = Compression.LZ4 if batch.nbytes > _SMALL else Compression.NONE
    try:
        data, size = encode_batch(batch, compression)
    except WriteError as error:
        raise ProtocolError(Status.RESOURCE_EXHAUSTED, f"the answer is too large: {error.message}") from error
    return shared("DataframePart")(
        encoder_version=_V0,
        payload=data if isinstance(data, bytes) else data.to_pybytes(),
        compression=int(compression),
        uncompressed_size=size,
    )


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        found: pa.RecordBatch = batches[0]
        return found
    columns = [pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type) for column in table]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def rows_in(part: Any, call: Call | None = None) -> pa.Table:
    """The rows of a part of a client, every buffer of which was checked. Raises :class:`ProtocolError`.

    Their memory is claimed of the budget of all calls, for as long as anything of the rows is there. Parts of the
    server's own need no ``call``.
    """
    call = call or Call()
    if part.encoder_version != _V0:
        raise _bad(f"the part has encoder version {part.encoder_version}; 1 is the only one there is")
    data = _expanded(part, call)
    try:
        inner = expanded_size(data)
    except ARROW_ERRORS as error:
        reason = "it holds no record batch" if isinstance(error, StopIteration) else error
        raise _bad(f"the part is not a whole Arrow stream: {reason}") from error
    try:
        if inner > _SMALL:
            data = _expanded_within(data, inner, call)
        batch = _decoded(data)
    except ReadError as error:
        raise _bad(str(error)) from error
    twice = next((name for name, count in Counter(batch.schema.names).items() if count > 1), None)
    if twice is not None:
        raise _bad(f"the part has two columns of the name {twice!r}")
    return pa.Table.from_batches([batch])


def _decoded(data: pa.Buffer) -> pa.RecordBatch:
    return decode_batch(data, path="the request", offset=None, what="the part")


def _expanded(part: Any, call: Call) -> pa.Buffer:
    """The Arrow stream in a part."""
    if part.compression in (0, int(Compression.NONE)):
        payload: bytes = part.payload
        return _claimed(call, len(payload)).over(payload)
    if part.compression != int(Compression.LZ4):
        raise _bad(f"the part has compression {part.compression}; 1 (none) and 2 (LZ4) are those there are")
    size, payload = part.uncompressed_size, part.payload
    if size > MOST_UNCOMPRESSED or size > len(payload) * _MOST_RATIO:
        raise _bad(f"the part of {len(payload):,} bytes says that it expands to {size:,}")
    claim = _claimed(call, size + len(payload))
    if size < _BY_ARROW:
        return claim.over(_expanded_block(payload, size))
    with _turn(size, call):
        return claim.over(_expanded_large(payload, size))


def _expanded_block(block: bytes, size: int) -> bytes:
    try:
        found: bytes = lz4.block.decompress(block, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise _bad(f"the part is no LZ4 block: {error}") from error
    if len(found) != size:
        raise _bad(f"the part expands to {len(found):,} bytes instead of {size:,}")
    return found


def _expanded_large(block: bytes, size: int) -> pa.Buffer:
    """The same by Arrow, which needs the memory once and lets other threads run: 500 MiB held them up for 0.4 s.

    Arrow does not say where a block expands to fewer bytes, and leaves the rest as it was: so it has to fail first
    where there is room for one byte less. ``tests/fuzz/bombs_at_once.py`` guards both.
    """
    codec = pa.Codec("lz4_raw")
    try:
        codec.decompress(block, decompressed_size=size - 1)
    except OSError:
        pass
    else:
        raise _bad(f"the part expands to fewer bytes than {size:,}")
    try:
        return codec.decompress(block, decompressed_size=size)
    except OSError as error:
        raise _bad(f"the part is no LZ4 block: {error}") from error


def _expanded_within(data: pa.Buffer, size: int, call: Call) -> pa.Buffer:
    """An Arrow stream whose buffers are compressed within, to so many bytes, as one whose buffers are not."""
    if size > MOST_UNCOMPRESSED:
        raise _bad(f"the part of {data.size:,} bytes has buffers that expand to {size:,}")
    claim = _claimed(call, 2 * size)
    with _turn(size, call):
        return claim.over(stream_of(_decoded(data)))


@contextmanager
def _turn(size: int, call: Call) -> Iterator[None]:
    """A block that expands to so many bytes: large ones run one after another, so that cores are left to others."""
    if size < _LARGE:
        yield
        return
    while not _one_large.acquire(timeout=_LOOK):
        call.check()
    try:
        yield
    finally:
        _one_large.release()


def _claimed(call: Call, size: int) -> Claim:
    call.check()
    claim: Claim = (call.claim or MemoryBudget().claim)(size, call.check)
    return claim


def _bad(text: str) -> ProtocolError:
    return ProtocolError(Status.INVALID_ARGUMENT, text)


def projected(table: pa.Table, columns: Iterable[str]) -> pa.Table:
    """These columns alone, in this order; all where none are named. Raises :class:`ProtocolError`."""
    names = list(columns)
    for at, name in enumerate(names):
        if name not in table.column_names:
            raise _bad(
                f"Unable to project columns: Invalid argument error: projected column '{name}' not found in schema"
            )
        if name in names[:at]:
            raise _bad(
                f"Unable to project columns: Invalid argument error: projected column '{name}' was requested twice"
            )
    return table.select(names) if names else table
