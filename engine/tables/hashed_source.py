"""Rows of a source by their key, in files of scratch: keys in parts by a hash, sorted by it, that say where values are.

Values lie as they came from the source, in files of their own: to have them sorted, too, was a third of the time of a
load (scale_computed.py). All are Arrow files that whoever looks keys up maps into memory: he touches what he finds,
whatever the size of the source is. A key is found by its hash, of 64 bits, and compared with what is there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from ..folders import Folder
from ..locations import located

HASH: Final = "_hash"
KEY: Final = "_key"
FILE: Final = "_file"
ROW: Final = "_row"
_PARTS_OPEN: Final = 512

Hashes = npt.NDArray[np.uint64]


def hashes_of(keys: pa.Array) -> Hashes:
    """The hashes of keys, the same in each process. They are not null.

    Integers are mixed as by splitmix64 (Steele, Lea and Flood, 2014), everything else by pandas' SipHash.
    """
    if pa.types.is_integer(keys.type) or pa.types.is_temporal(keys.type) or pa.types.is_boolean(keys.type):
        width = keys.type.bit_width if not pa.types.is_boolean(keys.type) else 8
        plain = keys.cast(pa.int8()) if width == 8 and pa.types.is_boolean(keys.type) else keys
        if pa.types.is_temporal(plain.type):
            plain = plain.cast(pa.int32() if width == 32 else pa.int64())
        x = plain.to_numpy(zero_copy_only=False).astype(np.uint64)
        with np.errstate(over="ignore"):
            x = x + np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return np.asarray(x ^ (x >> np.uint64(31)), dtype=np.uint64)
    from pandas.util import hash_array

    return np.asarray(hash_array(keys.to_numpy(zero_copy_only=False).astype(object), categorize=False), np.uint64)


def part_of(hashes: Hashes, parts: int) -> npt.NDArray[np.int64]:
    """The number of the part that each hash is in."""
    return (hashes >> np.uint64(40)).astype(np.int64) % parts


def sorted_part(tables: Sequence[pa.Table], key: str) -> pa.Table:
    """The rows of a part, with their hashes, sorted by them, and the key behind them."""
    table = pa.concat_tables(tables).combine_chunks()
    keys = table.column(key).combine_chunks() if table.num_rows else pa.nulls(0, table.schema.field(key).type)
    hashes = hashes_of(keys)
    order = np.argsort(hashes, kind="stable")
    taken = table.take(pa.array(order))
    return pa.table(
        [
            pa.array(hashes[order]),
            taken.column(key),
            *(taken.column(name) for name in table.schema.names if name != key),
        ],
        [HASH, KEY, *(name for name in table.schema.names if name != key)],
    )


def duplicates_in(part: pa.Table) -> int:
    """The number of rows of a sorted part whose key another row before has."""
    hashes = part.column(HASH).to_numpy()
    same = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    if not len(same):
        return 0
    groups: dict[int, set[object]] = {}
    count = 0
    for at in same.tolist():
        seen = groups.setdefault(int(hashes[at]), {part.column(KEY)[at - 1].as_py()})
        value = part.column(KEY)[at].as_py()
        count += value in seen
        seen.add(value)
    return count


def written(table: pa.Table) -> memoryview:
    """A table as an Arrow file that can be mapped."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return memoryview(sink.getvalue())


@dataclass(frozen=True)
class HashedSource:
    """The sorted parts of a source, the files of its values, in a folder, and the bytes of a row. It pickles."""

    folder: str
    parts: int
    files: tuple[str, ...]
    row_bytes: int

    @staticmethod
    def name_of(part: int) -> str:
        """The name of a part's file."""
        return f"{part:05d}.sorted"

    def find(self, keys: pa.Array, schema: pa.Schema) -> tuple[npt.NDArray[np.bool_], pa.RecordBatch]:
        """The mask of the keys that the source has, and the values of these, in their order. A null is no key."""
        found = np.zeros(len(keys), np.bool_)
        there = np.flatnonzero(np.asarray(keys.is_valid()))
        known = keys.take(pa.array(there)) if len(there) != len(keys) else keys
        hashes = hashes_of(known)
        numbers = part_of(hashes, self.parts)
        hits: list[npt.NDArray[np.int64]] = [np.empty((3, 0), np.int64)]
        for part in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == part)
            table = _part(self.folder, self.name_of(part))
            at = _places(table, hashes[mine], known.take(pa.array(mine)))
            hit = at >= 0
            hits.append(np.stack([there[mine[hit]], *(table.column(name).to_numpy()[at[hit]] for name in (FILE, ROW))]))
        order, files, rows = np.concatenate(hits, axis=1).astype(np.int64)
        if not len(order):
            return found, pa.RecordBatch.from_pylist([], schema)
        found[order] = True
        by_file = np.argsort(files, kind="stable")
        values = [
            _part(self.folder, self.files[files[own[0]]]).select(schema.names).take(pa.array(rows[own]))
            for own in np.split(by_file, np.flatnonzero(np.diff(files[by_file])) + 1)
        ]
        joined = pa.concat_tables(values).take(pa.array(np.argsort(order[by_file], kind="stable"))).combine_chunks()
        arrays = [
            joined.column(name).chunk(0) if joined.num_rows else pa.nulls(0, schema.field(name).type)
            for name in schema.names
        ]
        return found, pa.RecordBatch.from_arrays(arrays, schema=schema)


def _places(table: pa.Table, hashes: Hashes, keys: pa.Array) -> npt.NDArray[np.int64]:
    """The row of each key in a sorted part; -1 where it is not there."""
    sorted_ = table.column(HASH).to_numpy()
    at = np.searchsorted(sorted_, hashes).astype(np.int64)
    found = np.full(len(hashes), -1, np.int64)
    open_ = np.arange(len(hashes))
    while len(open_):
        inside = at[open_] < len(sorted_)
        open_ = open_[inside]
        open_ = open_[sorted_[at[open_]] == hashes[open_]]
        if not len(open_):
            break
        equal = np.asarray(
            pc.equal(table.column(KEY).take(pa.array(at[open_])).combine_chunks(), keys.take(pa.array(open_)))
        )
        found[open_[equal]] = at[open_[equal]]
        open_ = open_[~equal]
        at[open_] += 1  # another key with this hash
    return found


@lru_cache(maxsize=_PARTS_OPEN)
def _part(folder: str, name: str) -> pa.Table:
    return opened(folder, name)


def opened(folder: str, name: str) -> pa.Table:
    """An Arrow file, mapped into memory; one of an object store from a copy that has no name."""
    place = located(folder)
    if isinstance(place, Path):
        return pa.ipc.open_file(pa.memory_map(str(place / name))).read_all()
    with tempfile.NamedTemporaryFile(prefix="chunkmill-part-") as copy:
        copy.write(Folder.at(place).get(name))
        copy.flush()
        return pa.ipc.open_file(pa.memory_map(copy.name)).read_all()


def forget_parts() -> None:
    """Let go of all parts, whose files may be gone."""
    _part.cache_clear()


def check_keys(type_: pa.DataType) -> None:
    """Raise ``UsageError`` for a type that keys cannot have."""
    if pa.types.is_nested(type_) or pa.types.is_floating(type_) or pa.types.is_null(type_):
        raise UsageError(f"a primary key of type {type_} is not compared", hint="Use integers, texts, bytes or times.")
