"""Footers of RRD files: found, checked and read, for one file or many files at once."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from ..chunk import ChunkHeader, ComponentDescriptor
from ..errors import ReadError, ReadWarning
from ..limits import MAX_FOOTER, check_limit
from ..storage.positional import PositionalFile
from . import messages
from .arrow_ipc import ARROW_ERRORS
from .chunk_table import ChunkTable, Integers
from .manifest_reading import (
    Manifest,
    OutdatedManifestError,
    SealedManifest,
    UnionSchema,
    parse_alike,
    parse_manifest,
    seal,
    silent_columns,
)
from .messages import (
    MESSAGE_HEADER_SIZE,
    STREAM_FOOTER_SIZE,
    STREAM_HEADER_SIZE,
    Message,
    MessageKind,
    RrdFooter,
    StoreEntry,
    StreamFooter,
    Version,
    crc_of,
    from_message,
    message_at,
    parse_stream_footer,
    parse_stream_header,
)

_FIRST_PAYLOAD = STREAM_HEADER_SIZE + MESSAGE_HEADER_SIZE


class Footer(NamedTuple):
    """The offset of the footer's payload, and its manifests (protobuf ``RrdManifest``)."""

    start: int
    manifests: list[Any]

    @property
    def messages_end(self) -> int:
        """The offset of the frame header of the end message: all messages are before it."""
        return self.start - MESSAGE_HEADER_SIZE


def read_footer(file: PositionalFile) -> Footer | None:
    """Read the footer, or None if the file has none. Raises ``ReadError`` if it is damaged."""
    if file.size < STREAM_HEADER_SIZE + STREAM_FOOTER_SIZE:
        return None
    trailer = file.size - STREAM_FOOTER_SIZE
    stream_footer = parse_stream_footer(file.read(trailer, STREAM_FOOTER_SIZE, what="the stream footer"))
    if stream_footer is None:
        return None
    payload = _payload(file, stream_footer, trailer)
    footer = messages.parse(RrdFooter, payload, path=file.path, offset=stream_footer.start)
    return Footer(stream_footer.start, list(footer.manifests))


def _payload(file: PositionalFile, stream_footer: StreamFooter, trailer: int) -> bytes:
    if stream_footer.start < _FIRST_PAYLOAD or stream_footer.start + stream_footer.length > trailer:
        raise ReadError(
            f"the footer should be at {stream_footer.start:,}..{stream_footer.start + stream_footer.length:,}, "
            f"outside the possible range {_FIRST_PAYLOAD}..{trailer:,}",
            path=file.path,
            offset=trailer,
            hint="The file is damaged, or several were joined with `cat`; join the originals with `rerun rrd merge`.",
        )
    check_limit(stream_footer.length, MAX_FOOTER, path=file.path, offset=trailer + 8, what="the length of the footer")
    payload = file.read(stream_footer.start, stream_footer.length, what="the footer")
    crc = crc_of(payload)
    if crc != stream_footer.crc:
        raise ReadError(
            f"the checksum of the footer is {crc:08x}, not the stored {stream_footer.crc:08x}",
            path=file.path,
            offset=stream_footer.start,
            hint="The file is damaged, or several were joined with `cat`; read it with recover=True, or join the "
            "originals with `rerun rrd merge`.",
        )
    return payload


_FIRST_WITH_FOOTERS: Final = Version(0, 28, 0, 0)


@dataclass(slots=True)
class FileIndex:
    """``manifests`` list each store's chunks; None without a usable footer.

    All messages are before ``messages_end``. ``unlisted`` are the chunks of each store that are in no manifest; None
    before the first search for them.
    """

    version: Version
    size: int
    messages_end: int
    manifests: dict[StoreEntry, list[Manifest]] | None
    unlisted: dict[StoreEntry, list[Message]] | None = None


def read_index(file: PositionalFile) -> FileIndex:
    """Read header and footer of ``file``. A damaged footer raises :class:`ReadError`; a missing one does not."""
    header = file.read(0, min(STREAM_HEADER_SIZE, file.size), what="the stream header")
    version = parse_stream_header(header, path=file.path)
    footer = read_footer(file)
    if footer is None:
        return FileIndex(version, file.size, file.size, None)
    try:
        tables = _parse_manifests(file, footer)
    except OutdatedManifestError:
        return _without_footer(file, version, footer)
    index = FileIndex(version, file.size, footer.messages_end, tables)
    if not tables and (unlisted := unlisted_messages(file, index)):
        warnings.warn(
            f"{file.path}: the footer lists none of the file's {len(unlisted)} chunks, and is ignored",
            ReadWarning,
            stacklevel=2,
        )
        return FileIndex(version, file.size, file.size, None)
    return index


def _parse_manifests(file: PositionalFile, footer: Footer) -> dict[StoreEntry, list[Manifest]]:
    tables: dict[StoreEntry, list[Manifest]] = {}
    for store, sealed in sealed_manifests(file, footer):
        tables.setdefault(store, []).append(parse_manifest(sealed))
    return tables


def sealed_manifests(file: PositionalFile, footer: Footer) -> Iterator[tuple[StoreEntry, SealedManifest]]:
    """The manifests of a footer, each with its store. Raises :class:`ReadError`."""
    path, start = file.path, footer.start
    for manifest in footer.manifests:
        sealed = seal(manifest, path=path, offset=start, messages_end=footer.messages_end)
        yield from_message(manifest.store_id, {}, path=path, offset=start), sealed


def _without_footer(file: PositionalFile, version: Version, footer: Footer) -> FileIndex:
    if version.order >= _FIRST_WITH_FOOTERS.order:
        raise ReadError(
            "the manifest in the footer is damaged: it has no column 'chunk_num_rows'",
            path=file.path,
            offset=footer.start,
            hint="The footer is damaged or was written incorrectly; read the file with recover=True to ignore it.",
        )
    warnings.warn(
        f"{file.path}: its footer has a draft format of Rerun {version}, which is not supported; the footer is ignored",
        ReadWarning,
        stacklevel=2,
    )
    return FileIndex(version, file.size, file.size, None)


def unlisted_messages(file: PositionalFile, index: FileIndex) -> list[Message]:
    """The chunks that are in the file but in no manifest. Raises like :func:`messages_between`."""
    listed = [manifest for manifests in (index.manifests or {}).values() for manifest in manifests]
    offsets = np.concatenate([np.empty(0, np.int64), *(m.offsets for m in listed)])
    sizes = np.concatenate([np.empty(0, np.int64), *(m.sizes for m in listed)])
    return messages_between(file, offsets, sizes, index.messages_end)


def messages_between(file: PositionalFile, offsets: Integers, sizes: Integers, messages_end: int) -> list[Message]:
    """Find the unlisted chunks, by reading only the gaps between the listed ones.

    Raises :class:`ReadError` if the listed places do not fit the messages.
    """
    unlisted: list[Message] = []
    position = STREAM_HEADER_SIZE
    for stop, start in _gaps(offsets, sizes, messages_end):
        while position < start:
            message = message_at(file, position, messages_end)
            if message.kind == MessageKind.ARROW_MSG:
                unlisted.append(message)
            position = message.offset + message.size
        if position != start:
            raise ReadError(
                f"the footer has a chunk at byte {start + MESSAGE_HEADER_SIZE:,}, where no chunk begins",
                path=file.path,
                offset=start,
                hint="The file was changed after it was written, or its writer is faulty; read it with recover=True.",
            )
        position = stop
    return unlisted


def _gaps(offsets: Integers, sizes: Integers, messages_end: int) -> list[tuple[int, int]]:
    """The gaps before, between and after listed messages, in file order.

    Each is given by the end and the beginning of the listed messages after it; the last by ``messages_end``, twice.
    """
    order = np.lexsort((sizes, offsets))
    starts, stops = offsets[order] - MESSAGE_HEADER_SIZE, (offsets + sizes)[order]
    begins = np.append(True, starts[1:] != stops[:-1])[: len(order)]
    begins[1:] &= (starts[1:] != starts[:-1]) | (stops[1:] != stops[:-1])
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order))[: len(first)] - 1
    runs = list(zip(stops[last].tolist(), starts[first].tolist(), strict=True))
    return [*runs, (messages_end, messages_end)]


Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""``map``, or the ``map`` of a thread pool."""


class ListedStore(NamedTuple):
    """A store of file number ``file``: its chunks are rows ``start`` to ``stop`` (exclusive) of a group's table."""

    file: int
    path: str
    store: StoreEntry
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FooterGroup:
    """Stores of several files whose footers have the same shape.

    ``table`` has their chunks, store after store, like :meth:`RrdFile.listing`. It also has the chunks of stores that
    are not in ``stores``.
    """

    table: ChunkTable
    stores: Sequence[ListedStore]
    union: UnionSchema

    def of_stores(self, wanted: Callable[[StoreEntry], bool]) -> FooterGroup:
        """The same group with only the stores that are ``wanted``."""
        return replace(self, stores=[listed_store for listed_store in self.stores if wanted(listed_store.store)])

    def silent_columns(self, entity_components: Container[tuple[str, ComponentDescriptor]]) -> list[ChunkHeader]:
        """The same as :meth:`RrdFile.silent_columns`, for a store whose chunks have these ``entity_components``."""
        return silent_columns(self.union, entity_components)


class _Member(NamedTuple):
    file: int
    store: StoreEntry
    sealed: SealedManifest


class _Listing(NamedTuple):
    """The places of a member's chunks, from its footer."""

    member: _Member
    offsets: Integers
    sizes: Integers


def read_footers(files: Sequence[PositionalFile], each: Each = map) -> list[FooterGroup]:
    """The stores in files, from their footers.

    Files that are damaged, have no footer, or have an incomplete footer are skipped: :class:`RrdFile` reads such files,
    and reports their faults.
    """
    by_shape: defaultdict[tuple[bytes, bytes], list[_Member]] = defaultdict(list)
    for members in each(_members, enumerate(files)):
        for member in members:
            by_shape[member.sealed.shape].append(member)
    listings: defaultdict[int, list[_Listing]] = defaultdict(list)
    groups, left_out = [], set[int]()
    for members in by_shape.values():
        try:
            group, listed = _group(members)
        except (ReadError, OutdatedManifestError, *ARROW_ERRORS):
            left_out.update(member.file for member in members)
            continue
        groups.append(group)
        for listing in listed:
            listings[listing.member.file].append(listing)
    whole = each(lambda item: _lists_all(files[item[0]], item[1]), listings.items())
    left_out.update(file for file, lists_all in zip(listings, whole, strict=True) if not lists_all)
    return [replace(group, stores=[store for store in group.stores if store.file not in left_out]) for group in groups]


def _members(numbered: tuple[int, PositionalFile]) -> list[_Member]:
    """Return the manifests of a file, one for each store; empty if the file needs further checks."""
    number, file = numbered
    try:
        parse_stream_header(file.read(0, min(STREAM_HEADER_SIZE, file.size), what="the header"), path=file.path)
        footer = read_footer(file)
        members = [] if footer is None else [_Member(number, *manifest) for manifest in sealed_manifests(file, footer)]
    except ReadError:
        return []
    stores = {member.store for member in members}
    return members if len(stores) == len(members) and all(m.sealed.shape[1] for m in members) else []


def _group(members: Sequence[_Member]) -> tuple[FooterGroup, list[_Listing]]:
    manifest, counts = parse_alike([member.sealed for member in members])
    table = manifest.table
    member_of = np.repeat(np.arange(len(members)), counts)
    offsets = table.offsets
    order = np.lexsort((offsets, member_of))
    follows = (np.diff(offsets[order]) == 0) & (np.diff(member_of[order]) == 0)
    kept = order[~np.append(follows, False)[: len(order)]]
    stops = np.cumsum(np.bincount(member_of[kept], minlength=len(members))).tolist()
    stores = [
        ListedStore(member.file, member.sealed.path, member.store, start, stop)
        for member, start, stop in zip(members, [0, *stops], stops, strict=False)
    ]
    ends = np.cumsum(counts)[:-1]
    places = zip(members, np.split(manifest.offsets, ends), np.split(manifest.sizes, ends), strict=True)
    return FooterGroup(table.take(kept), stores, manifest.union), [_Listing(*place) for place in places]


def _lists_all(file: PositionalFile, listed: Sequence[_Listing]) -> bool:
    """Return True if the manifests of a file list all chunks in it."""
    offsets, sizes = (np.concatenate(column) for column in list(zip(*listed, strict=True))[1:])
    try:
        return not messages_between(file, offsets, sizes, listed[0].member.sealed.messages_end)
    except ReadError:
        return False
