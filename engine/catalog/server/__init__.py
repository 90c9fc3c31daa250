"""Catalogs for others: Rerun's catalog protocol over an own catalog, and a catalog for a while.

A request is one of the messages of ``cloud.proto``, and :class:`CatalogService` has a handler for each call. What
carries requests (gRPC, gRPC-web) is not its business: see :class:`Method` and :class:`Call`.

The names below are loaded when they are first used: ``Server`` needs none of the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_names import lazy_names

if TYPE_CHECKING:
    from .methods import Call, Kind, Method, ProtocolError, Status, protocol_error
    from .service import CatalogService, ServiceOptions
    from .temporary import Server
    from .tokens import Access, secret_of, secret_place, token
    from .transport import is_loopback, start
    from .viewer_page import viewer_pages
    from .web import Web

_HOMES = {
    ".methods": "Call Kind Method ProtocolError Status protocol_error",
    ".service": "CatalogService ServiceOptions",
    ".temporary": "Server",
    ".tokens": "Access secret_of secret_place token",
    ".transport": "is_loopback start",
    ".viewer_page": "viewer_pages",
    ".web": "Web",
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
