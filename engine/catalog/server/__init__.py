"""Catalogs for other processes: a server of Rerun's catalog protocol, and a temporary catalog.

Requests are messages of ``cloud.proto``, and :class:`CatalogService` has a handler for each method. It does not depend
on the transport (gRPC, gRPC-web): see :class:`Method` and :class:`Call`.

Each name below is loaded on first use: ``Server`` does not need the messages.
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
