"""Reading all of a file, to see whether it is what was written."""

from __future__ import annotations

from os import PathLike
from typing import NamedTuple

from ..chunk.chunk import Chunk
from ..errors import ReadError
from .file import RrdFile
from .framing import MessageKind
from .index import read_footer
from .kept_open import keeping_open
from .legacy import scan_stores, store_of
from .opening import open_positional
from .scan import scan
from .store_entry import StoreEntry

_HINT = "The file was damaged on disk or in transit, or its writer is faulty; restore it from a copy."


class WholeFile(NamedTuple):
    """What was found in a file that is as it should be; ``digests`` is how many chunks were verified by theirs."""

    chunks: int
    rows: int
    digests: int


def verify_file(path: str | PathLike[str]) -> WholeFile:
    """Read and decode every chunk of an RRD, and compare all that the file says of it.

    A chunk has the digest that the footer has for it, lies in a message that the footer's manifest of its store lists,
    and has the id, entity, rows and times that are told there; every store is announced; messages follow each other to
    the end message. Raises :class:`ReadError` at the first that is otherwise, and for what any reading raises it.
    """
    file = RrdFile(path)
    stores = file.stores()
    placed = _messages(file, stores)
    chunks = rows = digests = 0
    with keeping_open():
        for store in stores:
            for entry in file.entries(store) or ():
                if placed.get(entry.offset) != (entry.size, store):
                    raise _wrong(file, entry.offset, f"no chunk of {store.text} of {entry.size:,} bytes lies here")
            for chunk in file.chunks(store):
                place = chunk.payload
                _compare(file, chunk, getattr(place, "offset", None))
                chunks, rows = chunks + 1, rows + chunk.num_rows
                digests += bool(getattr(place, "digest", None))
    return WholeFile(chunks, rows, digests)


def _messages(file: RrdFile, stores: list[StoreEntry]) -> dict[int, tuple[int, StoreEntry]]:
    """The sizes and stores of all chunks, by their offsets; all of them, and ``stores``, must be announced."""
    with open_positional(file.path, file.content_version, file.held) as opened:
        announced, legacy_ids = scan_stores(opened)
        found: dict[int, tuple[int, StoreEntry]] = {}
        for message in scan(opened):
            if message.kind == MessageKind.ARROW_MSG:
                found[message.offset] = message.size, store_of(opened, message, legacy_ids)
            elif message.kind == MessageKind.END and message.size and read_footer(opened) is None:
                raise _wrong(file, message.offset, "there is a footer, but the file does not end as one that has one")
    named = {store: offset for offset, (_, store) in reversed(found.items())}
    for store, offset in [*named.items(), *((store, None) for store in stores)]:
        if store not in announced:
            raise _wrong(file, offset, f"the file never announces {store.text}, of which it has chunks")
    return found


def _compare(file: RrdFile, chunk: Chunk, offset: int | None) -> None:
    """Decode a chunk, and compare it with its header where that came from the footer."""
    told, found = chunk.header, Chunk.from_data(chunk.data).header
    for what in ("chunk_id", "entity_path", "num_rows", "is_static", "timelines"):
        there, listed = getattr(found, what), getattr(told, what)
        if there != listed:
            raise _wrong(file, offset, f"the {what} of a chunk is {there}; the footer says {listed}")


def _wrong(file: RrdFile, offset: int | None, what: str) -> ReadError:
    return ReadError(what, path=file.path, offset=offset, hint=_HINT)
