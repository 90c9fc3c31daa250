"""The catalog service: one catalog, and a handler for each call of the protocol."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...limits import MIB
from ...locations import located
from ..client import CatalogClient
from .budget import MEMORY_BUDGET
from .chunk_methods import ChunkCalls
from .dataset_methods import DatasetCalls
from .entry_events import EntryEvents
from .entry_methods import EntryCalls
from .methods import Method
from .places import AllowedPlaces, known_roots, without_places
from .property_methods import PropertyCalls
from .registration_methods import RegistrationCalls
from .search_methods import SearchCalls
from .served_layers import ServedLayers
from .server_methods import server_methods
from .table_methods import TableCalls
from .upload_grants import UploadGrants

_CAPABILITIES: Final = ("catalog:write:register:file", "dataset:find_chunks")
_UPLOADS: Final = "catalog:write:staging"


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The limits of what a service does.

    ``readable`` are the places, paths or URLs, below which clients may register files and tables, and make tables,
    beside the catalog's own folder; None: anywhere that this process can read and write. ``most_upload_bytes`` is the
    size of the largest file that clients may upload, ``request_memory`` the bytes of memory that all requests together
    may take, with what they expand to.
    """

    readable: Sequence[str] | None = ()
    most_upload_bytes: int = 16 * 1024 * MIB
    request_memory: int = MEMORY_BUDGET


class CatalogService:
    """The catalog service over a catalog: its methods by their paths.

    ``catalog`` is a client, or the place that one opens.
    """

    def __init__(self, catalog: CatalogClient | str | os.PathLike[str], options: ServiceOptions | None = None) -> None:
        self.options = options or ServiceOptions()
        readable = self.options.readable
        opened = catalog if isinstance(catalog, CatalogClient) else CatalogClient(catalog)
        self.catalog = opened.for_clients(readable)
        root = str(located(self.catalog.url.removeprefix("rerun+")))
        places = AllowedPlaces(root, None if readable is None else tuple(readable))
        self.shown = partial(without_places, roots=known_roots((*(readable or ()), root)))
        layers = ServedLayers(self.catalog)
        self.upload_grants = UploadGrants(self.catalog, self.options.most_upload_bytes)
        capabilities = (*_CAPABILITIES, *([_UPLOADS] if self.upload_grants.is_offered else []))
        found = [
            *server_methods(capabilities),
            *EntryCalls(self.catalog).methods(),
            *EntryEvents(opened).methods(),
            *DatasetCalls(self.catalog, layers).methods(),
            *PropertyCalls(self.catalog).methods(),
            *ChunkCalls(self.catalog, layers).methods(),
            *SearchCalls(self.catalog).methods(),
            *RegistrationCalls(self.catalog, places, self.options.most_upload_bytes, self.shown).methods(),
            *TableCalls(self.catalog, places).methods(),
            *self.upload_grants.methods(),
        ]
        self.methods: Mapping[str, Method] = {method.path: method for method in found}
