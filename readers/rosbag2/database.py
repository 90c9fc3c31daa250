"""SQLite databases of rosbag2, opened so that a hostile database can only be read.

The tables of all versions are ``topics(id, name, type, serialization_format, …)`` and ``messages(id, topic_id,
timestamp, data)``; from Iron on, there is also ``message_definitions(topic_type, encoding, encoded_message_definition,
…)``. Timestamps are in ns, and data is as the middleware gave it. Source: the storage plugin
``rosbag2_storage_sqlite3``.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

import numpy as np

from ...engine.errors import ReadError, UnsupportedError
from ...engine.limits import (
    FREE_EXPANSION,
    MAX_CHUNK_UNCOMPRESSED,
    MAX_COMPRESSION_RATIO,
    MAX_SCHEMA_BYTES,
    MIB,
    check_limit,
)
from ..mcap.records import Bytes, placed_heads, take_arena
from ..mcap.section import GROUP_BYTES, MessageGroup, TimeRange
from .folder import is_compressed

MAGIC: Final = b"SQLite format 3\0"
MAX_TOPICS: Final = 65_535
"""The maximum number of topics of a recording; their ids become MCAP's, of 16 bits."""

_HEAD_SIZE: Final = 100
_JOURNAL_MAGIC: Final = bytes.fromhex("d9d505f920a163d7")
_HINT: Final = (
    "The file is damaged, or was not written by rosbag2. Copy it again, or recover it with SQLite (`sqlite3 x.db3 "
    ".recover`, or `.dump`)."
)
_FREE_STEPS: Final = 10_000_000
_STEPS_PER_BYTE: Final = 8
"""The steps of SQLite's virtual machine that a query may take per byte; a row of about 20 bytes needs about 20."""

_STEPS_AT_ONCE: Final = 100_000
_GROUP_ROWS: Final = 131_072
_BATCH_ROWS: Final = 1_024
_BATCH_BYTES: Final = MIB // 2
_FIRST_ARENA: Final = MIB
_ROWS_AT_ONCE: Final = 512
_COPY_BYTES: Final = MIB
_CHECK_SECONDS: Final = 5.0
_TABLES: Final = frozenset({"messages", "topics", "message_definitions", "schema"})
_CATALOGUES: Final = frozenset({"sqlite_master", "sqlite_schema"})
_PRAGMAS: Final = frozenset({"table_xinfo", "quick_check", "trusted_schema", "cell_size_check", "query_only"})
_BESIDE: Final = ("-wal", "-journal")
_GENERATED: Final = (2, 3)
_READS: Final = (sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT, sqlite3.SQLITE_PRAGMA)


class Topic(NamedTuple):
    """A row of ``topics``; ``definition`` is its type's encoding and text, None if the file has no definition.

    An empty text is for an empty type, or for a type that the recorder did not find.
    """

    id: int
    name: str
    type: str
    serialization: str
    definition: tuple[str, bytes] | None


class Counted(NamedTuple):
    """The messages of a database: their number by topic, and the first and last timestamp (ns) or None."""

    counts: Mapping[int, int]
    start_time: int | None
    end_time: int | None


class _Batch(NamedTuple):
    """Some rows of ``messages``, by column."""

    row_ids: tuple[int, ...]
    topics: tuple[int, ...]
    times: tuple[int, ...]
    data: tuple[bytes, ...]


class RowRange(NamedTuple):
    """A range of rows of ``messages`` by row id, including both ends."""

    low: int
    high: int


def _damaged(why: str, path: str, hint: str = _HINT) -> ReadError:
    return ReadError(why, path=path, hint=hint)


class LocalCopy:
    """A database as a file that can be opened directly: the file itself, or a copy of it in a temporary folder.

    A file that is compressed as a whole is decompressed into the copy. Changes in a write-ahead log or rollback journal
    next to the file are applied to the copy; the file itself is never written. The copy is removed with the object that
    made it. An object that was sent to another process or machine uses the same copy, or makes a new one if it is gone.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._copy: str | None = None
        self._state: list[tuple[int, int] | None] | None = None

    @property
    def place(self) -> str:
        """The file to open. Raises ``ReadError``."""
        if self._copy is None or not Path(self._copy).exists():
            self._copy = self._made()
        return self._copy

    @property
    def is_copy(self) -> bool:
        """Whether the file to open is a copy."""
        return self.place != self.path

    def _made(self) -> str:
        state = [_state_of(Path(self.path + end)) for end in ("", *_BESIDE)]
        if self._state not in (None, state):
            raise ReadError(
                "was replaced since it was opened",
                path=self.path,
                hint="Its size or modification time, or that of its journal, has changed; read it again.",
            )
        self._state = state
        beside = [end for end in _BESIDE if _holds_changes(Path(self.path + end), self.path)]
        if not beside and not is_compressed(self.path):
            return self.path
        try:
            folder = tempfile.mkdtemp(prefix="chunkmill-rosbag2-")
            weakref.finalize(self, _remove, folder, os.getpid())
            copy = str(Path(folder, "copy.db3"))
            if is_compressed(self.path):
                _decompress(self.path, copy)
            else:
                shutil.copyfile(self.path, copy)
                for end in beside:
                    shutil.copyfile(self.path + end, copy + end)
                _apply_changes(copy, self.path)
        except OSError as error:
            raise ReadError(
                f"the database cannot be copied to {tempfile.gettempdir()}: {error.strerror}",
                path=self.path,
                hint="A compressed database, or one with a journal, must be copied. Set TMPDIR to a larger folder.",
            ) from error
        return copy


def _remove(folder: str, owner: int) -> None:
    """Remove a folder, but only in the process that made it: a forked process also has the object."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _state_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _holds_changes(beside: Path, path: str) -> bool:
    """Return whether a database's log or journal has changes. Raises ``ReadError`` for a journal of several files.

    SQLite would remove the file that such a journal names, wherever it is. Format: https://sqlite.org/fileformat2.html
    """
    if not beside.is_file() or beside.stat().st_size == 0:
        return False
    if beside.name.endswith("-wal"):
        return True
    with beside.open("rb") as file:
        head = file.read(len(_JOURNAL_MAGIC))
        file.seek(-min(len(_JOURNAL_MAGIC), beside.stat().st_size), os.SEEK_END)
        tail = file.read()
    if head == _JOURNAL_MAGIC and tail == _JOURNAL_MAGIC:
        raise _damaged(
            f"its journal {beside.name} belongs to several databases, and names another file",
            path,
            "rosbag2 does not write such journals; remove it if the recording is complete without it.",
        )
    return head == _JOURNAL_MAGIC


def _decompress(path: str, copy: str) -> None:
    from zstandard import ZstdDecompressor, ZstdError

    left = max(FREE_EXPANSION, MAX_COMPRESSION_RATIO * Path(path).stat().st_size)
    made = 0
    with Path(path).open("rb") as source, Path(copy).open("wb") as target:
        try:
            for part in ZstdDecompressor(max_window_size=2**27).read_to_iter(source, write_size=_COPY_BYTES):
                made += len(part)
                check_limit(made, left, path=path, offset=None, what="the uncompressed size")
                target.write(part)
        except (ZstdError, MemoryError) as error:
            raise _damaged(f"it cannot be decompressed: {error}, after {made:,} bytes", path) from error
        # The library gives no error for a truncated frame.
        if made == 0 or not _ends_whole(path):
            raise _damaged(f"its compressed data is truncated, after {made:,} bytes of content", path)


def _ends_whole(path: str) -> bool:
    """Whether the last Zstandard frame of a file is complete."""
    from zstandard import ZstdDecompressor

    with Path(path).open("rb") as source:
        rest = b""
        while True:
            decompressor = ZstdDecompressor(max_window_size=2**27).decompressobj(write_size=_COPY_BYTES)
            while not decompressor.eof:
                data = rest or source.read(_COPY_BYTES // 64)
                rest = b""
                if not data:
                    return False
                decompressor.decompress(data)
            rest = decompressor.unused_data
            if not rest and not (rest := source.read(_COPY_BYTES // 64)):
                return True


def _apply_changes(copy: str, path: str) -> None:
    """Apply and remove the log or journal next to a copy."""
    try:
        connection = _connected(f"file:{quote(copy)}?mode=rw")
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise _damaged(f"its journal cannot be applied: {error}", path) from error


def _connected(uri: str) -> sqlite3.Connection:
    """Open a database with an untrusted schema."""
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    return connection


def _allowed(action: int, first: str | None, second: str | None, _database: str | None, inner: str | None) -> int:
    """Allow only reads of rosbag2's own tables: no functions, views, triggers or recursion."""
    del second
    if action not in _READS or inner is not None:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_READ and (first or "").lower() not in _TABLES | _CATALOGUES:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() not in _PRAGMAS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


class BagDatabase:
    """One open database. Use it as a context manager.

    Opening and reading raise ``ReadError`` if it is not such a database, if ``messages`` or ``topics`` is a view, a
    virtual table or has computed columns, if a length is larger than the file, or if a query takes more steps than a
    file of this size can need.
    """

    def __init__(self, copy: LocalCopy) -> None:
        self.path = copy.path
        place = copy.place
        self.size = _checked_size(place, self.path)
        self._steps = 0
        try:
            self._connection = _connected(f"file:{quote(place)}?mode=ro&immutable=1")
        except sqlite3.Error as error:
            raise self._error(error) from error
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def topics(self) -> list[Topic]:
        """The topics by ascending id. Raises ``ReadError``."""
        self._bound(MAX_SCHEMA_BYTES)
        definitions = self._definitions()
        columns = self._columns["topics"]
        serialization = "serialization_format" if "serialization_format" in columns else "'cdr'"
        query = f"SELECT id, name, type, {serialization} FROM topics NOT INDEXED"  # noqa: S608 (one of two texts)
        topics: dict[int, Topic] = {}
        for id_, name, type_name, how in self._rows("the table topics", query):
            what = f"the topic {id_!r}"
            if not isinstance(id_, int) or not all(isinstance(text, str) for text in (name, type_name, how)):
                raise _damaged(f"{what} has a value of another type than its column", self.path)
            if id_ in topics:
                raise _damaged(f"{what} occurs twice", self.path)
            topics[id_] = Topic(id_, name, type_name, how, definitions.get(type_name))
            check_limit(len(topics), MAX_TOPICS, path=self.path, offset=None, what="the number of topics")
        return [topics[id_] for id_ in sorted(topics)]

    def _definitions(self) -> dict[str, tuple[str, bytes]]:
        if "message_definitions" not in self._columns:
            return {}
        query = "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions NOT INDEXED"
        definitions: dict[str, tuple[str, bytes]] = {}
        left = 4 * MAX_SCHEMA_BYTES
        for name, encoding, text in self._rows("the table message_definitions", query):
            if not all(isinstance(value, str) for value in (name, encoding, text)):
                raise _damaged("a message definition has a value of another type than its column", self.path)
            left -= check_limit(len(text), left, path=self.path, offset=None, what="the length of message definitions")
            if encoding in ("ros2msg", "ros2idl"):
                definitions[name] = (encoding, text.encode())
        return definitions

    def row_ids(self) -> RowRange | None:
        """The first and the last row id of the messages; None without messages. Raises ``ReadError``."""
        ends = []
        for order in ("ASC", "DESC"):
            query = f"SELECT rowid FROM messages NOT INDEXED ORDER BY rowid {order} LIMIT 1"  # noqa: S608
            ends += [row[0] for row in self._rows("the table messages", query)]
        return RowRange(ends[0], ends[1]) if len(ends) == 2 else None

    def counted(self) -> Counted:
        """Count the messages. This reads every row, without its data. Raises ``ReadError``."""
        counts: Counter[int] = Counter()
        first = last = None
        query = "SELECT rowid, topic_id, timestamp FROM messages NOT INDEXED ORDER BY rowid"
        before = None
        for row_id, topic, time in self._rows("the table messages", query):
            self._check_row(row_id, before, topic, time)
            before = row_id
            counts[topic] += 1
            first = time if first is None or time < first else first
            last = time if last is None or time > last else last
        return Counted(counts, first, last)

    def groups(
        self,
        rows: RowRange,
        channels: Mapping[int, int],
        *,
        only: Collection[int] | None = None,
        times: TimeRange | None = None,
    ) -> Iterator[MessageGroup]:
        """Yield the messages in a range of rows, in groups of about 32 MiB, in order. Raises ``ReadError``.

        ``channels`` has the number of each topic's channel by the topic's id. SQLite leaves out topics that are not in
        ``only``, and messages outside of ``times``.
        """
        self._bound(MAX_CHUNK_UNCOMPRESSED)
        query, values = _query(rows, only, times)
        group = _Group()
        for batch in self._batches(query, values):
            topics, data = batch.topics, batch.data
            unknown = set(topics) - channels.keys()
            if unknown:
                row = batch.row_ids[topics.index(min(unknown))]
                what = f"row {row:,} of messages has topic {min(unknown):,}, which is not in the table topics"
                raise _damaged(what, self.path)
            size = sum(map(len, data))
            if not group.has_room(size):
                yield group.messages()
                group = _Group()
            group.add([channels[topic] for topic in topics], batch.times, data, size)
        if not group.is_empty:
            yield group.messages()

    def _batches(self, query: str, values: Sequence[int]) -> Iterator[_Batch]:
        """Yield some checked rows at a time; fewer if they are large, to use less memory."""
        rows: list[tuple[Any, ...]] = []
        size, last = 0, None
        for row in self._rows("the table messages", query, values):
            rows.append(row)
            content = row[3]
            if type(content) is not bytes:
                raise _damaged(f"the data of row {row[0]:,} of messages is not a blob", self.path)
            size += len(content)
            if size >= _BATCH_BYTES or len(rows) >= _BATCH_ROWS:
                yield self._checked(rows, last)
                rows, size, last = [], 0, row[0]
        if rows:
            yield self._checked(rows, last)

    def _checked(self, rows: list[tuple[Any, ...]], last: int | None) -> _Batch:
        """Return rows after the row id ``last`` as columns. Raises ``ReadError`` for the first wrong row."""
        batch = _Batch(*zip(*rows, strict=True))
        kinds = {*map(type, batch.row_ids), *map(type, batch.topics), *map(type, batch.times)}
        is_right = kinds == {int} and min(batch.times) >= 0 and (last is None or batch.row_ids[0] > last)
        if not is_right or not all(a < b for a, b in pairwise(batch.row_ids)):
            before = last
            for row in rows:
                self._check_row(row[0], before, row[1], row[2])
                before = row[0]
        return batch

    def check(self) -> list[str]:
        """Return the faults that SQLite's own check finds, at most a hundred; empty for an intact database."""
        timer = threading.Timer(_CHECK_SECONDS + self.size / (20 * MIB), self._connection.interrupt)
        timer.start()
        try:
            lines = [str(line) for (line,) in self._rows("the database", "PRAGMA quick_check(100)")]
        finally:
            timer.cancel()
        return [line for line in lines if line != "ok"]

    def _prepare(self) -> None:
        connection = self._connection
        self._bound(MAX_SCHEMA_BYTES)
        connection.set_progress_handler(self._step, _STEPS_AT_ONCE)
        if list(connection.execute("PRAGMA trusted_schema")) != [(0,)]:
            raise UnsupportedError(
                f"SQLite {sqlite3.sqlite_version} cannot open untrusted databases safely",
                path=self.path,
                hint="Use SQLite 3.31 or newer.",
            )
        connection.set_authorizer(_allowed)
        kinds: dict[str, list[tuple[Any, Any]]] = {}
        query = "SELECT type, name, rootpage FROM sqlite_master"
        for kind, name, root in self._rows("the list of tables", query):
            if kind in ("table", "view"):
                kinds.setdefault(str(name).lower(), []).append((kind, root))
        self._columns = {name: self._checked_columns(name, kinds[name]) for name in _TABLES if name in kinds}
        for name, needed in (("topics", ("id", "name", "type")), ("messages", ("topic_id", "timestamp", "data"))):
            missing = [name] if name not in kinds else [c for c in needed if c not in self._columns[name]]
            if missing:
                what = "table" if name not in kinds else f"column of the table {name} called"
                raise _damaged(f"it has no {what} {missing[0]}", self.path, "This is not a database of rosbag2.")

    def _checked_columns(self, name: str, kinds: Sequence[tuple[Any, Any]]) -> frozenset[str]:
        """The columns of a table. Raises ``ReadError`` unless it is a single table that stores all its columns."""
        if len(kinds) != 1 or kinds[0][0] != "table" or not isinstance(kinds[0][1], int) or kinds[0][1] <= 0:
            kind = "several" if len(kinds) > 1 else "a view" if kinds[0][0] == "view" else "a virtual table"
            raise _damaged(f"{name} is {kind}, not a table", self.path, "rosbag2 writes only tables.")
        columns = list(self._rows(f"the columns of {name}", f"PRAGMA table_xinfo({name})"))
        computed = [str(column[1]) for column in columns if column[-1] in _GENERATED]
        if computed:
            raise _damaged(
                f"the column {computed[0][:60]} of {name} is computed",
                self.path,
                "rosbag2 does not write such columns.",
            )
        return frozenset(str(column[1]) for column in columns)

    def _rows(self, what: str, query: str, values: Sequence[int] = ()) -> Iterator[tuple[Any, ...]]:
        self._steps = (_FREE_STEPS + _STEPS_PER_BYTE * self.size) // _STEPS_AT_ONCE
        before: Any = None
        try:
            cursor = self._connection.execute(query, values)
            cursor.arraysize = _ROWS_AT_ONCE
            for row in cursor:
                before = row[0]
                yield row
        except (sqlite3.Error, sqlite3.Warning, OverflowError, MemoryError, UnicodeError) as error:
            where = what if before is None else f"{what}, behind row {str(before)[:60]}"
            raise self._error(error, where) from error

    def _check_row(self, row_id: Any, before: Any, topic: Any, time: Any) -> None:
        if not isinstance(row_id, int) or (before is not None and row_id <= before):
            raise _damaged(f"the rows of messages are not in order after row {before}", self.path)
        if not isinstance(topic, int) or not isinstance(time, int):
            raise _damaged(f"row {row_id:,} of messages has no numeric topic or timestamp", self.path)
        if time < 0:
            raise _damaged(f"the timestamp of row {row_id:,} of messages is {time:,}, before 1970", self.path)

    def _bound(self, length: int) -> None:
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(length, max(self.size, 1000)))

    def _step(self) -> int:
        self._steps -= 1
        return self._steps < 0

    def _error(self, error: BaseException, what: str = "") -> ReadError:
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_INTERRUPT:
            why = f"reading {what} takes more steps than a file of {self.size:,} bytes can need"
        elif code == sqlite3.SQLITE_TOOBIG or isinstance(error, MemoryError):
            why = f"a value in {what} is longer than the file or the limit"
        elif code == sqlite3.SQLITE_AUTH:
            why = f"{what} is not a plain table"
        else:
            why = f"SQLite cannot read {what or 'it'}: {error}"
        return _damaged(why, self.path)


def _checked_size(place: str, path: str) -> int:
    """The size of a database. Raises ``ReadError`` if the file is not a database, or shorter than it declares."""
    with Path(place).open("rb") as file:
        head = file.read(_HEAD_SIZE)
        size = file.seek(0, os.SEEK_END)
    if not head.startswith(MAGIC):
        why = "the file is empty" if not size else "it does not begin as an SQLite database does"
        raise ReadError(why, path=path, offset=0, hint=_HINT)
    if len(head) < _HEAD_SIZE:
        raise ReadError("the file ends in its header", path=path, offset=size, hint=_HINT)
    page_size = int.from_bytes(head[16:18], "big")
    says = int.from_bytes(head[28:32], "big") * (page_size if page_size != 1 else 65_536)
    # The number of pages only counts if the last writer wrote it.
    if size < says and head[24:28] == head[92:96]:
        raise ReadError(
            f"the file is truncated: it has {size:,} of {says:,} bytes",
            path=path,
            offset=size,
            hint=f"Wait until it is copied. {_HINT}",
        )
    return size


def _query(rows: RowRange, only: Collection[int] | None, times: TimeRange | None) -> tuple[str, list[int]]:
    conditions, values = ["rowid BETWEEN ? AND ?"], [rows.low, rows.high]
    if only is not None:
        conditions.append(f"topic_id IN ({','.join('?' * len(only))})")
        values += sorted(only)
    if times is not None:
        conditions.append("timestamp BETWEEN ? AND ?")
        values += [min(times.start, 2**63 - 1), min(times.end - 1, 2**63 - 1)]
    where = " AND ".join(conditions)
    columns = "rowid, topic_id, timestamp, data"
    return f"SELECT {columns} FROM messages NOT INDEXED WHERE {where} ORDER BY rowid", values  # noqa: S608


class _Group:
    """Messages that are collected in one arena.

    They are copied there at once, so that the next messages can reuse the memory that SQLite's binding took for them.
    """

    def __init__(self) -> None:
        self._channels: list[int] = []
        self._times: list[int] = []
        self._lengths: list[int] = []
        self._arena: Bytes = np.empty(0, np.uint8)
        self._used = 0

    @property
    def is_empty(self) -> bool:
        """Whether no message was added."""
        return not self._times

    def has_room(self, size: int) -> bool:
        """Return whether messages of ``size`` bytes fit into the group; the first messages always do."""
        return self.is_empty or (self._used + size <= GROUP_BYTES and len(self._times) < _GROUP_ROWS)

    def add(self, channels: Sequence[int], times: Sequence[int], data: Sequence[bytes], size: int) -> None:
        """Add messages of ``size`` bytes together."""
        end = self._used + size
        if end > len(self._arena):
            self._grow(end)
        self._arena[self._used : end] = np.frombuffer(data[0] if len(data) == 1 else b"".join(data), np.uint8)
        self._used = end
        self._channels += channels
        self._times += times
        self._lengths += map(len, data)

    def messages(self) -> MessageGroup:
        """The group."""
        lengths, times = np.array(self._lengths, np.int64), np.array(self._times, np.uint64)
        ends = np.cumsum(lengths)
        heads = placed_heads(ends - lengths, lengths, np.array(self._channels, np.int64), times)
        return MessageGroup(self._arena[: self._used], heads)

    def _grow(self, least: int) -> None:
        """Take a larger arena; arenas start small, as small recordings need no large one."""
        arena = take_arena(max(least, min(GROUP_BYTES, max(_FIRST_ARENA, 8 * len(self._arena)))))
        arena[: self._used] = self._arena[: self._used]
        self._arena = arena
