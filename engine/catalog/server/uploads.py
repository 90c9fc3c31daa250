"""Uploads through the server: a call grants one, and a request of HTTP redeems the grant."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...limits import MIB
from ...locations import located
from ..client import CatalogClient
from ..upload_parts import UploadParts
from ..uploads import NewUpload, Uploads, check_new
from .messages import cloud, time_message
from .methods import Call, Kind, Method, ProtocolError, Status
from .tokens import signed, verified

UPLOAD_PATH: Final = "/upload/"
_AUDIENCE: Final = "upload"
_UPLOAD_IN_PARTS: Final = "upload in parts"
_VALID_SECONDS: Final = 15 * 60
_DAY_SECONDS: Final = 24 * 60 * 60
"""How long an upload in parts may take; each part is granted for less."""
_SINGLE_REQUEST, _IN_PARTS = 1, 2
_PART_BYTES: Final = 64 * MIB
_PARTS_AT_FIRST: Final = 16


class Grant(NamedTuple):
    """The right to upload one file, of a size if that was told, or part number ``part`` of an ``upload``."""

    key: str
    size: int | None
    upload: str = ""
    part: int = 0


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
        """The methods that grant uploads, and end those in parts."""
        return (
            Method.named("GetWriteAccessGrant", Kind.UNARY, self._grant, writes=True),
            Method.named("GetMultipartUploadPartGrants", Kind.UNARY, self._grant_parts, writes=True),
            Method.named("CompleteMultipartUpload", Kind.UNARY, self._complete, writes=True),
            Method.named("AbortMultipartUpload", Kind.UNARY, self._abort, writes=True),
        )

    def _grant(self, request: Any, call: Call) -> Any:
        del call
        uploads = self._offered()
        place = uploads.place(request.key)
        check_new(place)
        methods = request.supported_upload_methods
        if methods and not {_SINGLE_REQUEST, _IN_PARTS}.intersection(methods):
            raise ProtocolError(Status.UNIMPLEMENTED, "files are uploaded by a single request, or in parts")
        size = request.size_bytes if request.HasField("size_bytes") else None
        if size is not None:
            self.check_size(size)
        grant = {"expires_at": time_message((int(time.time()) + _VALID_SECONDS) * 1_000_000_000), "signing": 1}
        if not methods or _SINGLE_REQUEST in methods:
            grant["http_request"] = self._redemption({"key": request.key, "size": size})
        else:
            claims = {"key": request.key, "size": size, "upload": uuid.uuid4().hex}
            token = signed({**claims, "aud": _UPLOAD_IN_PARTS, "exp": int(time.time()) + _DAY_SECONDS}, self._secret)
            numbers = range(1, 1 + min(_PARTS_AT_FIRST, -(-(size or 1) // _PART_BYTES)))
            grant["multipart_request"] = {
                "upload_token": token.encode(),
                "part_size_bytes": _PART_BYTES,
                "part_requests": [self._redemption({**claims, "size": None, "part": number}) for number in numbers],
            }
        return cloud("GetWriteAccessGrantResponse")(storage_url=place.as_uri(), grant=grant)

    def _redemption(self, claims: dict[str, Any]) -> dict[str, Any]:
        """The request of HTTP that redeems a grant."""
        whole = {**claims, "aud": _AUDIENCE, "exp": int(time.time()) + _VALID_SECONDS}
        return {
            "method": "PUT",
            "url": UPLOAD_PATH + signed(whole, self._secret),
            "headers": [] if claims.get("part") else [{"name": "if-none-match", "value": "*"}],
            "same_origin": True,
        }

    def _grant_parts(self, request: Any, call: Call) -> Any:
        del call
        claims = self._in_parts(request.upload_token)
        numbers = list(dict.fromkeys(request.part_numbers))
        most = -(-self.most_bytes // _PART_BYTES)
        if not all(0 < number <= most for number in numbers):
            raise ProtocolError(Status.INVALID_ARGUMENT, f"parts are numbered from 1 to {most}")
        part = {"key": claims["key"], "size": None, "upload": claims["upload"]}
        requests = [self._redemption({**part, "part": number}) for number in numbers]
        return cloud("GetMultipartUploadPartGrantsResponse")(requests=requests)

    def _complete(self, request: Any, call: Call) -> Any:
        claims = self._in_parts(request.upload_token)
        etags = {part.part_number: part.etag.removeprefix("W/").strip('"') for part in request.parts}
        if len(etags) < len(request.parts):
            raise ProtocolError(Status.INVALID_ARGUMENT, "a part is named twice")
        parts = UploadParts(self._offered(), claims["upload"])
        parts.join(claims["key"], etags, claims["size"], self.most_bytes, call.check)
        return cloud("CompleteMultipartUploadResponse")()

    def _abort(self, request: Any, call: Call) -> Any:
        del call
        UploadParts(self._offered(), self._in_parts(request.upload_token)["upload"]).remove()
        return cloud("AbortMultipartUploadResponse")()

    def _in_parts(self, token: bytes) -> Mapping[str, Any]:
        """The claims in the token of an upload in parts. Raises :class:`ProtocolError`."""
        return verified(token.decode("ascii", "replace"), self._secret, _UPLOAD_IN_PARTS)

    def granted(self, text: str) -> Grant:
        """The grant in the path of a request. Raises :class:`ProtocolError` where it is none of ours, or too old."""
        claims = verified(text, self._secret, _AUDIENCE)
        return Grant(claims["key"], claims["size"], claims.get("upload", ""), claims.get("part", 0))

    def check_size(self, size: int) -> None:
        """Raise :class:`ProtocolError` for more bytes than a file may have."""
        if size > self.most_bytes:
            raise ProtocolError(Status.OUT_OF_RANGE, f"an upload has more than {self.most_bytes // MIB} MiB")

    def check_received(self, grant: Grant, size: int) -> None:
        """Raise :class:`ProtocolError` for more bytes than a file, or a part of one, may have."""
        if grant.part and size > _PART_BYTES:
            raise ProtocolError(Status.OUT_OF_RANGE, f"a part has more than {_PART_BYTES // MIB} MiB")
        self.check_size(size)

    def begin(self, grant: Grant, size: int | None) -> NewUpload:
        """The file to write, of so many bytes if that is known. See :meth:`Uploads.begin`."""
        if size is not None:
            self.check_received(grant, size)
        if grant.part:
            return UploadParts(self._offered(), grant.upload).begin(grant.part, size)
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
