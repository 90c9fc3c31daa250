"""Catalogs for others: Rerun's catalog protocol over an own catalog, and a catalog for a while.

A request is one of the messages of ``cloud.proto``, and :class:`CatalogService` has a handler for each call. What
carries requests (gRPC, gRPC-web) is not its business: see :class:`Method` and :class:`Call`.

The names below are loaded when they are first used: ``Server`` needs none of the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_names import lazy_names

if TYPE_CHECKING:
    from .lake import ServiceOptions
    from .protocol import Call, Kind, Method, ProtocolError, Status, protocol_error
    from .reception import Access, secret_of, secret_place, token
    from .service import CatalogService
    from .temporary import Server
    from .transport import is_loopback, start
    from .web import Web, viewer_pages

_HOMES = {
    ".lake": "ServiceOptions",
    ".protocol": "Call Kind Method ProtocolError Status protocol_error",
    ".reception": "Access secret_of secret_place token",
    ".service": "CatalogService",
    ".temporary": "Server",
    ".transport": "is_loopback start",
    ".web": "Web viewer_pages",
}

__all__ = [
    "Access",
    "Call",
    "CatalogService",
    "Kind",
    "Method",
    "ProtocolError",
    "Server",
    "ServiceOptions",
    "Status",
    "Web",
    "is_loopback",
    "protocol_error",
    "secret_of",
    "secret_place",
    "start",
    "token",
    "viewer_pages",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
