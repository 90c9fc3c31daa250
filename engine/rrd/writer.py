"""Writers of framed messages: the chunks of one store, or a whole RRD with header, stores and footer."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa
import xxhash

from ..chunk import mint
from ..errors import ReadError, UsageError, WriteError, writing
from ..storage import LARGEST_WINDOW, SMALLEST_PART, ObjectUrl, Upload
from ..storage.positional import NEVER_CHANGES, HeldFile, PositionalFile, open_positional
from ..task_context import WRITE, passed_through, phase
from .arrow_ipc import decode_chunk, encode_chunk, encode_stream
from .chunk_table import ChunkEntry, ChunkTable, difference_of, lying_footer
from .compression import Compression, decompress
from .layouts import Bytes
from .manifest_writing import TimelineRegister, build_manifest
from .messages import (
    MESSAGE_HEADER_SIZE,
    SOURCE_OTHER,
    WRITTEN_VERSION,
    MessageKind,
    RrdFooter,
    SetStoreInfo,
    StoreEntry,
    message_head,
    message_header,
    message_tail,
    store_field,
    stream_footer,
    stream_header,
    tuid_message,
)
from .payloads import EncodedPayload, RrdPayload, StreamPayload
from .runs import MessageCopier, copy_range, start_writing_back
from .times import TimesWriter, part_end

if TYPE_CHECKING:
    from ..chunk import Chunk, ChunkHeader
    from .runs import Run, RunRows

_MOST_HELD: Final = 1 << 20
_MOST_PIECES: Final = 512
_KERNEL_COPY_SIZE: Final = 1 << 18


class Output:
    """Appends to ``file`` (or an upload) from its current position, many pieces at a time.

    ``position`` counts the appended bytes. Pieces are held until they are written, without a copy: do not change them.
    Failures raise ``NoSpaceError`` or ``WriteError`` with ``path``.
    """

    __slots__ = ("_fd", "_file", "_held", "_pieces", "_sent", "path", "position")

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.path = path
        self.position = 0
        self._file = file
        self._pieces: list[memoryview] = []
        self._held = self._sent = 0
        self._fd: int | None
        try:
            file.flush()
            self._fd = file.fileno()
        except (io.UnsupportedOperation, AttributeError):
            self._fd = None

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        """Append ``data``."""
        piece = memoryview(data)
        self.position += len(piece)
        self._held += len(piece)
        self._pieces.append(piece)
        if self._held >= _MOST_HELD or len(self._pieces) >= _MOST_PIECES:
            self.flush()

    def copy(self, source: PositionalFile, offset: int, size: int, *, what: str, many: int | None = None) -> None:
        """Append ``size`` bytes of ``source``. The kernel copies large ranges, or an object store (``many``)."""
        if isinstance(self._file, Upload) and size >= (many or SMALLEST_PART) and not source.is_local:
            self.flush()
            if self._file.copy(ObjectUrl.of(source.path), source.version, offset, size):
                self.position += size
                return
        if self._fd is None or size < _KERNEL_COPY_SIZE or not source.is_local:
            most = _MOST_HELD if source.is_local else LARGEST_WINDOW
            while size > 0:
                piece = min(size, most)
                self.write(source.read(offset, piece, what=what))
                offset, size = offset + piece, size - piece
            return
        self.flush()
        with writing(self.path):
            copy_range(source, offset, size, self._fd)
        self.position += size

    def skip(self, size: int) -> None:
        """Skip bytes that another writer wrote into the file."""
        self.flush()
        assert self._fd is not None
        os.lseek(self._fd, size, os.SEEK_CUR)
        self.position += size
        self._sent += size  # their writer writes them back

    @property
    def handle(self) -> int | None:
        """The descriptor of the output, if any."""
        return self._fd

    def wrote(self, size: int) -> None:
        """Count bytes that another writer wrote at the descriptor's position, after a :meth:`flush`."""
        self.position += size

    def flush(self) -> None:
        """Pass all written bytes to the operating system."""
        if not self._pieces:
            return
        pieces, self._pieces, size, self._held = self._pieces, [], self._held, 0
        with writing(self.path):
            if self._fd is None:
                self._file.write(b"".join(pieces) if len(pieces) > 1 else pieces[0])
                return
            done = os.writev(self._fd, pieces)
            if done < size:
                rest = memoryview(b"".join(pieces))[done:]
                while rest:
                    rest = rest[os.write(self._fd, rest) :]

    def write_back(self) -> None:
        """Start writing to the disk, so that :meth:`sync` takes less time."""
        if self._fd is not None:
            self.flush()
            size, self._sent = self.position - self._sent, self.position
            start_writing_back(self._fd, os.lseek(self._fd, 0, os.SEEK_CUR) - size, size)

    def sync(self) -> None:
        """Flush, and wait until the bytes are on the disk."""
        self.flush()
        if self._fd is not None:
            with writing(self.path):
                os.fsync(self._fd)


@dataclass(slots=True)
class _OpenStore:
    writer: MessageWriter
    timelines: TimelineRegister
    entries: list[ChunkEntry] = field(default_factory=list)
    tables: list[ChunkTable] = field(default_factory=list)

    def add(self, table: ChunkTable) -> None:
        """Add further chunks, as rows of a table."""
        self.timelines.add(table.timelines.keys)
        self.gather()
        self.tables.append(table)

    def gather(self) -> None:
        """Make a table of the newest entries."""
        if self.entries:
            self.tables.append(ChunkTable.of(self.entries))
            self.entries = []

    def whole(self) -> ChunkTable:
        """Return one table of all chunks."""
        self.gather()
        return ChunkTable.concat(self.tables)


class RrdWriter:
    """Writes one RRD, of any number of stores, to a path, or to a binary file from its current position.

    Guarantee: only a finished :meth:`finish` gives a complete file. It closes a file that was opened from a path, as do
    :meth:`close` and the end of a ``with`` block. Chunks of a store are in the given order. The caller must replace
    files atomically. Raises :class:`WriteError`; for a full disk :class:`NoSpaceError`.

    >>> import io
    >>> file = io.BytesIO()
    >>> writer = RrdWriter(file, path="memory")
    >>> writer.begin_store(StoreEntry("recording", "demo", "one"))
    >>> writer.finish()
    >>> file.getvalue()[:4]
    b'RRF2'
    """

    def __init__(
        self,
        target: str | PathLike[str] | BinaryIO,
        *,
        path: str | None = None,
        compression: Compression = Compression.LZ4,
    ) -> None:
        if isinstance(target, (str, PathLike)):
            self.path = path or fspath(target)
            with writing(self.path):
                self._file: BinaryIO = Path(target).open("wb", buffering=0)  # noqa: SIM115 - close() closes it
            self._opened: BinaryIO | None = self._file
        else:
            self.path = path or str(getattr(target, "name", "the recording"))
            self._file, self._opened = target, None
        self._compression = compression
        self._out = Output(self._file, self.path)
        self._stores: dict[StoreEntry, _OpenStore] = {}
        self._out.write(stream_header(lz4=compression == Compression.LZ4))

    @property
    def position(self) -> int:
        """The number of bytes written so far."""
        return self._out.position

    def begin_store(self, store: StoreEntry, source: str = "chunkmill") -> None:
        """Announce a store, before its first chunk. ``source`` is the recorder. Repeated calls do nothing."""
        if store in self._stores:
            return
        if not store.application_id:
            raise WriteError(
                "the application id must not be empty",
                path=self.path,
                hint="Rerun cannot open a recording without one.",
            )
        message = SetStoreInfo(row_id=tuid_message(mint()))
        message.info.store_id.CopyFrom(store.to_message())
        message.info.store_source.kind = SOURCE_OTHER
        message.info.store_source.extra.payload = source.encode()
        message.info.store_version.crate_version_bits = WRITTEN_VERSION.bits
        self._frame(MessageKind.SET_STORE_INFO, message.SerializeToString())
        writer = MessageWriter(self._out, store, path=self.path, compression=self._compression)
        self._stores[store] = _OpenStore(writer, TimelineRegister(self.path))

    def append(self, store: StoreEntry, chunk: Chunk) -> ChunkEntry:
        """Write one chunk of a store of :meth:`begin_store`."""
        opened = self._opened_store(store)
        opened.timelines.add((t.name, t.kind) for t in chunk.header.timelines)
        entry = opened.writer.append(chunk)
        opened.entries.append(entry)
        return entry

    def messages(self, store: StoreEntry) -> MessageWriter:
        """Return a writer of an open store's chunks. Then add the chunks by :meth:`adopt`, with a size of 0."""
        return self._opened_store(store).writer

    def append_part(
        self,
        store: StoreEntry,
        part_path: str | PathLike[str],
        entries: Sequence[ChunkEntry],
        offset: int = 0,
        size: int | None = None,
    ) -> list[ChunkEntry]:
        """Copy ``size`` bytes (by default all) from ``offset`` of a part: the framed messages of ``entries``.

        The part must be written by a :class:`MessageWriter` for the same store. ``entries`` have offsets in the part;
        the returned entries have offsets in this file. The kernel copies, without decoding.
        """
        opened = self._opened_store(store)
        for entry in entries:
            opened.timelines.add((t.name, t.kind) for t in entry.header.timelines)
        with open_positional(part_path, NEVER_CHANGES) as part:
            length = part.size - offset if size is None else size
            shift = self._out.position - offset
            self._out.copy(part, offset, length, what="a part")
            self._out.write_back()
        moved = [replace(e, offset=e.offset + shift) for e in entries]
        opened.entries += moved
        return moved

    def append_passed(
        self, store: StoreEntry, part_path: str | PathLike[str], chunks: ChunkTable, offset: int, size: int
    ) -> None:
        """Like :meth:`append_part`, for ``chunks`` whose offsets are already those in this file."""
        opened = self._opened_store(store)
        with open_positional(part_path, NEVER_CHANGES) as part:
            self._out.copy(part, offset, size, what="a part")
            self._out.write_back()
        opened.add(chunks)

    def adopt(self, store: StoreEntry, chunks: ChunkTable | Sequence[ChunkEntry], size: int) -> None:
        """Add the next ``size`` bytes, written by another writer, as the framed messages of ``chunks``."""
        opened = self._opened_store(store)
        self._out.skip(size)
        if isinstance(chunks, ChunkTable):
            opened.add(chunks)
            return
        for entry in chunks:
            opened.timelines.add((t.name, t.kind) for t in entry.header.timelines)
        opened.entries += chunks

    def flush(self) -> None:
        """Pass all written bytes to the operating system."""
        self._out.flush()

    def finish(self) -> None:
        """Write the footer, and wait until everything is on the disk.

        A recording with an unnamed component gets no footer: the component's columns would have the names of timeline
        columns, and neither Rerun nor chunkmill could read the footer. Such a file is read completely.
        """
        tables = {store: opened.whole() for store, opened in self._stores.items()}
        if all(descriptor.component for table in tables.values() for descriptor in table.components.descriptors):
            manifests = b"".join(
                _manifest_field(build_manifest(store, table, path=self.path))
                for store, table in tables.items()
                if len(table)
            )
            self._frame(MessageKind.END, manifests)
            self._out.write(stream_footer(self._out.position - len(manifests), manifests))
        else:
            self._frame(MessageKind.END, b"")
        self._out.sync()
        self.close()

    def close(self) -> None:
        """Close without finishing: the file, if this writer opened it, and the sources of copies."""
        for opened in self._stores.values():
            opened.writer.release()
        if self._opened is not None:
            file, self._opened = self._opened, None
            with writing(self.path):
                file.close()

    def __enter__(self) -> RrdWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _frame(self, kind: MessageKind, payload: bytes) -> None:
        self._out.write(message_header(kind, len(payload)))
        self._out.write(payload)

    def _opened_store(self, store: StoreEntry) -> _OpenStore:
        try:
            return self._stores[store]
        except KeyError:
            raise UsageError(f"{store.text} was not announced", hint="Call begin_store first.") from None


def _manifest_field(manifest: bytes) -> bytes:
    """Field 1 of an ``RrdFooter``, with a serialised manifest."""
    empty = RrdFooter()
    empty.manifests.add().MergeFromString(manifest)
    return bytes(empty.SerializeToString())


_MANY: Final = 4 * SMALLEST_PART
"""Payloads below this size are fetched with their neighbours and sent: most of one would be sent anyway."""

_PAYLOAD: Final = "the payload of a chunk"

_JOINED: Final = 1 << 16
"""Payloads below this size are written in one piece with the bytes around them."""


class MessageWriter:
    """Appends chunks of ``store`` to ``file``, from its current position; the output is a part of an RRD.

    Guarantee: chunks are in the given order. An unchanged chunk of an RRD keeps its compressed bytes; the kernel copies
    them. Call :meth:`flush` at the end. Errors name ``path``.

    Entries have the digests of their messages, computed from the bytes to write. Messages that the kernel copies are
    not read, and have no digest, unless ``digests`` is true. With ``times``, which needs ``digests``, :meth:`flush`
    ends the part with the times of its chunks (:meth:`Times.in_part`). Copied chunks are decoded for this; if one
    cannot be decoded, the part has no times.
    """

    def __init__(
        self,
        file: BinaryIO | Output,
        store: StoreEntry,
        *,
        path: str,
        compression: Compression = Compression.LZ4,
        digests: bool = False,
        times: bool = False,
    ) -> None:
        self._out = file if isinstance(file, Output) else Output(file, path)
        self._store = store
        self._store_field = store_field(store.to_message())
        self._compression = compression
        self._digests = digests
        self._has_times = times
        self._times = TimesWriter() if times else None
        self._source: PositionalFile | None = None
        self._of: tuple[str, str | None] = "", None
        self._copier: MessageCopier | None = None
        self._fields: tuple[Run, bytes, bytes] | None = None

    def append(self, chunk: Chunk) -> ChunkEntry:
        """Write one chunk; return its header and its offset from the start of this writer."""
        payload = chunk.payload
        if isinstance(payload, RrdPayload):
            return self._append_encoded(chunk.header, payload)
        try:
            if isinstance(chunk.made, StreamPayload):
                encoded = encode_stream(chunk.made.stream, self._compression)
            else:
                encoded = encode_chunk(chunk.data, self._compression)
        except WriteError as error:
            raise WriteError(f"{chunk.entity_path}: {error.message}", path=self._out.path, hint=error.hint) from error
        if self._times is not None:
            self._times.add(chunk.data, encoded.uncompressed_size if isinstance(chunk.made, StreamPayload) else 0)
        length = encoded.size
        header = chunk.header
        head, tail, offset, total = self._frame(header, encoded.compression, encoded.uncompressed_size, length)
        with phase(WRITE):
            if length < _JOINED:
                pieces: Iterable[Bytes] = (b"".join((head, *encoded.pieces, tail)),)
            else:
                pieces = (head, *encoded.pieces, tail)
            digest = self._write(pieces)
            if length >= _JOINED:
                self._out.flush()  # columns are not copied: their owner may change them next
        return ChunkEntry(header, offset, total, encoded.uncompressed_size, digest)

    @property
    def takes_runs(self) -> bool:
        """Return True if the file has a descriptor, which :meth:`append_run` needs."""
        return self._out.handle is not None

    def append_run(self, run: RunRows) -> int:
        """Copy messages unchanged except for their store. Return their new position, including the frame header."""
        table, start = run.run.table, self._out.position
        before, after = self._fields_of(run.run)
        rows = slice(run.start, run.stop)
        with phase(WRITE):
            self._out.flush()
            source = self._opened(run.run.path, run.run.version)
            copier = self._copier_here()
            with writing(self._out.path):
                offsets, sizes, digests = table.offsets[rows], table.sizes[rows], table.digests[rows]
                copier.copy(source, offsets, sizes, before, after, digests)
        size = int(run.sizes.sum())
        self._out.wrote(size + (run.stop - run.start) * (MESSAGE_HEADER_SIZE + len(after) - len(before)))
        passed_through(size)
        return start

    @property
    def out(self) -> Output:
        """The output. You may write other data between two chunks."""
        return self._out

    @property
    def position(self) -> int:
        """The number of bytes written so far."""
        return self._out.position

    def flush(self) -> None:
        """Pass all bytes to the operating system, and close the sources of copies."""
        if self._has_times:
            self._has_times = False
            for piece in part_end(self._times):
                self._out.write(piece)
        self._out.flush()
        self.release()

    def release(self) -> None:
        """Close the last source of copied payloads."""
        if self._source is not None:
            self._source.close()
            self._source = self._copier = None

    def _append_encoded(self, header: ChunkHeader, payload: RrdPayload) -> ChunkEntry:
        encoded = payload if isinstance(payload, EncodedPayload) else payload.located(self._open(payload))
        head, tail, offset, total = self._frame(header, encoded.compression, encoded.uncompressed_size, encoded.size)
        with phase(WRITE):
            data, digest = encoded.data, encoded.digest
            if data is None and self._digests:
                data = self._open(encoded).read(encoded.offset, encoded.size, what=_PAYLOAD)
            if data is not None:
                digest = self._write((head, data, tail), digest)
                self._note_times(encoded, data, header)
            else:
                self._out.write(head)
                self._out.copy(self._open(encoded), encoded.offset, encoded.size, what=_PAYLOAD, many=_MANY)
                self._out.write(tail)
        passed_through(encoded.size)
        return ChunkEntry(header, offset, total, encoded.uncompressed_size, digest)

    def _note_times(self, encoded: EncodedPayload, data: bytes | memoryview, header: ChunkHeader) -> None:
        if self._times is None:
            return
        path, offset = encoded.path, encoded.offset
        try:
            size = encoded.uncompressed_size
            stream = decompress(data, encoded.compression, size, path=path, offset=offset, what=_PAYLOAD)
            chunk = decode_chunk(stream, path=path, offset=offset, what=_PAYLOAD)
        except (ReadError, ValueError):
            self._times = None  # reading the chunk itself reports the fault
            return
        what = difference_of(chunk, header)
        if what is not None:
            raise lying_footer(what, path, offset)
        self._times.add(chunk, len(stream))

    def _write(self, pieces: Iterable[Bytes], digest: bytes | None = None) -> bytes:
        """Write a message whose first piece has its frame header and store; return its digest."""
        for piece in pieces:
            self._out.write(piece)
        if digest is not None:
            return digest
        made = xxhash.xxh3_128()
        skipped = MESSAGE_HEADER_SIZE + len(self._store_field)
        for piece in pieces:
            made.update(memoryview(piece)[skipped:])
            skipped = 0
        return made.digest()

    def _frame(
        self, header: ChunkHeader, compression: Compression, uncompressed_size: int, size: int
    ) -> tuple[bytes, bytes, int, int]:
        """The bytes before and after the next payload, and its message's offset and size."""
        head = message_head(self._store_field, compression, uncompressed_size, size)
        tail = message_tail(header.chunk_id, header.is_static)
        total = len(head) + size + len(tail)
        offset = self._out.position + MESSAGE_HEADER_SIZE
        return message_header(MessageKind.ARROW_MSG, total) + head, tail, offset, total

    def _open(self, payload: RrdPayload) -> PositionalFile:
        return self._opened(payload.path, payload.version, payload.held)

    def _opened(self, path: str, version: str | None, held: HeldFile | None = None) -> PositionalFile:
        if self._source is None or self._of != (path, version):
            self.release()
            self._source = open_positional(path, version, held)
            self._of = path, version
        return self._source

    def _copier_here(self) -> MessageCopier:
        if self._copier is None:
            assert self._out.handle is not None
            self._copier = MessageCopier(self._out.handle, self._out.position, write_back=False)
        return self._copier

    def _fields_of(self, run: Run) -> tuple[bytes, bytes]:
        if self._fields is None or self._fields[0] is not run:
            self._fields = run, *run.fields(self._store)
        return self._fields[1:]


class WrittenChunks:
    """Collects the chunks written into one part of a store, both single chunks and copied runs."""

    def __init__(self, store: StoreEntry) -> None:
        self.entries: list[ChunkEntry] = []
        """The chunks that were not taken yet."""

        self.chunks = self.rows = 0
        self._store = store
        self._runs: list[tuple[RunRows, int]] = []

    def add(self, entry: ChunkEntry) -> None:
        """Add a chunk."""
        self.entries.append(entry)
        self.count(entry.header.num_rows)

    def count(self, rows: int) -> None:
        """Count a chunk that is described elsewhere."""
        self.chunks += 1
        self.rows += rows

    def add_run(self, run: RunRows, position: int) -> None:
        """Add messages that begin at ``position``."""
        self._runs.append((run, position))
        self.chunks += run.stop - run.start
        self.rows += int(run.run.table.num_rows[run.start : run.stop].sum())

    def take(self) -> ChunkTable:
        """Return and remove the rows of all chunks, in the order of the part."""
        passed = [
            run.run.table.slice(run.start, run.stop).placed(
                position, run.run.sizes_in(self._store)[run.start : run.stop]
            )
            for run, position in self._runs
        ]
        tables = [ChunkTable.of(self.entries), *passed] if self.entries else passed
        self.entries, self._runs = [], []
        return ChunkTable.concat(tables).ordered() if passed else ChunkTable.concat(tables)

    def take_entries(self) -> list[ChunkEntry]:
        """Like :meth:`take`, as entries."""
        entries, self.entries = (self.take().entries() if self._runs else self.entries), []
        return entries
