"""Uploads: new objects, written front to end, which appear whole.

To S3 in one request where the object is small, else as a multipart upload: only ``boto3`` speaks the part of the
protocol that copies ranges of objects inside the store. To other stores the bytes go through this process.
"""

from __future__ import annotations

import hashlib
import io
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from ..errors import ChunkmillError
from ..limits import MIB
from .bucket import Bucket, bucket_of
from .credentials import s3_client
from .object_errors import writing_object
from .url import EXTRAS, ObjectUrl

PART: Final = 8 * MIB
COPIED_PART: Final = 512 * MIB
SMALLEST_PART: Final = 5 * MIB
"""Ranges below this are not worth a request to copy them, and S3 takes no smaller part but the last."""

_PARTS_OF_A_SIZE: Final = 1000
_AT_ONCE: Final = 3


def upload_to(url: ObjectUrl) -> Upload:
    """A new object at ``url``, to write front to end; it appears when it is finished, whole."""
    bucket = bucket_of(url)
    return S3Upload(url, bucket) if EXTRAS[url.scheme] == "s3" else StreamUpload(url, bucket)


def clear_uploads(folder: ObjectUrl) -> None:
    """Throw away the unfinished uploads below ``folder``. Only S3 keeps such until it is told."""
    if EXTRAS[folder.scheme] == "s3":
        _abort_uploads(folder)


class Upload(io.RawIOBase):
    """A new object, written front to end.

    Guarantee: the object appears whole when :meth:`finish` returns, and not at all before; after :meth:`abort`, and
    when neither is called, what was there before stays. Errors are ``WriteError``.
    """

    def __init__(self, url: ObjectUrl) -> None:
        self.url = url

    def writable(self) -> bool:
        """True."""
        return True

    @abstractmethod
    def write(self, data: Any, /) -> int:
        """Append bytes; gives their number."""

    def copy(self, source: ObjectUrl, version: str | None, offset: int, size: int) -> bool:  # noqa: ARG002
        """Append a range of another object without fetching it; False where the store cannot do that."""
        return False

    def seal(self) -> None:
        """Let everything written arrive, so that :meth:`finish` has nothing left to send."""

    @abstractmethod
    def finish(self) -> None:
        """Let the object appear."""

    @abstractmethod
    def abort(self) -> None:
        """Throw away what was written."""


class StreamUpload(Upload):
    """An object on its way to a store, in parts of 8 MiB, three at once."""

    def __init__(self, url: ObjectUrl, bucket: Bucket) -> None:
        super().__init__(url)
        self._writer = bucket.open_writer(url.key, PART, _AT_ONCE)

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        with writing_object(str(self.url)):
            for begin in range(0, len(view), PART):
                # The library holds on to what it is given, and the caller's buffer changes.
                self._writer.write(bytes(view[begin : begin + PART]))
        return len(view)

    def finish(self) -> None:
        """Let the object appear."""
        with writing_object(str(self.url)):
            self._writer.close()

    def abort(self) -> None:
        """Leave the upload unfinished: the store throws such away by itself."""
        self._writer = None


class S3Upload(Upload):
    """An object on its way to S3. Memory: four parts (of 8 MiB; larger ones in objects over 8 GB).

    ``kept``: what ``CreateMultipartUpload`` is told of the object; ``only_new``: it appears in parts, on the condition
    that there is none of its name.
    """

    def __init__(
        self, url: ObjectUrl, bucket: Bucket, *, kept: Mapping[str, Any] | None = None, only_new: bool = False
    ) -> None:
        super().__init__(url)
        self._bucket = bucket
        self._kept = dict(kept or {})
        self._condition = {"IfNoneMatch": "*"} if only_new else {}
        self._buffer = bytearray()
        self._client: Any = None
        self._id: str | None = None
        self._parts: list[Future[dict[str, Any]]] = []
        self._running: deque[Future[dict[str, Any]]] = deque()
        self._threads: ThreadPoolExecutor | None = None

    def write(self, data: Any, /) -> int:
        """Append bytes; full parts are sent in the background."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            room = self._part_size - len(self._buffer)
            self._buffer += view[done : done + room]
            done += min(room, len(view) - done)
            if len(self._buffer) >= self._part_size:
                self._send_buffer()
        return len(view)

    def copy(self, source: ObjectUrl, version: str | None, offset: int, size: int) -> bool:
        """Append a range of another object of S3; what is too small for a part is fetched and sent."""
        if source.scheme != self.url.scheme:
            return False
        end = offset + size
        if size < SMALLEST_PART or (self._buffer and len(self._buffer) < SMALLEST_PART):
            fill = min(size, max(0, SMALLEST_PART - len(self._buffer)))
            self._fetch(source, version, offset, offset + fill)
            offset += fill
        if end - offset >= SMALLEST_PART:
            if self._buffer:
                self._send_buffer()
            while end - offset >= SMALLEST_PART:
                stop = end if end - offset < COPIED_PART + SMALLEST_PART else offset + COPIED_PART
                self._send_copy(source, version, offset, stop)
                offset = stop
        self._fetch(source, version, offset, end)
        return True

    def seal(self) -> None:
        """Send what is left, and wait until all parts have arrived."""
        if self._buffer:
            self._send_buffer()
        while self._running:
            self._wait(self._running.popleft())

    def finish(self) -> None:
        """Send what is left, and let the object appear."""
        try:
            if self._id is None and not self._condition:
                self._bucket.put(self.url.key, self._buffer)
            else:
                self.seal()
                self._complete()
        except BaseException:
            self.abort()
            raise
        finally:
            self._stop()

    def abort(self) -> None:
        """Throw away the parts that were sent."""
        self._buffer.clear()
        self._stop()
        if self._id is not None:
            upload, self._id = self._id, None
            with suppress(ChunkmillError), writing_object(self.name):
                self._client.abort_multipart_upload(Bucket=self.url.bucket, Key=self.url.key, UploadId=upload)

    @property
    def name(self) -> str:
        """The URL."""
        return str(self.url)

    @property
    def _part_size(self) -> int:
        return PART * (1 + len(self._parts) // _PARTS_OF_A_SIZE)

    def _fetch(self, source: ObjectUrl, version: str | None, offset: int, stop: int) -> None:
        bucket = bucket_of(source)
        while offset < stop:
            offset += self.write(bucket.read(source.key, offset, min(stop, offset + PART), version))

    def _send_buffer(self) -> None:
        data, self._buffer = self._buffer, bytearray()
        self._send(lambda client, place: client.upload_part(**place, Body=data))

    def _send_copy(self, source: ObjectUrl, version: str | None, offset: int, stop: int) -> None:
        what: dict[str, Any] = {
            "CopySource": {"Bucket": source.bucket, "Key": source.key},
            "CopySourceRange": f"bytes={offset}-{stop - 1}",
        }
        if version:
            what["CopySourceIfMatch"] = version
        self._send(lambda client, place: client.upload_part_copy(**place, **what)["CopyPartResult"])

    def _send(self, request: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> None:
        place = {**self._begun(), "PartNumber": len(self._parts) + 1}
        assert self._threads is not None
        while len(self._running) >= _AT_ONCE:
            self._wait(self._running.popleft())
        part = self._threads.submit(request, self._client, place)
        self._parts.append(part)
        self._running.append(part)

    def _begun(self) -> dict[str, Any]:
        """The multipart upload, which begins with its first part."""
        if self._id is None:
            self._threads = ThreadPoolExecutor(_AT_ONCE, "chunkmill-upload")
            with writing_object(self.name):
                self._client = s3_client()
                begun = self._client.create_multipart_upload(Bucket=self.url.bucket, Key=self.url.key, **self._kept)
            self._id = begun["UploadId"]
        return {"Bucket": self.url.bucket, "Key": self.url.key, "UploadId": self._id}

    def _wait(self, part: Future[dict[str, Any]]) -> str:
        with writing_object(self.name):
            return str(part.result()["ETag"])

    def _complete(self) -> None:
        tags = [self._wait(part) for part in self._parts]
        parts = [{"PartNumber": i + 1, "ETag": tag} for i, tag in enumerate(tags)]
        try:
            with writing_object(self.name):
                self._client.complete_multipart_upload(
                    **self._begun(), MultipartUpload={"Parts": parts}, **self._condition
                )
        except ChunkmillError:
            # The answer may have been lost on its way, and the request have gone through.
            with suppress(ChunkmillError):
                if self._bucket.head(self.url.key).version == _joined_tag(tags):
                    return
            raise

    def _stop(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)


def _abort_uploads(folder: ObjectUrl) -> None:
    """Throw away the unfinished uploads below ``folder``, which killed processes have left."""
    with writing_object(str(folder)):
        client = s3_client()
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=folder.bucket, Prefix=f"{folder.key}/")
        for upload in [u for page in pages for u in page.get("Uploads", ())]:
            client.abort_multipart_upload(Bucket=folder.bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def _joined_tag(tags: list[str]) -> str | None:
    """The tag of an object that was made of parts with these tags; None where they are no MD5 sums."""
    try:
        sums = b"".join(bytes.fromhex(tag.strip('"')) for tag in tags)
    except ValueError:
        return None
    return f'"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(tags)}"'
