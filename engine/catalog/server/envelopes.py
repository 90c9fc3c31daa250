"""Arrow tables and schemas in messages: the envelopes that the protocol has for them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, Final

import lz4.block
import pyarrow as pa

from ...errors import ReadError, WriteError
from ...limits import MIB
from ...rrd import Compression, decode_batch, encode_batch
from .messages import shared
from .methods import ProtocolError, Status

MOST_UNCOMPRESSED: Final = 512 * MIB
"""Bytes that a part of a client may expand to."""
_MOST_RATIO: Final = 255
_LARGE: Final = 16 * MIB
"""Bytes from which on parts are expanded one after another: a block may be a 255th of what it expands to."""
_V0: Final = 1
_SMALL: Final = 4096
"""Bytes of a part that is not worth being compressed."""
_one_large: Final = threading.Lock()


def schema_message(schema: pa.Schema) -> Any:
    """A schema as a message."""
    return shared("Schema")(arrow_schema=schema.serialize().to_pybytes())


def schema_in(message: Any) -> pa.Schema:
    """The inverse of :func:`schema_message`. Raises :class:`ProtocolError`."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(message.arrow_schema))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise ProtocolError(Status.INVALID_ARGUMENT, f"the schema is no Arrow schema: {error}") from error


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


def rows_in(part: Any) -> pa.Table:
    """The rows of a part of a client, every buffer of which was checked. Raises :class:`ProtocolError`."""
    if part.encoder_version != _V0:
        raise _bad(f"the part has encoder version {part.encoder_version}; 1 is the only one there is")
    is_large = part.compression == int(Compression.LZ4) and part.uncompressed_size > _LARGE
    with _one_large if is_large else nullcontext():
        try:
            batch = decode_batch(_expanded(part), path="the request", offset=None, what="the part")
        except ReadError as error:
            raise _bad(str(error)) from error
        return pa.Table.from_batches([batch])


def _expanded(part: Any) -> bytes:
    if part.compression in (0, int(Compression.NONE)):
        payload: bytes = part.payload
        return payload
    if part.compression != int(Compression.LZ4):
        raise _bad(f"the part has compression {part.compression}; 1 (none) and 2 (LZ4) are those there are")
    size = part.uncompressed_size
    if size > MOST_UNCOMPRESSED or size > len(part.payload) * _MOST_RATIO:
        raise _bad(f"the part of {len(part.payload):,} bytes says that it expands to {size:,}")
    try:
        found: bytes = lz4.block.decompress(part.payload, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise _bad(f"the part is no LZ4 block: {error}") from error
    if len(found) != size:
        raise _bad(f"the part expands to {len(found):,} bytes instead of {size:,}")
    return found


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
