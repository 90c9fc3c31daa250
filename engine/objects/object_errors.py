"""Errors of object stores, turned into the project's own: with the URL, without anything secret.

What a store answers may repeat access keys and signatures, so none of it is quoted but the name of its error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final, NamedTuple

from ..errors import ChunkmillError, ReadError, SourceMissingError, WriteError

_CODE = re.compile(r"<Code>(\w+)</Code>|error \((\w+)\)|x-ms-error-code: (\w+)")
_STATUS = re.compile(r"status code: (\d{3})|HTTPStatusCode[^0-9]{1,4}(\d{3})")
_SECRET = re.compile(r"key|token|secret|signature|credential", re.IGNORECASE)
_BAD_KEY = re.compile(r'invalid path: (?:Error parsing )?Path "(.*?)"(?: contained|:)', re.DOTALL)
_ADDRESS = re.compile(r"\w+://\S+")

_DENIED: Final = "Check the credentials (environment, profile or role) and what they may do in this bucket."
_TRY_AGAIN: Final = "The store or the way to it is disturbed; run it again."
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
_NOTHING_LEFT: Final = "Nothing was left there."


class ObjectChangedError(Exception):
    """An object is not the one that was looked at before."""


class _Reason(NamedTuple):
    text: str
    hint: str
    transient: bool = False


@contextmanager
def reading_object(url: str, offset: int | None = None) -> Iterator[None]:
    """Raise what a store's library raises from within as :class:`ReadError` that names ``url``."""
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
    """Raise what a store's library raises from within as :class:`WriteError` that names ``url``."""
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
    """Whether a store's library says that there is no such bucket."""
    return _code(error) in _NO_BUCKET


def _code(error: BaseException) -> str | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code"))
    found = _CODE.search(str(error))
    return next((g for g in found.groups() if g), None) if found else None


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    found = _STATUS.search(str(error))
    return int(next(g for g in found.groups() if g)) if found else None


def _reason(error: BaseException) -> _Reason:
    name, code, status = type(error).__name__, _code(error), _status(error)
    if isinstance(error, ObjectChangedError) or name == "PreconditionError" or code == "PreconditionFailed":
        return _Reason("the object was changed while it was read", "Another program writes to it; run it again.")
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
        return _Reason(what, _TRY_AGAIN if passing else "See what the store's documentation says of it.", passing)
    bad_key = _BAD_KEY.search(str(error))
    if bad_key:
        return _Reason(
            f"it cannot be listed: the key {bad_key[1]!r} has an empty or relative part, or a control character",
            "Rename or remove that object.",
        )
    return _Reason(f"the store cannot be used: {_first_line(error)}", _TRY_AGAIN, transient=True)


def _first_line(error: BaseException) -> str:
    """The first line of what a library says that never got an answer, unless that is about something secret."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    if _SECRET.search(line):
        return "the credentials or settings in the environment are not valid"
    return _ADDRESS.sub("…", line)[:300]
