"""Object stores: URLs, reading by position, uploads, copies. Knows nothing of formats."""

from .bucket import Bucket, bucket_of
from .copying import await_copy, copy_object, have_same_content, remove_object
from .object_info import ObjectInfo
from .remote_file import RemoteFile
from .upload import Upload
from .uploading import clear_uploads, upload_to
from .url import ObjectUrl, is_url

__all__ = [
    "Bucket",
    "ObjectInfo",
    "ObjectUrl",
    "RemoteFile",
    "Upload",
    "await_copy",
    "bucket_of",
    "clear_uploads",
    "copy_object",
    "have_same_content",
    "is_url",
    "remove_object",
    "upload_to",
]
