"""The tree of errors.

::

    ChunkmillError
    ├── ReadError            a file is not what it claims to be          (RuntimeError)
    │   ├── UnreachableError   a catalog's place cannot be read            (ConnectionError)
    │   ├── UnsupportedError   a version or encoding that chunkmill does not read
    │   ├── ForeignFileError   a table names files outside its folder
    │   ├── FaultyDataError    the times or values of a recording are wrong
    │   └── SourceMissingError the path does not exist                   (FileNotFoundError, ValueError)
    ├── WriteError           the destination cannot be written           (RuntimeError)
    │   ├── NoSpaceError       the disk (or quota) is full
    │   ├── UnfitRowsError     rows do not fit the columns of their table   (ValueError)
    │   └── CommitUnknownError it is unknown whether a commit succeeded
    ├── SameRecordingError   two files hold recordings of one id         (ValueError)
    ├── SchemaConflictError  a column has another type elsewhere         (ValueError)
    ├── AlreadyExistsError   a name in a catalog is taken, or a layer exists
    ├── NotFoundError        there is no such catalog entry or segment   (LookupError)
    ├── RegistrationError    some files were not registered              (ValueError)
    ├── PipelineError        a function given to the pipeline failed     (RuntimeError)
    │   ├── FunctionResultError  a column's function gave an unfit value (ValueError)
    │   ├── SkipThresholdExceededError more rows were skipped than the policy allows
    │   └── JobFailedError       a job on a table's columns failed
    ├── SelectorError        a selector does not fit the data            (RuntimeError, ValueError)
    ├── LensError            a lens cannot be applied to a chunk         (RuntimeError, ValueError)
    ├── UsageError           the call or the command line is wrong       (ValueError)
    │   ├── SelectorSyntaxError  a query cannot be parsed
    │   ├── PinnedViewError      a view cannot move to another version of its source (RuntimeError)
    │   ├── UnsupportedCallError these arguments are not supported        (NotImplementedError)
    │   └── MissingExtraError    a package of an extra is not installed   (ImportError)
    └── SessionError         Spark was lost, or a stage of it failed     (RuntimeError)
        ├── ResourcesUnavailableError the session lacks resources for a function
        └── SessionStartError  Spark could not be started

Each error has ``path``, ``offset`` (bytes from the start of the file), ``hint`` (what to do), and two stable names:
``code`` in data, and ``number`` in text. Errors pickle, and survive Spark's JVM as the JSON of
:meth:`ChunkmillError.to_dict`.
"""

from __future__ import annotations

import errno
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

_NUMBER: Final = re.compile(r"\bCM[0-6]\d\d: ")


class ChunkmillError(Exception):
    """Base class of the errors of chunkmill.

    Parameters
    ----------
    message
        One sentence that describes the error.
    path
        The file or URL with the error.
    offset
        Byte offset in that file, when known.
    hint
        What the user can do about it.
    transient
        Whether the same call may succeed if it is repeated.
    """

    code: ClassVar[str] = "chunkmill.error"
    number: ClassVar[str] = "CM001"
    """The code at the start of ``str(error)``, listed on the page "Error codes". It never changes."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
        transient: bool = False,
    ) -> None:
        message = _NUMBER.sub("", message)  # the number of an error whose text is part of this one
        super().__init__(message)
        self.message = message
        self.path = path
        self.offset = offset
        self.hint = hint
        self.transient = transient

    def __str__(self) -> str:
        return f"{self.number}: {self._text()}"

    def _text(self) -> str:
        where = f"{self.path}: " if self.path is not None else ""
        at = f" (at byte {self.offset:,})" if self.offset is not None else ""
        then = f" {self.hint}" if self.hint else ""
        return (
            f"{where}{self.message}{at}.{then}"
            if self.message[-1:] not in ".?!"
            else f"{where}{self.message}{at}{then}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The error as plain JSON data; :func:`error_from_dict` is the inverse."""
        return {
            "code": self.code,
            "number": self.number,
            "message": self.message,
            "path": self.path,
            "offset": self.offset,
            "hint": self.hint,
            "transient": self.transient,
        }


class ReadError(ChunkmillError, RuntimeError):
    """A source has bytes that are invalid in its format."""

    code = "chunkmill.read"
    number = "CM101"


class UnreachableError(ReadError, ConnectionError):
    """The place of a catalog cannot be read."""

    code = "chunkmill.unreachable"
    number = "CM102"


class UnsupportedError(ReadError):
    """A version, encoding or compression that this release does not read."""

    code = "chunkmill.unsupported"
    number = "CM103"


class ForeignFileError(ReadError):
    """A Lance table names files outside its own folder, in places that are not allowed."""

    code = "chunkmill.foreign_file"
    number = "CM104"


class FaultyDataError(ReadError):
    """The times or values of a recording are wrong, as ``diagnose`` found."""

    code = "chunkmill.faulty_data"
    number = "CM106"


class SourceMissingError(ReadError, FileNotFoundError, ValueError):
    """The source path does not exist or cannot be opened."""

    code = "chunkmill.missing"
    number = "CM105"


class WriteError(ChunkmillError, RuntimeError):
    """The destination cannot be written; it is unchanged."""

    code = "chunkmill.write"
    number = "CM201"


class NoSpaceError(WriteError):
    """The disk, the quota or the file-size limit is exhausted."""

    code = "chunkmill.nospace"
    number = "CM202"


class UnfitRowsError(WriteError, ValueError):
    """Rows have other columns or types than their table, or nulls in columns that allow none; no row was written."""

    code = "chunkmill.unfit_rows"
    number = "CM203"


class CommitUnknownError(WriteError):
    """A commit was interrupted, and it is not known whether it succeeded; nothing was removed."""

    code = "chunkmill.unknown"
    number = "CM204"


class SameRecordingError(ChunkmillError, ValueError):
    """Two files contain recordings with the same id, and no replacement was requested."""

    code = "chunkmill.same-recording"
    number = "CM301"


class RegistrationError(ChunkmillError, ValueError):
    """Some files of a registration did not become layers; the message names each file, and the reason."""

    code = "chunkmill.registration"
    number = "CM305"


class SchemaConflictError(ChunkmillError, ValueError):
    """A column of a recording has a type that conflicts with another recording's."""

    code = "chunkmill.schema-conflict"
    number = "CM302"


class AlreadyExistsError(ChunkmillError):
    """A catalog entry with this name, or a layer of a segment, already exists."""

    code = "chunkmill.exists"
    number = "CM303"


class NotFoundError(ChunkmillError, LookupError):
    """There is no such catalog entry, segment, blueprint or file, or it was deleted."""

    code = "chunkmill.not_found"
    number = "CM304"


class PipelineError(ChunkmillError, RuntimeError):
    """A function of the pipeline raised an exception, or a pipeline file is not valid."""

    code = "chunkmill.pipeline"
    number = "CM401"


class FunctionResultError(PipelineError, ValueError):
    """A function of a computed column gave a value of another type, or did not give one value for each row."""

    code = "chunkmill.function_result"
    number = "CM402"


class SkipThresholdExceededError(PipelineError):
    """More rows of a computed column were skipped than a ``Skip`` of its function allows."""

    code = "chunkmill.skip_threshold"
    number = "CM403"


class JobFailedError(PipelineError):
    """A job on a table's columns failed, because of the error in ``__cause__``."""

    code = "chunkmill.job"
    number = "CM404"


class SelectorError(ChunkmillError, RuntimeError, ValueError):
    """A selector was applied to data that it does not fit; ``reason`` is the message without its first words."""

    code = "chunkmill.selector"
    number = "CM405"

    def __init__(self, reason: str, **context: Any) -> None:
        self.reason = reason.removeprefix(_SELECTOR_FAILED)
        super().__init__(_SELECTOR_FAILED + self.reason, **context)

    def _text(self) -> str:
        return self.message


class LensError(ChunkmillError, RuntimeError, ValueError):
    """A lens could not be applied to a chunk.

    ``entity_path``, ``component`` (the lens's input), ``selector`` (its text) and ``chunk_id`` give the place, if the
    error has a single one.
    """

    code = "chunkmill.lens"
    number = "CM406"

    def __init__(
        self,
        message: str,
        *,
        entity_path: str | None = None,
        component: str | None = None,
        selector: str | None = None,
        chunk_id: str | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message, **context)
        self.entity_path = entity_path
        self.component = component
        self.selector = selector
        self.chunk_id = chunk_id

    def _text(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    def to_dict(self) -> dict[str, Any]:
        """The error as plain JSON data, with its place."""
        place = {
            "entity_path": self.entity_path,
            "component": self.component,
            "selector": self.selector,
            "chunk_id": self.chunk_id,
        }
        return {**super().to_dict(), **place}


class UsageError(ChunkmillError, ValueError):
    """The arguments of a call or a command are invalid."""

    code = "chunkmill.usage"
    number = "CM501"


class SelectorSyntaxError(UsageError):
    """A query that cannot be parsed; the message shows it with a caret under the error.

    ``position`` counts characters from the start of ``query``.
    """

    code = "chunkmill.selector_syntax"
    number = "CM502"

    def __init__(self, reason: str, *, query: str, position: int, **context: Any) -> None:
        super().__init__(reason, **context)
        self.query = query
        self.position = position

    def _text(self) -> str:
        return f"Failed to parse selector: {self.message}\n{_pointed(self.query, self.position)}"

    def to_dict(self) -> dict[str, Any]:
        """The error as plain JSON data, with the query."""
        return {**super().to_dict(), "query": self.query, "position": self.position}


class PinnedViewError(UsageError, RuntimeError):
    """A view cannot move to another version of its source, as rows cannot be identified there."""

    code = "chunkmill.pinned_view"
    number = "CM503"


class UnsupportedCallError(UsageError, NotImplementedError):
    """An existing method, called with arguments that it does not support."""

    code = "chunkmill.unsupported_call"
    number = "CM504"


class MissingExtraError(UsageError, ImportError):
    """A package that comes with an extra is missing; the hint has the command that installs it."""

    code = "chunkmill.extra"
    number = "CM505"


def extra_command(*extras: str) -> str:
    """Return the command that installs extras of chunkmill, which is on no package index.

    >>> extra_command("serve", "s3")
    "pip install '.[serve,s3]' (in the clone of chunkmill)"
    """
    return f"pip install '.[{','.join(extras)}]' (in the clone of chunkmill)"


class SessionError(ChunkmillError, RuntimeError):
    """A Spark session was lost while it ran, or could not fulfil a request."""

    code = "chunkmill.session"
    number = "CM601"


class ResourcesUnavailableError(SessionError):
    """The session has fewer cores or GPUs, or less memory, than a function requests."""

    code = "chunkmill.resources"
    number = "CM602"


class SessionStartError(SessionError):
    """A Spark session could not be started. The cause is Java, Spark, a setting or the master, not an input file."""

    code = "chunkmill.session_start"
    number = "CM603"


def check_argument(name: str, value: object, *kinds: type) -> None:
    """Raise ``TypeError`` if the argument ``name`` is of none of ``kinds``; the message names the first kind.

    >>> check_argument("path", 5, str, type(None))
    Traceback (most recent call last):
    TypeError: argument 'path': 'int' object is not an instance of 'str'
    """
    if not isinstance(value, kinds):
        kind = type(value).__name__
        raise TypeError(f"argument '{name}': '{kind}' object is not an instance of '{kinds[0].__name__}'")


class ReadWarning(UserWarning):
    """Part of a source was skipped, or not read as the source specifies."""


class UnmatchedWarning(ReadWarning):
    """A source has none of the chosen topics or entities."""


_SELECTOR_FAILED = "Selector execution failed: "


def _pointed(query: str, position: int) -> str:
    """The line of ``query`` that holds ``position``, indented, and a caret under the place."""
    start = query.rfind("\n", 0, position) + 1
    end = query.find("\n", position)
    line = query[start : len(query) if end < 0 else end].replace("\t", " ").replace("\r", " ")
    columns = sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in line[: position - start]
    )
    return f"    {line}\n    {' ' * columns}^"


ERRORS: tuple[type[ChunkmillError], ...] = (
    ChunkmillError,
    ReadError,
    UnreachableError,
    UnsupportedError,
    ForeignFileError,
    SourceMissingError,
    FaultyDataError,
    WriteError,
    NoSpaceError,
    UnfitRowsError,
    CommitUnknownError,
    SameRecordingError,
    SchemaConflictError,
    AlreadyExistsError,
    NotFoundError,
    RegistrationError,
    PipelineError,
    FunctionResultError,
    SkipThresholdExceededError,
    JobFailedError,
    SelectorError,
    LensError,
    UsageError,
    SelectorSyntaxError,
    PinnedViewError,
    UnsupportedCallError,
    MissingExtraError,
    SessionError,
    ResourcesUnavailableError,
    SessionStartError,
)
"""Every class of the tree, each with its own ``code``, without classes that users derive."""

_BY_CODE: dict[str, type[ChunkmillError]] = {leaf.code: leaf for leaf in ERRORS}


def error_from_dict(data: dict[str, Any]) -> ChunkmillError:
    """Rebuild an error from :meth:`ChunkmillError.to_dict`; an unknown code gives the base class."""
    return _rebuild(_BY_CODE.get(data["code"], ChunkmillError), data)


def _rebuild(leaf: type[ChunkmillError], data: dict[str, Any]) -> ChunkmillError:
    names = {"path", "offset", "hint", "transient"}
    if leaf is not ChunkmillError:
        names = data.keys() - {"code", "number", "message"}
    return leaf(data["message"], **{key: data[key] for key in names})


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Raise an ``OSError`` of the block as a :class:`NoSpaceError` or :class:`WriteError` that names ``path``."""
    try:
        yield
    except OSError as error:
        raise write_error(error, path) from error


def is_full(error: OSError) -> bool:
    """Return True if the disk is full, or a quota or the limit on file sizes is reached."""
    return error.errno in _FULL


def write_error(error: OSError, path: str) -> WriteError:
    """The error to raise when writing for ``path`` failed with ``error``."""
    reason = error.strerror or str(error)
    if is_full(error):
        return NoSpaceError(
            f"cannot be written: {reason}",
            path=path,
            hint="No incomplete file was left. Free some space or choose another destination, and run it again.",
        )
    return WriteError(
        f"cannot be written: {reason} (os error {error.errno})",
        path=path,
        hint="No incomplete file was left. Check that the folder exists and is writable.",
    )
