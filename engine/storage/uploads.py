"""New objects, written from start to end or copied inside their bucket, which appear whole; and object removal.

A small object is sent to S3 in one request, a larger one as a multipart upload, with ``boto3``: only it supports
copying ranges of objects inside the store. For other stores, the bytes go through this process. Whole objects are
copied and removed on the condition that they are unchanged.
"""

from __future__ import annotations

import hashlib
import io
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode

from ..errors import ChunkmillError, WriteError
from ..limits import MIB
from .bucket import Bucket, ObjectInfo, s3_client, writing_object
from .objects import bucket_of
from .url import EXTRAS, ObjectUrl

PART: Final = 8 * MIB
COPIED_PART: Final = 512 * MIB
SMALLEST_PART: Final = 5 * MIB
"""Smaller ranges are not worth a copy request, and S3 accepts no smaller part except the last."""

_PARTS_OF_A_SIZE: Final = 1000
_AT_ONCE: Final = 3


def upload_to(url: ObjectUrl) -> Upload:
    """A new object at ``url``, to write from start to end; it appears as a whole when finished."""
    bucket = bucket_of(url)
    return S3Upload(url, bucket) if EXTRAS.get(url.scheme) == "s3" else StreamUpload(url, bucket)


def clear_uploads(folder: ObjectUrl) -> None:
    """Discard unfinished uploads of killed processes below ``folder``.

    Only S3 keeps them until they are aborted.
    """
    if EXTRAS.get(folder.scheme) != "s3":
        return
    with writing_object(str(folder)):
        client = s3_client()
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=folder.bucket, Prefix=f"{folder.key}/")
        for upload in [u for page in pages for u in page.get("Uploads", ())]:
            client.abort_multipart_upload(Bucket=folder.bucket, Key=upload["Key"], UploadId=upload["UploadId"])


class Upload(io.RawIOBase):
    """A new object, written front to end.

    Guarantee: the object appears as a whole when :meth:`finish` returns, and not before. After :meth:`abort`, or
    without either call, a previous object stays. Errors are ``WriteError``.
    """

    def __init__(self, url: ObjectUrl) -> None:
        self.url = url

    def writable(self) -> bool:
        """True."""
        return True

    @abstractmethod
    def write(self, data: Any, /) -> int:
        """Append bytes; return their number."""

    def copy(self, source: ObjectUrl, version: str | None, offset: int, size: int) -> bool:  # noqa: ARG002
        """Append a range of another object without fetching it; return False if the store cannot."""
        return False

    def seal(self) -> None:
        """Send all written bytes, so that :meth:`finish` has none left to send."""

    @abstractmethod
    def finish(self) -> None:
        """Let the object appear."""

    @abstractmethod
    def abort(self) -> None:
        """Discard the written bytes."""


class StreamUpload(Upload):
    """An upload to a store in parts of 8 MiB, three at once."""

    def __init__(self, url: ObjectUrl, bucket: Bucket) -> None:
        super().__init__(url)
        self._writer = bucket.open_writer(url.key, PART, _AT_ONCE)

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        with writing_object(str(self.url)):
            for begin in range(0, len(view), PART):
                # The library keeps a reference to the bytes, and the caller's buffer changes.
                self._writer.write(bytes(view[begin : begin + PART]))
        return len(view)

    def finish(self) -> None:
        """Let the object appear."""
        with writing_object(str(self.url)):
            self._writer.close()

    def abort(self) -> None:
        """Leave the upload unfinished: the store discards it by itself."""
        self._writer = None


class S3Upload(Upload):
    """An upload to S3. Memory: four parts (of 8 MiB; larger in objects over 8 GB).

    ``kept``: attributes for ``CreateMultipartUpload``; ``only_new``: upload in parts, on the condition that the name is
    free.
    """

    def __init__(
        self, url: ObjectUrl, bucket: Bucket, *, kept: Mapping[str, Any] | None = None, only_new: bool = False
    ) -> None:
        super().__init__(url)
        self._bucket = bucket
        self._attributes = dict(kept or {})
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
        """Append a range of another S3 object; bytes too few for a part are fetched and sent."""
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
        """Send the remaining bytes, and wait until all parts have arrived."""
        if self._buffer:
            self._send_buffer()
        while self._running:
            self._wait(self._running.popleft())

    def finish(self) -> None:
        """Send the remaining bytes, and make the object appear."""
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
        """Discard the sent parts."""
        self._buffer.clear()
        self._stop()
        if self._id is not None:
            upload, self._id = self._id, None
            with suppress(ChunkmillError), writing_object(self.name):
                self._client.abort_multipart_upload(**_place(self.url), UploadId=upload)

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
            "CopySource": _place(source),
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
        """The parameters of the multipart upload, which is started on first use."""
        if self._id is None:
            self._threads = ThreadPoolExecutor(_AT_ONCE, "chunkmill-upload")
            with writing_object(self.name):
                self._client = s3_client()
                begun = self._client.create_multipart_upload(**_place(self.url), **self._attributes)
            self._id = begun["UploadId"]
        return {**_place(self.url), "UploadId": self._id}

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
            # The request may have succeeded although its answer was lost.
            with suppress(ChunkmillError):
                if self._bucket.head(self.url.key).version == _joined_tag(tags):
                    return
            raise

    def _stop(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)


def _joined_tag(tags: list[str]) -> str | None:
    """Return the tag of an object made of parts with these tags, or None if they are no MD5 sums."""
    try:
        sums = b"".join(bytes.fromhex(tag.strip('"')) for tag in tags)
    except ValueError:
        return None
    return f'"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(tags)}"'


_WINDOW: Final = 8 * MIB
_PATIENCE: Final = 600
"""Seconds within which the store must complete an accepted copy."""


def copy_object(source: ObjectInfo, target: ObjectUrl) -> None:
    """Copy an object inside the store, with its metadata, to a free name of the same bucket.

    Raises ``WriteError``, also if the name is taken, and on S3 if the source has changed; inspect the objects to find
    out which. A server with S3's protocol may ignore these conditions: check before, too. Google and Azure copy the
    object's current content. See :func:`await_copy`.
    """
    if EXTRAS.get(target.scheme) == "s3":
        _copy_in_s3(source, target)
    else:
        bucket_of(target).copy(source.url.key, target.key)


def await_copy(source: ObjectInfo, target: ObjectUrl) -> None:
    """Wait until a copy is complete: Azure may answer before, and has an empty object until then.

    The wait ends early if the source has changed. Raises ``WriteError`` if a copy takes too long, or is gone, and
    ``ReadError`` if the store does not answer.
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
                hint="The source was not removed. Check the object store, and start again.",
                transient=True,
            )
        time.sleep(pause)
        pause = min(2 * pause, 5)


def remove_object(info: ObjectInfo) -> None:
    """Remove an object if it is unchanged; in stores other than S3, in any case. Raises ``WriteError``."""
    if EXTRAS.get(info.url.scheme) == "s3":
        _remove_from_s3(info)
    else:
        bucket_of(info.url).delete([info.url.key])


def have_same_content(first: ObjectInfo, second: ObjectInfo) -> bool:
    """Return True if two objects have the same bytes. They are read up to the first window that differs.

    Versions and checksums cannot decide this: whether a copy keeps them depends on the store, and on S3 also on
    encryption and parts. Raises ``ReadError``, also if an object changes meanwhile.
    """
    if first.size != second.size:
        return False
    for start in range(0, first.size, _WINDOW):
        stop = min(start + _WINDOW, first.size)
        window, other_window = (bucket_of(o.url).read(o.url.key, start, stop, o.version) for o in (first, second))
        if window != other_window:
            return False
    return True


LARGEST_COPY: Final = 1024 * MIB
"""The most bytes that one request copies; larger objects are copied in parts. S3 allows five times that, slowly."""

_NOT_IMPLEMENTED: Final = 501
_NOT_THAT_ONE: Final = (404, 409, 412)
"""The object is gone, is being replaced, or has changed."""

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
    """Copy an object with its metadata and tags, if it is unchanged and ``target`` is free.

    Raises ``WriteError``. For a server that does not support the second condition, it is omitted.
    """
    if source.size > LARGEST_COPY:
        _copy_parts(source, target)
        return
    what: dict[str, Any] = {**_place(target), "CopySource": _place(source.url)}
    if source.version:
        what["CopySourceIfMatch"] = source.version
    with writing_object(str(target)):
        _on_condition(s3_client().copy_object, what, {"IfNoneMatch": "*"})


def _remove_from_s3(info: ObjectInfo) -> None:
    """Remove an object if it is unchanged. Raises ``WriteError``."""
    from botocore.exceptions import ClientError

    condition = {"IfMatch": info.version} if info.version else {}
    with writing_object(str(info.url)):
        try:
            _on_condition(s3_client().delete_object, _place(info.url), condition)
        except ClientError as error:
            if _status(error) not in _NOT_THAT_ONE:
                raise


def _on_condition(request: Callable[..., Any], what: dict[str, Any], condition: dict[str, str]) -> None:
    """Send a request with a condition, or without it if the server does not support it."""
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
        kept = _attributes_of(source.url)
    upload = S3Upload(target, bucket_of(target), kept=kept, only_new=True)
    try:
        upload.copy(source.url, source.version, 0, source.size)
        upload.finish()
    except BaseException:
        upload.abort()
        raise


def _attributes_of(url: ObjectUrl) -> dict[str, Any]:
    """The attributes that a copy in one request would keep."""
    head = s3_client().head_object(**_place(url))
    kept = {name: head[name] for name in _KEPT if name in head}
    if head.get("TagCount"):
        tags = s3_client().get_object_tagging(**_place(url))["TagSet"]
        kept["Tagging"] = urlencode([(tag["Key"], tag["Value"]) for tag in tags])
    return kept


def _place(url: ObjectUrl) -> dict[str, str]:
    return {"Bucket": url.bucket, "Key": url.key}
