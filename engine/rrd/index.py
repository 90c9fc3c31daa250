"""What is known of a file before any message is read: version, size, and the entries in its footer."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Final

from ..errors import ReadError, ReadWarning
from .entry import ChunkEntry
from .footer import Footer, read_footer
from .framing import STREAM_HEADER_SIZE, MessageKind, Version, parse_stream_header
from .manifest_layout import UnionSchema
from .manifest_parse import OutdatedManifestError, parse_manifest
from .positional import PositionalFile
from .scan import Message, message_at
from .store_entry import StoreEntry, from_message

_FIRST_WITH_FOOTERS: Final = Version(0, 28, 0, 0)


@dataclass(frozen=True, slots=True)
class FileIndex:
    """``entries`` holds each store's chunks, as the footer lists them; None without a usable footer.

    All messages lie before ``messages_end``. ``unions`` holds the union schemas that the footer has of each store,
    ``object_version`` the version of an object in a store.
    """

    version: Version
    size: int
    messages_end: int
    entries: dict[StoreEntry, list[ChunkEntry]] | None
    unions: dict[StoreEntry, list[UnionSchema]] = field(default_factory=dict)
    object_version: str | None = None


def read_index(file: PositionalFile) -> FileIndex:
    """Read header and footer of ``file``. A damaged footer raises :class:`ReadError`; a missing one does not."""
    header = file.read(0, min(STREAM_HEADER_SIZE, file.size), what="the stream header")
    version = parse_stream_header(header, path=file.path)
    footer = read_footer(file)
    if footer is None:
        return FileIndex(version, file.size, file.size, None, object_version=file.version)
    try:
        entries, unions = _parse_manifests(file, footer)
    except OutdatedManifestError:
        return _without_footer(file, version, footer)
    index = FileIndex(version, file.size, footer.messages_end, entries, unions, file.version)
    if not entries and (unlisted := unlisted_messages(file, index)):
        warnings.warn(
            f"{file.path}: its footer lists none of the {len(unlisted)} chunks in it; the file is read without it",
            ReadWarning,
            stacklevel=2,
        )
        return FileIndex(version, file.size, file.size, None, object_version=file.version)
    return index


def _parse_manifests(
    file: PositionalFile, footer: Footer
) -> tuple[dict[StoreEntry, list[ChunkEntry]], dict[StoreEntry, list[UnionSchema]]]:
    entries: dict[StoreEntry, list[ChunkEntry]] = {}
    unions: dict[StoreEntry, list[UnionSchema]] = {}
    for manifest in footer.manifests:
        found, union = parse_manifest(manifest, path=file.path, offset=footer.start, messages_end=footer.messages_end)
        store = from_message(manifest.store_id, {}, path=file.path, offset=footer.start)
        entries.setdefault(store, []).extend(found)
        unions.setdefault(store, []).append(union)
    return entries, unions


def _without_footer(file: PositionalFile, version: Version, footer: Footer) -> FileIndex:
    if version.order >= _FIRST_WITH_FOOTERS.order:
        raise ReadError(
            "the manifest in the footer is damaged: it has no column 'chunk_num_rows'",
            path=file.path,
            offset=footer.start,
            hint="The footer is damaged, or its writer is; read the file with recover=True to go without it.",
        )
    warnings.warn(
        f"{file.path}: its footer is a draft of Rerun {version}, which nobody reads; the file is read without it",
        ReadWarning,
        stacklevel=2,
    )
    return FileIndex(version, file.size, file.size, None, object_version=file.version)


def unlisted_messages(file: PositionalFile, index: FileIndex) -> list[Message]:
    """The chunks that lie in the file but in no manifest, found by looking only where no listed chunk lies.

    Raises :class:`ReadError` where the listed places and the messages do not fit together.
    """
    unlisted: list[Message] = []
    position = STREAM_HEADER_SIZE
    spans = {(e.offset - 16, e.offset + e.size) for entries in (index.entries or {}).values() for e in entries}
    for start, stop in [*sorted(spans), (index.messages_end, index.messages_end)]:
        while position < start:
            message = message_at(file, position, index.messages_end)
            if message.kind == MessageKind.ARROW_MSG:
                unlisted.append(message)
            position = message.offset + message.size
        if position != start:
            raise ReadError(
                f"the footer places a chunk at byte {start + 16:,}, where none begins",
                path=file.path,
                offset=start,
                hint="The file was changed after it was written, or its writer is faulty; read it with recover=True.",
            )
        position = stop
    return unlisted
