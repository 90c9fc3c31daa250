"""A pipeline: a function from a stream to a stream, with what is known of where it comes from."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import (
    PipelineError,
    ReadError,
    SessionError,
    UsageError,
    WriteError,
)
from ..execution import check_travels
from ..stream import LazyChunkStream, OperatorNode, nodes_of, sink_of

_NOT_ITS_OWN = (ReadError, WriteError, SessionError, MemoryError)
"""Errors of data and machine: a function of the pipeline that was being called is not to blame for them."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A function that takes the stream of a recording and gives the stream to write; see :func:`load_pipeline`.

    ``name`` is the function's, ``location`` the file that defines it (None where that is not known), ``function`` the
    function itself.

    >>> Pipeline.of(lambda stream: stream.drop(content="/camera/**")).name
    '<lambda>'
    """

    name: str
    location: Path | None
    function: Callable[[LazyChunkStream], LazyChunkStream]
    from_file: bool = False

    def __str__(self) -> str:
        return self.name if self.location is None else f"{self.location}:{self.name}"

    @classmethod
    def of(cls, function: Callable[[LazyChunkStream], LazyChunkStream]) -> Pipeline:
        """A pipeline of a function object. Raises ``UsageError`` where it cannot be called with one stream."""
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        code = getattr(inspect.unwrap(function), "__code__", None)
        file = None if code is None else Path(code.co_filename)
        made = cls(name, file if file is not None and file.is_file() else None, function)
        made.check_signature()
        return made

    def check_signature(self) -> None:
        """Raise ``UsageError`` where the function cannot be called with one stream."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return  # written in C, or not a plain function: calling it will tell
        try:
            signature.bind(None)
        except TypeError as error:
            raise UsageError(
                f"{self.name}{signature} cannot be called with one stream: {error}",
                path=self._path,
                hint="A pipeline takes one argument, the stream of a recording, and returns a stream.",
            ) from None

    def apply(self, stream: LazyChunkStream) -> LazyChunkStream:
        """The stream that the function makes of ``stream``, which is used up. Runs on the driver; reads nothing.

        Raises ``PipelineError``, with the line of the user's own code, where the function raises, or gives something
        else than a stream that is ready to run.
        """
        try:
            given: Any = self.function(stream)
        except Exception as error:
            raise self._failure(error, f"{self.name} raised {describe_error(error)}") from error
        if inspect.iscoroutine(given):
            given.close()
        if not isinstance(given, LazyChunkStream):
            raise PipelineError(
                f"{self.name} returned {'nothing' if given is None else f'a {type(given).__name__!r} object'}, "
                "and a LazyChunkStream was expected",
                path=self._path,
                hint="End the function with a return of the stream that it made.",
            )
        try:
            sink_of(given)
        except ValueError:
            raise PipelineError(
                f"{self.name} returned a stream that another operation had used up already",
                path=self._path,
                hint="filter, map and the others give a new stream: return the last one "
                "(`stream = stream.filter(...)`).",
            ) from None
        return given

    def check_travels(self, stream: LazyChunkStream) -> None:
        """Whether the functions of a stream that this pipeline made can be sent to Spark's workers.

        Raises ``PipelineError`` for the first that cannot.
        """
        for node in nodes_of(sink_of(stream)):
            if isinstance(node, OperatorNode):
                try:
                    check_travels(node.operator, node.operator.describe())
                except PipelineError as error:
                    error.path = error.path or self._path
                    raise

    def explained(self, error: Exception) -> Exception:
        """Explain an error of a run: as a ``PipelineError`` with file and line where it came from this pipeline's code.

        Any other is given back as it is.
        """
        code = self._code
        if code is None or isinstance(error, _NOT_ITS_OWN) or code.place_in(error) is None:
            return error
        failure = self._failure(error, describe_error(error))
        failure.__cause__ = error
        return failure

    def _failure(self, error: Exception, said: str) -> PipelineError:
        place = self._code.place_in(error) if self._code is not None else None
        if place is None:
            return PipelineError(said, path=self._path)
        return PipelineError(f"line {place.line}: {said}", path=place.file)

    @property
    def _code(self) -> OwnCode | None:
        return None if self.location is None else OwnCode(self.location, siblings=self.from_file)

    @property
    def _path(self) -> str | None:
        return None if self.location is None else str(self.location)


def describe_error(error: BaseException) -> str:
    """An error in one line: its class and what it says.

    >>> describe_error(KeyError("speed")), describe_error(ValueError())
    ("KeyError: 'speed'", 'ValueError')
    """
    if type(error) is PipelineError:
        return error.message
    name, said = type(error).__qualname__, " ".join(str(error).split())
    return f"{name}: {said}" if said else name


_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+)', re.MULTILINE)
_NOT_THEIRS = {"site-packages", "dist-packages"}


class CodeLine(NamedTuple):
    """A line of a file; lines count from 1."""

    file: str
    line: int


class OwnCode:
    """The code that belongs to a pipeline: one file, or with ``siblings`` every file below its folder too."""

    def __init__(self, file: Path, *, siblings: bool) -> None:
        self._file = file
        self._folder = file.parent if siblings else None

    def place_in(self, error: BaseException) -> CodeLine | None:
        """The innermost line of this code that ``error`` passed; None where it passed none.

        An error that comes from a task has its traceback as text, in a note.
        """
        if isinstance(error, SyntaxError) and error.filename is not None and self._is_own(error.filename):
            return CodeLine(error.filename, error.lineno or 1)
        own = [place for place in _passed(error) if self._is_own(place.file)]
        return own[-1] if own else None

    def _is_own(self, name: str) -> bool:
        path = Path(name)
        if path == self._file:
            return True
        if self._folder is None or not path.is_relative_to(self._folder):
            return False
        return _NOT_THEIRS.isdisjoint(path.parts) and not path.is_relative_to(_CHUNKMILL)


_CHUNKMILL = Path(__file__).resolve().parent.parent
"""The folder of the engine: code below it is never the user's."""


def _passed(error: BaseException) -> Iterator[CodeLine]:
    """The places that an error passed, the innermost last; before them, those of what caused it."""
    if error.__cause__ is not None:
        yield from _passed(error.__cause__)
    for frame in traceback.extract_tb(error.__traceback__):
        yield CodeLine(frame.filename, frame.lineno or 1)
    for note in getattr(error, "__notes__", ()):
        for found in _FRAME.finditer(note):
            yield CodeLine(found["file"], int(found["line"]))
