"""Exceptions of a task, carried to the driver as plain data and raised there again.

Tasks run in other processes, and an exception crosses Spark's JVM as text at best. So a task that fails for a reason
that will not go away gives a row that says why, and the driver raises the same exception: the project's own errors by
their code, others by their class, arguments and attributes as Spark packs them, without a call of ``__init__``, whose
signature nobody knows. One that cannot be packed is a :class:`PipelineError` with the traceback's text.
"""

from __future__ import annotations

import base64
import contextlib
import traceback
from collections.abc import Iterator
from typing import Any, Final

from ..errors import ERRORS, ChunkmillError, PipelineError, error_from_dict
from .packed import spark_serializer

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
