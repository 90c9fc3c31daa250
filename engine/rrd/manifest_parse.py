"""Reading the manifest of one store: every chunk's header and place, without touching a chunk."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import TimelineKind
from ..errors import ReadError, UnsupportedError
from . import messages
from .arrow_ipc import decode_batch, decode_schema
from .column_names import DIGEST, FIXED
from .compression import check_compression, decompress
from .framing import MESSAGE_HEADER_SIZE, STREAM_HEADER_SIZE
from .manifest_headers import check_ranges
from .manifest_layout import Layout, LayoutError, UnionSchema
from .manifest_table import ManifestTable
from .payloads import digests_from_bytes

_WHAT: Final = "the manifest in the footer"
_HINT: Final = "The footer is damaged, or its writer is; read the file with recover=True to go without it."
_FIXED_TYPES: Final = (
    pa.string(), pa.binary(16), pa.bool_(), pa.uint64(), pa.uint64(), pa.uint64(), pa.uint64()
)  # fmt: skip


class OutdatedManifestError(Exception):
    """A manifest of the first drafts, which did not count rows: good for nothing, and no damage."""


def parse_manifest(manifest: Any, *, path: str, offset: int, messages_end: int) -> ManifestTable:
    """The rows of a protobuf ``RrdManifest``, in its order.

    ``messages_end`` is where the file's messages end. Raises :class:`ReadError`; :class:`OutdatedManifestError` where
    the row counts are missing.
    """
    _check_message(manifest, path, offset)
    decode_schema(manifest.sorbet_schema.arrow_schema, path=path, offset=offset, what="the schema in the footer")
    part = manifest.data
    compression = check_compression(part.compression, path=path, offset=offset)
    stream = decompress(part.payload, compression, part.uncompressed_size, path=path, offset=offset, what=_WHAT)
    batch = decode_batch(stream, path=path, offset=offset, what=_WHAT)
    if "chunk_num_rows" not in batch.schema.names:
        raise OutdatedManifestError
    try:
        if DIGEST in batch.schema.names:
            raise LayoutError(f"it has a column {DIGEST!r}, which is none of a file")
        table = ManifestTable(batch, bytes(manifest.sorbet_schema.arrow_schema))
        _check_columns(batch, table.layout, table.union)
        _check_spans(table.offsets, table.sizes, messages_end)
        check_ranges(batch, table.layout)
        table = table.with_digests(digests_from_bytes(manifest.chunk_digests, len(table)))
        table.entity_codes  # noqa: B018 (raises for a path that is none)
    except ValueError as error:
        _fail(str(error), path, offset, error)
    return table


def _check_message(manifest: Any, path: str, offset: int) -> None:
    messages.require(manifest, "store_id", "sorbet_schema", "sorbet_schema_sha256", "data", path=path, offset=offset)
    if len(manifest.sorbet_schema_sha256) != 32:
        _fail(f"its digest has {len(manifest.sorbet_schema_sha256)} bytes instead of 32", path, offset)
    if manifest.data.encoder_version != messages.ENCODER_VERSION_V0:
        raise UnsupportedError(
            f"{_WHAT} has the encoder version {manifest.data.encoder_version}; 1 is the only one there is",
            path=path,
            offset=offset,
            hint=_HINT,
        )


def _fail(reason: str, path: str, offset: int, cause: Exception | None = None) -> NoReturn:
    raise ReadError(f"{_WHAT} is damaged: {reason}", path=path, offset=offset, hint=_HINT) from cause


def _check_columns(batch: pa.RecordBatch, layout: Layout, union: UnionSchema) -> None:
    for name, datatype in zip(FIXED, _FIXED_TYPES, strict=True):
        column = batch.column(layout.fixed[name])
        if column.type != datatype:
            raise LayoutError(f"the column {name!r} is {column.type}, not {datatype}")
        if column.null_count:
            raise LayoutError(f"the column {name!r} has {column.null_count} nulls")
    for name, positions in layout.timelines.items():
        _check_index(batch, positions, union.timelines[name], name)
    for detail in layout.details or ():
        _check_index(batch, (detail.start, detail.end), union.timelines[detail.timeline], detail.timeline)
        _check_type(batch, detail.num_rows, pa.uint64())
    for position in layout.statics.values():
        _check_type(batch, position, pa.bool_())
    if not layout.statics.keys() >= set(union.descriptors) and batch.column(layout.fixed["chunk_is_static"]).true_count:
        missing = next(d for d in union.descriptors if d not in layout.statics)
        raise LayoutError(f"the column that says where {missing} is static is missing")


def _check_index(batch: pa.RecordBatch, positions: tuple[int, int], kind: TimelineKind, timeline: str) -> None:
    for position in positions:
        found = batch.schema.field(position)
        if TimelineKind.of(found.type) is not kind:
            raise LayoutError(
                f"the column {found.name!r} is {found.type}, but the timeline {timeline!r} is a {kind.value}"
            )


def _check_type(batch: pa.RecordBatch, position: int, datatype: pa.DataType) -> None:
    found = batch.schema.field(position)
    if found.type != datatype:
        raise LayoutError(f"the column {found.name!r} is {found.type}, not {datatype}")


def _check_spans(offsets: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64], messages_end: int) -> None:
    end = np.uint64(max(messages_end, 0))
    bad = (offsets > end) | (sizes > end) | (offsets < STREAM_HEADER_SIZE + MESSAGE_HEADER_SIZE)
    bad |= ~bad & (offsets + sizes > end)
    if bad.any():
        i = int(np.argmax(bad))
        raise LayoutError(
            f"chunk {i} should lie at byte {offsets[i]}, {sizes[i]} bytes long, but messages end at {end}"
        )
