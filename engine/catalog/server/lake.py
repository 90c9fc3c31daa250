"""The lake of a server, for all handlers: its catalog, layers and events, and the rights of clients."""

from __future__ import annotations

import errno
import logging
import os
import queue
import re
import secrets
import struct
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import ChunkmillError, NotFoundError, WriteError
from ...limits import MIB
from ...locations import is_below, located, true_place
from ...recordings import LiveEntries, RecordingEntry, RecordingsFolder, StoreReader, summarised
from ..client import CatalogClient
from ..dataset import DatasetEntry
from ..entries import EntryId, EntryKind, owner_of
from ..entry_log import OWN_FOLDERS
from ..segments import SegmentTables, url_of
from ..table import EntriesTable, TableEntry
from ..uploads import Uploads
from .protocol import Call, Need, ProtocolError, Status, invalid, schema_message
from .reception import MEMORY_BUDGET

_LOG: Final = logging.getLogger(__name__)

_Entry = TypeVar("_Entry", bound=DatasetEntry | TableEntry)
Integers = npt.NDArray[np.int64]

_OWN_FILES: Final = tuple(name for name in OWN_FOLDERS if name != "datasets")
"""The folders of a catalog from which clients cannot register files. They may register files of other datasets."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The limits of a service.

    Clients may register files and tables, and create tables, below ``readable`` (paths or URLs) and in the catalog's
    own folder; None: anywhere that this process can read and write. ``most_upload_bytes`` is the size of the largest
    upload of a file, ``most_request_bytes`` the size of the largest request. ``request_memory`` is the memory in bytes
    of all requests together, including their expanded content. At most ``most_calls`` calls run or wait for a thread,
    and at most ``most_watchers`` clients watch for events; more are refused at once.
    """

    readable: Sequence[str] | None = ()
    most_upload_bytes: int = 16 * 1024 * MIB
    request_memory: int = MEMORY_BUDGET
    most_request_bytes: int = 256 * MIB
    most_calls: int = 512
    most_watchers: int = 256


class Lake:
    """A served catalog; ``catalog`` is a client, or the place for a new one.

    ``shown`` turns the text of an error into the text for a client. ``uploads`` is None for a catalog in an object
    store, whose own tools upload files. ``upload_secret`` signs grants, which end with this object.
    """

    def __init__(self, catalog: CatalogClient | str | os.PathLike[str], options: ServiceOptions) -> None:
        opened = catalog if isinstance(catalog, CatalogClient) else CatalogClient(catalog)
        readable = options.readable
        self.options = options
        self.catalog = opened.for_clients(readable)
        place = located(self.catalog.url.removeprefix("rerun+"))
        self._root = str(place)
        self.folder = place if isinstance(place, Path) else None
        self.shown = partial(without_places, roots=known_roots((*(readable or ()), self._root)))
        self.layers = ServedLayers(self.catalog)
        self.events = EntryEvents(opened, options.most_watchers)
        self.uploads = Uploads(place) if isinstance(place, Path) else None
        self.upload_secret = secrets.token_bytes(32)

    def dataset(self, call: Call) -> DatasetEntry:
        """The dataset in the headers of a call. Raises :class:`ProtocolError`, or ``NotFoundError``."""
        id_, name = call.entry_id, call.entry_name
        if id_ is not None:
            return self.dataset_of(id_, call)
        if name is None:
            raise invalid("missing entry id in request header")
        with self._hiding_others(call, f"No dataset found with name '{name}'"):
            return self.usable(self.catalog.get_dataset(name), call)

    def dataset_of(self, id: EntryId, call: Call) -> DatasetEntry:  # noqa: A002 (it is one)
        """The dataset of an id, if the call may use it. Raises ``NotFoundError`` and :class:`ProtocolError`."""
        with self._hiding_others(call, f"Entry id '{id}' not found"):
            return self.usable(self.catalog.get_dataset(id=id), call)

    def table_of(self, id: EntryId, call: Call) -> TableEntry:  # noqa: A002 (it is one)
        """The table of an id, if the call may use it. Raises ``NotFoundError`` and :class:`ProtocolError`."""
        with self._hiding_others(call, f"Entry id '{id}' not found"):
            return self.usable(self.catalog.get_table(id=id), call)

    # --- rights

    def usable(self, entry: _Entry, call: Call) -> _Entry:
        """The entry of a call, if the caller may read it, and for a call that writes, may write it.

        Raises ``NotFoundError`` for an unreadable entry, as if it did not exist, and :class:`ProtocolError`.
        """
        call.record.entry_id, call.record.entry_name = str(entry.id), entry.name
        self.check_readable(entry, call)
        if call.need is Need.WRITE and call.rights.writable is not None:
            self.check_name(self.owner_name(entry), call)
        return entry

    def check_readable(self, entry: DatasetEntry | TableEntry, call: Call) -> None:
        """Raise ``NotFoundError`` for an entry that the caller may not read."""
        call.record.is_checked = True
        if not self.is_readable(entry, call):
            call.record.is_refused = True
            raise NotFoundError(f"Entry id '{entry.id}' not found")

    def check_name(self, name: str, call: Call) -> None:
        """Raise :class:`ProtocolError` if the caller may not write the entry of a name."""
        call.record.is_checked = True
        if not call.rights.writes(name):
            text = f"the token does not permit writing '{name[:200]}'"
            raise ProtocolError(Status.PERMISSION_DENIED, text)

    def is_readable(self, entry: DatasetEntry | TableEntry, call: Call) -> bool:
        """Return whether the caller may read an entry. All may read the table of entries, filtered for them."""
        if call.rights.readable is None or isinstance(entry, EntriesTable):
            return True
        return call.rights.reads(self.owner_name(entry))

    def owner_name(self, entry: DatasetEntry | TableEntry) -> str:
        """The name that decides rights to an entry: for a hidden dataset its owner's, or an empty text."""
        owner = owner_of(entry.kind, entry.name)
        if owner is None:
            return entry.name
        names = {str(other.id): other.name for other in self.catalog.entries()}
        return names.get(owner, "")

    def entries(self, call: Call) -> list[DatasetEntry | TableEntry]:
        """All entries that the caller may read, hidden ones included."""
        every = self.catalog.entries(include_hidden=True)
        if call.rights.readable is None:
            return every
        names = {str(entry.id): entry.name for entry in every}
        return [
            entry
            for entry in every
            if isinstance(entry, EntriesTable)
            or call.rights.reads(names.get(owner_of(entry.kind, entry.name) or str(entry.id), ""))
        ]

    @contextmanager
    def _hiding_others(self, call: Call, text: str) -> Iterator[None]:
        """A block whose ``NotFoundError`` has the same text for missing and for unreadable entries."""
        try:
            yield
        except NotFoundError:
            if call.rights.readable is None:
                raise
            raise NotFoundError(text) from None

    # --- places

    def check_tables(self, urls: Iterable[str], call: Call) -> None:
        """Raise :class:`ProtocolError` unless tables may be at each path or URL; see :meth:`check_files`.

        A table may refer to any file in the lake, so a caller that names a place must be allowed to read everything.
        """
        if call.rights.readable is not None:
            text = "only tokens that read everything may choose the place of a table; omit the place"
            raise ProtocolError(Status.PERMISSION_DENIED, text)
        self._check(urls, OWN_FOLDERS)

    def check_files(self, urls: Iterable[str], call: Call) -> None:
        """Raise :class:`ProtocolError` unless each path or URL names a file that the caller may register.

        Links in local paths are followed before paths are compared. A caller with rights to named entries may only
        register files that were uploaded for these: other files may belong to unreadable entries.
        """
        places = list(urls)
        self._check(places, _OWN_FILES)
        if call.rights.readable is None:
            return
        own = [] if self.uploads is None else [true_place(str(self.uploads.folder / n)) for n in call.rights.readable]
        for url in places:
            if not any(is_below(true_place(url), folder) for folder in own):
                text = (
                    f"the token may only register files in uploads/NAME for a NAME that it may read, not {url[:500]!r}"
                )
                raise ProtocolError(Status.PERMISSION_DENIED, text)

    def check_key(self, key: str, call: Call) -> None:
        """Raise :class:`ProtocolError` if the caller may not upload a file with this key."""
        name, slash, _ = key.partition("/")
        if call.rights.writable is not None and not (slash and call.rights.writes(name)):
            text = "the token may only upload keys that begin with NAME/ for a NAME that it may write"
            raise ProtocolError(Status.PERMISSION_DENIED, text)

    def _check(self, urls: Iterable[str], own: Iterable[str]) -> None:
        readable = self.options.readable
        roots = None if readable is None else [true_place(root) for root in (self._root, *readable)]
        closed = [true_place(f"{self._root.rstrip('/')}/{name}") for name in own]
        for url in urls:
            if "\0" in url:
                raise invalid(f"{url[:500]!r} is neither a path nor a URL")
            place = true_place(url)
            if roots is not None and not any(is_below(place, root) for root in roots):
                text = f"this server does not open {url[:500]!r}: it is not below a folder of --allow"
                raise ProtocolError(Status.PERMISSION_DENIED, text)
            if any(is_below(place, folder) for folder in closed):
                text = f"this server does not open {url[:500]!r}: that is a folder of the lake itself"
                raise ProtocolError(Status.PERMISSION_DENIED, text)


# --- layers, and keys of chunks

_MOST_DATASETS: Final = 32
"""The number of datasets whose newest version is cached, 2 kB for each queried layer."""
_KEY: Final = struct.Struct(">16s16sI")
"""A dataset, the digest of the manifest of one of its layers, and a row of this manifest.

A key has no path and no offset, so an invented key names a chunk of a dataset of this catalog, or nothing.
"""
_MOST_KEPT: Final = 20_000
"""The number of layers that are cached for clients that fetch their chunks later, 2 kB each."""

LayerKey = tuple[bytes, bytes]
"""A dataset, and the digest of a manifest."""


class StoredLayer(NamedTuple):
    """A layer of a segment, and its store."""

    folder: RecordingsFolder
    entry: RecordingEntry


def parsed_key(key: bytes | None) -> tuple[LayerKey, int]:
    """The layer and the row of a key. Raises :class:`ProtocolError`."""
    if key is None or len(key) != _KEY.size:
        raise invalid("a chunk key is not from this server")
    dataset, digest, row = _KEY.unpack(key)
    return (dataset, digest), row


class ServedLayers:
    """The layers of a catalog's datasets, in the newest version of each, and keys of their chunks.

    Layers whose chunk keys were recently sent are kept, so that a client reads chunks from the version of its plan.
    """

    def __init__(self, catalog: CatalogClient) -> None:
        self._catalog = catalog
        self._versions: OrderedDict[EntryId, DatasetVersion] = OrderedDict()
        self._kept: OrderedDict[LayerKey, StoredLayer] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, dataset: DatasetEntry, segment_ids: Sequence[str] | None = None) -> list[StoredLayer]:
        """The layers of some segments of a dataset, or of all. Unknown ids are ignored."""
        version = self.version(dataset)
        if segment_ids is None:
            return version.layers
        by_segment = version.by_segment
        return [layer for segment in dict.fromkeys(segment_ids) for layer in by_segment.get(segment, ())]

    def keep(self, dataset: EntryId, layers: Iterable[StoredLayer]) -> list[LayerKey]:
        """Keep layers for clients that fetch their chunks later, and return the layers' keys."""
        named = [((dataset.as_bytes(), bytes.fromhex(layer.entry.manifest_digest)), layer) for layer in layers]
        with self._lock:
            for key, layer in named:
                self._kept[key] = layer
                self._kept.move_to_end(key)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return [key for key, _ in named]

    def keys(self, dataset: EntryId, chunks: Sequence[tuple[StoredLayer, Integers]]) -> pa.Array:
        """The keys of chunks, given by layers and rows in their manifests."""
        keys = self.keep(dataset, (layer for layer, _ in chunks))
        heads = np.frombuffer(b"".join(map(b"".join, keys)), np.uint8).reshape(-1, _KEY.size - 4)
        numbers = np.concatenate([rows for _, rows in chunks]) if chunks else np.empty(0, np.int64)
        encoded = np.empty((len(numbers), _KEY.size), np.uint8)
        encoded[:, :-4] = np.repeat(heads, np.array([len(rows) for _, rows in chunks], np.int64), axis=0)
        encoded[:, -4:] = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
        offsets = np.arange(len(numbers) + 1, dtype=np.int32) * np.int32(_KEY.size)
        return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(encoded)])

    def named(self, keys: Iterable[LayerKey]) -> list[StoredLayer]:
        """The layers with these keys. Raises ``NotFoundError`` or :class:`ProtocolError` for a key without a layer."""
        datasets: dict[bytes, DatasetEntry] = {}
        by_digest: dict[bytes, dict[str, StoredLayer]] = {}
        layers = []
        for key in keys:
            id_, digest = key
            if id_ not in datasets:  # chunks of a deleted dataset are not readable, even with their keys
                datasets[id_] = self._catalog.get_dataset(id=EntryId(id_.hex()))
            with self._lock:
                layer = self._kept.get(key)
            if layer is None:
                if id_ not in by_digest:
                    newest = self.of(datasets[id_])
                    by_digest[id_] = {layer.entry.manifest_digest: layer for layer in newest}
                layer = by_digest[id_].get(digest.hex())
            if layer is None:
                text = f"dataset '{EntryId(id_.hex())}' has no such chunk any more; repeat the query"
                raise ProtocolError(Status.NOT_FOUND, text)
            layers.append(layer)
        return layers

    def version(self, dataset: DatasetEntry) -> DatasetVersion:
        """The newest version of a dataset."""
        kind, owners = "recording", [dataset]
        if dataset.kind is EntryKind.BLUEPRINT_DATASET:  # recordings may also contain blueprints
            others = [other for other in self._catalog.datasets() if other.blueprint_dataset() == dataset]
            kind, owners = "blueprint", [*others, dataset]
        stores = [owner.store_reader() for owner in owners]
        live = [store.live() for store in stores]
        with self._lock:
            version = self._versions.get(dataset.id)
            if version is None or not version.is_of(live):
                version = self._versions[dataset.id] = DatasetVersion(dataset, kind, stores, live)
                if len(self._versions) > _MOST_DATASETS:
                    self._versions.popitem(last=False)
            self._versions.move_to_end(dataset.id)
            return version


@dataclass(frozen=True)
class DatasetVersion:
    """A version of a dataset, with its segments in one store, or its blueprints in several."""

    dataset: DatasetEntry
    kind: str
    stores: Sequence[StoreReader]
    live: Sequence[LiveEntries]

    def is_of(self, live: Sequence[LiveEntries]) -> bool:
        """Return whether these are its entries. A reader returns the same objects until the next version."""
        return len(live) == len(self.live) and all(a is b for a, b in zip(live, self.live, strict=True))

    @cached_property
    def layers(self) -> list[StoredLayer]:
        """All layers, including layers without chunks."""
        layers: dict[tuple[str, str], StoredLayer] = {}
        for store, live in zip(self.stores, self.live, strict=True):
            for entry in live:
                if (entry.kind == "blueprint") == (self.kind == "blueprint"):
                    layers[entry.recording_id, entry.layer] = StoredLayer(store.folder, entry)
        return list(layers.values())

    @cached_property
    def by_segment(self) -> Mapping[str, list[StoredLayer]]:
        """The layers by the ids of their segments."""
        layers: dict[str, list[StoredLayer]] = {}
        for layer in self.layers:
            layers.setdefault(layer.entry.recording_id, []).append(layer)
        return layers

    @cached_property
    def schema(self) -> Any:
        """The message of the schema; see :meth:`DatasetEntry.arrow_schema`."""
        return schema_message(self.dataset.arrow_schema())

    @cached_property
    def segment_table(self) -> pa.Table:
        """The table of segments; see :meth:`DatasetEntry.segment_table`."""
        return self._joined(lambda layers, folder: layers.segment_table(partial(url_of, folder)))

    @cached_property
    def manifest(self) -> pa.Table:
        """The table of layers, with their states; see :meth:`DatasetEntry.manifest`."""
        return self._joined(lambda layers, folder: layers.manifest(partial(url_of, folder), diagnostic=True))

    def _joined(self, table_of: Callable[[SegmentTables, RecordingsFolder], pa.Table]) -> pa.Table:
        """The tables of all stores as one."""
        tables = []
        for store, live in zip(self.stores, self.live, strict=True):
            entries = summarised(store.folder, live, store.schemas).table
            tables.append(table_of(SegmentTables.of(entries, self.kind), store.folder))
        filled = [table for table in tables if len(table)]
        return pa.concat_tables(filled, promote_options="default") if filled else tables[0]


# --- places

_Handler = Callable[[Lake, Any, Call], Any]
_NO_PLACES: Final = (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
_PACKAGE: Final = Path(__file__).parents[3]


def naming_places(handler: _Handler) -> _Handler:
    """Wrap a handler of requests with places, so that an impossible place is an error of the client."""

    @wraps(handler)
    def handled(lake: Lake, request: Any, call: Call) -> Any:
        try:
            return handler(lake, request, call)
        except (OSError, WriteError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in _NO_PLACES:
                raise
            raise invalid(f"no file or table can be at this place: {cause.strerror}") from error

    return handled


def known_roots(allowed: Iterable[str]) -> tuple[str, ...]:
    """The local folders whose paths are hidden from clients: those that they may name, and the server's own."""
    home = os.path.expanduser("~")  # noqa: PTH111 (which leaves it as it is for a user without a home)
    own = (tempfile.gettempdir(), os.fspath(Path.cwd()), home, os.fspath(_PACKAGE))
    places = [located(root) for root in (*allowed, *own)]
    local = {
        form for place in places if isinstance(place, Path) for form in (os.fspath(place), os.path.realpath(place))
    }
    return tuple(sorted(local - {"/", "~"}, key=len, reverse=True))


def without_places(text: str, roots: Sequence[str]) -> str:
    """A text for a client, with the names of known folders in place of their paths.

    URLs stay: clients know them from requests and from other calls.

    >>> without_places("/srv/lake/a.rrd: it is cut, unlike /srv/lakes", ["/srv/lake"])
    'lake/a.rrd: it is cut, unlike /srv/lakes'
    """
    for root in roots:
        text = re.sub(rf"(?<![\w/.-]){re.escape(root)}(?![\w.-])", Path(root).name, text)
    return text


# --- events

_LOOK_SECONDS: Final = 0.5
"""The seconds between two checks for new and deleted entries."""

Events = queue.SimpleQueue[tuple[str, EntryId, str]]
"""The kind of an event, and the id and name of its entry."""


class EntryEvents:
    """Events of created and deleted entries. One thread watches the catalog while clients wait for events."""

    def __init__(self, catalog: CatalogClient, most: int) -> None:
        self._catalog = catalog
        self._most = most
        self._watchers: set[Events] = set()
        self._seen: dict[EntryId, str] = {}
        self._is_looking = False
        self._lock = threading.Lock()

    @contextmanager
    def watched(self) -> Iterator[Events]:
        """A block that receives events of entries from its beginning."""
        events = Events()
        with self._lock:
            if len(self._watchers) >= self._most:
                raise ProtocolError(Status.RESOURCE_EXHAUSTED, f"{self._most} clients already watch for events")
            if not self._is_looking:
                self._seen = self._entries()
                threading.Thread(target=self._look, name="chunkmill-serve-events", daemon=True).start()
                self._is_looking = True
            self._watchers.add(events)
        try:
            yield events
        finally:
            with self._lock:
                self._watchers.discard(events)

    def _look(self) -> None:
        """Check the catalog repeatedly, and report changes, until there are no watchers."""
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                self._is_looking = bool(self._watchers)
                if not self._is_looking:
                    return
            try:
                now = self._entries()
            except (ChunkmillError, OSError) as error:  # the next check reports the missed changes
                _LOG.warning("events of entries cannot be sent to clients: %s", error)
                continue
            events = [("entry_created", id_, now[id_]) for id_ in sorted(now.keys() - self._seen.keys(), key=str)]
            gone = sorted(self._seen.keys() - now.keys(), key=str)
            events += [("entry_deleted", id_, self._seen[id_]) for id_ in gone]
            with self._lock:
                self._seen = now
                for watcher in self._watchers:
                    for event in events:
                        watcher.put(event)

    def _entries(self) -> dict[EntryId, str]:
        return {entry.id: entry.name for entry in self._catalog.entries()}
