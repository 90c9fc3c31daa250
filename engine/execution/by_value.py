"""Code that travels to tasks whole: the code of modules that workers cannot import."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType
from typing import Any

from ..errors import PipelineError

_TRAVELS = (
    "What a function refers to travels with it. Make such a thing inside the function, where it is used, or run in "
    'this process, with executor="inline".'
)
_GOES_ROUND = (
    "Modules that refer to each other in a circle cannot travel: in a package beside the pipeline's file, write "
    "`from .other import name` instead of `import package.other`."
)

_waiting: list[ModuleType] = []


def send_by_value(module: ModuleType) -> None:
    """Let functions and classes of ``module`` be sent to tasks with their code, instead of by name.

    The module has to be in ``sys.modules``. pyspark is not imported for it: see :func:`register_by_value`.
    """
    _waiting.append(module)


def register_by_value() -> None:
    """Tell Spark's serializer of the modules of :func:`send_by_value`; to be called before anything is packed."""
    if not _waiting:
        return
    from pyspark import cloudpickle

    while _waiting:
        module = _waiting.pop()
        if sys.modules.get(module.__name__) is module:  # else it travels by value as it is
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def check_travels(thing: Any, name: str) -> None:
    """Raise ``PipelineError`` where ``thing``, called ``name``, cannot be sent to tasks."""
    register_by_value()
    error = _refusal(thing)
    if error is not None:
        raise _stays(thing, name, error) from error


@contextmanager
def sending(thing: Any) -> Iterator[None]:
    """Say in a ``PipelineError`` what is to blame where Spark cannot pack ``thing`` in the block."""
    try:
        yield
    except Exception as error:
        refusal = _refusal(thing)
        if refusal is None:
            raise
        raise _stays(thing, "the pipeline", refusal) from error


def _refusal(thing: Any) -> Exception | None:
    """Why ``thing`` cannot be packed; None where it can."""
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 (anything may be raised by what is packed)
        return error
    return None


def _stays(thing: Any, name: str, error: Exception) -> PipelineError:
    """The error for a ``thing`` that cannot be packed: names the step, its function, and what that refers to."""
    function: FunctionType | None = None
    place = ""
    seen: set[int] = set()
    while True:
        seen.add(id(thing))
        blamed = ((label, part) for label, part in _parts(thing) if id(part) not in seen and _refusal(part))
        label, part = next(blamed, ("", None))
        if not label:
            break
        thing, place = part, place + label
        if isinstance(thing, FunctionType):
            function, place = thing, ""
        elif hasattr(thing, "describe"):
            name, place = thing.describe(), ""
    reason = _refusal(thing) or error
    said = f"{type(reason).__name__}: {' '.join(str(reason).split())}"
    if place:
        of = ""
        if function is not None:
            code = function.__code__
            of = f" of the function {code.co_qualname} ({code.co_filename}, line {code.co_firstlineno})"
        said += f"; this is {place.lstrip('.')!r}{of}"
    hint = _GOES_ROUND if "recursion" in said else _TRAVELS
    return PipelineError(f"{name} cannot be sent to Spark's workers: {said}", hint=hint)


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """The things that are packed with ``thing``, each with how it is reached from there."""
    if isinstance(thing, FunctionType):
        cells = inspect.getclosurevars(thing)
        for name, value in {**cells.globals, **cells.nonlocals}.items():
            yield f".{name}", value
        for value in (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()):
            yield ".(default)", value
    elif isinstance(thing, MethodType):
        yield ".self", thing.__self__
    elif isinstance(thing, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in thing.items())
    elif isinstance(thing, (tuple, list, set, frozenset)):
        yield from ((f"[{at}]", value) for at, value in enumerate(thing))
    elif isinstance(thing, functools.partial):
        yield from ((f".{name}", getattr(thing, name)) for name in ("func", "args", "keywords"))
    elif not isinstance(thing, (type, ModuleType)):
        names = {
            *getattr(thing, "__dict__", ()),
            *(n for c in type(thing).__mro__ for n in getattr(c, "__slots__", ())),
        }
        yield from ((f".{name}", getattr(thing, name)) for name in sorted(names) if hasattr(thing, name))
