"""A bucket, as this project uses it: ranges of objects, whole small objects, listings."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..errors import MissingExtraError, ReadWarning, SourceMissingError, UsageError
from .credentials import CONNECT_SECONDS, REQUEST_SECONDS, is_unsigned, s3_client, settings
from .object_errors import reading_object, writing_object
from .url import EXTRAS, ObjectUrl, is_usable_key

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as its store describes it: its URL, its size in bytes, and a version that changes with its content.

    ``modified_ns``: when it was last written, in ns since 1970; most stores tell whole seconds.
    """

    url: ObjectUrl
    size: int
    version: str | None
    modified_ns: int

    @classmethod
    def of(cls, url: ObjectUrl, meta: Mapping[str, Any]) -> ObjectInfo:
        """The object ``url``, as the store's library describes it."""
        return cls(url, meta["size"], meta["e_tag"], _since_epoch(meta["last_modified"]))


def _since_epoch(time: datetime) -> int:
    """A time in ns since 1970."""
    return (time - _EPOCH) // _MICROSECOND * 1000


_RETRIES: Final = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL")
_ODD: Final = (
    "{url!r} cannot be read, and is passed over: its key has an empty or relative part, or a control character; "
    "rename it"
)


class Bucket:
    """A bucket, reached with the credentials of the environment.

    A disturbed request is tried again, at most five times within a minute; then, and whenever trying again is of no
    use, :class:`ReadError` or :class:`WriteError` names the URL.
    """

    def __init__(self, url: ObjectUrl) -> None:
        self.url = url
        self._library = _import("obstore", url)
        with reading_object(url.root):
            self._opened = _open_s3(url) if EXTRAS[url.scheme] == "s3" else _open_other(url)

    @property
    def _store(self) -> Any:
        """The library's store; in a forked process it would wait for ever for threads that only the parent has."""
        if _forked:
            raise UsageError(
                "object stores can't be used in a process that was forked from one that used them",
                path=str(self.url),
                hint="Start processes with multiprocessing's method 'spawn'.",
            )
        return self._opened

    def head(self, key: str) -> ObjectInfo:
        """Size and version of an object. Raises ``SourceMissingError`` where there is none, or no such bucket."""
        found = self.find(key)
        if found is None:
            # The answer to a HEAD has no body that could tell a missing bucket from a missing object.
            next(iter(self.list(key, odd=lambda *_: None)), None)
            raise SourceMissingError("there is no such object", path=str(self._url(key)), hint="Check the URL.")
        return found

    def find(self, key: str) -> ObjectInfo | None:
        """Size and version of an object; None where there is none, or no such bucket."""
        url = self._url(key)
        with reading_object(str(url)):
            try:
                return ObjectInfo.of(url, self._library.head(self._store, key))
            except FileNotFoundError:
                return None

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        return self.find(key) is not None

    def read(self, key: str, start: int, stop: int, version: str | None) -> memoryview:
        """The bytes ``start`` to ``stop`` of an object, fewer where it ends before.

        Raises ``ReadError`` where the object has another version than ``version``, unless that is None.
        """
        options: dict[str, Any] = {"range": (start, stop)}
        if version:
            options["if_match"] = version
        with reading_object(str(self._url(key)), start):
            return memoryview(self._library.get(self._store, key, options=options).bytes())

    def get(self, key: str) -> bytes:
        """The whole of a small object."""
        with reading_object(str(self._url(key))):
            return bytes(self._library.get(self._store, key).bytes())

    def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        """Write a whole object; it appears, or replaces what was there, in one step."""
        with writing_object(str(self._url(key))):
            self._library.put(self._store, key, data, use_multipart=False)

    def create(self, key: str, data: bytes) -> bool:
        """Write a whole object unless there is one of that name; False where there is, with other content.

        (A request whose answer was lost is sent again, and finds what it wrote itself.)
        """
        with writing_object(str(self._url(key))):
            try:
                self._library.put(self._store, key, data, mode="create", use_multipart=False)
            except (FileExistsError, self._library.exceptions.AlreadyExistsError):
                return self.get(key) == data
        return True

    def list(self, prefix: str, odd: Callable[[ObjectUrl, str], None] | None = None) -> Iterator[ObjectInfo]:
        """All objects below the folder ``prefix``, in the order of their keys.

        Of S3, objects whose keys no request can name (:func:`is_usable_key`) are left out, and ``odd`` is given each
        with what is to be said of it; by default that is a :class:`ReadWarning`. The listing of another store ends
        there with ``ReadError``.
        """
        last, since = "", set[str]()
        with reading_object(str(self._url(prefix))):
            try:
                for batch in self._library.list(self._store, prefix or None):
                    for meta in batch:
                        found = ObjectInfo.of(self._url(meta["path"]), meta)
                        # The key of an empty object may have ended with a slash that the library does not tell of.
                        if found.size:
                            last = found.url.key
                            since.clear()
                        else:
                            since.add(found.url.key)
                        yield found
            except self._library.exceptions.InvalidPathError:
                if EXTRAS[self.url.scheme] != "s3":
                    raise
            else:
                return
            for found in _list_s3(self._url(prefix), last):
                if not is_usable_key(found.url.key):
                    (odd or _warn)(found.url, _ODD.format(url=str(found.url)))
                elif found.url.key not in since:
                    yield found

    def copy(self, source: str, target: str) -> None:
        """Copy an object, where there is none of the name ``target``; the store may still be at it afterwards."""
        with writing_object(str(self._url(target))):
            self._library.copy(self._store, source, target, overwrite=False)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; one that is gone already is fine."""
        with writing_object(str(self.url.root)):
            try:
                self._library.delete(self._store, list(keys))
            except FileNotFoundError:
                return

    def open_writer(self, key: str, part_bytes: int, at_once: int) -> Any:
        """The library's own writer of a new object, which sends it in parts."""
        return self._library.open_writer(self._store, key, buffer_size=part_bytes, max_concurrency=at_once)

    def _url(self, key: str) -> ObjectUrl:
        return ObjectUrl(self.url.scheme, self.url.bucket, key)


_open: dict[tuple[str, tuple[tuple[str, str], ...]], Bucket] = {}


_forked: list[bool] = []


def _note_fork() -> None:
    if _open:
        _forked.append(True)


os.register_at_fork(after_in_child=_note_fork)


def bucket_of(url: ObjectUrl) -> Bucket:
    """The bucket of ``url``; opened once in this process for each state of the environment."""
    key = (url.root, settings())
    if key not in _open:
        _open[key] = Bucket(ObjectUrl(url.scheme, url.bucket, ""))
    return _open[key]


def _warn(_: ObjectUrl, message: str) -> None:
    warnings.warn(message, ReadWarning, stacklevel=4)


def _open_s3(url: ObjectUrl) -> Any:
    _import("boto3", url)
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import S3Store

    options: dict[str, Any] = {"client_options": _client_options(), "retry_config": _RETRIES}
    if not is_unsigned():
        options["credential_provider"] = Boto3CredentialProvider()
    return S3Store(url.bucket, **options)


def _open_other(url: ObjectUrl) -> Any:
    from obstore import store

    from_url: Any = store.from_url
    return from_url(url.root, client_options=_client_options(), retry_config=_RETRIES)


def _client_options() -> dict[str, Any]:
    return {
        "timeout": timedelta(seconds=REQUEST_SECONDS),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        # Whoever names an endpoint without TLS means it.
        "allow_http": any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS),
    }


def _import(module: str, url: ObjectUrl) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = EXTRAS[url.scheme]
        raise MissingExtraError(
            f"{url.scheme}:// needs the package {module}, which is not installed",
            path=str(url),
            hint=f"pip install 'chunkmill[{extra}]'",
        ) from error


def _list_s3(folder: ObjectUrl, after: str = "") -> Iterator[ObjectInfo]:
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
                yield ObjectInfo(url, found["Size"], found["ETag"], _since_epoch(found["LastModified"]))
