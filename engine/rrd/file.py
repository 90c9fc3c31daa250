"""An RRD as a reader sees it: its stores, the places of their chunks, and the chunks, which are read on use."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from typing import Any

from ..chunk import Chunk, ChunkHeader
from ..errors import ReadWarning, UsageError
from ..storage import is_url
from ..storage.positional import GROWING, HeldFile, PositionalFile, held_file, open_positional
from .chunk_table import ChunkEntry, ChunkTable
from .footer import FileIndex, read_index, unlisted_messages
from .manifest_reading import silent_columns
from .messages import STREAM_HEADER_SIZE, Message, MessageKind, StoreEntry, Version, scan
from .payloads import VerifiedPayload
from .recovery import AnnouncedStores, decoded_chunk, scan_stores, store_of


class RrdFile:
    """One RRD, on disk or in an object store. It is cheap to create: header and footer are read on first use.

    It pickles as its path and its content version; reading another version later is an error. A local file stays open
    as long as this object or one of its chunks exists. Every method raises :class:`ReadError`, with path, byte offset
    and hint, for a damaged file; :class:`UnsupportedError` for a file that is too old; :class:`SourceMissingError` for
    a missing file.
    """

    def __init__(self, path: str | PathLike[str], content_version: str | None = None) -> None:
        self.path = fspath(path)
        self._version = content_version
        self._held: HeldFile | None = None
        self._index: FileIndex | None = None
        self._announced: AnnouncedStores | None = None

    def __repr__(self) -> str:
        return f"RrdFile({self.path})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RrdFile, (self.path, self._version)

    @property
    def version(self) -> Version:
        """The version of the program that wrote the file."""
        return self._file_index.version

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._file_index.size

    @property
    def content_version(self) -> str | None:
        """The mark of this content, which detects that the file was replaced."""
        return self._version if self._file_index else None

    @property
    def held(self) -> HeldFile | None:
        """Return the open file, or None for an object in a store, or if too many files are open."""
        return self._held

    @property
    def has_footer(self) -> bool:
        """Return True if a footer lists the chunks. Without a footer the whole file must be scanned."""
        return self._file_index.manifests is not None

    def close(self) -> None:
        """Close the file. The next use opens it again; its index stays in memory."""
        self._held = None

    def again(self) -> RrdFile:
        """Return the current file of this name. It keeps the index if the file is unchanged.

        Raises :class:`SourceMissingError` if the file is gone.
        """
        file = RrdFile(self.path)
        if self._index is not None and self._version is not None:
            with file._open() as opened:
                if opened.version == self._version:
                    file._version, file._index = self._version, self._index
        return file

    def stores(self) -> list[StoreEntry]:
        """Recordings, then blueprints, by application id and recording id.

        They are read from the footer, which omits stores without chunks. Without a footer, they are read from the heads
        of all messages.
        """
        tables = self._file_index.manifests
        if tables is None:
            return list(self._announcements.stores)
        return sorted(tables, key=lambda s: s.sort_key)

    def has(self, store: StoreEntry) -> bool:
        """Return True if ``store`` is in the file."""
        tables = self._file_index.manifests
        return store in (self._announcements.stores if tables is None else tables)

    def entries(self, store: StoreEntry) -> list[ChunkEntry] | None:
        """The chunks of ``store`` in the footer; None without a footer.

        If an entry's header has no components, the footer does not describe them.
        """
        self._check(store)
        if self._file_index.manifests is None:
            return None
        return [entry for manifest in self._file_index.manifests[store] for entry in manifest.table.entries()]

    def listing(self, store: StoreEntry) -> ChunkTable | None:
        """All chunks of ``store``, each once, in file order, or None without a footer.

        Chunks that the footer does not list are decoded.
        """
        self._check(store)
        if self._file_index.manifests is None:
            return None
        tables = [manifest.table for manifest in self._file_index.manifests[store]]
        unlisted = self._unlisted(store)
        if unlisted:
            entries = [ChunkEntry(self._decoded(m).header, m.offset, m.size, m.size) for m in unlisted]
            tables.append(ChunkTable.of(entries, self.path))
        return ChunkTable.concat(tables).ordered()

    def scanned(self, store: StoreEntry) -> ChunkTable:
        """All chunks of ``store`` in a file without a footer, like :meth:`listing`. Each chunk is read."""
        self._check(store)
        entries = [
            ChunkEntry(chunk.header, message.offset, message.size, message.size)
            for message, chunk in self._scan_chunks(store)
        ]
        return ChunkTable.of(entries, self.path)

    def silent_columns(self, store: StoreEntry) -> list[ChunkHeader]:
        """Return the components that the footer lists for ``store`` without a chunk, each in its own header.

        They have only nulls, and the footer does not name their chunks.
        """
        self._check(store)
        manifests = (self._file_index.manifests or {}).get(store, ())
        entity_components = {component for manifest in manifests for component in manifest.table.entity_components}
        return [header for manifest in manifests for header in silent_columns(manifest.union, entity_components)]

    def messages(self, start: int = STREAM_HEADER_SIZE) -> Iterator[Message]:
        """The heads of all messages, from the one whose frame begins at ``start`` to the end message."""
        with self._open() as file:
            yield from scan(file, start)

    def chunks(self, store: StoreEntry, entries: Sequence[ChunkEntry] | None = None) -> Iterator[Chunk]:
        """The chunks of ``store``, or those of ``entries``, in the order of the file.

        Chunks in the footer are returned without reading the file; others are found by a scan, and decoded.
        """
        if entries is not None:
            in_order = sorted(entries, key=lambda e: e.offset)
            self._expect(in_order)
            if self._held is None and not is_url(self.path):
                self._open().close()
            yield from (self._lazy(store, entry) for entry in in_order)
            return
        self._check(store)
        listed = self.entries(store)
        if listed is None:
            yield from self._walked(store)
            return
        items: dict[int, ChunkEntry | Message] = {e.offset: e for e in listed}
        items.update((m.offset, m) for m in self._unlisted(store))
        for _, item in sorted(items.items(), key=lambda pair: pair[0]):
            yield self._lazy(store, item) if isinstance(item, ChunkEntry) else self._decoded(item)

    @property
    def _file_index(self) -> FileIndex:
        if self._index is None:
            with self._open() as file:
                self._index = read_index(file)
                self._version = file.version
                if self._index.manifests is None and not is_url(self.path):
                    self._version = f"{file.version}{GROWING}"
        return self._index

    def _open(self) -> PositionalFile:
        if self._held is None and not is_url(self.path):
            self._held = held_file(self.path, self._version)
        return open_positional(self.path, self._version, self._held)

    @property
    def _announcements(self) -> AnnouncedStores:
        if self._announced is None:
            with self._open() as file:
                self._announced = scan_stores(file)
        return self._announced

    def _check(self, store: StoreEntry) -> None:
        if not self.has(store):
            raise UsageError(f"Store {store.text} not found in RRD file", path=self.path)

    def _expect(self, entries: Sequence[ChunkEntry]) -> None:
        """Announce reads: chunks close to each other in an object are fetched together, several requests at once."""
        if entries and is_url(self.path):
            with self._open() as file:
                file.expect(*((e.offset, e.offset + e.size) for e in entries))

    def _lazy(self, store: StoreEntry, entry: ChunkEntry) -> Chunk:
        header = entry.header
        payload = VerifiedPayload.of(self.path, entry, store=store, version=self._version, held=self._held)
        return Chunk.lazy(header if header.components else None, payload)

    def _decoded(self, message: Message) -> Chunk:
        return decoded_chunk(self.path, message, self._version, self._held)

    def _walked(self, store: StoreEntry) -> Iterator[Chunk]:
        return (chunk for _, chunk in self._scan_chunks(store))

    def _scan_chunks(self, store: StoreEntry) -> Iterator[tuple[Message, Chunk]]:
        """The chunks of ``store``, decoded, with the messages that hold them."""
        stores, legacy_ids = self._announcements
        unknown: Counter[StoreEntry] = Counter()
        with self._open() as file:
            for message in scan(file):
                if message.kind == MessageKind.ARROW_MSG:
                    owner = store_of(file, message, legacy_ids)
                    unknown[owner] += owner not in stores
                    if owner == store:
                        yield message, self._decoded(message)
        for owner, count in unknown.items():
            if count:
                self._warn(f"skipped {count} chunks of {owner.text}: the file does not announce this store")

    def _unlisted(self, store: StoreEntry) -> list[Message]:
        """The chunks of ``store`` that the footer does not list."""
        index = self._file_index
        if index.unlisted is None:
            by_store: dict[StoreEntry, list[Message]] = {}
            with self._open() as file:
                for message in unlisted_messages(file, index):
                    by_store.setdefault(store_of(file, message, {}), []).append(message)
            index.unlisted = by_store
        return index.unlisted.get(store, [])

    def _warn(self, text: str) -> None:
        warnings.warn(f"{self.path}: {text}", ReadWarning, stacklevel=3)
