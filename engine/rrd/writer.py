"""Writing a whole RRD: header, stores, messages, footer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from ..chunk import tuid
from ..errors import UsageError, WriteError
from ..failing import writing
from .arrow_ipc import Compression
from .chunk_columns import ChunkColumns, TimelineRegister, columns_of_entries, joined
from .entry import ChunkEntry
from .framing import WRITTEN_VERSION, MessageKind, message_header, stream_footer, stream_header
from .manifest_build import manifest_of
from .message_writer import MessageWriter
from .messages import SOURCE_OTHER, RrdFooter, SetStoreInfo, tuid_message
from .open_files import NEVER_CHANGES, open_positional
from .output import Output
from .store_entry import StoreEntry

if TYPE_CHECKING:
    from ..chunk.chunk import Chunk


@dataclass(slots=True)
class _OpenStore:
    writer: MessageWriter
    timelines: TimelineRegister
    entries: list[ChunkEntry] = field(default_factory=list)
    columns: list[ChunkColumns] = field(default_factory=list)

    def add(self, columns: ChunkColumns, path: str) -> None:
        """Chunks behind those that are there, as columns."""
        self.timelines.add_kinds(columns.kinds)
        self.gather(path)
        self.columns.append(columns)

    def gather(self, path: str) -> None:
        """Make columns of the entries that came last."""
        if self.entries:
            self.columns.append(columns_of_entries(self.entries, path=path))
            self.entries = []


class RrdWriter:
    """Writes one RRD, of any number of stores, to a path or a binary file that stands where the stream is to begin.

    Guarantee: nothing but a :meth:`finish` that returned makes a whole file; what a path opened is closed by it, by
    :meth:`close` and by leaving a ``with`` block. Chunks of a store lie in the order they were given. Replacing a
    file atomically is the caller's job. Raises :class:`WriteError`, of it :class:`NoSpaceError` for a full disk.

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
        """Bytes written so far."""
        return self._out.position

    def begin_store(self, store: StoreEntry, source: str = "chunkmill") -> None:
        """Announce a store, before its first chunk; ``source`` is who recorded it. A second time does nothing."""
        if store in self._stores:
            return
        if not store.application_id:
            raise WriteError(
                "the application id must not be empty", path=self.path, hint="Rerun refuses to open such a recording."
            )
        message = SetStoreInfo(row_id=tuid_message(tuid.mint()))
        message.info.store_id.CopyFrom(store.to_message())
        message.info.store_source.kind = SOURCE_OTHER
        message.info.store_source.extra.payload = source.encode()
        message.info.store_version.crate_version_bits = WRITTEN_VERSION.bits
        self._frame(MessageKind.SET_STORE_INFO, message.SerializeToString())
        writer = MessageWriter(self._out, store, path=self.path, compression=self._compression)
        self._stores[store] = _OpenStore(writer, TimelineRegister(self.path))

    def append(self, store: StoreEntry, chunk: Chunk) -> ChunkEntry:
        """Write one chunk of a store that was begun."""
        opened = self._opened_store(store)
        opened.timelines.add(chunk.header.timelines)
        entry = opened.writer.append(chunk)
        opened.entries.append(entry)
        return entry

    def messages(self, store: StoreEntry) -> MessageWriter:
        """The writer of the chunks of a store that was begun; :meth:`adopt` then tells of them, with a size of 0."""
        return self._opened_store(store).writer

    def append_part(
        self,
        store: StoreEntry,
        part_path: str | PathLike[str],
        entries: Sequence[ChunkEntry],
        offset: int = 0,
        size: int | None = None,
    ) -> list[ChunkEntry]:
        """Copy ``size`` bytes (by default all) from ``offset`` of a part, which are the framed messages of ``entries``.

        The part was written by a :class:`MessageWriter` for the same store; offsets of ``entries`` are those in the
        part; given back are those in this file. The kernel copies, nothing is decoded.
        """
        opened = self._opened_store(store)
        for entry in entries:
            opened.timelines.add(entry.header.timelines)
        with open_positional(part_path, NEVER_CHANGES) as part:
            length = part.size - offset if size is None else size
            shift = self._out.position - offset
            self._out.copy(part, offset, length, what="a part")
            self._out.write_back()
        moved = [replace(e, offset=e.offset + shift) for e in entries]
        opened.entries += moved
        return moved

    def append_passed(
        self, store: StoreEntry, part_path: str | PathLike[str], chunks: ChunkColumns, offset: int, size: int
    ) -> None:
        """Like :meth:`append_part`, for ``chunks`` whose offsets are already those in this file."""
        opened = self._opened_store(store)
        with open_positional(part_path, NEVER_CHANGES) as part:
            self._out.copy(part, offset, size, what="a part")
            self._out.write_back()
        opened.add(chunks, self.path)

    def adopt(self, store: StoreEntry, chunks: ChunkColumns | Sequence[ChunkEntry], size: int) -> None:
        """Take the next ``size`` bytes, which another wrote into the file, as the framed messages of ``chunks``."""
        opened = self._opened_store(store)
        self._out.skip(size)
        if isinstance(chunks, ChunkColumns):
            opened.add(chunks, self.path)
            return
        for entry in chunks:
            opened.timelines.add(entry.header.timelines)
        opened.entries += chunks

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        self._out.flush()

    def finish(self) -> None:
        """Write the footer, and wait until everything is on the disk."""
        manifests = b"".join(
            _manifest_field(manifest)
            for store, opened in self._stores.items()
            if (manifest := _manifest(store, opened, self.path)) is not None
        )
        self._frame(MessageKind.END, manifests)
        self._out.write(stream_footer(self._out.position - len(manifests), manifests))
        self._out.sync()
        self.close()

    def close(self) -> None:
        """Close without finishing: the file, if this writer opened it, and the sources that were copied from."""
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
            raise UsageError(f"{store.text} was not begun", hint="Call begin_store first.") from None


def _manifest(store: StoreEntry, opened: _OpenStore, path: str) -> bytes | None:
    """The manifest of a store; None for one without chunks."""
    opened.gather(path)
    pieces = [columns for columns in opened.columns if len(columns)]
    return manifest_of(store, joined(pieces, path=path), path=path) if pieces else None


def _manifest_field(manifest: bytes) -> bytes:
    """Field 1 of an ``RrdFooter``, around a manifest that is serialised already."""
    empty = RrdFooter()
    empty.manifests.add().MergeFromString(manifest)
    return bytes(empty.SerializeToString())
