"""Verification of an RRD: every chunk is read and compared with all that the footer and other files claim about it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Final, Self

from ..chunk import Chunk, ChunkData, ChunkHeader
from ..errors import ReadError, ReadWarning, SourceMissingError
from ..storage import is_url
from ..storage.positional import GROWING, HeldFile, PositionalFile, held_file, keeping_open, open_positional
from .chunk_table import ChunkEntry, difference
from .footer import FileIndex, read_footer, read_index
from .messages import STREAM_HEADER_SIZE, Message, MessageKind, StoreEntry, StoreKey, parse_stream_header, scan
from .payloads import VerifiedPayload
from .recovery import announced_by, decoded_chunk, owner_of, store_of

_HINT: Final = "The file was damaged on disk or in transit, or its writer is faulty; restore it from a copy."
_MOST_FAULTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying a file or a store.

    ``chunks`` and ``rows`` count readable chunks and rows. ``digests`` counts the chunks that were verified by a
    digest; it is None for formats without checksums of chunks. ``faults`` has the first 1,000 faults in the order of
    the file; ``more_faults`` counts the others.
    """

    chunks: int = 0
    rows: int = 0
    digests: int | None = None
    faults: tuple[ReadError, ...] = ()
    more_faults: int = 0

    def checked(self) -> Self:
        """Return this result if there is no fault. Otherwise raise the first fault, a :class:`ReadError`."""
        if self.faults:
            raise self.faults[0]
        return self


class Findings:
    """The counts and faults of a verification while it runs; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[ReadError] = []
        self._more = self._chunks = self._rows = 0
        self._digests: int | None = None

    def count(self, *, chunks: int = 1, rows: int, digests: int | None = None) -> None:
        """Count readable chunks and rows."""
        with self._lock:
            self._chunks += chunks
            self._rows += rows
            if digests is not None:
                self._digests = (self._digests or 0) + digests

    def fault(self, error: ReadError) -> None:
        """Add a fault."""
        with self._lock:
            if len(self._faults) < _MOST_FAULTS:
                self._faults.append(error)
            else:
                self._more += 1

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Add a ``ReadError`` in the block as a fault, unless the file is missing or the error is transient."""
        try:
            yield
        except SourceMissingError:
            raise
        except ReadError as error:
            if error.transient:
                raise
            self.fault(error)

    def add(self, other: Verification) -> None:
        """Add the findings of another verification."""
        self.count(chunks=other.chunks, rows=other.rows, digests=other.digests)
        for error in other.faults:
            self.fault(error)
        with self._lock:
            self._more += other.more_faults

    @property
    def places(self) -> set[int | None]:
        """The offsets of the faults so far."""
        return {error.offset for error in self._faults}

    def verification(self) -> Verification:
        """The result."""
        in_order = sorted(self._faults, key=lambda error: (error.path or "", error.offset or 0))
        return Verification(self._chunks, self._rows, self._digests, tuple(in_order), self._more)


Told = Mapping[int, Sequence[tuple[StoreEntry, ChunkEntry]]]
"""Claims about chunks, by the offsets of their messages: their store and their entry."""


Look = Callable[[int, ChunkData], None]
"""A check of a decoded chunk, whose message is at this offset. Raises ``ReadError`` for a fault."""


def verify_file(path: str | PathLike[str], claims: Told | None = None, look: Look | None = None) -> Verification:
    """Read and decode every chunk of an RRD, a few megabytes at a time, and compare it with its footer.

    It checks that each chunk has the digest, message, id, entity, rows, times and components in the footer's manifest
    of its store; that every store is announced; that messages are consecutive up to the end message; and that the
    footer matches its checksum. ``claims`` are another file's entries for chunks of this file, and ``look`` checks
    those chunks. Each difference is a fault of the result. Raises ``SourceMissingError`` if there is no file.
    """
    return _Verifying(fspath(path), look).run(claims or {})


@dataclass(slots=True)
class _Place:
    """The place of an existing or claimed message, with all claims about its chunk."""

    offset: int
    size: int
    claims: list[tuple[StoreEntry, ChunkEntry]] = field(default_factory=list)


class _Verifying:
    """The verification of one file."""

    def __init__(self, path: str, look: Look | None = None) -> None:
        self.path = path
        self._look = look
        self._findings = Findings()
        self._held: HeldFile | None = None if is_url(path) else held_file(path, None)
        self._version: str | None = None
        self._announced: set[StoreEntry] = set()
        self._legacy: dict[StoreKey, str] = {}
        self._unannounced: set[StoreEntry] = set()
        self._digested: set[int] = set()

    def run(self, claims: Told) -> Verification:
        with keeping_open(), open_positional(self.path, held=self._held) as file, self._findings.noting():
            head = file.read(0, min(STREAM_HEADER_SIZE, file.size), what="the stream header")
            parse_stream_header(head, path=self.path)
            index = None
            with self._findings.noting():
                index = read_index(file)
            is_growing = (index is None or index.manifests is None) and not is_url(self.path)
            self._version = f"{file.version}{GROWING}" if is_growing else file.version
            self._verify(file, self._places(file, index, claims))
        return self._findings.verification()

    def _places(self, file: PositionalFile, index: FileIndex | None, claims: Told) -> list[_Place]:
        """Return all messages of chunks, existing or claimed, in the order of the file. A missing one is a fault."""
        places: dict[int, _Place] = {}
        walked = self._walk(file, places, has_footer=index is not None)
        said = [(store, entry) for entries in claims.values() for store, entry in entries]
        listed: set[int] = set()
        for store, manifests in ((index.manifests if index is not None else None) or {}).items():
            self._expect_announced(store, None)
            for manifest in manifests:
                entries = manifest.table.entries()
                listed.update(entry.offset for entry in entries)
                self._digested.update(entry.offset for entry in entries if entry.digest)
                said += [(store, entry) for entry in entries]
        for store, entry in said:
            place = places.get(entry.offset)
            if (place is None and entry.offset < walked) or (place is not None and place.size != entry.size):
                self._wrong(entry.offset, f"no chunk of {store.text} with {entry.size:,} bytes is here")
            else:
                place = places.setdefault(entry.offset, _Place(entry.offset, entry.size))
                place.claims.append((store, entry))
        if listed and (unlisted := len(places.keys() - listed)):
            warnings.warn(f"{self.path}: its footer does not list {unlisted} of its chunks", ReadWarning, stacklevel=2)
        return sorted(places.values(), key=lambda place: place.offset)

    def _walk(self, file: PositionalFile, places: dict[int, _Place], *, has_footer: bool) -> int:
        """Find all messages from the first on; return the end of the file, or of the last chunk before a fault."""
        end = None
        with self._findings.noting():
            for message in scan(file):
                if message.kind == MessageKind.ARROW_MSG:
                    places[message.offset] = _Place(message.offset, message.size)
                elif message.kind == MessageKind.SET_STORE_INFO:
                    with self._findings.noting():
                        self._announced.add(announced_by(file, message, self._legacy))
                elif message.kind == MessageKind.END and message.size and has_footer and read_footer(file) is None:
                    self._wrong(message.offset, "there is a footer, but the end of the file does not refer to it")
            end = file.size
        return max((place.offset + place.size for place in places.values()), default=0) if end is None else end

    def _verify(self, file: PositionalFile, places: Iterable[_Place]) -> None:
        """Decode all, in one thread: decoding most chunks takes less time than switching threads."""
        rows = chunks = digests = 0
        for place in places:
            with self._findings.noting():
                chunk, is_verified = self._chunk(file, place)
                rows, chunks, digests = rows + chunk.num_rows, chunks + 1, digests + is_verified
        self._findings.count(chunks=chunks, rows=rows, digests=digests)

    def _chunk(self, file: PositionalFile, place: _Place) -> tuple[ChunkHeader, bool]:
        """Decode and compare a chunk; return its header, and whether a digest verified it. Raises ``ReadError``."""
        if not place.claims:
            message = Message(MessageKind.ARROW_MSG, place.offset, place.size)
            self._expect_announced(store_of(file, message, self._legacy), place.offset)
            return decoded_chunk(self.path, message, self._version, self._held).header, False
        store, entry = max(place.claims, key=lambda pair: bool(pair[1].digest))
        # A writer without digests in its footer may put the store elsewhere than at the beginning of a message.
        named_first = store if place.offset in self._digested else None
        payload = VerifiedPayload.of(self.path, entry, store=named_first, version=self._version, held=self._held)
        try:
            head, data = payload.load_with_head(file)
        except ReadError:
            raise
        except ValueError as error:
            raise self._error(place.offset, f"a record batch is not a chunk: {error}") from error
        owner = owner_of(head, self._legacy, path=self.path, offset=place.offset)
        self._expect_announced(owner, place.offset)
        header = Chunk.from_data(data).header
        for named, claim in place.claims:
            if named != owner:
                raise self._error(place.offset, f"a chunk of {owner.text} is in the place of one of {named.text}")
            if claim.digest and entry.digest and claim.digest != entry.digest:
                raise self._error(place.offset, "two recorded digests of this chunk differ")
            otherwise = difference(header, claim.header)
            if otherwise is not None:
                raise self._error(place.offset, otherwise)
        if self._look is not None:
            self._look(place.offset, data)
        return header, bool(entry.digest)

    def _expect_announced(self, store: StoreEntry, offset: int | None) -> None:
        if store not in self._announced and store not in self._unannounced:
            self._unannounced.add(store)
            self._wrong(offset, f"the file has chunks of {store.text}, but does not announce this store")

    def _wrong(self, offset: int | None, what: str) -> None:
        self._findings.fault(self._error(offset, what))

    def _error(self, offset: int | None, what: str) -> ReadError:
        return ReadError(what, path=self.path, offset=offset, hint=_HINT)
