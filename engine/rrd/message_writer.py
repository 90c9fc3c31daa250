"""Writing the chunks of one store, one framed ``ArrowMsg`` each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO, Final

import xxhash

from ..errors import WriteError
from ..failing import writing
from ..objects import SMALLEST_PART
from ..phases import WRITE, passed_through, phase
from .arrow_ipc import Compression
from .arrow_message import message_head, message_tail, store_field
from .chunk_encoding import Piece, encode_chunk
from .encoded_payload import EncodedPayload, RrdPayload
from .entry import ChunkEntry
from .framing import MESSAGE_HEADER_SIZE, MessageKind, message_header
from .message_copy import MessageCopier
from .open_files import HeldFile, open_positional
from .output import Output
from .positional import PositionalFile
from .store_entry import StoreEntry

_MANY: Final = 4 * SMALLEST_PART
"""Payloads below this are fetched with their neighbours, and sent: all but one part's worth would be anyway."""

_PAYLOAD: Final = "the payload of a chunk"

_JOINED: Final = 1 << 16
"""Payloads below this are handed on in one piece with what is around them."""

if TYPE_CHECKING:
    from ..chunk.chunk import Chunk
    from ..chunk.header import ChunkHeader
    from .runs import Run, RunRows


class MessageWriter:
    """Appends chunks of ``store`` to ``file``, from where it stands; what it writes is a part of an RRD.

    Guarantee: chunks lie in the order they were given. A chunk nobody has touched since it was read from an RRD
    keeps its compressed bytes; the kernel copies them. Call :meth:`flush` at the end. Errors name ``path``.

    Entries have the digests of their messages, made of the bytes that are handed on for writing: nothing need be read
    again afterwards. One that the kernel copies has none, as it is not read; with ``digests`` it is.
    """

    def __init__(
        self,
        file: BinaryIO | Output,
        store: StoreEntry,
        *,
        path: str,
        compression: Compression = Compression.LZ4,
        digests: bool = False,
    ) -> None:
        self._out = file if isinstance(file, Output) else Output(file, path)
        self._store = store
        self._store_field = store_field(store.to_message())
        self._compression = compression
        self._digests = digests
        self._source: PositionalFile | None = None
        self._of: tuple[str, str | None] = "", None
        self._copier: MessageCopier | None = None
        self._fields: tuple[Run, bytes, bytes] | None = None

    def append(self, chunk: Chunk) -> ChunkEntry:
        """Write one chunk; gives its header and where it lies, counted from where this writer began."""
        payload = chunk.payload
        if isinstance(payload, RrdPayload):
            return self._append_encoded(chunk.header, payload)
        try:
            encoded = encode_chunk(chunk.data, self._compression)
        except WriteError as error:
            raise WriteError(f"{chunk.entity_path}: {error.message}", path=self._out.path, hint=error.hint) from error
        length = encoded.size
        header = chunk.header
        head, tail, offset, total = self._frame(header, encoded.compression, encoded.uncompressed_size, length)
        with phase(WRITE):
            if length < _JOINED:
                pieces: Iterable[Piece] = (b"".join((head, *encoded.pieces, tail)),)
            else:
                pieces = (head, *encoded.pieces, tail)
            digest = self._write(pieces)
            if length >= _JOINED:
                self._out.flush()  # columns are handed on from where they lie: whoever made them may change them next
        return ChunkEntry(header, offset, total, encoded.uncompressed_size, digest)

    @property
    def takes_runs(self) -> bool:
        """Whether :meth:`append_run` can be used: it needs a file with a descriptor."""
        return self._out.handle is not None

    def append_run(self, run: RunRows) -> int:
        """Copy messages as they are, but for the store they name; gives where they begin now, frame header and all."""
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
        """The output that is written to; something else may be written between two chunks."""
        return self._out

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return self._out.position

    def flush(self) -> None:
        """Hand everything to the operating system, and close what was copied from."""
        self._out.flush()
        self.release()

    def release(self) -> None:
        """Close the file that payloads were last copied from."""
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
            else:
                self._out.write(head)
                self._out.copy(self._open(encoded), encoded.offset, encoded.size, what=_PAYLOAD, many=_MANY)
                self._out.write(tail)
        passed_through(encoded.size)
        return ChunkEntry(header, offset, total, encoded.uncompressed_size, digest)

    def _write(self, pieces: Iterable[Piece], digest: bytes | None = None) -> bytes:
        """Write a message with its frame header and store, which are in the first piece; gives its digest."""
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
        """The bytes before the next payload and after it, and offset and size of their message."""
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
