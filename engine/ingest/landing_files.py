"""The files of the landing log: numbered, whole or not there, and each with a digest of itself.

::

    landing/00000012.json      entry 12: the files of batch 12, a line of JSON each
    landing/00000012.gone      paths of entry 12 that were gone when they were to be read: they count as never offered
    landing/00000011.merged    what the entries up to 11 offered, each path with what it was offered as last

All begin with a line of JSON (:func:`sealed`), which holds a digest of all else. An entry goes on with a line
``["/landing/drive.mcap", size in bytes, modified in ns]`` for each file, one of paths that were gone with a line
``"/landing/drive.mcap"`` for each, and a merged file with an Arrow IPC stream.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ..errors import ReadError, SourceMissingError, UnsupportedError
from ..execution import Folder
from ..limits import MAX_LANDING_FILE
from ..rrd import digest_of
from .files import LandedFile

FORMAT: Final = 1
SCHEMA: Final = pa.schema([("path", pa.large_string()), ("size", pa.int64()), ("modified_ns", pa.int64())])
"""What a merged file holds of each path."""

_NAME: Final = re.compile(r"(\d{8,})\.(json|gone|merged)")
_ENTRY, _GONE, _MERGED = "entry", "gone", "merged"
_MOST_HEADER: Final = 4096
_AGAIN: Final = (
    "Files of this log are synced before they get their name, so another program or the disk did this. Restore the "
    "file from a copy. Without one, remove the whole checkpoint and start again: every file is offered anew, and those "
    "whose content is in the store are recognised."
)
_NEWEST: Final = (
    "Files of this log are synced before they get their name, so another program or the disk did this. As it is the "
    "newest entry, it may be removed if its batch was never begun: its files are offered again by the next start. "
    "Else restore it from a copy."
)


def entry_name(number: int) -> str:
    """The name of an entry.

    >>> entry_name(12)
    '00000012.json'
    """
    return f"{number:08d}.json"


def merged_name(number: int) -> str:
    """The name of the merged file of all entries up to a number.

    >>> merged_name(11)
    '00000011.merged'
    """
    return f"{number:08d}.merged"


def gone_name(number: int) -> str:
    """The name of the file of paths of an entry that were gone.

    >>> gone_name(12)
    '00000012.gone'
    """
    return f"{number:08d}.gone"


class Numbers(NamedTuple):
    """The numbers of the files of a log, each ascending."""

    entries: list[int]
    gone: list[int]
    merged: list[int]

    @property
    def newest(self) -> int:
        """That of the newest entry, merged or not; 0 where there is none."""
        return max([0, *self.entries[-1:], *self.merged[-1:]])


def numbers_in(names: Iterable[str]) -> Numbers:
    """The numbers of the files of the log among ``names``; others are none of ours."""
    found = Numbers([], [], [])
    lists = {"json": found.entries, "gone": found.gone, "merged": found.merged}
    for match in filter(None, map(_NAME.fullmatch, names)):
        lists[match[2]].append(int(match[1]))
    for numbers in found:
        numbers.sort()
    return found


def newest_entry(folder: Folder) -> int:
    """The number of the newest entry, 0 where there is none. Costs one listing."""
    try:
        return numbers_in(folder.names()).newest
    except (FileNotFoundError, SourceMissingError):
        return 0


def entry_bytes(number: int, files: Sequence[LandedFile]) -> bytes:
    """An entry, as it is written."""
    lines = "\n".join(json.dumps([file.path, file.size, file.modified_ns]) for file in files)
    return sealed(_ENTRY, number, len(files), lines.encode())


def read_entry(folder: Folder, number: int) -> list[LandedFile]:
    """The files of an entry.

    Raises ``SourceMissingError`` where there is none of that number (any more), ``ReadError`` where it is torn.
    """
    name = entry_name(number)
    rows = _lines(folder, name, _ENTRY, number)
    try:
        return [LandedFile(str(path), int(size), int(modified_ns)) for path, size, modified_ns in rows]
    except (ValueError, TypeError) as error:
        raise _not_ours(folder.place(name), f"its lines cannot be understood ({error})", _AGAIN) from error


def gone_bytes(number: int, paths: Collection[str]) -> bytes:
    """The file of paths of an entry that were gone, as it is written."""
    return sealed(_GONE, number, len(paths), "\n".join(map(json.dumps, paths)).encode())


def read_gone(folder: Folder, number: int) -> list[str]:
    """The paths of an entry that were gone. Raises as :func:`read_entry` does."""
    return [str(path) for path in _lines(folder, gone_name(number), _GONE, number)]


def _lines(folder: Folder, name: str, kind: str, number: int) -> list[Any]:
    body, count = _opened(folder, name, kind, number)
    try:
        lines: list[Any] = json.loads(b"[" + body.replace(b"\n", b",") + b"]")
    except (ValueError, RecursionError) as error:
        raise _not_ours(folder.place(name), f"its lines cannot be understood ({error})", _AGAIN) from error
    if len(lines) != count:
        raise _not_ours(folder.place(name), f"it holds {len(lines):,} files of {count:,}", _AGAIN)
    return lines


def merged_bytes(number: int, table: pa.Table) -> bytes:
    """A merged file, as it is written; ``table`` has the columns of :data:`SCHEMA`."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return sealed(_MERGED, number, table.num_rows, sink.getvalue())


def read_merged(folder: Folder, number: int) -> pa.Table:
    """The paths of a merged file, with what they were offered as last. Raises as :func:`read_entry` does."""
    name = merged_name(number)
    body, count = _opened(folder, name, _MERGED, number)
    try:
        table = pa.ipc.open_stream(pa.BufferReader(body)).read_all()
    except (pa.ArrowException, OSError) as error:
        raise _not_ours(folder.place(name), f"it cannot be understood ({error})", _AGAIN) from error
    if table.num_rows != count or table.schema != SCHEMA:
        raise _not_ours(folder.place(name), f"it holds {table.num_rows:,} files of {count:,}", _AGAIN)
    return table


def sealed(kind: str, number: int, count: int, body: bytes) -> bytes:
    """A file of the log: a line that says what it is, with the digest of that and the body, and the body.

    >>> sealed("entry", 1, 0, b"")
    b'{"landing": "entry", "format": 1, "number": 1, "files": 0, "digest": "4b5a15fb74a50fe5aa9aa06071a5c2a1"}\\n'
    """
    header = {"landing": kind, "format": FORMAT, "number": number, "files": count}
    return json.dumps({**header, "digest": _digest(header, body)}).encode() + b"\n" + body


def _digest(header: dict[str, Any], body: bytes) -> str:
    return digest_of(json.dumps(header, sort_keys=True).encode() + b"\n" + body).hex()


def _opened(folder: Folder, name: str, kind: str, number: int) -> tuple[bytes, int]:
    """The body of a file, and the number of files in it; the file is what was written."""
    place = folder.place(name)
    data = _whole(folder, name)
    try:
        end = data.index(b"\n", 0, _MOST_HEADER)
        header = json.loads(data[:end])
        digest, count = header.pop("digest"), int(header["files"])
        version = header["format"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = "it is empty" if not data else "its first line is not one of the landing log"
        raise _torn(folder, number, place, what) from error
    if version != FORMAT:
        raise UnsupportedError(
            f"this file of the landing log has format {version}, which is not known here",
            path=place,
            hint="It was written by a newer release; go on with that.",
        )
    body = data[end + 1 :]
    if _digest(header, body) != digest:
        raise _torn(folder, number, place, "it is not what was written: its digest differs")
    if (header["landing"], header["number"]) != (kind, number):
        raise _not_ours(place, f"it is {header['landing']} {header['number']} under another name", _AGAIN)
    return body, count


def _whole(folder: Folder, name: str) -> bytes:
    place = folder.place(name)
    try:
        size = folder.size(name)
        if size > MAX_LANDING_FILE:
            raise _not_ours(place, f"it has {size:,} bytes", _AGAIN)
        return folder.get(name)
    except FileNotFoundError as error:
        raise SourceMissingError("this file of the landing log is not there", path=place, hint=_AGAIN) from error
    except OSError as error:
        raise ReadError(
            f"this file of the landing log cannot be read: {error.strerror}",
            path=place,
            hint="Check that the checkpoint may be read, and start again.",
            transient=True,
        ) from error


def _torn(folder: Folder, number: int, place: str, what: str) -> ReadError:
    newest = place.endswith(".json") and newest_entry(folder) == number
    return _not_ours(place, what, _NEWEST if newest else _AGAIN)


def _not_ours(place: str, what: str, hint: str) -> ReadError:
    return ReadError(f"the checkpoint is torn: {what}", path=place, hint=hint)
