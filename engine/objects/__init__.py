"""Object stores: URLs, reading by position, uploads, copies. Knows nothing of formats.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from ..storage.bucket import (
        Bucket,
        FoundObject,
        ObjectInfo,
        bucket_of,
        find_objects,
        is_one_object,
        reading_object,
        storage_options,
        writing_object,
    )
    from ..storage.remote_file import LARGEST_WINDOW, RemoteFile
    from ..storage.uploads import (
        SMALLEST_PART,
        Upload,
        await_copy,
        clear_uploads,
        copy_object,
        have_same_content,
        remove_object,
        upload_to,
    )
    from ..storage.url import ObjectUrl, is_url

_HOMES = {
    "..storage.bucket": (
        "Bucket FoundObject ObjectInfo bucket_of find_objects is_one_object reading_object storage_options "
        "writing_object"
    ),
    "..storage.remote_file": "LARGEST_WINDOW RemoteFile",
    "..storage.uploads": (
        "SMALLEST_PART Upload await_copy clear_uploads copy_object have_same_content remove_object upload_to"
    ),
    "..storage.url": "ObjectUrl is_url",
}

__all__ = [
    "Bucket",
    "FoundObject",
    "LARGEST_WINDOW",
    "ObjectInfo",
    "ObjectUrl",
    "RemoteFile",
    "SMALLEST_PART",
    "Upload",
    "await_copy",
    "bucket_of",
    "clear_uploads",
    "copy_object",
    "find_objects",
    "have_same_content",
    "is_one_object",
    "is_url",
    "reading_object",
    "remove_object",
    "storage_options",
    "upload_to",
    "writing_object",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
