"""The catalog service: one catalog, and a handler for each call of the protocol."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..client import CatalogClient
from .messages import cloud
from .methods import Call, Kind, Method

FEATURES: Final = ("per_segment_index_values",)
"""What ``Version`` tells: queries may come with index values of their own for each segment."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The limits of what a service does.

    ``readable`` are the places, paths or URLs, below which clients may register files and tables, and make tables;
    None: anywhere.
    """

    readable: Sequence[str] | None = None


class CatalogService:
    """The catalog service over a catalog: its methods by their paths.

    ``catalog`` is a client, or the place that one opens.
    """

    def __init__(self, catalog: CatalogClient | str | os.PathLike[str], options: ServiceOptions | None = None) -> None:
        self.catalog = catalog if isinstance(catalog, CatalogClient) else CatalogClient(catalog)
        self.options = options or ServiceOptions()
        groups = (_server_methods(),)
        self.methods: Mapping[str, Method] = {method.path: method for group in groups for method in group}


def _server_methods() -> tuple[Method, ...]:
    return (
        Method("Version", cloud("VersionRequest"), cloud("VersionResponse"), Kind.UNARY, _version),
        Method("WhoAmI", cloud("WhoAmIRequest"), cloud("WhoAmIResponse"), Kind.UNARY, _who_am_i),
    )


def _version(request: Any, call: Call) -> Any:
    del request, call
    return cloud("VersionResponse")(version=f"chunkmill {importlib.metadata.version('chunkmill')}", features=FEATURES)


def _who_am_i(request: Any, call: Call) -> Any:
    del request
    return cloud("WhoAmIResponse")(can_read=call.can_read, can_write=call.can_write)
