"""The program of the process that runs h5py, so that what crashes libhdf5 or takes all memory ends only that process.

Messages are those of ``engine/video/worker.py``. It can open no file, so that no link leads out of the input: bytes of
the input come through the pipe. A request that computes for more than :data:`_SECONDS` without a message ends the
process. This file is run by its path, so it imports nothing of the project.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import resource
import signal
import struct
import sys
from collections import OrderedDict
from typing import Any, BinaryIO

import h5py
import numpy as np

_HEAD = struct.Struct(">II")
_PAGE = 1 << 18
_PAGES = 64
_SECONDS = 5.0
_MOST_OBJECTS = 100_000
_MOST_DEPTH = 64
_MOST_ATTRIBUTE = 1 << 24
_MOST_CHUNKS = 1 << 22
_CACHE = 64 << 20


class _FailureError(Exception):
    """The input is wrong; ``kind`` says which error it becomes."""

    def __init__(self, message: str, kind: str = "read") -> None:
        super().__init__(message)
        self.kind = kind


class _Pipes:
    """The two pipes to the process that asks."""

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source = source
        self._target = target

    def receive(self) -> tuple[Any, bytes]:
        """Return the next message. Raises ``EOFError`` at the end of the input."""
        head = self._source.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise EOFError
        length, size = _HEAD.unpack(head)
        return json.loads(self._source.read(length)), self._source.read(size)

    def send(self, kind: str, value: Any = None, data: bytes = b"") -> None:
        """Send a message of one kind, and grant the next step its time."""
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        text = json.dumps({kind: value}).encode()
        self._target.write(_HEAD.pack(len(text), len(data)) + text)
        self._target.write(data)
        self._target.flush()


class _AskedFile:
    """The input, read through the pipes page by page. All reads together are bounded."""

    def __init__(self, wire: _Pipes, size: int) -> None:
        self._wire = wire
        self._size = size
        self._left = 64 * size + (1 << 26)
        self._pages: OrderedDict[int, bytes] = OrderedDict()
        self.position = 0

    def read(self, size: int = -1) -> bytes:
        """Return at most ``size`` bytes from where it stands."""
        end = self._size if size < 0 else min(self.position + size, self._size)
        parts = []
        while self.position < end:
            page = self._page(self.position // _PAGE)
            at = self.position % _PAGE
            part = page[at : at + end - self.position]
            if not part:
                break
            parts.append(part)
            self.position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _page(self, number: int) -> bytes:
        page = self._pages.get(number)
        if page is None:
            start = number * _PAGE
            size = min(_PAGE, self._size - start)
            self._left -= size
            if self._left < 0:
                raise _FailureError("it refers to the same bytes again and again")
            self._wire.send("read", [start, size])
            page = self._pages[number] = self._wire.receive()[1]
            if len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        else:
            self._pages.move_to_end(number)
        return page

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from where it stands; return how many bytes there were."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset and return it."""
        self.position = max((0, self.position, self._size)[whence] + offset, 0)
        return self.position

    def tell(self) -> int:
        """Return where it stands."""
        return self.position

    def write(self, _data: bytes) -> int:
        """Refuse: h5py looks for the method."""
        raise _FailureError("the file is read only")

    def truncate(self, _size: int | None = None) -> int:
        """Refuse: h5py looks for the method."""
        raise _FailureError("the file is read only")

    def flush(self) -> None:
        """Do nothing: nothing is written."""


def _type(dtype: Any, depth: int = 0) -> dict[str, Any]:
    """Return a type as plain data; ``skip`` where its values are not read."""
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


def _dataset(item: Any) -> dict[str, Any]:
    """Return what there is to know of a dataset without reading its values."""
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
    facts["stored"] = identity.get_storage_size()
    if plist.get_external_count():
        facts["foreign"] = f"its values lie in another file, {_shown(plist.get_external(0)[0])}"
    if layout == h5py.h5d.VIRTUAL:
        facts["layout"] = "virtual"
        problem = _virtual_problem(item)
        if problem:
            facts["foreign"] = problem
        return facts
    facts["filters"] = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        is_plain = h5py.h5t.py_create(dtype, logical=True) == identity.get_type()
        facts["fill"] = np.asarray(item.fillvalue, dtype).tobytes().hex() if is_plain else None
    if layout == h5py.h5d.CONTIGUOUS:
        facts["layout"] = "contiguous"
        facts["offset"] = identity.get_offset()
    elif layout == h5py.h5d.CHUNKED:
        facts["layout"] = "chunked"
        facts["chunks"] = item.chunks
    else:
        facts["layout"] = "compact"
    return facts


def _virtual_problem(item: Any) -> str | None:
    """Return what is wrong with the sources of a virtual dataset: libhdf5 gives fill values for what is missing."""
    for source in item.virtual_sources():
        if source.file_name != ".":
            return f"it is a view of another file, {_shown(source.file_name)}"
        if source.dset_name not in item.file or not isinstance(item.file[source.dset_name], h5py.Dataset):
            return f"it is a view of {_shown(source.dset_name)}, which is missing"
        if item.file[source.dset_name].is_virtual:
            return f"it is a view of {_shown(source.dset_name)}, which is one itself"
    return None


def _shown(name: Any) -> str:
    return repr(name)[:200]


def _name(dtype: np.dtype[Any]) -> str:
    if h5py.check_string_dtype(dtype) is not None:
        return "string"
    return str(dtype.newbyteorder("=")) if dtype.kind in "iufb" else str(dtype)[:200]


def _attributes(item: Any) -> tuple[list[Any], list[str]]:
    """Return name, type, count, shape and value of each attribute, and those that are not read."""
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
            raise _FailureError(f"the attribute {_shown(name)} of {item.name} cannot be read: {error}") from error
    return attributes, skipped


def _text(value: Any) -> str:
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "backslashreplace")


def tree(wire: _Pipes, request: dict[str, Any]) -> None:
    """Send all objects below the root: path, kind and facts. Links are followed, but for those that lead upwards."""
    objects: list[Any] = []
    with _opened(wire, request) as file:
        _walk(file, [_address(file)], objects)
    wire.send("track", objects)


def _address(item: Any) -> int:
    return int(h5py.h5o.get_info(item.id).addr)


def _walk(group: Any, above: list[int], objects: list[Any]) -> None:
    stack = [("/", group, above)]
    while stack:
        here, item, parents = stack.pop()
        if len(objects) >= _MOST_OBJECTS:
            raise _FailureError(f"it has more than {_MOST_OBJECTS:,} objects, each counted by all its paths")
        if len(objects) % 256 == 0:
            signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        attributes, skipped = _attributes(item)
        facts = {"path": here, "attributes": attributes, "skipped": skipped}
        if isinstance(item, h5py.Dataset):
            objects.append({**facts, "kind": "dataset", **_dataset(item)})
            continue
        objects.append({**facts, "kind": "group"})
        if not isinstance(item, h5py.Group):
            continue
        if len(parents) > _MOST_DEPTH:
            raise _FailureError(f"its groups are nested deeper than {_MOST_DEPTH}")
        below = [_child(here, item, name, parents, objects) for name in sorted(item, reverse=True)]
        stack += [child for child in below if child is not None]


def _child(here: str, group: Any, name: str, parents: list[int], objects: list[Any]) -> Any:
    path = f"{here.rstrip('/')}/{name}"
    link = group.get(name, getlink=True)
    if isinstance(link, h5py.ExternalLink):
        objects.append(
            {"path": path, "kind": "link", "foreign": f"it is a link to another file, {_shown(link.filename)}"}
        )
        return None
    try:
        if isinstance(link, h5py.SoftLink) and _leads_out(group, link.path):
            objects.append({"path": path, "kind": "link", "foreign": "it is a link through another file"})
            return None
        child = group[name]
    except KeyError:
        if isinstance(link, h5py.SoftLink):
            objects.append({"path": path, "kind": "link", "why": f"a link to {_shown(link.path)}, where nothing is"})
            return None
        raise
    if isinstance(child, h5py.Datatype):
        return None
    address = _address(child)
    if address in parents:
        objects.append({"path": path, "kind": "link", "why": "a link to a group that it is in"})
        return None
    return path, child, [*parents, address]


def _leads_out(group: Any, path: str, depth: int = 0) -> bool:
    """Return whether a soft link passes an external one."""
    if depth > 16:
        return True
    here = group.file["/"] if path.startswith("/") else group
    for part in filter(None, path.split("/")):
        if part == ".":
            continue
        link = here.get(part, getlink=True) if isinstance(here, h5py.Group) else None
        if isinstance(link, h5py.ExternalLink):
            return True
        if isinstance(link, h5py.SoftLink) and _leads_out(here, link.path, depth + 1):
            return True
        here = here[part]
    return False


def _opened(wire: _Pipes, request: dict[str, Any]) -> Any:
    return h5py.File(_AskedFile(wire, request["size"]), "r", rdcc_nbytes=_CACHE)


def index(wire: _Pipes, request: dict[str, Any]) -> None:
    """Send where the chunks of a dataset are: coordinates, offset, size and filter mask of each, as int64."""
    rows: list[tuple[int, ...]] = []

    def add(info: Any) -> None:
        if len(rows) >= _MOST_CHUNKS:
            raise _FailureError(f"{request['path']} has more than {_MOST_CHUNKS:,} chunks")
        rows.append((*info.chunk_offset, info.byte_offset or 0, info.size, info.filter_mask))

    with _opened(wire, request) as file:
        file[request["path"]].id.chunk_iter(add)
    wire.send("track", None)
    data = np.array(rows, np.int64).tobytes()
    wire.send("out", [[len(data)]], data)


def rows(wire: _Pipes, request: dict[str, Any]) -> None:
    """Send values of a dataset: bytes of each, or lengths and then bytes where they vary."""
    start, stop = request["start"], request["stop"]
    with _opened(wire, request) as file:
        item = file[request["path"]]
        kind = _type(item.dtype)["kind"]
        values = item[start:stop] if item.shape else item[()]
    wire.send("track", None)
    if kind in ("text", "vlen"):
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


_OPERATIONS = {"tree": tree, "index": index, "rows": rows}


def serve(wire: _Pipes) -> None:
    """Answer requests to the end of the input."""
    while True:
        signal.setitimer(signal.ITIMER_PROF, 0)
        request, _ = wire.receive()
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        try:
            _OPERATIONS[request["operation"]](wire, request)
            wire.send("end")
        except _FailureError as error:
            wire.send("error", [error.kind, str(error), None])
        except MemoryError:
            wire.send("error", ["read", "it takes more memory than a file may", None])
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 (whatever libhdf5 and h5py say of a damaged file)
            cause = error.__cause__ or error.__context__
            text = cause if isinstance(cause, _FailureError) else error
            what = request.get("path")
            place = f"{what}: " if what else ""
            wire.send("error", ["read", f"{place}{text or type(error).__name__}", None])


def _confine(most_memory: int) -> None:
    """Bound the memory of this process, and let it open no more files."""
    resource.setrlimit(resource.RLIMIT_AS, (most_memory, most_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files = max(int(name) for name in os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 8  # noqa: PTH112, PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


if __name__ == "__main__":
    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401 (it registers filters)
    for encoding in ("ascii", "latin-1", "utf-8"):
        codecs.lookup(encoding)  # which needs files the first time
    os.environ.clear()
    wire = _Pipes(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    h5py._errors.silence_errors()  # noqa: SLF001
    _confine(int(sys.argv[1]))
    with contextlib.suppress(EOFError, BrokenPipeError):
        serve(wire)
