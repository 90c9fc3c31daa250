"""Files without a footer: their stores and chunks, found by walking through the messages."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..chunk import sorbet
from ..chunk.chunk import Chunk
from ..errors import ReadError
from . import messages
from .arrow_message import locate
from .encoded_payload import FramedPayload
from .framing import MessageKind
from .messages import SetStoreInfo
from .open_files import HeldFile
from .positional import PositionalFile
from .scan import Message, scan
from .store_entry import StoreEntry, StoreKey, from_message, key_of

_OLDEST_KEPT = tuple(int(n) for n in sorbet.VERSION.split("."))


class AnnouncedStores(NamedTuple):
    """The stores that a file announces, in the order of :attr:`StoreEntry.sort_key`.

    ``legacy_ids`` has the application ids of those whose chunks do not name it (files from before 0.25).
    """

    stores: list[StoreEntry]
    legacy_ids: dict[StoreKey, str]


def scan_stores(file: PositionalFile) -> AnnouncedStores:
    """The stores in ``file``; reads the heads of all messages, and never a payload. Raises :class:`ReadError`."""
    stores: set[StoreEntry] = set()
    legacy_ids: dict[StoreKey, str] = {}
    for found in scan(file):
        if found.kind == MessageKind.SET_STORE_INFO:
            stores.add(announced_by(file, found, legacy_ids))
    return AnnouncedStores(sorted(stores, key=lambda s: s.sort_key), legacy_ids)


def announced_by(file: PositionalFile, found: Message, legacy_ids: dict[StoreKey, str]) -> StoreEntry:
    """The store that one ``SetStoreInfo`` announces; the application id of an old one is kept in ``legacy_ids``."""
    info = _store_info(file, found)
    if info.HasField("application_id") and not info.store_id.HasField("application_id"):
        legacy_ids[key_of(info.store_id)] = info.application_id.id
    return from_message(info.store_id, legacy_ids, path=file.path, offset=found.offset)


def _store_info(file: PositionalFile, found: Message) -> Any:
    data = file.read(found.offset, found.size, what="a SetStoreInfo message")
    message = messages.parse(SetStoreInfo, data, path=file.path, offset=found.offset)
    messages.require(message, "row_id", "info", path=file.path, offset=found.offset)
    messages.require(message.info, "store_id", "store_source", path=file.path, offset=found.offset)
    return message.info


def store_of(file: PositionalFile, found: Message, legacy_ids: dict[StoreKey, str]) -> StoreEntry:
    """The store that the ``ArrowMsg`` at ``found`` belongs to; reads its head only. Raises :class:`ReadError`."""
    message = locate(file, found.offset, found.size).message
    messages.require(message, "store_id", path=file.path, offset=found.offset)
    return from_message(message.store_id, legacy_ids, path=file.path, offset=found.offset)


def decoded_chunk(path: str, found: Message, version: str | None = None, held: HeldFile | None = None) -> Chunk:
    """The chunk in the ``ArrowMsg`` at ``found``, decoded and, from an older version, migrated.

    A chunk that needed no migration remembers its compressed bytes. Raises :class:`ReadError`.
    """
    payload = FramedPayload(path, found.offset, found.size, version=version, held=held)
    batch = payload.load()
    try:
        data = sorbet.from_record_batch(batch)
    except ValueError as error:
        raise ReadError(
            f"a record batch is no chunk: {error}",
            path=path,
            offset=found.offset,
            hint="The file is damaged, or its writer is.",
        ) from error
    return Chunk(data, None, payload) if _is_kept(batch.schema.metadata) else Chunk.from_data(data)


def _is_kept(metadata: dict[bytes, bytes] | None) -> bool:
    text = (metadata or {}).get(b"sorbet:version", b"").decode("utf-8", "replace")
    numbers = text.split(".")
    return len(numbers) == 3 and all(n.isdecimal() for n in numbers) and tuple(map(int, numbers)) >= _OLDEST_KEPT
