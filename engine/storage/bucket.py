"""A bucket of an object store, accessed with the environment's credentials; errors contain no secrets.

Also the settings for Lance, and the timeouts of requests.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

from ..errors import (
    ChunkmillError,
    MissingExtraError,
    ReadError,
    ReadWarning,
    SourceMissingError,
    UsageError,
    WriteError,
    extra_command,
)
from .url import EXTRAS, HTTP, ObjectUrl, is_usable_key

_CODE = re.compile(r"<Code>(\w+)</Code>|error \((\w+)\)|x-ms-error-code: (\w+)")
_STATUS = re.compile(r"status code: (\d{3})|HTTPStatusCode[^0-9]{1,4}(\d{3})")
_SECRET = re.compile(r"key|token|secret|signature|credential", re.IGNORECASE)
_BAD_KEY = re.compile(r'invalid path: (?:Error parsing )?Path "(.*?)"(?: contained|:)', re.DOTALL)
_ADDRESS = re.compile(r"\w+://\S+")

_DENIED: Final = "Check the credentials (environment, profile or role) and their permissions for this bucket."
_TRY_AGAIN: Final = "The object store or the network failed temporarily; run it again."
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
_NOTHING_LEFT: Final = "No incomplete object was left."


class ObjectChangedError(Exception):
    """An object has changed since it was inspected."""


class _Reason(NamedTuple):
    text: str
    hint: str
    transient: bool = False


@contextmanager
def reading_object(url: str, offset: int | None = None) -> Iterator[None]:
    """Raise the errors of a store's library as :class:`ReadError` about ``url``."""
    try:
        yield
    except ChunkmillError:
        raise
    except _library_errors() as error:
        reason = _reason(error)
        if isinstance(error, FileNotFoundError):
            raise SourceMissingError("there is no such object", path=url, hint="Check the URL.") from None
        kind = SourceMissingError if _code(error) in _NO_BUCKET else ReadError
        raise kind(reason.text, path=url, offset=offset, hint=reason.hint, transient=reason.transient) from None


@contextmanager
def writing_object(url: str) -> Iterator[None]:
    """Raise the errors of a store's library as :class:`WriteError` about ``url``."""
    try:
        yield
    except ChunkmillError:
        raise
    except _library_errors() as error:
        reason = _reason(error)
        raise WriteError(
            f"cannot be written: {reason.text}",
            path=url,
            hint=f"{_NOTHING_LEFT} {reason.hint}",
            transient=reason.transient,
        ) from None


@cache
def _library_errors() -> tuple[type[BaseException], ...]:
    errors: tuple[type[BaseException], ...] = (ObjectChangedError, OSError, ValueError)
    try:
        from obstore.exceptions import BaseError
    except ImportError:
        return errors
    errors += (BaseError,)
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        return errors
    return (*errors, BotoCoreError, ClientError)


def is_missing_bucket(error: BaseException) -> bool:
    """Return True for a library's error about a missing bucket."""
    return _code(error) in _NO_BUCKET


def _code(error: BaseException) -> str | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code"))
    match = _CODE.search(str(error))
    return next((g for g in match.groups() if g), None) if match else None


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    match = _STATUS.search(str(error))
    return int(next(g for g in match.groups() if g)) if match else None


def _reason(error: BaseException) -> _Reason:
    name, code, status = type(error).__name__, _code(error), _status(error)
    if isinstance(error, ObjectChangedError) or name == "PreconditionError" or code == "PreconditionFailed":
        return _Reason(
            "the object was changed while it was read", "Another program is writing to the object; try again."
        )
    if code in _NO_BUCKET:
        return _Reason("there is no such bucket", "Check the bucket's name, and the endpoint.")
    if name in ("PermissionDeniedError", "UnauthenticatedError") or status in (401, 403):
        return _Reason(f"access denied ({code or status or 'no valid credentials'})", _DENIED)
    if name in ("NoCredentialsError", "NoCredentials") or "get_credentials" in str(error):
        return _Reason("no credentials were found", _DENIED)
    if status == 301 or code in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
        return _Reason("the bucket is in another region", "Name it with AWS_REGION.")
    if status is not None or code is not None:
        passing = status is None or status >= 500 or status in (408, 429) or code == "SlowDown"
        what = f"the store answered {' '.join(dict.fromkeys(str(w) for w in (status, code) if w))}"
        return _Reason(what, _TRY_AGAIN if passing else "See the documentation of the object store.", passing)
    bad_key = _BAD_KEY.search(str(error))
    if bad_key:
        return _Reason(
            f"it cannot be listed: the key {bad_key[1]!r} has an empty or relative part, or a control character",
            "Rename or remove that object.",
        )
    return _Reason(f"the store cannot be used: {_first_line(error)}", _TRY_AGAIN, transient=True)


def _first_line(error: BaseException) -> str:
    """Return the first line of a library's error without an answer, unless it holds a secret."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    if _SECRET.search(line):
        return "the credentials or settings in the environment are not valid"
    return _ADDRESS.sub("…", line)[:300]


CONNECT_SECONDS: Final = 10
REQUEST_SECONDS: Final = 120

_SETTINGS: Final = ("AWS_", "AZURE_", "GOOGLE_", "HF_")


def settings() -> tuple[tuple[str, str], ...]:
    """The current environment variables with credentials and servers."""
    return tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith(_SETTINGS)))


def is_unsigned() -> bool:
    """Return True if S3 requests have no credentials, as for public buckets."""
    return os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true")


_clients: dict[tuple[int, tuple[tuple[str, str], ...]], Any] = {}


def s3_client() -> Any:
    """The S3 client, one in this process for each state of the environment. Threads may share it."""
    key = (os.getpid(), settings())
    if key not in _clients:
        _clients[key] = _new_client()
    return _clients[key]


def _new_client() -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": 6, "mode": "standard"},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=REQUEST_SECONDS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version=UNSIGNED if is_unsigned() else None,
    )
    return boto3.Session().client("s3", config=config, region_name=os.environ.get("AWS_REGION"))


_LANCE_PATIENCE: Final = {
    "client_max_retries": "5",
    "client_retry_timeout": "60",
    "connect_timeout": f"{CONNECT_SECONDS}s",
    "timeout": f"{REQUEST_SECONDS}s",
}
_LANCE_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def storage_options(url: ObjectUrl) -> dict[str, str]:
    """Lance's settings for the bucket of ``url``, from the same sources as in :func:`bucket_of`.

    Raises ``UsageError`` for an HTTP server, which cannot have tables.

    For S3 they hold the current credentials, which may expire: call this again for each table to open. For other stores
    they hold none, and Lance reads the environment itself.
    """
    if url.scheme in HTTP:
        raise UsageError(
            f"{url.scheme}:// cannot hold tables", path=str(url), hint="Give a local path, or an object store."
        )
    if EXTRAS[url.scheme] != "s3":
        return dict(_LANCE_PATIENCE)
    options = dict(_LANCE_PATIENCE)
    endpoint = next((os.environ[name] for name in _LANCE_ENDPOINTS if os.environ.get(name)), None)
    if endpoint is not None:
        options |= {"aws_endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    if is_unsigned():
        return {**options, "aws_skip_signature": "true"}
    return {**options, **_credentials()}


def _credentials() -> dict[str, str]:
    import boto3

    session = boto3.Session()
    region = os.environ.get("AWS_REGION") or session.region_name
    options = {"aws_region": region} if region else {}
    credentials = session.get_credentials()
    if credentials is not None:
        frozen = credentials.get_frozen_credentials()
        options |= {"aws_access_key_id": frozen.access_key, "aws_secret_access_key": frozen.secret_key}
        if frozen.token:
            options["aws_session_token"] = frozen.token
    return options


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as its store describes it: its URL, its size in bytes, and a version that changes with its content.

    ``modified_ns``: the time of its last change, in ns since 1970; most stores report whole seconds.
    """

    url: ObjectUrl
    size: int
    version: str | None
    modified_ns: int

    @classmethod
    def of(cls, url: ObjectUrl, meta: Mapping[str, Any]) -> ObjectInfo:
        """The object ``url``, as the store's library describes it."""
        return cls(url, meta["size"], meta["e_tag"], _since_epoch(meta["last_modified"]))

    @classmethod
    def listed(cls, url: ObjectUrl, meta: Mapping[str, Any]) -> ObjectInfo:
        """The object ``url`` as a listing describes it, which its URL remembers."""
        info = cls.of(url, meta)
        return replace(info, url=replace(url, listed=(info.size, info.modified_ns)))


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
    "{url!r} cannot be read, and is skipped: its key has an empty or relative part, or a control character; rename it"
)


class Bucket:
    """A bucket, reached with the credentials of the environment.

    A request with a transient failure is repeated, up to five times within a minute. After that, and for other
    failures, :class:`ReadError` or :class:`WriteError` names the URL.
    """

    def __init__(self, url: ObjectUrl) -> None:
        self.url = url
        self._is_there = False
        _used[:] = [True]
        self._library = _import("obstore", url)
        with reading_object(url.root):
            self._opened = _open_s3(url) if EXTRAS[url.scheme] == "s3" else _open_other(url)

    @property
    def _store(self) -> Any:
        """The library's store. In a forked process it would wait forever for threads that only the parent has."""
        if _forked:
            raise UsageError(
                "object stores cannot be used in a forked process whose parent used them",
                path=str(self.url),
                hint="Start processes with multiprocessing's method 'spawn'.",
            )
        return self._opened

    def head(self, key: str) -> ObjectInfo:
        """Return size and version of an object. Raises ``SourceMissingError`` without such an object or bucket."""
        info = self.find(key)
        if info is None:
            raise SourceMissingError("there is no such object", path=str(self._url(key)), hint="Check the URL.")
        return info

    def find(self, key: str) -> ObjectInfo | None:
        """Return size and version of an object, or None. Raises ``SourceMissingError`` without a bucket."""
        url = self._url(key)
        with reading_object(str(url)):
            try:
                info = ObjectInfo.of(url, self._library.head(self._store, key))
            except FileNotFoundError:
                self._check_there()
                return None
        self._is_there = True
        return info

    def _check_there(self) -> None:
        """Raise the library's error for a missing bucket. A bucket known to exist is not checked again.

        The answer to a HEAD has no body, so a missing bucket looks like a missing object.
        """
        if self._is_there:
            return
        try:
            next(iter(self._library.list(self._store)), None)
        except Exception as error:
            if is_missing_bucket(error):
                raise
        self._is_there = True  # or listing is forbidden

    def exists(self, key: str) -> bool:
        """Return True if there is such an object."""
        return self.find(key) is not None

    def read(self, key: str, start: int, stop: int, version: str | None) -> memoryview:
        """The bytes ``start`` to ``stop`` of an object, fewer if it ends earlier.

        Raises ``ReadError`` if the object does not have ``version``, unless that is None.
        """
        options: dict[str, Any] = {"range": (start, stop)}
        if version:
            options["if_match"] = version
        with reading_object(str(self._url(key)), start):
            return memoryview(self._library.get(self._store, key, options=options).bytes())

    def get(self, key: str) -> bytes:
        """Read a small object as a whole."""
        with reading_object(str(self._url(key))):
            return bytes(self._library.get(self._store, key).bytes())

    def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        """Write a whole object; it appears, or replaces an older one, in one step."""
        with writing_object(str(self._url(key))):
            self._library.put(self._store, key, data, use_multipart=False)

    def create(self, key: str, data: bytes) -> bool:
        """Write a whole object; return False if the name has other content already.

        (After a lost answer, the request is sent again, and finds the object that it wrote.)
        """
        with writing_object(str(self._url(key))):
            try:
                self._library.put(self._store, key, data, mode="create", use_multipart=False)
            except (FileExistsError, self._library.exceptions.AlreadyExistsError):
                return self.get(key) == data
        return True

    def list(self, prefix: str, odd: Callable[[ObjectUrl, str], None] | None = None) -> Iterator[ObjectInfo]:
        """All objects below the folder ``prefix``, in the order of their keys.

        In S3, objects whose keys no request can name (:func:`is_usable_key`) are omitted: ``odd`` gets each with a
        message, by default to issue a :class:`ReadWarning`. In other stores, such a key ends the listing with
        ``ReadError``.
        """
        last, since = "", set[str]()
        with reading_object(str(self._url(prefix))):
            try:
                for batch in self._library.list(self._store, prefix or None):
                    for meta in batch:
                        info = ObjectInfo.listed(self._url(meta["path"]), meta)
                        # The key of an empty object may have ended with a slash, which the library omits.
                        if info.size:
                            last = info.url.key
                            since.clear()
                        else:
                            since.add(info.url.key)
                        yield info
            except self._library.exceptions.InvalidPathError:
                if EXTRAS[self.url.scheme] != "s3":
                    raise
            else:
                return
            for info in _list_s3(self._url(prefix), last):
                if not is_usable_key(info.url.key):
                    (odd or _warn)(info.url, _ODD.format(url=str(info.url)))
                elif info.url.key not in since:
                    yield info

    def copy(self, source: str, target: str) -> None:
        """Copy an object if the name ``target`` is free; the store may still be copying afterwards."""
        with writing_object(str(self._url(target))):
            self._library.copy(self._store, source, target, overwrite=False)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are ignored."""
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


_used: list[bool] = []
_forked: list[bool] = []


def _note_fork() -> None:
    _forked.extend(_used)


os.register_at_fork(after_in_child=_note_fork)


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
        # An endpoint without TLS is a deliberate choice.
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
            hint=extra_command(extra),
        ) from error


def _list_s3(folder: ObjectUrl, after: str = "") -> Iterator[ObjectInfo]:
    """The objects below ``folder`` with keys after ``after``, in key order, including unusable keys.

    Empty objects whose keys end with a slash stand for folders, and are omitted. Raises the errors of ``botocore``.
    """
    pages = s3_client().get_paginator("list_objects_v2")
    below = f"{folder.key}/" if folder.key else ""
    start = {"StartAfter": after} if after else {}
    for page in pages.paginate(Bucket=folder.bucket, Prefix=below, **start):
        for entry in page.get("Contents", ()):
            if entry["Size"] or not entry["Key"].endswith("/"):
                url = ObjectUrl(folder.scheme, folder.bucket, entry["Key"])
                yield ObjectInfo(url, entry["Size"], entry["ETag"], _since_epoch(entry["LastModified"]))
