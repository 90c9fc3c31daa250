"""Whole objects, copied inside their bucket and removed, on the condition that they are still what they were."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

from ..errors import WriteError
from ..limits import MIB
from .bucket import ObjectInfo, bucket_of
from .credentials import s3_client
from .object_errors import writing_object
from .uploads import S3Upload
from .url import EXTRAS, ObjectUrl

_WINDOW: Final = 8 * MIB
_PATIENCE: Final = 600
"""Seconds within which a copy that the store has taken on has to come to its end."""


def copy_object(source: ObjectInfo, target: ObjectUrl) -> None:
    """Copy an object to a name of the same bucket that nobody has, with its metadata; no bytes of it pass through here.

    Raises ``WriteError``, also where there is an object of that name, and on S3 where the source is no more what it
    was; to tell what it is, look again. A server of S3's protocol may ignore these conditions: look before, too. An
    object of Google's or Azure's is copied as it is at that moment. See :func:`await_copy`.
    """
    if EXTRAS[target.scheme] == "s3":
        _copy_in_s3(source, target)
    else:
        bucket_of(target).copy(source.url.key, target.key)


def await_copy(source: ObjectInfo, target: ObjectUrl) -> None:
    """Wait until a copy is whole: Azure may answer before, and has an empty object there until then.

    What comes of a source that is no more what it was is not waited for. Raises ``WriteError`` where a copy takes too
    long, or is gone, and ``ReadError`` where the store tells nothing.
    """
    deadline, pause = time.monotonic() + _PATIENCE, 0.05
    while (copy := bucket_of(target).find(target.key)) is None or copy.size != source.size:
        if bucket_of(source.url).find(source.url.key) != source:
            return
        if copy is None or time.monotonic() > deadline:
            what = "is gone" if copy is None else f"has {copy.size:,} bytes of {source.size:,} after {_PATIENCE} s"
            raise WriteError(
                f"the copy of {source.url} {what}",
                path=str(target),
                hint="The source was not removed. Look at the store, and start again.",
                transient=True,
            )
        time.sleep(pause)
        pause = min(2 * pause, 5)


def remove_object(found: ObjectInfo) -> None:
    """Remove an object if it is what was found; on other stores than S3 whatever it is. Raises ``WriteError``."""
    if EXTRAS[found.url.scheme] == "s3":
        _remove_from_s3(found)
    else:
        bucket_of(found.url).delete([found.url.key])


def have_same_content(one: ObjectInfo, other: ObjectInfo) -> bool:
    """Whether two objects hold the same bytes. They are read up to the first window in which they differ.

    No version or checksum of a store tells: those that a copy keeps on one store it loses on another, and on S3 with
    the encryption, or when it was made in parts. Raises ``ReadError``, also where one of them changes meanwhile.
    """
    if one.size != other.size:
        return False
    for start in range(0, one.size, _WINDOW):
        stop = min(start + _WINDOW, one.size)
        first, second = (bucket_of(o.url).read(o.url.key, start, stop, o.version) for o in (one, other))
        if first != second:
            return False
    return True


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


def _copy_in_s3(source: ObjectInfo, target: ObjectUrl) -> None:
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


def _remove_from_s3(found: ObjectInfo) -> None:
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
    """The attributes of an object that a copy in one request keeps."""
    head = s3_client().head_object(**_place(url))
    kept = {name: head[name] for name in _KEPT if name in head}
    if head.get("TagCount"):
        tags = s3_client().get_object_tagging(**_place(url))["TagSet"]
        kept["Tagging"] = urlencode([(tag["Key"], tag["Value"]) for tag in tags])
    return kept


def _place(url: ObjectUrl) -> dict[str, str]:
    return {"Bucket": url.bucket, "Key": url.key}
