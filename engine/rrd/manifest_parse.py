"""Reading the manifest of one store: every chunk's header and place, without touching a chunk."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk.entity_path import parse_entity_path
from ..chunk.header import TimelineKind
from ..errors import ReadError, UnsupportedError
from . import messages
from .arrow_ipc import check_compression, decode_batch, decode_schema, decompress
from .column_names import FIXED
from .entry import ChunkEntry
from .framing import MESSAGE_HEADER_SIZE, STREAM_HEADER_SIZE
from .manifest_headers import HeaderBuilder, nulls_as_zero
from .manifest_layout import Layout, LayoutError, UnionSchema, lay_out, read_union_schema

_WHAT: Final = "the manifest in the footer"
_HINT: Final = "The footer is damaged, or its writer is; read the file with recover=True to go without it."
_FIXED_TYPES: Final = (
    pa.string(), pa.binary(16), pa.bool_(), pa.uint64(), pa.uint64(), pa.uint64(), pa.uint64()
)  # fmt: skip


class OutdatedManifestError(Exception):
    """A manifest of the first drafts, which did not count rows: good for nothing, and no damage."""


def parse_manifest(manifest: Any, *, path: str, offset: int, messages_end: int) -> tuple[list[ChunkEntry], UnionSchema]:
    """The entries of a protobuf ``RrdManifest``, in its order, and the union schema beside them.

    ``messages_end`` is where the file's messages end. The header of a chunk without rows, and of one whose
    components the manifest does not tell, has no components: look into the chunk for them. Raises
    :class:`ReadError`; :class:`OutdatedManifestError` where the row counts are missing.
    """
    _check_message(manifest, path, offset)
    schema = decode_schema(
        manifest.sorbet_schema.arrow_schema, path=path, offset=offset, what="the schema in the footer"
    )
    part = manifest.data
    compression = check_compression(part.compression, path=path, offset=offset)
    stream = decompress(part.payload, compression, part.uncompressed_size, path=path, offset=offset, what=_WHAT)
    batch = decode_batch(stream, path=path, offset=offset, what=_WHAT)
    if "chunk_num_rows" not in batch.schema.names:
        raise OutdatedManifestError
    try:
        union = read_union_schema(schema)
        layout = lay_out(batch.schema, union)
        _check_columns(batch, layout, union)
        return _entries(batch, layout, union, messages_end), union
    except ValueError as error:
        _fail(str(error), path, offset, error)


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


def _entries(batch: pa.RecordBatch, layout: Layout, union: UnionSchema, messages_end: int) -> list[ChunkEntry]:
    path, ids, static, rows, offsets, sizes, uncompressed = (batch.column(layout.fixed[n]) for n in FIXED)
    _check_spans(nulls_as_zero(offsets), nulls_as_zero(sizes), messages_end)
    canonical = {p: parse_entity_path(p) for p in path.unique().to_pylist()}
    builder = HeaderBuilder(batch, layout, union)
    columns = (path, ids, static, rows, offsets, sizes, uncompressed)
    return [
        ChunkEntry(builder.header(i, canonical[p], chunk_id, is_static, n), offset, size, expanded)
        for i, (p, chunk_id, is_static, n, offset, size, expanded) in enumerate(
            zip(*(c.to_pylist() for c in columns), strict=True)
        )
    ]


def _check_spans(offsets: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64], messages_end: int) -> None:
    end = np.uint64(max(messages_end, 0))
    bad = (offsets > end) | (sizes > end) | (offsets < STREAM_HEADER_SIZE + MESSAGE_HEADER_SIZE)
    bad |= ~bad & (offsets + sizes > end)
    if bad.any():
        i = int(np.argmax(bad))
        raise LayoutError(
            f"chunk {i} should lie at byte {offsets[i]}, {sizes[i]} bytes long, but messages end at {end}"
        )
