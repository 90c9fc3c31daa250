"""Pipelines: functions from a stream to a stream, with their origin.

A Python file becomes a module of its own, and its code can be sent to workers that do not have the file.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from .errors import PipelineError, ReadError, SessionError, UsageError, WriteError
from .execution import check_travels, send_by_value
from .locations import located
from .storage import ObjectUrl
from .stream import LazyChunkStream, OperatorNode, nodes_of, sink_of

_NOT_ITS_OWN = (ReadError, WriteError, SessionError, MemoryError)
"""Errors of data and machine: the pipeline's function that was running did not cause them."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A function that takes the stream of a recording and returns the stream to write; see :func:`load_pipeline`.

    ``name`` is the name of the function, ``location`` the file that defines it (None if unknown), and ``function`` the
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
        """Make a pipeline from a function. Raises ``UsageError`` if it cannot be called with one stream."""
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        code = getattr(inspect.unwrap(function), "__code__", None)
        file = None if code is None else Path(code.co_filename)
        made = cls(name, file if file is not None and file.is_file() else None, function)
        made.check_signature()
        return made

    def check_signature(self) -> None:
        """Raise ``UsageError`` if the function cannot be called with one stream."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return  # written in C, or not a plain function: calling it will show
        try:
            signature.bind(None)
        except TypeError as error:
            raise UsageError(
                f"{self.name}{signature} cannot be called with one stream: {error}",
                path=self._path,
                hint="A pipeline takes one argument, the stream of a recording, and returns a stream.",
            ) from None

    def apply(self, stream: LazyChunkStream) -> LazyChunkStream:
        """Apply the function to ``stream``, which is consumed. Runs on the driver; reads nothing.

        Raises ``PipelineError``, with the line in the user's code, if the function raises, or returns anything other
        than a stream that is ready to run.
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
                hint="End the function with `return stream`.",
            )
        try:
            sink_of(given)
        except ValueError:
            raise PipelineError(
                f"{self.name} returned a stream that another operation has already consumed",
                path=self._path,
                hint="filter, map and other methods return a new stream; return the last one (`stream = "
                "stream.filter(...)`).",
            ) from None
        return given

    def check_travels(self, stream: LazyChunkStream) -> None:
        """Check that the functions in a stream of this pipeline can be sent to Spark's workers.

        Raises ``PipelineError`` for the first function that cannot.
        """
        for node in nodes_of(sink_of(stream)):
            if isinstance(node, OperatorNode):
                try:
                    check_travels(node.operator, node.operator.describe())
                except PipelineError as error:
                    error.path = error.path or self._path
                    raise

    def explained(self, error: Exception) -> Exception:
        """If an error of a run came from this pipeline's code, return it as a ``PipelineError`` with file and line.

        Other errors are returned unchanged.
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
    """An error in one line: its class and its message.

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
    """The code that belongs to a pipeline: one file; with ``siblings``, also every file below its folder."""

    def __init__(self, file: Path, *, siblings: bool) -> None:
        self._file = file
        self._folder = file.parent if siblings else None

    def place_in(self, error: BaseException) -> CodeLine | None:
        """Return the innermost line of this code in the traceback of ``error``, or None.

        An error from a task has its traceback as text, in a note.
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
    """The lines in the traceback of an error, the innermost last; before them, those of its cause."""
    if error.__cause__ is not None:
        yield from _passed(error.__cause__)
    for frame in traceback.extract_tb(error.__traceback__):
        yield CodeLine(frame.filename, frame.lineno or 1)
    for note in getattr(error, "__notes__", ()):
        for match in _FRAME.finditer(note):
            yield CodeLine(match["file"], int(match["line"]))


_DEFAULT_NAME = "pipeline"
_MOST_NAMES = 5


def load_pipeline(
    location: str | os.PathLike[str] | Callable[[LazyChunkStream], LazyChunkStream] | Pipeline,
) -> Pipeline:
    """Load a pipeline from ``location``: ``"FILE.py"``, ``"FILE.py:NAME"``, or a function.

    The default name is ``pipeline``. Each call runs the file once, in this process. Spark's workers get its
    definitions, and the modules of its folder that it imports at the top level. Installed packages are not sent;
    install them on the workers too.

    Raises
    ------
    UsageError
        There is no such file, it has no such function, or the function cannot be called with one stream.
    PipelineError
        Running the file fails. The message names the line in the user's code.

    Examples
    --------
    >>> pipeline = load_pipeline(lambda stream: stream.filter(content="/imu/**"))
    >>> print(pipeline.apply(LazyChunkStream.from_iter([])).explain(executor="inline").splitlines()[3].strip())
    filter(content='/imu/**')
    """
    if isinstance(location, Pipeline):
        return location
    if not isinstance(location, (str, os.PathLike)):
        if not callable(location):
            raise UsageError(
                f"a pipeline is a file or a function, not a {type(location).__name__!r} object",
            )
        return Pipeline.of(location)
    path, name = _path_and_name(location)
    module = load_file(path)
    made = Pipeline(name, path, _function(module, path, name), from_file=True)
    made.check_signature()
    return made


def _path_and_name(location: str | os.PathLike[str]) -> tuple[Path, str]:
    text = os.fspath(location)
    name = _DEFAULT_NAME
    if not (isinstance(location, str) and Path(text).exists()):
        before, colon, after = text.rpartition(":")
        if colon and before and after.isidentifier():
            text, name = before, after
    place = located(text)
    if isinstance(place, ObjectUrl):
        raise UsageError("a pipeline is a local file", path=text, hint="Copy it here first.")
    path = Path(os.path.normpath(place))
    if not path.exists():
        raise UsageError("there is no such file", path=str(path), hint="Check the spelling of the path.")
    if not path.is_file():
        raise UsageError("this is not a file", path=str(path), hint="Give the Python file that defines the pipeline.")
    return path, name


def _function(module: ModuleType, path: Path, name: str) -> Callable[[LazyChunkStream], LazyChunkStream]:
    member = getattr(module, name, None)
    if callable(member):
        function: Callable[[LazyChunkStream], LazyChunkStream] = member
        return function
    if member is not None:
        raise UsageError(f"{name!r} is not a function but a {type(member).__name__!r} object", path=str(path))
    others = [
        n
        for n, value in vars(module).items()
        if not n.startswith("_") and inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    named = ", ".join(others[:_MOST_NAMES]) + (" …" if len(others) > _MOST_NAMES else "")
    hint = "Define `def pipeline(stream): ...` in it"
    hint += f", or give one of its functions ({named}) as FILE.py:NAME." if others else "."
    raise UsageError(f"the file defines no function {name!r}", path=str(path), hint=hint)


_numbers = itertools.count(1)


class _SourceLoader(SourceFileLoader):
    """Compiles the current text of the file: recent bytecode may be that of an older text."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def load_file(path: Path) -> ModuleType:
    """Run the file at the absolute ``path``, and return its module, under a unique name.

    While it runs, its folder is first on ``sys.path``, as for a script. Modules that it imports from there become its
    own: another pipeline, or this one loaded again, imports them anew. Functions and classes of these modules are sent
    to workers with their code.

    Raises ``PipelineError``, with the user's own line, if running it fails.
    """
    name = f"chunkmill_pipeline_{next(_numbers)}_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}"
    loader = _SourceLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _folder_first(path.parent):
            _look_at_imports(path)
            loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, PipelineError):
            raise
        raise _load_error(path, error) from error
    send_by_value(module)
    return module


def _load_error(path: Path, error: BaseException) -> PipelineError:
    place = OwnCode(path, siblings=True).place_in(error)
    said = error.msg if isinstance(error, SyntaxError) else describe_error(error)
    if isinstance(error, SyntaxError):
        said = f"{type(error).__name__}: {said}"
    hint = None
    if isinstance(error, ModuleNotFoundError):
        hint = f"Install {error.name}, or put it next to the file."
    elif isinstance(error, ImportError) and "relative import" in str(error):
        hint = "A pipeline file is not part of a package: import modules in its folder by their name, without dots."
    if place is None:
        return PipelineError(f"the file cannot be loaded: {said}", path=str(path), hint=hint)
    return PipelineError(f"line {place.line}: the pipeline cannot be loaded: {said}", path=place.file, hint=hint)


@contextmanager
def _folder_first(folder: Path) -> Iterator[None]:
    """Import from ``folder`` first; afterwards, remove modules imported from it from ``sys.modules``."""
    before = dict(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        new = {n.partition(".")[0] for n in sys.modules if n not in before}
        siblings = {name for name in new if _lies_in(sys.modules.get(name), folder)}
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        for name in [n for n in sys.modules if n not in before and n.partition(".")[0] in siblings]:
            del sys.modules[name]


def _lies_in(module: ModuleType | None, folder: Path) -> bool:
    """Return whether a top-level module is a file, or a folder, directly in ``folder``."""
    if module is None or module.__name__ == "chunkmill":
        return False
    places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None) or ""]
    return any(Path(place).parent == folder for place in places if place)


def _look_at_imports(path: Path) -> None:
    """Check imported modules that are loaded already: Python uses these instead of modules next to the file.

    A loaded module of the file's folder is sent by value, like the others; one from elsewhere is refused.
    """
    tree = ast.parse(path.read_bytes(), str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        else:
            continue
        for name in {n.partition(".")[0] for n in names}:
            loaded = sys.modules.get(name)
            if loaded is None:
                continue
            if _lies_in(loaded, path.parent):
                send_by_value(loaded)
            elif (path.parent / f"{name}.py").is_file() or (path.parent / name / "__init__.py").is_file():
                raise PipelineError(
                    f"line {node.lineno}: the module {name!r} next to the file cannot be imported, because another "
                    f"module has this name ({getattr(loaded, '__file__', None) or 'built in'})",
                    path=str(path),
                    hint="Rename the module next to the file.",
                )
