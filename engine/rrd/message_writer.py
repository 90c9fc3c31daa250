"""Writing the chunks of one store, one framed ``ArrowMsg`` each."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa

from ..errors import WriteError
from ..objects.upload import SMALLEST_PART
from ..phases import WRITE, passed_through, phase
from .arrow_ipc import Compression
from .arrow_message import message_head, message_tail, store_field
from .chunk_encoding import encode_chunk
from .encoded_payload import EncodedPayload, RrdPayload
from .entry import ChunkEntry
from .framing import MESSAGE_HEADER_SIZE, MessageKind, message_header
from .opening import open_positional
from .output import Output
from .positional import PositionalFile
from .store_entry import StoreEntry

_MANY: Final = 4 * SMALLEST_PART
"""Payloads below this are fetched with their neighbours, and sent: all but one part's worth would be anyway."""

_JOINED: Final = 1 << 16
"""Payloads below this are handed on in one piece with what is around them."""

if TYPE_CHECKING:
    from ..chunk.chunk import Chunk
    from ..chunk.header import ChunkHeader


class MessageWriter:
    """Appends chunks of ``store`` to ``file``, from where it stands; what it writes is a part of an RRD.

    Guarantee: chunks lie in the order they were given. A chunk nobody has touched since it was read from an RRD
    keeps its compressed bytes; the kernel copies them. Call :meth:`flush` at the end. Errors name ``path``.
    """

    def __init__(
        self,
        file: BinaryIO | Output,
        store: StoreEntry,
        *,
        path: str,
        compression: Compression = Compression.LZ4,
    ) -> None:
        self._out = file if isinstance(file, Output) else Output(file, path)
        self._store_field = store_field(store.to_message())
        self._compression = compression
        self._source: PositionalFile | None = None

    def append(self, chunk: Chunk) -> ChunkEntry:
        """Write one chunk; gives its header and where it lies, counted from where this writer began."""
        payload = chunk.payload
        if isinstance(payload, RrdPayload):
            return self._append_encoded(chunk.header, payload)
        try:
            data, size = encode_chunk(chunk.data, self._compression)
        except WriteError as error:
            raise WriteError(f"{chunk.entity_path}: {error.message}", path=self._out.path, hint=error.hint) from error
        length = data.size if isinstance(data, pa.Buffer) else len(data)
        header = chunk.header
        head, tail, offset, total = self._frame(header, self._compression, size, length)
        with phase(WRITE):
            if length < _JOINED:
                self._out.write(b"".join((head, data, tail)))
            else:
                self._out.write(head)
                self._out.write(data)
                self._out.write(tail)
        return ChunkEntry(header, offset, total, size)

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
            self._source = None

    def _append_encoded(self, header: ChunkHeader, payload: RrdPayload) -> ChunkEntry:
        encoded = payload if isinstance(payload, EncodedPayload) else payload.located(self._open(payload))
        head, tail, offset, total = self._frame(header, encoded.compression, encoded.uncompressed_size, encoded.size)
        with phase(WRITE):
            self._out.write(head)
            if encoded.data is not None:
                self._out.write(encoded.data)
            else:
                source = self._open(encoded)
                self._out.copy(source, encoded.offset, encoded.size, what="the payload of a chunk", many=_MANY)
            self._out.write(tail)
        passed_through(encoded.size)
        return ChunkEntry(header, offset, total, encoded.uncompressed_size)

    def _frame(
        self, header: ChunkHeader, compression: Compression, uncompressed_size: int, size: int
    ) -> tuple[bytes, bytes, int, int]:
        """What comes before the next payload and after it, and offset and size of their message."""
        head = message_head(self._store_field, compression, uncompressed_size, size)
        tail = message_tail(header.chunk_id, header.is_static)
        total = len(head) + size + len(tail)
        offset = self._out.position + MESSAGE_HEADER_SIZE
        return message_header(MessageKind.ARROW_MSG, total) + head, tail, offset, total

    def _open(self, payload: RrdPayload) -> PositionalFile:
        if self._source is None or self._source.path != payload.path:
            self.release()
            self._source = open_positional(payload.path, payload.version)
        return self._source
