"""The catalog service: one catalog, and a handler for each call of the protocol."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..client import CatalogClient
from .chunk_methods import ChunkCalls
from .dataset_methods import DatasetCalls
from .entry_methods import EntryCalls
from .methods import Method
from .registration_methods import RegistrationCalls
from .served_layers import ServedLayers
from .server_methods import server_methods
from .table_methods import TableCalls

_CAPABILITIES: Final = ("catalog:write:register:file", "dataset:find_chunks")


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The limits of what a service does.

    ``readable`` are the places, paths or URLs, below which clients may register files and tables, and make tables,
    beside the catalog's own folder; None: anywhere that this process can read and write.
    """

    readable: Sequence[str] | None = ()


class CatalogService:
    """The catalog service over a catalog: its methods by their paths.

    ``catalog`` is a client, or the place that one opens.
    """

    def __init__(self, catalog: CatalogClient | str | os.PathLike[str], options: ServiceOptions | None = None) -> None:
        self.catalog = catalog if isinstance(catalog, CatalogClient) else CatalogClient(catalog)
        self.options = options or ServiceOptions()
        readable = self.options.readable
        allowed = None if readable is None else (*readable, self.catalog.url.removeprefix("rerun+"))
        layers = ServedLayers(self.catalog)
        found = [
            *server_methods(_CAPABILITIES),
            *EntryCalls(self.catalog).methods(),
            *DatasetCalls(self.catalog, layers).methods(),
            *ChunkCalls(self.catalog, layers).methods(),
            *RegistrationCalls(self.catalog, allowed).methods(),
            *TableCalls(self.catalog, allowed).methods(),
        ]
        self.methods: Mapping[str, Method] = {method.path: method for method in found}
