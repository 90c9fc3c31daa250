"""Uploads through the server: a call grants one, and a request of HTTP redeems the grant."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...limits import MIB
from ...locations import located
from ..client import CatalogClient
from ..uploads import NewUpload, Uploads, check_new
from .messages import cloud, time_message
from .methods import Call, Kind, Method, ProtocolError, Status
from .tokens import signed, verified

UPLOAD_PATH: Final = "/upload/"
_AUDIENCE: Final = "upload"
_VALID_SECONDS: Final = 15 * 60
_SINGLE_REQUEST: Final = 1


class Grant(NamedTuple):
    """The right to upload one file, of a size if that was told."""

    key: str
    size: int | None


class UploadGrants:
    """Grants uploads into a catalog's folder, each for one key and a quarter of an hour, and takes them.

    Grants are signed with a secret of this object, so they end with it.
    """

    def __init__(self, catalog: CatalogClient, most_bytes: int) -> None:
        place = located(catalog.url.removeprefix("rerun+"))
        self._uploads = Uploads(place) if isinstance(place, Path) else None
        self._secret = secrets.token_bytes(32)
        self.most_bytes = most_bytes

    @property
    def is_offered(self) -> bool:
        """Whether the catalog lies on a disk: files for an object store are put there by its own tools."""
        return self._uploads is not None

    def methods(self) -> tuple[Method, ...]:
        """The method that grants uploads."""
        name = "GetWriteAccessGrant"
        return (Method(name, cloud(f"{name}Request"), cloud(f"{name}Response"), Kind.UNARY, self._grant, writes=True),)

    def _grant(self, request: Any, call: Call) -> Any:
        del call
        uploads = self._offered()
        place = uploads.place(request.key)
        check_new(place)
        methods = request.supported_upload_methods
        if methods and _SINGLE_REQUEST not in methods:
            raise ProtocolError(Status.UNIMPLEMENTED, "files are uploaded by a single request here, not in parts")
        size = request.size_bytes if request.HasField("size_bytes") else None
        if size is not None:
            self.check_size(size)
        expires = int(time.time()) + _VALID_SECONDS
        claims = {"aud": _AUDIENCE, "exp": expires, "key": request.key, "size": size}
        redemption = {
            "method": "PUT",
            "url": UPLOAD_PATH + signed(claims, self._secret),
            "headers": [{"name": "if-none-match", "value": "*"}],
            "same_origin": True,
        }
        grant = {"expires_at": time_message(expires * 1_000_000_000), "http_request": redemption, "signing": 1}
        return cloud("GetWriteAccessGrantResponse")(storage_url=place.as_uri(), grant=grant)

    def granted(self, text: str) -> Grant:
        """The grant in the path of a request. Raises :class:`ProtocolError` where it is none of ours, or too old."""
        claims = verified(text, self._secret, _AUDIENCE)
        return Grant(claims["key"], claims["size"])

    def check_size(self, size: int) -> None:
        """Raise :class:`ProtocolError` for more bytes than a file may have."""
        if size > self.most_bytes:
            raise ProtocolError(Status.OUT_OF_RANGE, f"an upload has more than {self.most_bytes // MIB} MiB")

    def begin(self, grant: Grant, size: int | None) -> NewUpload:
        """The file to write, of so many bytes if that is known. See :meth:`Uploads.begin`."""
        if size is not None:
            self.check_size(size)
        if grant.size is not None and size is not None and size != grant.size:
            raise ProtocolError(Status.INVALID_ARGUMENT, f"the grant is for {grant.size} bytes, not for {size}")
        return self._offered().begin(grant.key, size)

    def _offered(self) -> Uploads:
        if self._uploads is None:
            raise ProtocolError(
                Status.FAILED_PRECONDITION,
                "this lake lies in an object store: put files there by its own tools, and register them",
            )
        return self._uploads
