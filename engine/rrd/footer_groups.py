"""Footers of many files, read together: what those of one shape have in common is read, checked and laid out once.

Recordings of one robot have the same columns. The footer of a small one takes 2.5 ms to become a chunk table by itself,
most of it for columns of six rows; among 64 of its shape 0.15 ms (2 cores; ``benchmarks/bench_catalog.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..chunk import ChunkHeader, ComponentDescriptor
from ..errors import ReadError
from .arrow_ipc import ARROW_ERRORS
from .chunk_table import ChunkTable
from .footer import messages_between, read_footer, sealed_manifests
from .framing import STREAM_HEADER_SIZE, parse_stream_header
from .manifest_columns import UnionSchema
from .manifest_reading import OutdatedManifestError, SealedManifest, parse_alike, silent_columns
from .messages import StoreEntry
from .positional import PositionalFile
from .table_columns import Integers

Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""``map``, or that of a pool of threads."""


class ListedStore(NamedTuple):
    """A store of file number ``file``: its chunks are the rows from ``start`` to before ``stop`` of a group's table."""

    file: int
    path: str
    store: StoreEntry
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FooterGroup:
    """Stores of several files whose footers have one shape.

    ``table`` has their chunks as :meth:`RrdFile.listing` gives them, one store behind the other; and those of stores
    that are not among ``stores``.
    """

    table: ChunkTable
    stores: Sequence[ListedStore]
    union: UnionSchema

    def of_stores(self, wanted: Callable[[StoreEntry], bool]) -> FooterGroup:
        """The same without the stores that are not ``wanted``."""
        return replace(self, stores=[one for one in self.stores if wanted(one.store)])

    def silent_columns(self, told: Container[tuple[str, ComponentDescriptor]]) -> list[ChunkHeader]:
        """The same as :meth:`RrdFile.silent_columns`, for a store whose chunks have the components ``told``."""
        return silent_columns(self.union, told)


class _Member(NamedTuple):
    file: int
    store: StoreEntry
    sealed: SealedManifest


class _Listing(NamedTuple):
    """The places of the chunks of a member, as its footer has them."""

    member: _Member
    offsets: Integers
    sizes: Integers


def read_footers(files: Sequence[PositionalFile], each: Each = map) -> list[FooterGroup]:
    """The stores in files, from their footers.

    A file is left out that is not whole, has no footer, or whose footer does not list all of its chunks:
    :class:`RrdFile` reads such a one with more care, and says what is wrong with it.
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
        for one in listed:
            listings[one.member.file].append(one)
    whole = each(lambda item: _lists_all(files[item[0]], item[1]), listings.items())
    left_out.update(file for file, lists_all in zip(listings, whole, strict=True) if not lists_all)
    return [replace(group, stores=[one for one in group.stores if one.file not in left_out]) for group in groups]


def _members(numbered: tuple[int, PositionalFile]) -> list[_Member]:
    """The manifests of a file, whose stores are all different; none where it is to be read with more care."""
    number, file = numbered
    try:
        parse_stream_header(file.read(0, min(STREAM_HEADER_SIZE, file.size), what="the header"), path=file.path)
        footer = read_footer(file)
        members = [] if footer is None else [_Member(number, *found) for found in sealed_manifests(file, footer)]
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
    """Whether the manifests of a file list all chunks in it."""
    offsets, sizes = (np.concatenate(column) for column in list(zip(*listed, strict=True))[1:])
    try:
        return not messages_between(file, offsets, sizes, listed[0].member.sealed.messages_end)
    except ReadError:
        return False
