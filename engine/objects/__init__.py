"""Object stores: URLs, reading by position, uploads. Knows nothing of formats."""

from .bucket import Bucket, ObjectInfo, bucket_of
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
    "bucket_of",
    "clear_uploads",
    "is_url",
    "upload_to",
]
