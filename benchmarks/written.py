"""A digest of what lies in RRDs, which does not depend on the run that wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import xxhash


def digest_of(places: Iterable[str]) -> str:
    """All chunks of the RRDs, in their order: entity, columns, and every value, but not the ids of chunks and rows.

    ``places`` are paths or URLs.
    """
    found = xxhash.xxh3_64()
    for place in places:
        found.update(place.rpartition("/")[2].encode())
        for chunk in _chunks(place):
            found.update(repr((chunk.entity_path, chunk.is_static, chunk.num_rows)).encode())
            batch = chunk.to_record_batch()
            values = batch.select([i for i, field in enumerate(batch.schema) if not _is_row_id(field)])
            found.update(memoryview(values.schema.remove_metadata().serialize()))
            found.update(memoryview(values.serialize()))
    return found.hexdigest()


def _chunks(place: str) -> Iterator[Any]:
    from chunkmill.readers import RrdReader
    from chunkmill.readers.rrd import RrdSource

    for store in RrdReader(place).recordings():
        source = RrdSource(place, store)
        for split in source.splits():
            yield from source.read(split)


def _is_row_id(field: Any) -> bool:
    return (field.metadata or {}).get(b"rerun:kind") == b"control"
