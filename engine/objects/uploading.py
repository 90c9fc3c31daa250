"""Which kind of upload a URL needs."""

from __future__ import annotations

from .bucket import bucket_of
from .s3_upload import S3Upload, abort_uploads
from .stream_upload import StreamUpload
from .upload import Upload
from .url import EXTRAS, ObjectUrl


def upload_to(url: ObjectUrl) -> Upload:
    """A new object at ``url``, to write front to end; it appears when it is finished, whole."""
    bucket = bucket_of(url)
    return S3Upload(url, bucket) if EXTRAS[url.scheme] == "s3" else StreamUpload(url, bucket)


def clear_uploads(folder: ObjectUrl) -> None:
    """Throw away the unfinished uploads below ``folder``. Only S3 keeps such until it is told."""
    if EXTRAS[folder.scheme] == "s3":
        abort_uploads(folder)
