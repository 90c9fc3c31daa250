"""An HDF5 file: its objects, and rows of its datasets as Arrow arrays.

h5py lists the objects in a separate process. Plain storage (contiguous, or chunks that are at most shuffled and
deflated) is read here, at the places that libhdf5 reports; h5py reads all other storage in that process. Source: the
HDF5 file format specification, version 3.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...engine.errors import MissingExtraError, ReadError, UnsupportedError, extra_command
from ...engine.limits import FREE_HDF5, MAX_HDF5_CHUNK, MAX_HDF5_EXPANSION, MAX_HDF5_MEMORY, MIB
from ...engine.sandbox import SandboxRequest
from ...engine.storage import is_url
from ...engine.storage.positional import PositionalFile, open_inside, open_positional
from ...engine.task_context import current

_PROGRAM: Final = f"{__package__}.worker"
_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_DEFLATE, _SHUFFLE = 1, 2
_HINT: Final = "The file is damaged or malicious; copy it again."
_FOREIGN: Final = (
    "Only other files in the folder of the input are read. Copy the values into this file, or ignore the dataset."
)
_BLOCK: Final = 16 * MIB
_MOST_COLUMNS: Final = 64
_COLUMN_BLOCK: Final = MIB // 4

Bytes = npt.NDArray[np.uint8]


class Hdf5DatasetInfo(NamedTuple):
    """A dataset of an HDF5 file: its path, shape, and element type."""

    path: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Dataset:
    """A dataset and its storage. ``type`` describes its elements; ``item`` is the size of an element in bytes.

    The dataset is at ``inner`` in the file ``home``; an empty ``home`` is the input. ``segments`` of external storage
    are a path, an offset, and a size; a size of 0 is the rest of the file.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    type: dict[str, Any]
    item: int
    layout: str = ""
    offset: int | None = None
    chunks: tuple[int, ...] | None = None
    filters: tuple[int, ...] = ()
    fill: bytes | None = None
    foreign: str | None = None
    is_empty: bool = False
    home: str = ""
    inner: str = ""
    segments: tuple[tuple[str, int, int], ...] = ()

    @property
    def info(self) -> Hdf5DatasetInfo:
        """The entry in :meth:`Hdf5Reader.datasets`."""
        return Hdf5DatasetInfo(self.path, self.shape, self.dtype)

    @property
    def row_items(self) -> int:
        """Elements of a row."""
        return math.prod(self.shape[1:])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.row_items * self.item

    @property
    def total_bytes(self) -> int:
        """Bytes of all values."""
        return math.prod(self.shape) * self.item

    @property
    def is_plain(self) -> bool:
        """Whether its storage is read without h5py."""
        if self.fill is None or self.type["kind"] in ("text", "vlen"):
            return False
        if self.layout in ("contiguous", "external"):
            return True
        return self.layout == "chunked" and self.filters in ((), (_DEFLATE,), (_SHUFFLE,), (_SHUFFLE, _DEFLATE))


@dataclass(frozen=True)
class Tree:
    """The objects of a file in order: groups, datasets, attributes by path, and links that are not followed.

    ``versions`` are the versions of the file and of other files to which it refers, by path.
    """

    groups: tuple[str, ...]
    datasets: tuple[Dataset, ...]
    attributes: dict[str, tuple[tuple[str, pa.Array], ...]]
    skipped: dict[str, tuple[str, ...]]
    links: dict[str, str]
    foreign: dict[str, str]
    versions: dict[str, str | None]


def require_hdf5_extra() -> None:
    """Raise ``MissingExtraError`` if h5py is not installed."""
    if importlib.util.find_spec("h5py") is None:
        raise MissingExtraError("HDF5 needs h5py, which is not installed", hint=extra_command("hdf5"))


class Hdf5File:
    """An open file, and other files in its folder to which it refers.

    With the ``versions`` of a :class:`Tree` that was read before, no other files are opened. Rows before ``stop`` are
    read ahead of calls. Raises ``SourceMissingError``, and ``ReadError`` if the file is not HDF5.
    """

    def __init__(self, path: str, versions: Mapping[str, str | None] | None = None, stop: int = 0) -> None:
        require_hdf5_extra()
        self.path = path
        self._versions = versions
        self._file = open_positional(path, None if versions is None else versions[path])
        self._others: dict[str, PositionalFile] = {}
        self._decoded: OrderedDict[tuple[Any, ...], Bytes] = OrderedDict()
        self._held = 0
        self._indexes: dict[str, dict[tuple[int, ...], tuple[int, int, int]]] = {}
        self._blocks: dict[str, tuple[int, int, Bytes]] = {}
        self._ahead: dict[str, tuple[int, int, Future[Bytes]]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._stop = stop
        try:
            self._check_signature()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for file in (self._file, *self._others.values()):
            file.close()

    def _opened(self, home: str) -> PositionalFile:
        return self._others.get(home) or self._other(home, self.path) if home else self._file

    def _other(self, name: str, referring: str) -> PositionalFile:
        """Return the file that ``referring`` calls ``name``. Raises ``ReadError`` if it is outside the input folder."""
        if is_url(self.path):
            raise ReadError("not read: the input is in an object store", path=self.path)
        folder = os.path.dirname(self.path)  # noqa: PTH120
        place = os.path.realpath(os.path.join(os.path.dirname(referring), name))  # noqa: PTH118, PTH120
        if place in self._others:
            return self._others[place]
        if self._versions is not None and place not in self._versions:
            raise ReadError("missing when the input was opened", path=place)
        file = open_inside(folder, place, None if self._versions is None else self._versions[place])
        if os.path.samestat(os.fstat(file.fileno()), os.fstat(self._file.fileno())):
            file.close()
            file = self._file
        self._others[place] = file
        return file

    def _check_signature(self) -> None:
        """Check for the signature at offset 0 and then at powers of two from 512 on: a user block may come first."""
        at = 0
        while at + len(_SIGNATURE) <= self._file.size:
            if self._file.read(at, len(_SIGNATURE), what="the signature") == _SIGNATURE:
                return
            at = 2 * at or 512
        why = "the file is empty" if not self._file.size else "HDF5 signature not found at any valid offset"
        raise ReadError(why, path=self.path, offset=0, hint="This is not an HDF5 file, or its beginning is missing.")

    def tree(self) -> Tree:
        """Read all objects. Raises ``ReadError``."""
        work = self._request({"operation": "tree"})
        list(work.items())
        homes = ["", *(file.path for file in work.files[1:])]
        groups, datasets = [], []
        attributes: dict[str, tuple[tuple[str, pa.Array], ...]] = {}
        skipped: dict[str, tuple[str, ...]] = {}
        links: dict[str, str] = {}
        foreign: dict[str, str] = {}
        for item in work.answer:
            path = str(item["path"])
            if item["kind"] == "link":
                (foreign if "foreign" in item else links)[path] = str(item.get("foreign") or item["why"])
                continue
            if item["attributes"]:
                attributes[path] = tuple((a[0], _attribute(a)) for a in item["attributes"])
            if item["skipped"]:
                skipped[path] = tuple(map(str, item["skipped"]))
            if item["kind"] == "group":
                groups.append(path)
            else:
                datasets.append(_dataset(item, homes))
        versions = {path: file.version for path, file in ((self.path, self._file), *self._others.items())}
        return Tree(tuple(groups), tuple(datasets), attributes, skipped, links, foreign, versions)

    def check(self, datasets: Sequence[Dataset]) -> None:
        """Raise ``ReadError`` for values in files that are not read, and for sizes too large for the file or memory."""
        for dataset in datasets:
            if dataset.foreign is not None:
                raise self._error(dataset, dataset.foreign, _FOREIGN)
            if dataset.layout == "external" and not dataset.is_plain:
                raise self._error(dataset, f"its values are in other files, in the form {dataset.dtype}", _FOREIGN)
            unit = math.prod(dataset.chunks) * dataset.item if dataset.chunks else 0
            if unit > MAX_HDF5_CHUNK:
                what = f"a storage chunk has {unit:,} bytes, but at most {MAX_HDF5_CHUNK:,} are supported"
                raise self._error(dataset, what, "Rewrite the file with smaller chunks (h5repack -l).")
            row = dataset.row_bytes if dataset.shape else dataset.item
            if row > MAX_HDF5_CHUNK:
                what = f"a row has {row:,} bytes, but at most {MAX_HDF5_CHUNK:,} are supported"
                raise self._error(dataset, what, "Ignore the dataset.")
        total = sum(max(d.total_bytes, d.shape[0] if d.shape else 0) for d in datasets)
        size = sum(file.size for file in {self._file, *self._others.values()})
        most = FREE_HDF5 + MAX_HDF5_EXPANSION * size
        if total > most:
            largest = max(datasets, key=lambda d: d.total_bytes)
            what = f"the datasets declare {total:,} bytes, more than the {most:,} possible in {size:,}"
            raise self._error(largest, what, "The file is damaged or malicious, or its values were never written.")

    def array(self, dataset: Dataset, start: int, stop: int) -> pa.Array:
        """Return rows of a dataset with one value each: a number, a fixed-size list (two dimensions) or a list (more).

        For a dataset without rows, return its only value. Raises ``ReadError``.
        """
        count = stop - start if dataset.shape else 1
        items = count * dataset.row_items if dataset.shape else 1
        data = self._bytes(dataset, start, stop)
        try:
            flat = _elements(dataset.type, data, items)
        except (ValueError, pa.ArrowException) as error:
            raise self._error(dataset, f"rows {start:,} to {stop:,}: {error}", _HINT) from error
        if len(flat) != items:
            raise self._error(dataset, f"rows {start:,} to {stop:,} have {len(flat):,} of {items:,} values", _HINT)
        return _shaped(flat, count, dataset.shape[1:])

    def _bytes(self, dataset: Dataset, start: int, stop: int) -> bytes | Bytes:
        if not dataset.shape:
            return self._asked_rows(dataset, 0, 1)
        if not dataset.is_plain:
            return self._asked_rows(dataset, start, stop)
        if dataset.layout == "contiguous":
            size = (stop - start) * dataset.row_bytes
            if dataset.offset is None:
                return np.tile(np.frombuffer(dataset.fill or b"", np.uint8), size // max(dataset.item, 1))
            at = dataset.offset + start * dataset.row_bytes
            out = _memory(size)
            self._opened(dataset.home).read_into(at, out.data, what=f"rows {start:,} to {stop:,} of {dataset.path}")
            return out
        if dataset.layout == "external":
            return self._external(dataset, start, stop)
        return self._chunked(dataset, start, stop)

    def _external(self, dataset: Dataset, start: int, stop: int) -> bytes:
        """Read rows from segments of other files."""
        at, left = start * dataset.row_bytes, (stop - start) * dataset.row_bytes
        what = f"rows {start:,} to {stop:,} of {dataset.path}"
        parts = []
        for home, offset, size in dataset.segments:
            length = min(left, size - at) if size else left
            if length > 0:
                parts.append(self._opened(home).read(offset + at, length, what=what))
                at, left = 0, left - length
            else:
                at -= size
        if left:
            raise self._error(dataset, f"its external storage ends {left:,} bytes before the end of {what}", _HINT)
        return b"".join(parts)

    def _chunked(self, dataset: Dataset, start: int, stop: int) -> Bytes:
        """Read rows from storage chunks; chunks that were never written have fill values."""
        assert dataset.chunks is not None
        shape, chunks = dataset.shape, dataset.chunks
        first = start // chunks[0] * chunks[0]
        rest = [range(0, size, step) for size, step in zip(shape[1:], chunks[1:], strict=True)]
        if chunks[1:] == shape[1:] and stop <= first + chunks[0]:
            whole = self._chunk(dataset, (first, *(0 for _ in rest)), stop)
            return whole[(start - first) * dataset.row_bytes : (stop - first) * dataset.row_bytes]
        out = _memory((stop - start) * dataset.row_bytes).reshape(stop - start, *shape[1:], dataset.item)
        for corner in itertools.product(range(first, stop, chunks[0]), *rest):
            chunk = self._chunk(dataset, corner, stop).reshape((*chunks, dataset.item))
            low, high = max(corner[0], start), min(corner[0] + chunks[0], stop)
            ends = [min(at + step, size) for at, step, size in zip(corner[1:], chunks[1:], shape[1:], strict=True)]
            target = (slice(low - start, high - start), *(slice(a, b) for a, b in zip(corner[1:], ends, strict=True)))
            source = (
                slice(low - corner[0], high - corner[0]),
                *(slice(0, b - a) for a, b in zip(corner[1:], ends, strict=True)),
            )
            out[target] = chunk[source]
        return out.reshape(-1)

    def _chunk(self, dataset: Dataset, corner: tuple[int, ...], stop: int) -> Bytes:
        """Return a storage chunk. It is kept for the next call if it extends beyond row ``stop``."""
        key = (dataset.path, corner)
        assert dataset.chunks is not None
        is_used_up = stop >= min(corner[0] + dataset.chunks[0], dataset.shape[0])
        data = self._decoded.pop(key, None)
        if data is not None:
            self._held -= len(data)
        else:
            size = math.prod(dataset.chunks) * dataset.item
            place = self._index(dataset).get(corner)
            if place is None:
                data = np.tile(np.frombuffer(dataset.fill or b"", np.uint8), size // max(dataset.item, 1))
            else:
                data = self._decode(dataset, place, size)
        if not is_used_up:
            while self._decoded and self._held + len(data) > MAX_HDF5_CHUNK:
                self._held -= len(self._decoded.popitem(last=False)[1])
            self._decoded[key] = data
            self._held += len(data)
        return data

    def _decode(self, dataset: Dataset, place: tuple[int, int, int], size: int) -> Bytes:
        offset, length, mask = place
        what = f"a chunk of {dataset.path}"
        data: bytes | Bytes = self._opened(dataset.home).read(offset, length, what=what)
        for number in reversed(range(len(dataset.filters))):
            if mask >> number & 1:
                continue
            if dataset.filters[number] == _DEFLATE:
                data = self._inflated(dataset, data, size, offset)
            elif dataset.item > 1:
                if len(data) % dataset.item:
                    raise self._error(dataset, f"a chunk has {len(data):,} bytes, not {size:,}", _HINT, offset)
                data = _unshuffled(data, dataset.item)
        if len(data) != size:
            raise self._error(dataset, f"a chunk has {len(data):,} bytes, not {size:,}", _HINT, offset)
        return np.frombuffer(data, np.uint8)

    def _inflated(self, dataset: Dataset, data: bytes | Bytes, size: int, offset: int) -> bytes:
        from zlib_ng import zlib_ng

        try:
            unpacker = zlib_ng.decompressobj()
            out: bytes = unpacker.decompress(data, size + 1)
        except zlib_ng.error as error:  # type: ignore[misc]  # its stub does not say that it is an exception
            raise self._error(dataset, f"a chunk cannot be inflated: {error}", _HINT, offset) from error
        if not unpacker.eof:
            raise self._error(dataset, "a chunk inflates to more than its size, or is truncated", _HINT, offset)
        return out

    def _index(self, dataset: Dataset) -> dict[tuple[int, ...], tuple[int, int, int]]:
        """The places of the storage chunks by corner."""
        index = self._indexes.get(dataset.path)
        if index is None:
            data = self._ask("index", dataset)
            rank = len(dataset.shape)
            if len(data) % (8 * (rank + 3)):
                raise self._error(dataset, "its index of chunks cannot be read", _HINT)
            rows = np.frombuffer(data, np.int64).reshape(-1, rank + 3).tolist()
            index = self._indexes[dataset.path] = {
                tuple(row[:rank]): (row[rank], row[rank + 1], row[rank + 2]) for row in rows
            }
        return index

    def _asked_rows(self, dataset: Dataset, start: int, stop: int) -> Bytes:
        """Read rows with h5py, in blocks with more rows than one call needs."""
        if not dataset.shape:
            return self._ask("rows", dataset, 0, 1)
        if dataset.type["kind"] in ("text", "vlen"):
            return self._ask("rows", dataset, start, stop)
        parts = []
        while start < stop:
            low, high, data = self._block(dataset, start)
            end = min(stop, high)
            parts.append(data[(start - low) * dataset.row_bytes : (end - low) * dataset.row_bytes])
            start = end
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _block(self, dataset: Dataset, row: int) -> tuple[int, int, Bytes]:
        """Return the block that contains a row: its first row, the row after its last, and its bytes.

        The next block is read ahead: h5py decodes while this process continues (lzf in ``benchmarks/bench_hdf5.py``).
        """
        block = self._blocks.get(dataset.path)
        if block is None or not block[0] <= row < block[1]:
            ahead = self._ahead.pop(dataset.path, None)
            low, high, pending = ahead if ahead is not None and ahead[0] == row else self._begun(dataset, row)
            block = self._blocks[dataset.path] = low, high, pending.result()
            if len(block[2]) != (high - low) * dataset.row_bytes:
                raise self._error(dataset, f"rows {low:,} to {high:,} have {len(block[2]):,} bytes", _HINT)
            if high < self._stop and self._file.is_local:
                self._ahead[dataset.path] = self._begun(dataset, high)
        return block

    def _begun(self, dataset: Dataset, low: int) -> tuple[int, int, Future[Bytes]]:
        """Start to read a block. Return its first row, the row after its last, and a future of its bytes."""
        size = max(dataset.row_bytes, 1)
        high = low + max(_BLOCK // size, 1)
        if dataset.chunks and dataset.chunks[0] * size <= MAX_HDF5_CHUNK // 4:
            high = -(-high // dataset.chunks[0]) * dataset.chunks[0]
        stop = self._stop if low < self._stop else dataset.shape[0]
        high = min(high, stop)
        context = current()

        def read() -> Bytes:
            with context.entered():
                return self._ask("rows", dataset, low, high)

        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "chunkmill-hdf5")
        return low, high, self._threads.submit(read)

    def _ask(self, operation: str, dataset: Dataset, start: int = 0, stop: int = 0) -> Bytes:
        request = {"operation": operation, "path": dataset.inner, "start": start, "stop": stop}
        out = np.empty(0, np.uint8)
        work = self._request(request, dataset.home)
        for _, data in work.items():  # noqa: PERF102 (no dict)
            out = _memory(len(data))
            out[:] = np.frombuffer(data, np.uint8)
        return out

    def _request(self, request: dict[str, Any], home: str = "") -> SandboxRequest:
        file = self._opened(home)
        return SandboxRequest(
            _PROGRAM,
            {**request, "size": file.size},
            memory=MAX_HDF5_MEMORY,
            path=file.path,
            file=file,
            open_file=self._other,
        )

    def _error(self, dataset: Dataset, message: str, hint: str, offset: int | None = None) -> ReadError:
        kind = UnsupportedError if dataset.foreign is not None else ReadError
        return kind(f"{dataset.path}: {message}", path=dataset.home or self.path, offset=offset, hint=hint)


def _memory(size: int) -> Bytes:
    """Memory from Arrow, which reuses that of earlier chunks; large blocks from glibc cause page faults each time."""
    return np.frombuffer(pa.allocate_buffer(size), np.uint8)


def _unshuffled(data: bytes | Bytes, item: int) -> Bytes:
    """Undo HDF5's shuffle, which stores the first bytes of all elements, then their second bytes, and so on.

    It works column by column in blocks that fit the cache: for 2 to 8 bytes, 2 to 6 times as fast as a transposition.
    """
    planes = np.frombuffer(data, np.uint8).reshape(item, -1)
    if item > _MOST_COLUMNS:
        return planes.T.reshape(-1)
    out = np.empty((planes.shape[1], item), np.uint8)
    step = max(_COLUMN_BLOCK // item, 1)
    for at in range(0, len(out), step):
        for column in range(item):
            out[at : at + step, column] = planes[column, at : at + step]
    return out.reshape(-1)


def _dataset(item: dict[str, Any], homes: Sequence[str]) -> Dataset:
    chunks, fill = item.get("chunks"), item.get("fill")
    return Dataset(
        str(item["path"]),
        tuple(map(int, item["shape"])),
        str(item["dtype"]),
        item["type"],
        int(item["item"]),
        item.get("layout", ""),
        item.get("offset"),
        tuple(map(int, chunks)) if chunks else None,
        tuple(map(int, item.get("filters", ()))),
        bytes.fromhex(fill) if fill else None,
        item.get("foreign"),
        bool(item.get("empty")),
        homes[item["file"]],
        str(item["inner"]),
        tuple((homes[number], int(offset), int(size)) for number, offset, size in item.get("segments", ())),
    )


def _attribute(facts: Sequence[Any]) -> pa.Array:
    """One value; several values are one fixed-size list. A bool is an int8, as stored."""
    _, kind, count, rank, values = facts
    if isinstance(values, list):
        flat = pa.array(values, pa.string())
    elif kind["kind"] == "bool":
        flat = pa.array(np.frombuffer(bytes.fromhex(values), np.int8))
    else:
        flat = _elements(kind, bytes.fromhex(values), count)
    return flat if rank == 0 else _shaped(flat, 1, (count,))


def _shaped(flat: pa.Array, rows: int, shape: Sequence[int]) -> pa.Array:
    if not shape:
        return flat
    items = math.prod(shape)
    kind = pa.field("item", flat.type)
    if len(shape) == 1:
        return pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(kind, items))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int64) * items, pa.int32())
    return pa.ListArray.from_arrays(offsets, flat, type=pa.list_(kind))


def _numbers(dtype: str, data: bytes | Bytes, count: int) -> npt.NDArray[Any]:
    values = np.frombuffer(data, dtype, count)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _elements(kind: dict[str, Any], data: bytes | Bytes, count: int) -> pa.Array:
    """Return ``count`` elements of one type as an array, from their consecutive bytes."""
    return _MAKERS[kind["kind"]](kind, data, count)


def _number_array(kind: dict[str, Any], data: bytes | Bytes, count: int) -> pa.Array:
    values = _numbers(kind["dtype"], data, count)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), count, [None, pa.py_buffer(values)])


def _bool_array(_kind: dict[str, Any], data: bytes | Bytes, count: int) -> pa.Array:
    return pa.array(np.frombuffer(data, np.uint8, count) != 0)


def _time_array(kind: dict[str, Any], data: bytes | Bytes, count: int) -> pa.Array:
    dtype = np.dtype(kind["dtype"])
    unit = np.datetime_data(dtype)[0]
    values = pa.array(_numbers(dtype.str[0] + "i8", data, count), pa.int64())
    return values.view(pa.timestamp(unit) if dtype.kind == "M" else pa.duration(unit))


def _bytes_array(kind: dict[str, Any], data: bytes | Bytes, count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(kind["size"]), count, [None, pa.py_buffer(data)])


def _fixed_array(kind: dict[str, Any], data: bytes | Bytes, count: int) -> pa.Array:
    values = np.frombuffer(data, f"S{kind['size']}", count).tolist()
    return pa.array([value.decode("utf-8", "backslashreplace") for value in values], pa.string())


def _array_array(kind: dict[str, Any], data: bytes | Bytes, count: int) -> pa.Array:
    items = math.prod(kind["shape"])
    return _shaped(_elements(kind["of"], data, count * items), count, (items,))


def _struct_array(kind: dict[str, Any], data: bytes | Bytes, count: int) -> pa.Array:
    size = len(data) // count if count else sum(part[2] for part in kind["fields"])
    rows = np.frombuffer(data, np.uint8, count * size).reshape(count, size)
    arrays, fields = [], []
    for name, offset, width, of in kind["fields"]:
        arrays.append(_elements(of, np.ascontiguousarray(rows[:, offset : offset + width]).reshape(-1), count))
        fields.append(pa.field(name, arrays[-1].type))
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _ends(data: bytes | Bytes, count: int, size: int) -> npt.NDArray[np.int32]:
    lengths = np.frombuffer(data, np.int64, count)
    if count and (lengths.min() < 0 or lengths.sum() != len(data) - 8 * count or lengths.sum() >= 2**31 * size):
        raise ValueError("values of variable length do not match their bytes")
    return np.concatenate([[0], np.cumsum(lengths) // size]).astype(np.int32)


def _text_array(_kind: dict[str, Any], data: bytes | Bytes, count: int) -> pa.Array:
    ends = _ends(data, count, 1)
    values = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(data[8 * count :])])
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        body = bytes(data[8 * count :])
        texts = [body[a:b].decode("utf-8", "backslashreplace") for a, b in itertools.pairwise(ends.tolist())]
        return pa.array(texts, pa.string())
    return values


def _vlen_array(kind: dict[str, Any], data: bytes | Bytes, count: int) -> pa.Array:
    size = np.dtype(kind["of"]["dtype"]).itemsize
    ends = _ends(data, count, size)
    flat = _elements(kind["of"], data[8 * count :], (len(data) - 8 * count) // size)
    return pa.ListArray.from_arrays(pa.array(ends), flat, type=pa.list_(pa.field("item", flat.type)))


_MAKERS: Final[dict[str, Callable[[dict[str, Any], bytes | Bytes, int], pa.Array]]] = {
    "number": _number_array,
    "bool": _bool_array,
    "time": _time_array,
    "bytes": _bytes_array,
    "fixed": _fixed_array,
    "array": _array_array,
    "struct": _struct_array,
    "text": _text_array,
    "vlen": _vlen_array,
}
