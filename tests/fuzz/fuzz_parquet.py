"""The Parquet files that are damaged, and where nothing guards their bytes: outside of pages with a checksum."""

from __future__ import annotations

import io
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from chunkmill.readers.parquet.footer import STRUCT, ThriftCursor
from fuzz_sources import Source
from mutation import LengthField


def parquet_sources() -> list[Source]:
    """Each compression with page checksums; several row groups; pages of the second version; one without checksums."""
    plain: dict[str, dict[str, Any]] = {
        "none": {"compression": "none"},
        "snappy": {"compression": "snappy", "row_group_size": 40},
        "zstd": {"compression": "zstd", "use_dictionary": False},
        "gzip": {"compression": "gzip", "data_page_version": "2.0"},
        "lz4": {"compression": "lz4", "data_page_size": 256, "write_statistics": False},
        "unguarded": {"compression": "snappy", "write_page_checksum": False},
    }
    return [_source(name, {"write_page_checksum": True, **options}) for name, options in plain.items()]


def _table() -> pa.Table:
    """Numbers, texts, lists, structs, maps, decimals, dictionaries and nulls in 100 rows."""
    chance, noise = random.Random(4), np.random.default_rng(4)
    rows = range(100)
    return pa.table(
        {
            "arm_x": noise.random(100),
            "arm_y": noise.random(100, np.float32),
            "arm_on": [None if i % 7 == 0 else i % 2 == 0 for i in rows],
            "log_text": [None if i % 5 == 0 else f"row {i} é" for i in rows],
            "log_level": pa.array([("info", "warn", "error")[i % 3] for i in rows]).dictionary_encode(),
            "scan_ranges": [[chance.random() for _ in range(i % 4)] for i in rows],
            "pose": [{"x": i, "tags": [str(i)] * (i % 3)} for i in rows],
            "map": pa.array([[("k", i)] for i in rows], pa.map_(pa.string(), pa.int64())),
            "price": pa.array([Decimal(i) for i in rows], pa.decimal128(9, 2)),
            "stamp": pa.array(list(rows)).cast(pa.timestamp("us", "UTC")),
            "blob": [chance.randbytes(20) for _ in rows],
        },
        metadata={"site": "north"},
    )


def _source(name: str, options: dict[str, Any]) -> Source:
    file = io.BytesIO()
    pq.write_table(_table(), file, **options)
    data = file.getvalue()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    lengths = [LengthField(len(data) - 8, 4), *_varints(data, footer)]
    unguarded = _said_once(data, footer)
    metadata = pq.read_metadata(io.BytesIO(data))
    for group in range(metadata.num_row_groups):
        for leaf in range(metadata.num_columns):
            column = metadata.row_group(group).column(leaf)
            start = column.dictionary_page_offset or column.data_page_offset
            end = start + column.total_compressed_size
            if not options["write_page_checksum"]:
                unguarded.append((start, end))
            while start < end:
                cursor = _Recording(data, start)
                cursor.skip(STRUCT)
                lengths += cursor.found
                unguarded.append((start, cursor.at))
                start = cursor.at + _compressed_size(data, start)
    return Source(name, data, tuple(lengths), tuple(unguarded))


class _Recording(ThriftCursor):
    """Remembers where numbers and lengths stand."""

    def __init__(self, data: bytes, at: int) -> None:
        super().__init__(data, at)
        self.found: list[LengthField] = []

    def varint(self) -> int:
        begin = self.at
        value = super().varint()
        self.found.append(LengthField(begin, self.at - begin, varint=True))
        return value


def _said_once(data: bytes, footer: int) -> list[tuple[int, int]]:
    """What a footer says in one place only: the pairs, and the number of the field that makes bytes a text."""
    ranges = []
    cursor = ThriftCursor(data, footer)
    for part, part_kind in cursor.fields():
        begin = cursor.at
        if part == 2:
            for _ in range(cursor.list_head()[0]):
                for number, kind in cursor.fields():
                    if number == 6:
                        ranges.append((cursor.at - 1, cursor.at))
                    cursor.skip(kind)
            continue
        cursor.skip(part_kind)
        if part == 5:
            ranges.append((begin, cursor.at))
    return ranges


def _varints(data: bytes, footer: int) -> list[LengthField]:
    cursor = _Recording(data, footer)
    cursor.skip(STRUCT)
    return cursor.found


def _compressed_size(data: bytes, at: int) -> int:
    cursor = ThriftCursor(data, at)
    for number, kind in cursor.fields():
        if number == 3:
            return cursor.integer()
        cursor.skip(kind)
    raise AssertionError("a page header without a size")
