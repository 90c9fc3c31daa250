"""The catalog service: the methods of the protocol for one lake, and the calls about the server itself."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

from ...limits import MIB
from ..client import CatalogClient
from . import chunks, datasets, entries, properties, tables, uploads
from .lake import Lake, ServiceOptions
from .protocol import Call, Kind, Method, Need, answers, cloud, invalid

_MODULES: Final = (chunks, datasets, entries, properties, tables, uploads, sys.modules[__name__])
"""The modules with handlers of calls."""

FEATURES: Final = ("per_segment_index_values",)
"""The capability in ``Version``: queries may have separate index values for each segment."""
_PACKAGE: Final = "chunkmill"
_NUMBERS: Final = re.compile(r"\d+")
_CAPABILITIES: Final = ("catalog:write:register:file", "dataset:find_chunks")
_UPLOADS: Final = "catalog:write:staging"
_OF_WRITERS: Final = "catalog:write:"
"""The prefix of capabilities that only callers with the right to write get."""
_MOST_TESTED: Final = 32 * MIB


class CatalogService:
    """The catalog service of a catalog: its methods by their paths. ``catalog`` is a client, or a path or URL."""

    def __init__(self, catalog: CatalogClient | str | os.PathLike[str], options: ServiceOptions | None = None) -> None:
        self.options = options or ServiceOptions()
        self.lake = Lake(catalog, self.options)
        self.catalog = self.lake.catalog
        self.shown = self.lake.shown
        named = [value for module in _MODULES for value in vars(module).values()]
        self.methods: Mapping[str, Method] = {
            method.path: replace(method, handler=partial(method.handler, self.lake))
            for method in named
            if isinstance(method, Method)
        }


# --- calls about the server itself


@answers("WhoAmI", need=Need.NOTHING)
def _who_am_i(lake: Lake, _request: Any, call: Call) -> Any:
    every = (*_CAPABILITIES, *([] if lake.uploads is None else [_UPLOADS]))
    can_read, can_write = call.rights.can_read, call.rights.can_write
    capabilities = [name for name in every if can_write or not name.startswith(_OF_WRITERS)]
    return cloud("WhoAmIResponse")(can_read=can_read, can_write=can_write, capabilities={"capabilities": capabilities})


@answers("Version", need=Need.NOTHING)
def _get_version(_lake: Lake, _request: Any, _call: Call) -> Any:
    return _own_version()


@cache
def _own_version() -> Any:
    """Return chunkmill's version, read once: finding and parsing its file takes most of the time of a call."""
    version = importlib.metadata.version(_PACKAGE)
    major, minor, patch = (int(part) for part in (*_NUMBERS.findall(version), "0", "0")[:3])
    build = {"crate_name": _PACKAGE, "version": {"major": major, "minor": minor, "patch": patch}}
    return cloud("VersionResponse")(build_info=build, version=f"{_PACKAGE} {version}", features=FEATURES)


@answers("DoBandwidthTest", Kind.STREAM, need=Need.NOTHING)
def _do_bandwidth_test(_lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    left = request.num_bytes
    if left > _MOST_TESTED:
        raise invalid(f"num_bytes ({left}) exceeds the maximum of {_MOST_TESTED}")
    noise = os.urandom(min(left, MIB))
    while left:
        call.check()
        some = noise[:left]
        left -= len(some)
        yield cloud("DoBandwidthTestResponse")(payload=some)
