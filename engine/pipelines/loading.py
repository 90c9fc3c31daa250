"""From what a user names to a pipeline."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from ..errors import UsageError
from ..locations import located
from ..objects import ObjectUrl
from ..stream import LazyChunkStream
from .pipeline import Pipeline
from .python_file import load_file

_DEFAULT_NAME = "pipeline"
_MOST_NAMES = 5


def load_pipeline(
    location: str | os.PathLike[str] | Callable[[LazyChunkStream], LazyChunkStream] | Pipeline,
) -> Pipeline:
    """The pipeline that ``location`` names: ``"FILE.py"``, ``"FILE.py:NAME"``, or a function itself.

    Of a file, the function ``pipeline`` is taken unless another is named. The file is run, here and once, each time
    this is called. What it imports from its own folder, at its top, and what it defines travels to Spark's workers
    with its code; what is installed is imported there, and must be installed there too.

    Raises
    ------
    UsageError
        There is no such file, it has no such function, or that cannot be called with one stream.
    PipelineError
        Running the file fails; the message has the line of the user's own code.

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
                f"a pipeline is a file or a function, and this is a {type(location).__name__!r} object",
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
        raise UsageError("this is no file", path=str(path), hint="Name the Python file that defines the pipeline.")
    return path, name


def _function(module: ModuleType, path: Path, name: str) -> Callable[[LazyChunkStream], LazyChunkStream]:
    found = getattr(module, name, None)
    if callable(found):
        function: Callable[[LazyChunkStream], LazyChunkStream] = found
        return function
    if found is not None:
        raise UsageError(f"{name!r} is no function, but a {type(found).__name__!r} object", path=str(path))
    others = [
        n
        for n, value in vars(module).items()
        if not n.startswith("_") and inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    named = ", ".join(others[:_MOST_NAMES]) + (" …" if len(others) > _MOST_NAMES else "")
    hint = "Define `def pipeline(stream): ...` in it"
    hint += f", or name one of its functions ({named}) as FILE.py:NAME." if others else "."
    raise UsageError(f"the file defines no function {name!r}", path=str(path), hint=hint)
