"""Copies and removals in S3, on conditions that only ``boto3`` can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

from ..limits import MIB
from .bucket import bucket_of
from .failing import writing_object
from .object_info import ObjectInfo
from .s3_client import s3_client
from .s3_upload import S3Upload
from .url import ObjectUrl

LARGEST_COPY: Final = 1024 * MIB
"""Bytes that one request copies; what is larger is copied in parts. S3 would take five times that, in its own time."""

_NOT_IMPLEMENTED: Final = 501
_NOT_THAT_ONE: Final = (404, 409, 412)
"""It is gone, it is being replaced, it is another one."""

_KEPT: Final = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Expires",
    "Metadata",
)


def copy_in_s3(source: ObjectInfo, target: ObjectUrl) -> None:
    """Copy an object with its metadata and tags, if it is still what it was, and there is none at ``target``.

    Raises ``WriteError``. A server that does not know the second condition is asked without it.
    """
    if source.size > LARGEST_COPY:
        _copy_parts(source, target)
        return
    what: dict[str, Any] = {**_place(target), "CopySource": _place(source.url)}
    if source.version:
        what["CopySourceIfMatch"] = source.version
    with writing_object(str(target)):
        _on_condition(s3_client().copy_object, what, {"IfNoneMatch": "*"})


def remove_from_s3(found: ObjectInfo) -> None:
    """Remove an object, if it is still what was found. Raises ``WriteError``."""
    from botocore.exceptions import ClientError

    condition = {"IfMatch": found.version} if found.version else {}
    with writing_object(str(found.url)):
        try:
            _on_condition(s3_client().delete_object, _place(found.url), condition)
        except ClientError as error:
            if _status(error) not in _NOT_THAT_ONE:
                raise


def _on_condition(request: Callable[..., Any], what: dict[str, Any], condition: dict[str, str]) -> None:
    """Ask on a condition, or without it where the server does not know such a one."""
    from botocore.exceptions import ClientError

    try:
        request(**what, **condition)
    except ClientError as error:
        if not condition or _status(error) != _NOT_IMPLEMENTED:
            raise
        request(**what)


def _status(error: Any) -> int | None:
    status: int | None = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def _copy_parts(source: ObjectInfo, target: ObjectUrl) -> None:
    with writing_object(str(source.url)):
        kept = _kept(source.url)
    upload = S3Upload(target, bucket_of(target), kept=kept, only_new=True)
    try:
        upload.copy(source.url, source.version, 0, source.size)
        upload.finish()
    except BaseException:
        upload.abort()
        raise


def _kept(url: ObjectUrl) -> dict[str, Any]:
    """What a copy in one request keeps of an object besides its bytes."""
    head = s3_client().head_object(**_place(url))
    kept = {name: head[name] for name in _KEPT if name in head}
    if head.get("TagCount"):
        tags = s3_client().get_object_tagging(**_place(url))["TagSet"]
        kept["Tagging"] = urlencode([(tag["Key"], tag["Value"]) for tag in tags])
    return kept


def _place(url: ObjectUrl) -> dict[str, str]:
    return {"Bucket": url.bucket, "Key": url.key}
