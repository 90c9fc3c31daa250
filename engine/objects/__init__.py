"""Object stores: URLs, reading by position, uploads, copies. Knows nothing of formats.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .bucket import (
        Bucket,
        FoundObject,
        ObjectInfo,
        bucket_of,
        find_objects,
        is_one_object,
        storage_options,
    )
    from .object_errors import reading_object, writing_object
    from .remote_file import LARGEST_WINDOW, RemoteFile
    from .uploads import (
        SMALLEST_PART,
        Upload,
        await_copy,
        clear_uploads,
        copy_object,
        have_same_content,
        remove_object,
        upload_to,
    )
    from .url import ObjectUrl, is_url

_HOMES = {
    ".bucket": "Bucket FoundObject ObjectInfo bucket_of find_objects is_one_object storage_options",
    ".object_errors": "reading_object writing_object",
    ".remote_file": "LARGEST_WINDOW RemoteFile",
    ".uploads": "SMALLEST_PART Upload await_copy clear_uploads copy_object have_same_content remove_object upload_to",
    ".url": "ObjectUrl is_url",
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
