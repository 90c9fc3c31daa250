"""Transport between the driver and tasks, beside rows: code of modules that workers cannot import, and exceptions.

Tasks run in other processes, and an exception crosses Spark's JVM as text at best. So a task that fails for a reason
that will not go away gives a row that says why, and the driver raises the same exception: the project's own errors by
their code, others by their class, arguments and attributes as Spark packs them, without a call of ``__init__``, whose
signature nobody knows. One that cannot be packed is a :class:`PipelineError` with the traceback's text.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from ..errors import ERRORS, ChunkmillError, PipelineError, error_from_dict
from .work import spark_serializer

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
        blamed = ((label, part) for label, part in _contents(thing) if id(part) not in seen and _refusal(part))
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


def _contents(thing: Any) -> Iterator[tuple[str, Any]]:
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


_MOST_PACKED: Final = 1 << 20
"""Bytes of an exception's arguments and attributes that go to the driver with it; of larger ones only the text."""


def is_transient(error: BaseException) -> bool:
    """Whether trying the task again, on another worker, may help."""
    if isinstance(error, ChunkmillError):
        return error.transient
    return isinstance(error, (ConnectionError, TimeoutError, InterruptedError))


def failure_to_dict(error: BaseException, label: str) -> dict[str, Any]:
    """``error`` as JSON data, with the split it came from and its traceback."""
    data = {
        "name": type(error).__qualname__,
        "text": str(error),
        "notes": [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)],
        "label": label,
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, ChunkmillError) and type(error) in ERRORS:
        return {**data, "own": error.to_dict()}
    return {**data, "packed": _packed(error)}


def failure_from_dict(data: dict[str, Any]) -> BaseException:
    """The exception to raise on the driver for what :func:`failure_to_dict` gave."""
    error = error_from_dict(data["own"]) if "own" in data else _unpacked(data["packed"])
    if error is None:
        said = ": ".join(filter(None, (data["name"], data["text"])))
        error = PipelineError(f"a function of the pipeline raised {said}")
    for note in data["notes"]:
        add_note(error, note)
    add_note(error, f"In the task for {data['label']}:\n{data['traceback'].rstrip()}")
    return error


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, once."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _packed(error: BaseException) -> str | None:
    """The exception's class, arguments and attributes, as far as they can be packed."""
    for parts in _parts(error):
        with contextlib.suppress(Exception):
            packed: bytes = spark_serializer().dumps(parts)
            if len(packed) <= _MOST_PACKED:
                return base64.b64encode(packed).decode()
    return None


def _parts(error: BaseException) -> Iterator[tuple[Any, ...]]:
    """Class, arguments and attributes; then without what may not travel."""
    kind = type(error)
    reduced = error.__reduce__()
    if isinstance(reduced, tuple) and reduced[0] is kind:
        yield kind, *reduced[1:3]
    yield kind, error.args, vars(error)
    yield kind, error.args
    yield kind, (str(error),)


def _unpacked(packed: str | None) -> BaseException | None:
    if packed is None:
        return None
    try:
        kind, args, *state = spark_serializer().loads(base64.b64decode(packed))
        base = kind
        while base.__module__ != "builtins":
            base = base.__base__
        error: BaseException = kind.__new__(kind, *args)
        base.__init__(error, *args)
        for attributes in filter(None, state):
            error.__setstate__({k: v for k, v in attributes.items() if k != "__notes__"})
    except Exception:  # noqa: BLE001 (a class with ideas of its own, or of a module that is not here)
        return None
    return error if isinstance(error, (Exception, SystemExit)) else None
