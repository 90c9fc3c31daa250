"""One bucket, as this project uses it: ranges of objects, whole small objects, listings."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..errors import MissingExtraError, SourceMissingError, UsageError
from .failing import reading_object, writing_object
from .url import EXTRAS, ObjectUrl

_RETRIES: Final = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}
CONNECT_SECONDS: Final = 10
REQUEST_SECONDS: Final = 120
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SETTINGS: Final = ("AWS_", "AZURE_", "GOOGLE_")
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says of an object: its URL, its size in bytes, and a version that changes with its content.

    ``modified_ns``: when it was last written, in ns since 1970; most stores tell whole seconds.
    """

    url: ObjectUrl
    size: int
    version: str | None
    modified_ns: int

    @classmethod
    def of(cls, url: ObjectUrl, meta: Mapping[str, Any]) -> ObjectInfo:
        """What the store's library says of the object ``url``."""
        return cls(url, meta["size"], meta["e_tag"], (meta["last_modified"] - _EPOCH) // _MICROSECOND * 1000)


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
        url = self._url(key)
        try:
            with reading_object(str(url)):
                meta = self._library.head(self._store, key)
        except SourceMissingError:
            # The answer to a HEAD has no body that could tell a missing bucket from a missing object.
            next(iter(self.list(key)), None)
            raise
        return ObjectInfo.of(url, meta)

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        with reading_object(str(self._url(key))):
            try:
                self._library.head(self._store, key)
            except FileNotFoundError:
                return False
        return True

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

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects below the folder ``prefix``, in the order of their keys."""
        with reading_object(str(self._url(prefix))):
            for batch in self._library.list(self._store, prefix or None):
                for meta in batch:
                    yield ObjectInfo.of(self._url(meta["path"]), meta)

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
    settings = tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith(_SETTINGS)))
    key = (url.root, settings)
    if key not in _open:
        _open[key] = Bucket(ObjectUrl(url.scheme, url.bucket, ""))
    return _open[key]


def _open_s3(url: ObjectUrl) -> Any:
    _import("boto3", url)
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import S3Store

    options: dict[str, Any] = {"client_options": _client_options(), "retry_config": _RETRIES}
    if os.environ.get("AWS_SKIP_SIGNATURE", "").lower() not in ("1", "true"):
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
