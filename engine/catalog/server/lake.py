"""Layers of datasets, and the tables of them, as they are served: made once for each version of a dataset."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ...recordings import LiveEntries, RecordingEntry, RecordingsFolder, StoreReader, summarised
from ..client import CatalogClient
from ..dataset import DatasetEntry
from ..entries import EntryId, EntryKind
from ..segment_table import SegmentTables, url_of
from .envelopes import schema_message

_MOST_DATASETS: Final = 32
"""Datasets whose newest version is kept, 2 kB for each layer of which a query was asked."""


class StoredLayer(NamedTuple):
    """A layer of a segment, and the store that it lies in."""

    folder: RecordingsFolder
    entry: RecordingEntry


class ServedLayers:
    """The layers of the datasets of a catalog, as of the newest version of each."""

    def __init__(self, catalog: CatalogClient) -> None:
        self._catalog = catalog
        self._known: OrderedDict[EntryId, _Version] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, dataset: DatasetEntry, segment_ids: Sequence[str] | None = None) -> list[StoredLayer]:
        """The layers of some segments of a dataset, or of all; ids that are not there are passed over."""
        version = self._version(dataset)
        if segment_ids is None:
            return version.layers
        found = version.by_segment
        return [layer for segment in dict.fromkeys(segment_ids) for layer in found.get(segment, ())]

    def schema(self, dataset: DatasetEntry) -> Any:
        """The message of the schema of a dataset; see :meth:`DatasetEntry.arrow_schema`."""
        return self._version(dataset).schema

    def segment_table(self, dataset: DatasetEntry) -> pa.Table:
        """The table of segments of a dataset; see :meth:`DatasetEntry.segment_table`."""
        return self._version(dataset).segment_table

    def manifest(self, dataset: DatasetEntry) -> pa.Table:
        """The table of layers of a dataset, with their states; see :meth:`DatasetEntry.manifest`."""
        return self._version(dataset).manifest

    def _version(self, dataset: DatasetEntry) -> _Version:
        kind = "blueprint" if dataset.kind is EntryKind.BLUEPRINT_DATASET else "recording"
        stores = [owner.store_reader() for owner in owners_of(self._catalog, dataset)]
        live = [store.live() for store in stores]
        with self._lock:
            known = self._known.get(dataset.id)
            if known is None or not known.is_of(live):
                known = self._known[dataset.id] = _Version(dataset, kind, stores, live)
                if len(self._known) > _MOST_DATASETS:
                    self._known.popitem(last=False)
            self._known.move_to_end(dataset.id)
            return known


@dataclass(frozen=True)
class _Version:
    """A version of a dataset, whose segments lie in one store, or blueprints in two."""

    dataset: DatasetEntry
    kind: str
    stores: Sequence[StoreReader]
    live: Sequence[LiveEntries]

    def is_of(self, live: Sequence[LiveEntries]) -> bool:
        """Whether these are its entries: a reader gives the same ones until there is another version."""
        return len(live) == len(self.live) and all(a is b for a, b in zip(live, self.live, strict=True))

    @cached_property
    def layers(self) -> list[StoredLayer]:
        """All layers, those without chunks included."""
        found: dict[tuple[str, str], StoredLayer] = {}
        for store, live in zip(self.stores, self.live, strict=True):
            for entry in live:
                if (entry.kind == "blueprint") == (self.kind == "blueprint"):
                    found[entry.recording_id, entry.layer] = StoredLayer(store.folder, entry)
        return list(found.values())

    @cached_property
    def by_segment(self) -> Mapping[str, list[StoredLayer]]:
        """The same by the ids of their segments."""
        found: dict[str, list[StoredLayer]] = {}
        for layer in self.layers:
            found.setdefault(layer.entry.recording_id, []).append(layer)
        return found

    @cached_property
    def schema(self) -> Any:
        return schema_message(self.dataset.arrow_schema())

    @cached_property
    def segment_table(self) -> pa.Table:
        return self._joined(lambda layers, folder: layers.segment_table(partial(url_of, folder)))

    @cached_property
    def manifest(self) -> pa.Table:
        return self._joined(lambda layers, folder: layers.manifest(partial(url_of, folder), diagnostic=True))

    def _joined(self, table_of: Callable[[SegmentTables, RecordingsFolder], pa.Table]) -> pa.Table:
        """The tables of all stores as one."""
        tables = []
        for store, live in zip(self.stores, self.live, strict=True):
            entries = summarised(store.folder, live, store.schemas).table
            tables.append(table_of(SegmentTables.of(entries, self.kind), store.folder))
        there = [table for table in tables if len(table)]
        return pa.concat_tables(there, promote_options="default") if there else tables[0]


def owners_of(catalog: CatalogClient, dataset: DatasetEntry) -> list[DatasetEntry]:
    """The datasets in whose stores the segments of a dataset lie: blueprints come with recordings, too."""
    if dataset.kind is not EntryKind.BLUEPRINT_DATASET:
        return [dataset]
    owners = (other for other in catalog.datasets() if other.blueprint_dataset() == dataset)
    return [*owners, dataset]
