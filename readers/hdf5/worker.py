"""The program of the process that runs h5py. Files that crash libhdf5 or use up memory end only that process.

It runs in a :class:`...engine.sandbox.Sandbox` and cannot open files, so libhdf5 cannot follow links to other files.
This program follows links, and the requesting process opens the files that it allows. All bytes come by the pipe.
"""

from __future__ import annotations

import codecs
import contextlib
import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from ...engine.sandbox import AskedFile, FailureError, Pipes, failure_of, serve

_PAGE = 1 << 18
_PAGES = 64
_RUN = 8
"""The number of pages to read at once if the page before them was read."""
_SECONDS = 5.0
_MOST_OBJECTS = 100_000
_MOST_PATHS = 10_000
_MOST_DEPTH = 64
_MOST_LINKS = 16
_MOST_FILES = 256
_MOST_ATTRIBUTE = 1 << 24
_MOST_CHUNKS = 1 << 22
_MOST_BLOCK = 1 << 28
_CACHE = 1 << 20
"""Each request opens the file anew and reads each storage chunk once, so a larger cache would only cost memory."""


class _ForeignError(Exception):
    """Another file is not read; the message names it and the reason."""


class _PagedFile(AskedFile):
    """A file object for h5py. Small reads fetch whole pages; the most recent pages are kept."""

    def __init__(self, wire: Pipes, size: int, number: int) -> None:
        super().__init__(wire, size, 64 * size + (1 << 26), number)
        self._pages: OrderedDict[int, memoryview] = OrderedDict()

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the current position; return how many bytes were read."""
        size = max(0, min(len(buffer), self._size - self.position))
        if size > _PAGE:
            buffer[:size] = self._asked(self.position, size)
            self.position += size
            return size
        done = 0
        while done < size:
            number, at = divmod(self.position, _PAGE)
            part = self._page(number)[at : at + size - done]
            if not part:
                break
            buffer[done : done + len(part)] = part
            done += len(part)
            self.position += len(part)
        return done

    def _page(self, number: int) -> memoryview:
        page = self._pages.get(number)
        if page is not None:
            self._pages.move_to_end(number)
            return page
        count = _RUN if number - 1 in self._pages else 1
        start = number * _PAGE
        data = memoryview(bytes(self._asked(start, min(count * _PAGE, self._size - start))))
        for i in range(0, len(data), _PAGE):
            self._pages[number + i // _PAGE] = data[i : i + _PAGE]
        while len(self._pages) > _PAGES:
            self._pages.popitem(last=False)
        return data[:_PAGE]

    def write(self, _data: bytes) -> int:
        """Refuse: h5py looks for the method."""
        raise FailureError("the file is read only")

    def truncate(self, _size: int | None = None) -> int:
        """Refuse: h5py looks for the method."""
        raise FailureError("the file is read only")

    def flush(self) -> None:
        """Do nothing: nothing is written."""


class _Files:
    """The files of a request by number: 0 is the requested file, other numbers are files that it refers to."""

    def __init__(self, wire: Pipes, size: int) -> None:
        self.wire = wire
        self._sizes = {0: size}
        self._numbers: dict[tuple[str, int], int] = {}
        self._open: dict[int, Any] = {}

    def close(self) -> None:
        """Close them."""
        for file in self._open.values():
            file.close()

    def number(self, name: str, of: int) -> int:
        """Return the number of a file to which the file ``of`` refers. Raises :class:`_ForeignError`."""
        number = self._numbers.get((name, of))
        if number is None:
            if len(self._numbers) >= _MOST_FILES:
                raise FailureError(f"it refers to more than {_MOST_FILES} other files")
            answer, _ = self.wire.ask("open", [name, of])
            if isinstance(answer, str):
                raise _ForeignError(f"another file, {_shown(name)} ({answer})")
            number, self._sizes[number] = answer
            self._numbers[name, of] = number
        return number

    def root(self, number: int) -> Any:
        """Return the root group of a file. Raises :class:`_ForeignError` if another file is not HDF5."""
        if number not in self._open:
            file = _PagedFile(self.wire, self._sizes[number], number)
            try:
                self._open[number] = h5py.File(file, "r", rdcc_nbytes=_CACHE)
            except OSError as error:
                if not number:
                    raise
                raise _ForeignError(f"another file, {self._name(number)} (not HDF5: {error})") from error
        return self._open[number]["/"]

    def _name(self, number: int) -> str:
        return _shown(next(name for (name, _), other in self._numbers.items() if other == number))

    def follow(self, number: int, here: Any, path: str) -> tuple[int, Any]:
        """Follow a path and all its links from a group; return the number of the object's file, and the object.

        Raises ``KeyError`` if there is no object, and :class:`_ForeignError` if it is missing in another file.
        """
        waiting = _parts(path)
        followed, start = 0, number
        here = self.root(number) if path.startswith("/") else here
        try:
            while waiting:
                part = waiting.pop()
                link = here.get(part, getlink=True) if isinstance(here, h5py.Group) else None
                if isinstance(link, h5py.ExternalLink):
                    number = self.number(link.filename, number)
                    here = self.root(number)
                elif not isinstance(link, h5py.SoftLink):
                    here = here[part] if link is not None else _nothing(part)
                    continue
                elif link.path.startswith("/"):
                    here = self.root(number)
                followed += 1
                if followed > _MOST_LINKS:
                    raise KeyError(f"more than {_MOST_LINKS} links")
                waiting += _parts(link.path)
        except KeyError as error:
            if number == start:
                raise
            raise _ForeignError(f"another file, {self._name(number)} (missing: {error})") from error
        return number, here


@contextlib.contextmanager
def _opened(wire: Pipes, request: dict[str, Any]) -> Iterator[_Files]:
    """Open the files of a request for a block. Failures in the block name the requested dataset."""
    files = _Files(wire, request["size"])
    try:
        yield files
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 (as in the sandbox)
        failure = failure_of(error)
        place = f"{request['path']}: " if "path" in request else ""
        raise FailureError(f"{place}{failure}", failure.kind, failure.offset, failure.hint) from None
    finally:
        files.close()


def _nothing(part: str) -> Any:
    raise KeyError(part)


def _parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _type(dtype: Any, depth: int = 0) -> dict[str, Any]:
    """Return a type as plain data, with kind ``skip`` if its values are not read."""
    if depth > 8:
        return {"kind": "skip", "why": "a type nested too deeply"}
    if h5py.check_ref_dtype(dtype) is not None:
        return {"kind": "skip", "why": "references to objects"}
    if (text := h5py.check_string_dtype(dtype)) is not None:
        return {"kind": "text"} if text.length is None else {"kind": "fixed", "size": dtype.itemsize}
    if (of := h5py.check_vlen_dtype(dtype)) is not None:
        inner = _type(np.dtype(of), depth + 1)
        return {"kind": "vlen", "of": inner} if inner["kind"] == "number" else {"kind": "skip", "why": f"lists of {of}"}
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        inner = _type(base, depth + 1)
        return inner if inner["kind"] in ("skip", "text", "vlen") else {"kind": "array", "shape": shape, "of": inner}
    if dtype.names is not None:
        fields = []
        for name in dtype.names:
            field, offset = dtype.fields[name][:2]
            inner = _type(field, depth + 1)
            if inner["kind"] in ("skip", "text", "vlen"):
                return {"kind": "skip", "why": f"a compound type with {inner.get('why', 'values of variable length')}"}
            fields.append([name, offset, field.itemsize, inner])
        return {"kind": "struct", "fields": fields}
    return _simple_type(dtype, depth)


def _simple_type(dtype: Any, depth: int) -> dict[str, Any]:
    if dtype.kind == "b":
        return {"kind": "bool"}
    if dtype.kind == "c":
        half = dtype.itemsize // 2
        part = _type(np.dtype(f"{dtype.byteorder}f{half}"), depth + 1)
        return {"kind": "struct", "fields": [["r", 0, half, part], ["i", half, half, part]]}
    if dtype.kind in "iuf" and dtype.itemsize <= 8:
        names = h5py.check_enum_dtype(dtype)
        found = {"kind": "number", "dtype": dtype.str}
        return {**found, "names": {str(k): int(v) for k, v in list(names.items())[:1000]}} if names else found
    if dtype.kind in "mM" and "[" in dtype.str and dtype.str.split("[")[1] in ("s]", "ms]", "us]", "ns]"):
        return {"kind": "time", "dtype": dtype.str}
    if dtype.kind == "V" and 0 < dtype.itemsize < 1 << 20:
        return {"kind": "bytes", "size": dtype.itemsize}
    return {"kind": "skip", "why": f"the type {dtype}"}


def _dataset(files: _Files, number: int, item: Any) -> dict[str, Any]:
    """Return the facts on a dataset that are known without reading its values."""
    shape = item.shape
    try:
        dtype = item.dtype
    except (TypeError, ValueError, KeyError) as error:
        return {"shape": shape or [], "type": {"kind": "skip", "why": str(error)[:200]}, "dtype": "unknown", "item": 1}
    facts: dict[str, Any] = {"shape": shape, "type": _type(dtype), "dtype": _name(dtype), "item": dtype.itemsize}
    if shape is None:
        return {**facts, "shape": [0], "empty": True}
    plist, identity = item.id.get_create_plist(), item.id
    layout = plist.get_layout()
    if layout == h5py.h5d.VIRTUAL:
        try:
            _check_view(files, number, item)
        except (_ForeignError, KeyError) as error:
            facts["foreign"] = f"it is a view of {error.args[0]}"
        return {**facts, "layout": "virtual"}
    facts["filters"] = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        is_plain = h5py.h5t.py_create(dtype, logical=True) == identity.get_type()
        facts["fill"] = np.asarray(item.fillvalue, dtype).tobytes().hex() if is_plain else None
    if plist.get_external_count():
        facts["layout"] = "external"
        try:
            facts["segments"] = _segments(files, number, plist)
        except _ForeignError as error:
            facts["foreign"] = f"its values are in {error}"
    elif layout == h5py.h5d.CONTIGUOUS:
        facts["layout"] = "contiguous"
        facts["offset"] = identity.get_offset()
    elif layout == h5py.h5d.CHUNKED:
        facts["layout"] = "chunked"
        facts["chunks"] = item.chunks
    else:
        facts["layout"] = "compact"
    return facts


def _segments(files: _Files, number: int, plist: Any) -> list[tuple[int, int, int]]:
    """Return the parts of external storage in order: file number, offset, and size (0 for the rest of the file)."""
    segments = []
    for i in range(plist.get_external_count()):
        name, offset, size = plist.get_external(i)
        segments.append((files.number(_text(name), number), offset, size if 0 <= size < 1 << 63 else 0))
    return segments


def _shown(name: Any) -> str:
    return repr(name)[:200]


def _name(dtype: np.dtype[Any]) -> str:
    if h5py.check_string_dtype(dtype) is not None:
        return "string"
    return str(dtype.newbyteorder("=")) if dtype.kind in "iufb" else str(dtype)[:200]


def _attributes(item: Any) -> tuple[list[Any], list[str]]:
    """Return name, type, count, rank and value of each attribute, and the attributes that are not read."""
    attributes, skipped = [], []
    for name in sorted(item.attrs):
        try:
            identity = item.attrs.get_id(name)
            dtype, shape = identity.dtype, identity.shape
            kind = _type(dtype)
            if shape is None or 0 in shape:
                skipped.append(f"{name} (empty)")
                continue
            count = int(np.prod(shape, dtype=object))
            if kind["kind"] not in ("number", "bool", "text", "fixed") or count * dtype.itemsize > _MOST_ATTRIBUTE:
                skipped.append(f"{name} ({kind.get('why', kind['kind'])})")
                continue
            value = item.attrs[name]
            flat = np.asarray(value, object).reshape(-1) if kind["kind"] == "text" else np.asarray(value).reshape(-1)
            if kind["kind"] in ("text", "fixed"):
                values: Any = [_text(v) for v in flat]
            else:
                values = flat.tobytes().hex()
            attributes.append([name, kind, len(flat), len(shape), values])
        except (OSError, RuntimeError, ValueError, TypeError, KeyError, UnicodeError) as error:
            raise FailureError(f"the attribute {_shown(name)} of {item.name} cannot be read: {error}") from error
    return attributes, skipped


def _text(value: Any) -> str:
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "backslashreplace")


def tree(wire: Pipes, request: dict[str, Any]) -> None:
    """Send path, kind and facts of all objects below the root. Links are followed unless they lead upwards."""
    with _opened(wire, request) as files:
        objects = _walk(files)
    wire.send("track", objects)


def _walk(files: _Files) -> list[Any]:
    objects: list[Any] = []
    root = files.root(0)
    places: set[tuple[int, int]] = set()
    stack: list[tuple[str, int, Any, list[tuple[int, int]]]] = [("/", 0, root, [(0, _address(root))])]
    while stack:
        here, number, item, parents = stack.pop()
        if len(objects) >= _MOST_OBJECTS:
            raise FailureError(f"it has more than {_MOST_OBJECTS:,} objects")
        if len(objects) > len(places) + _MOST_PATHS:
            raise FailureError(f"it has more than {_MOST_PATHS:,} additional links to objects")
        places.add(parents[-1])
        if len(objects) % 256 == 0:
            files.wire.go_on()
        attributes, skipped = _attributes(item)
        facts = {"path": here, "attributes": attributes, "skipped": skipped, "file": number, "inner": item.name}
        if isinstance(item, h5py.Dataset):
            objects.append({**facts, "kind": "dataset", **_dataset(files, number, item)})
            continue
        objects.append({**facts, "kind": "group"})
        if not isinstance(item, h5py.Group):
            continue
        if len(parents) > _MOST_DEPTH:
            raise FailureError(f"its groups are nested deeper than {_MOST_DEPTH}")
        stack += _children(files, here, number, item, parents, objects)
    return objects


def _children(
    files: _Files, here: str, number: int, group: Any, parents: list[tuple[int, int]], objects: list[Any]
) -> Iterator[tuple[str, int, Any, list[tuple[int, int]]]]:
    """Yield the objects in a group, the last name first; links that are not followed are added to ``objects``."""
    for name in sorted(group, reverse=True):
        path = f"{here.rstrip('/')}/{name}"
        try:
            home, child = files.follow(number, group, name)
        except _ForeignError as error:
            objects.append({"path": path, "kind": "link", "foreign": f"it is a link to {error}"})
            continue
        except KeyError:
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.SoftLink):
                raise
            why = f"a link to {_shown(link.path)}, which does not exist"
            objects.append({"path": path, "kind": "link", "why": why})
            continue
        place = (home, _address(child))
        if place in parents:
            objects.append({"path": path, "kind": "link", "why": "a link to a surrounding group"})
        elif not isinstance(child, h5py.Datatype):
            yield path, home, child, [*parents, place]


def _address(item: Any) -> int:
    return int(h5py.h5o.get_info(item.id).addr)


def index(wire: Pipes, request: dict[str, Any]) -> None:
    """Send the coordinates, offset, size and filter mask of each chunk of a dataset, as int64."""
    rows: list[tuple[int, ...]] = []

    def add(info: Any) -> None:
        if len(rows) >= _MOST_CHUNKS:
            raise FailureError(f"{request['path']} has more than {_MOST_CHUNKS:,} chunks")
        rows.append((*info.chunk_offset, info.byte_offset or 0, info.size, info.filter_mask))

    with _opened(wire, request) as files:
        files.root(0)[request["path"]].id.chunk_iter(add)
    wire.send("track", None)
    data = np.array(rows, np.int64).tobytes()
    wire.send("out", [[len(data)]], data)


def rows(wire: Pipes, request: dict[str, Any]) -> None:
    """Send the bytes of a dataset's values; if their lengths vary, send the lengths first."""
    start, stop = request["start"], request["stop"]
    with _opened(wire, request) as files:
        item = files.root(0)[request["path"]]
        is_varying = _type(item.dtype)["kind"] in ("text", "vlen")
        size = (stop - start) * math.prod(item.shape[1:]) * item.dtype.itemsize
        memory = wire.shared(0 if is_varying or item.is_virtual or item.dtype.subdtype else size)
        if item.shape and len(memory) == size:
            values = np.frombuffer(memory, item.dtype).reshape(stop - start, *item.shape[1:])
            item.read_direct(values, np.s_[start:stop])
            wire.send("track", None)
            wire.send_shared("out", [[size]], size)
            return
        if item.is_virtual:
            values = _view_rows(files, item, start, stop)
        else:
            values = item[start:stop] if item.shape else item[()]
    wire.send("track", None)
    if is_varying:
        flat = np.asarray(values, object).reshape(-1) if isinstance(values, np.ndarray) else np.array([values], object)
        parts = [_raw(value) for value in flat]
        data = np.array([len(part) for part in parts], np.int64).tobytes() + b"".join(parts)
    else:
        data = np.ascontiguousarray(values).tobytes()
    wire.send("out", [[len(data)]], data)


def _raw(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return bytes(value) if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()


class _Axis:
    """The places of a selection along one dimension: ``count`` blocks of ``block`` places, each ``stride`` apart."""

    def __init__(self, start: int, stride: int, count: int, block: int) -> None:
        self.start, self.stride, self.count, self.block = start, max(stride, block), count, block

    @property
    def size(self) -> int:
        """The number of places."""
        return self.count * self.block

    @property
    def is_endless(self) -> bool:
        """Whether the selection grows with the dataset."""
        return not 0 <= max(self.count, self.block) < 1 << 63

    def before(self, place: int) -> int:
        """Return how many selected places are before ``place``."""
        blocks, rest = divmod(max(place - self.start, 0), self.stride)
        return min(blocks * self.block + min(rest, self.block), self.size)

    def places(self, low: int, high: int) -> Any:
        """Return the places with numbers from ``low`` to before ``high``."""
        numbers = np.arange(low, high)
        return self.start + numbers // self.block * self.stride + numbers % self.block


def _axes(space: Any, shape: tuple[int, ...]) -> list[_Axis]:
    if space.get_select_type() == h5py.h5s.SEL_ALL:
        return [_Axis(0, 1, size, 1) for size in shape]
    if space.get_select_type() != h5py.h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        raise FailureError("it is a view of an irregular selection of values", "unsupported")
    return [_Axis(*axis) for axis in zip(*space.get_regular_hyperslab(), strict=True)]


def _source(files: _Files, number: int, mapping: Any) -> tuple[int, Any]:
    """Return the source dataset of a part of a view. Raises :class:`_ForeignError` and ``KeyError``."""
    name, path = mapping.file_name, mapping.dset_name
    home = number if name == "." else files.number(name, number)
    what = _shown(path) if home == number else f"another file, {_shown(name)}: {_shown(path)}"
    try:
        home, source = files.follow(home, files.root(home), path)
    except KeyError:
        raise KeyError(f"{what}, which is missing") from None
    if not isinstance(source, h5py.Dataset):
        raise KeyError(f"{what}, which is missing")
    if source.is_virtual or source.external:
        raise KeyError(f"{what}, whose values are elsewhere")
    return home, source


def _check_view(files: _Files, number: int, item: Any) -> None:
    """Check the sources of a view, as libhdf5 gives fill values for missing data."""
    for mapping in item.virtual_sources():
        home, source = _source(files, number, mapping)
        axes = _axes(mapping.vspace, item.shape)
        if home != number and any(axis.is_endless for axis in axes):
            raise _ForeignError("another file of unlimited size")
        _check_part(axes, _axes(mapping.src_space, source.shape), source)


def _check_part(axes: list[_Axis], of: list[_Axis], source: Any) -> None:
    if any(axis.is_endless for axis in (*axes, *of)):
        return
    ends = [axis.places(axis.size - 1, axis.size)[0] if axis.size else -1 for axis in of]
    if math.prod(a.size for a in axes) != math.prod(a.size for a in of) or any(
        end >= size for end, size in zip(ends, source.shape, strict=True)
    ):
        raise KeyError(f"{_shown(source.name)} with shape {list(source.shape)}: a part of it is missing")


def _view_rows(files: _Files, item: Any, start: int, stop: int) -> Any:
    """Return rows of a view. Parts from other files are inserted here, as libhdf5 would read all from the same file."""
    mappings = item.virtual_sources()
    parts = [(_axes(mapping.vspace, item.shape), mapping) for mapping in mappings]
    if any(axis.is_endless for axes, _ in parts for axis in axes):
        return item[start:stop]
    out = np.full((stop - start, *item.shape[1:]), item.fillvalue, item.dtype)
    for (rows, *rest), mapping in parts:
        low, high = rows.before(start), rows.before(stop)
        if low == high:
            continue
        try:
            _, source = _source(files, 0, mapping)
        except (_ForeignError, KeyError) as error:
            raise FailureError(f"it is a view of {error.args[0]}") from error
        width = math.prod(axis.size for axis in rest)
        values = _selected(source, _axes(mapping.src_space, source.shape), low * width, high * width, item.dtype)
        places = (rows.places(low, high) - start, *(axis.places(0, axis.size) for axis in rest))
        out[np.ix_(*places)] = values.reshape([len(axis) for axis in places])
        files.wire.go_on()
    return out


def _selected(source: Any, axes: list[_Axis], low: int, high: int, dtype: Any) -> Any:
    """Return the values of a selection with numbers from ``low`` to before ``high``."""
    if not axes:
        return np.full(1, source[()], dtype)
    rows, *rest = axes
    width = math.prod(axis.size for axis in rest)
    first, last = low // width, -(-high // width)
    if (last - first) * width * dtype.itemsize > _MOST_BLOCK:
        raise FailureError(f"it is a view of {_shown(source.name)}, whose rows are too large")
    space = source.id.get_space()
    space.select_hyperslab(*(tuple(getattr(a, n) for a in axes) for n in ("start", "count", "stride", "block")))
    begin, end = (int(place) for place in rows.places(first, last)[[0, -1]])
    corner = (begin, *(0 for _ in rest))
    space.select_hyperslab(corner, (1,) * len(axes), block=(end + 1 - begin, *source.shape[1:]), op=h5py.h5s.SELECT_AND)
    values = np.empty((last - first) * width, dtype)
    source.id.read(h5py.h5s.create_simple(values.shape), space, values)
    return values[low - first * width : high - first * width]


_OPERATIONS = {"tree": tree, "index": index, "rows": rows}


if __name__ == "__main__":
    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401 (it registers filters)
    for encoding in ("ascii", "latin-1", "utf-8"):
        codecs.lookup(encoding)  # the first lookup reads files
    h5py._errors.silence_errors()  # noqa: SLF001
    serve(_OPERATIONS, _SECONDS)
