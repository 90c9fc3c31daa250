"""Keys of chunks: what a client sends back to fetch a chunk.

A key names a dataset, a layer of a segment in it by the digest of its manifest, and a row of that. It has no path and
no offset in it, so whatever a client makes up, it names a chunk of a dataset of this catalog, or none.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from ..client import CatalogClient
from ..dataset import DatasetEntry
from ..entries import EntryId
from .methods import ProtocolError, Status
from .planning import Integers
from .served_layers import ServedLayers, StoredLayer

_KEY: Final = struct.Struct(">16s16sI")
_MOST_KEPT: Final = 20_000
"""Layers that are kept for who comes back for their chunks, 2 kB each."""

LayerKey = tuple[bytes, bytes]
"""A dataset, and the digest of a manifest."""


class ChunkKeys:
    """Makes keys, and finds the layers that they name.

    Layers whose chunks were named to somebody lately are kept as they were then: what was planned on one version of a
    dataset is read from that version.
    """

    def __init__(self, catalog: CatalogClient, layers: ServedLayers) -> None:
        self._catalog = catalog
        self._layers = layers
        self._kept: OrderedDict[LayerKey, StoredLayer] = OrderedDict()
        self._lock = threading.Lock()

    def made(self, dataset: EntryId, chunks: Sequence[tuple[StoredLayer, Integers]]) -> pa.Array:
        """The keys of some chunks of some layers, by their rows in the manifests."""
        keys = [(dataset.as_bytes(), bytes.fromhex(layer.entry.manifest_digest)) for layer, _ in chunks]
        with self._lock:
            for key, (layer, _) in zip(keys, chunks, strict=True):
                self._kept[key] = layer
                self._kept.move_to_end(key)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        heads = np.frombuffer(b"".join(map(b"".join, keys)), np.uint8).reshape(-1, _KEY.size - 4)
        numbers = np.concatenate([rows for _, rows in chunks]) if chunks else np.empty(0, np.int64)
        found = np.empty((len(numbers), _KEY.size), np.uint8)
        found[:, :-4] = np.repeat(heads, np.array([len(rows) for _, rows in chunks], np.int64), axis=0)
        found[:, -4:] = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
        offsets = np.arange(len(numbers) + 1, dtype=np.int32) * np.int32(_KEY.size)
        return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(found)])

    def parsed(self, key: bytes | None) -> tuple[LayerKey, int]:
        """The layer and the row that a key names. Raises :class:`ProtocolError`."""
        if key is None or len(key) != _KEY.size:
            raise ProtocolError(Status.INVALID_ARGUMENT, "a chunk key is none that this server made")
        dataset, digest, row = _KEY.unpack(key)
        return (dataset, digest), row

    def layers(self, keys: Iterable[LayerKey]) -> list[StoredLayer]:
        """The layers that keys name. Raises ``NotFoundError`` or :class:`ProtocolError` where there is none of one."""
        datasets: dict[bytes, DatasetEntry] = {}
        by_digest: dict[bytes, dict[str, StoredLayer]] = {}
        found = []
        for key in keys:
            id_, digest = key
            if id_ not in datasets:  # a dataset that was deleted has no chunks, whoever knows their keys
                datasets[id_] = self._catalog.get_dataset(id=EntryId(id_.hex()))
            with self._lock:
                layer = self._kept.get(key)
            if layer is None:
                if id_ not in by_digest:
                    there = self._layers.of(datasets[id_])
                    by_digest[id_] = {layer.entry.manifest_digest: layer for layer in there}
                layer = by_digest[id_].get(digest.hex())
            if layer is None:
                text = f"dataset '{EntryId(id_.hex())}' has no such chunk any more; query it again for the present ones"
                raise ProtocolError(Status.NOT_FOUND, text)
            found.append(layer)
        return found
