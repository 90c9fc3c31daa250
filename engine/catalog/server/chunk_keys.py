"""Keys of chunks: what a client sends back to fetch a chunk.

A key names a dataset, a layer of a segment in it by the digest of its manifest, and a row of that. It has no path and
no offset in it, so whatever a client makes up, it names a chunk of a dataset of this catalog, or none.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ...recordings import RecordingEntry, RecordingsFolder
from ..client import CatalogClient
from ..dataset import DatasetEntry
from ..entries import EntryId, EntryKind
from .methods import ProtocolError, Status

_KEY: Final = struct.Struct(">16s16sI")
_MOST_KEPT: Final = 20_000
"""Layers that are kept for who comes back for their chunks, 2 kB each."""

LayerKey = tuple[bytes, bytes]
"""A dataset, and the digest of a manifest."""


class StoredLayer(NamedTuple):
    """A layer of a segment, and the store that it lies in."""

    folder: RecordingsFolder
    entry: RecordingEntry


class ChunkKeys:
    """Makes keys, and finds the layers that they name.

    Layers whose chunks were named to somebody lately are kept as they were then: what was planned on one version of a
    dataset is read from that version.
    """

    def __init__(self, catalog: CatalogClient) -> None:
        self._catalog = catalog
        self._kept: OrderedDict[LayerKey, StoredLayer] = OrderedDict()
        self._lock = threading.Lock()

    def made(self, dataset: EntryId, layer: StoredLayer, rows: np.ndarray) -> pa.Array:
        """The keys of some chunks of a layer, by their rows in its manifest."""
        key = dataset.tuid, bytes.fromhex(layer.entry.manifest_digest)
        with self._lock:
            self._kept[key] = layer
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        head = np.frombuffer(b"".join(key), np.uint8)
        found = np.empty((len(rows), _KEY.size), np.uint8)
        found[:, : len(head)] = head
        found[:, len(head) :] = rows.astype(">u4").view(np.uint8).reshape(-1, 4)
        offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(_KEY.size)
        return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(found)])

    def parsed(self, key: bytes | None) -> tuple[LayerKey, int]:
        """The layer and the row that a key names. Raises :class:`ProtocolError`."""
        if key is None or len(key) != _KEY.size:
            raise ProtocolError(Status.INVALID_ARGUMENT, "a chunk key is none that this server made")
        dataset, digest, row = _KEY.unpack(key)
        return (dataset, digest), row

    def layer(self, key: LayerKey) -> StoredLayer:
        """The layer that a key names. Raises ``NotFoundError`` or :class:`ProtocolError` where there is none."""
        dataset = self._catalog.get_dataset(id=EntryId(key[0].hex()))
        with self._lock:
            found = self._kept.get(key)
        if found is not None:
            return found
        digest = key[1].hex()
        for layer in layers_in(self._catalog, dataset):
            if layer.entry.manifest_digest == digest:
                return layer
        raise ProtocolError(
            Status.NOT_FOUND, f"dataset '{dataset.id}' has no such chunk any more; query it again for the present ones"
        )


def owners_of(catalog: CatalogClient, dataset: DatasetEntry) -> list[DatasetEntry]:
    """The datasets in whose stores the segments of a dataset lie: blueprints come with recordings, too."""
    if dataset.kind is not EntryKind.BLUEPRINT_DATASET:
        return [dataset]
    for other in catalog.datasets():
        hidden = other.blueprint_dataset()
        if hidden is not None and hidden.id == dataset.id:
            return [other, dataset]
    return [dataset]


def layers_in(catalog: CatalogClient, dataset: DatasetEntry, segment_id: str | None = None) -> list[StoredLayer]:
    """The layers of all segments of a dataset, or of one, that have chunks."""
    wants_blueprints = dataset.kind is EntryKind.BLUEPRINT_DATASET
    found: dict[tuple[str, str], StoredLayer] = {}
    for owner in owners_of(catalog, dataset):
        store = owner.store_reader()
        live = store.live()
        kind = "blueprint" if wants_blueprints else "recording"
        entries = live if segment_id is None else live.of_recording(segment_id, kind)
        for entry in entries:
            if (entry.kind == "blueprint") == wants_blueprints:
                found[entry.recording_id, entry.layer] = StoredLayer(store.folder, entry)
    return list(found.values())
