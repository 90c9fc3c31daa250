"""Uploads through the server: a call grants one, and an HTTP request redeems the grant.

Each grant is for one key in the lake's folder, and is valid for a quarter of an hour.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ...limits import MIB
from ..uploads import NewUpload, UploadParts, Uploads, check_new
from .lake import Lake
from .protocol import Call, Need, ProtocolError, Rights, Status, answers, cloud, invalid, time_message
from .tokens import Caller, signed, verified

UPLOAD_PATH: Final = "/upload/"
_AUDIENCE: Final = "upload"
_UPLOAD_IN_PARTS: Final = "upload in parts"
_VALID_SECONDS: Final = 15 * 60
_DAY_SECONDS: Final = 24 * 60 * 60
"""The most seconds for an upload in parts; the grants of parts are shorter."""
_SINGLE_REQUEST, _IN_PARTS = 1, 2
_PART_BYTES: Final = 64 * MIB
_PARTS_AT_FIRST: Final = 16


class Grant(NamedTuple):
    """The right to upload one file (of ``size``, if the client gave it), or part number ``part`` of an ``upload``."""

    key: str
    size: int | None
    upload: str = ""
    part: int = 0


@answers("GetWriteAccessGrant", need=Need.WRITE_SOME)
def _get_write_access_grant(lake: Lake, request: Any, call: Call) -> Any:
    uploads = _offered(lake)
    place = uploads.place(request.key)
    lake.check_key(request.key, call)
    check_new(place)
    methods = request.supported_upload_methods
    if methods and not {_SINGLE_REQUEST, _IN_PARTS}.intersection(methods):
        raise ProtocolError(Status.UNIMPLEMENTED, "upload a file by a single request, or in parts")
    size = request.size_bytes if request.HasField("size_bytes") else None
    if size is not None:
        check_size(lake, size)
    grant = {"expires_at": time_message((int(time.time()) + _VALID_SECONDS) * 1_000_000_000), "signing": 1}
    if not methods or _SINGLE_REQUEST in methods:
        grant["http_request"] = _redemption(lake, {"key": request.key, "size": size}, call)
    else:
        claims = {"key": request.key, "size": size, "upload": uuid.uuid4().hex}
        token = signed({**claims, "aud": _UPLOAD_IN_PARTS, "exp": int(time.time()) + _DAY_SECONDS}, lake.upload_secret)
        numbers = range(1, 1 + min(_PARTS_AT_FIRST, -(-(size or 1) // _PART_BYTES)))
        grant["multipart_request"] = {
            "upload_token": token.encode(),
            "part_size_bytes": _PART_BYTES,
            "part_requests": [_redemption(lake, {**claims, "size": None, "part": number}, call) for number in numbers],
        }
    return cloud("GetWriteAccessGrantResponse")(storage_url=place.as_uri(), grant=grant)


def _redemption(lake: Lake, claims: dict[str, Any], call: Call) -> dict[str, Any]:
    """The HTTP request that redeems a grant."""
    own = {"aud": _AUDIENCE, "exp": int(time.time()) + _VALID_SECONDS, "sub": call.subject, "jti": call.token_id}
    whole = {**claims, **own}
    return {
        "method": "PUT",
        "url": UPLOAD_PATH + signed(whole, lake.upload_secret),
        "headers": [] if claims.get("part") else [{"name": "if-none-match", "value": "*"}],
        "same_origin": True,
    }


@answers("GetMultipartUploadPartGrants", need=Need.WRITE_SOME)
def _get_multipart_upload_part_grants(lake: Lake, request: Any, call: Call) -> Any:
    claims = _in_parts(lake, request.upload_token, call)
    numbers = list(dict.fromkeys(request.part_numbers))
    most = -(-lake.options.most_upload_bytes // _PART_BYTES)
    if not all(0 < number <= most for number in numbers):
        raise invalid(f"parts are numbered from 1 to {most}")
    part = {"key": claims["key"], "size": None, "upload": claims["upload"]}
    requests = [_redemption(lake, {**part, "part": number}, call) for number in numbers]
    return cloud("GetMultipartUploadPartGrantsResponse")(requests=requests)


@answers("CompleteMultipartUpload", need=Need.WRITE_SOME)
def _complete_multipart_upload(lake: Lake, request: Any, call: Call) -> Any:
    claims = _in_parts(lake, request.upload_token, call)
    etags = {part.part_number: part.etag.removeprefix("W/").strip('"') for part in request.parts}
    if len(etags) < len(request.parts):
        raise invalid("a part is named twice")
    parts = UploadParts(_offered(lake), claims["upload"])
    parts.join(claims["key"], etags, claims["size"], lake.options.most_upload_bytes, call.check)
    call.record.changed.update(uploaded=claims["key"])
    return cloud("CompleteMultipartUploadResponse")()


@answers("AbortMultipartUpload", need=Need.WRITE_SOME)
def _abort_multipart_upload(lake: Lake, request: Any, call: Call) -> Any:
    UploadParts(_offered(lake), _in_parts(lake, request.upload_token, call)["upload"]).remove()
    return cloud("AbortMultipartUploadResponse")()


def _in_parts(lake: Lake, token: bytes, call: Call) -> Mapping[str, Any]:
    """The claims in the token of an upload in parts. Raises :class:`ProtocolError` if the caller may not use it."""
    claims = verified(token.decode("ascii", "replace"), lake.upload_secret, _UPLOAD_IN_PARTS)
    lake.check_key(claims["key"], call)
    return claims


def granted(lake: Lake, text: str) -> tuple[Grant, Caller]:
    """The grant in the path of a request, and the caller that got it.

    Raises :class:`ProtocolError` if the grant is foreign or has expired.
    """
    claims = verified(text, lake.upload_secret, _AUDIENCE)
    grant = Grant(claims["key"], claims["size"], claims.get("upload", ""), claims.get("part", 0))
    kind = "token" if claims["jti"] else "anyone"
    return grant, Caller(Rights(), kind, claims["sub"], claims["jti"])


def check_size(lake: Lake, size: int) -> None:
    """Raise :class:`ProtocolError` for more bytes than a file may have."""
    if size > lake.options.most_upload_bytes:
        raise ProtocolError(Status.OUT_OF_RANGE, f"an upload has more than {lake.options.most_upload_bytes // MIB} MiB")


def check_received(lake: Lake, grant: Grant, size: int) -> None:
    """Raise :class:`ProtocolError` for more bytes than a file, or a part of one, may have."""
    if grant.part and size > _PART_BYTES:
        raise ProtocolError(Status.OUT_OF_RANGE, f"a part has more than {_PART_BYTES // MIB} MiB")
    check_size(lake, size)


def begin(lake: Lake, grant: Grant, size: int | None) -> NewUpload:
    """Open the file to write, of ``size`` bytes if known. See :meth:`Uploads.begin`."""
    if size is not None:
        check_received(lake, grant, size)
    if grant.part:
        return UploadParts(_offered(lake), grant.upload).begin(grant.part, size)
    if grant.size is not None and size is not None and size != grant.size:
        raise invalid(f"the grant is for {grant.size} bytes, not for {size}")
    return _offered(lake).begin(grant.key, size)


def _offered(lake: Lake) -> Uploads:
    if lake.uploads is None:
        raise ProtocolError(
            Status.FAILED_PRECONDITION,
            "this lake is in an object store: upload files with the tools of the store, and register them",
        )
    return lake.uploads
