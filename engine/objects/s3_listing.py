"""Listings of S3 that no key can stop."""

from __future__ import annotations

from collections.abc import Iterator

from .object_info import ObjectInfo, since_epoch
from .s3_client import s3_client
from .url import ObjectUrl


def list_s3(folder: ObjectUrl, after: str = "") -> Iterator[ObjectInfo]:
    """The objects below ``folder`` with keys behind ``after``, in the order of their keys, however these are written.

    Left out are those whose keys end with a slash, and which hold nothing: they stand for folders. Raises what
    ``botocore`` raises.
    """
    pages = s3_client().get_paginator("list_objects_v2")
    below = f"{folder.key}/" if folder.key else ""
    start = {"StartAfter": after} if after else {}
    for page in pages.paginate(Bucket=folder.bucket, Prefix=below, **start):
        for found in page.get("Contents", ()):
            if found["Size"] or not found["Key"].endswith("/"):
                url = ObjectUrl(folder.scheme, folder.bucket, found["Key"])
                yield ObjectInfo(url, found["Size"], found["ETag"], since_epoch(found["LastModified"]))
