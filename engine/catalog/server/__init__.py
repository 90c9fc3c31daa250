"""Catalogs for others: Rerun's catalog protocol over an own catalog, and a catalog for a while.

A request is one of the messages of ``cloud.proto``, and :class:`CatalogService` has a handler for each call. What
carries requests (gRPC, gRPC-web) is not its business: see :class:`Method` and :class:`Call`.

The names below are loaded when they are first used: ``Server`` needs none of the messages.
"""

from ...lazy_names import lazy_names

_HOMES = {
    ".call_log": "CallLogs LogOptions",
    ".lake": "ServiceOptions",
    ".oidc": "Issuer IssuerOptions",
    ".protocol": "Call Kind Method Need ProtocolError Rights Status protocol_error",
    ".tokens": "Access TokenFolder secret_of secret_place token",
    ".served": "ServedDataset",
    ".service": "CatalogService",
    ".temporary": "Server",
    ".transport": "is_loopback start",
    ".web": "Web viewer_pages",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
