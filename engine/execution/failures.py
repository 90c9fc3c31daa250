"""Exceptions of a task, carried to the driver as plain data and raised there again.

Tasks run in other processes, and an exception crosses Spark's JVM as text at best. So a task that fails for a reason
that will not go away gives a row that says why, and the driver raises the same exception: the project's own errors by
their code, Python's built-in ones by their name, others as :class:`PipelineError` with the traceback's text.
"""

from __future__ import annotations

import builtins
import sys
import traceback
from typing import Any

from ..errors import ChunkmillError, PipelineError, error_from_dict

_PLAIN = (str, int, float, bool, type(None))


def is_transient(error: BaseException) -> bool:
    """Whether trying the task again, on another worker, may help."""
    if isinstance(error, ChunkmillError):
        return error.transient
    return isinstance(error, (ConnectionError, TimeoutError, InterruptedError))


def failure_to_dict(error: BaseException, label: str) -> dict[str, Any]:
    """``error`` as JSON data, with the split it came from and its traceback."""
    trace = "".join(traceback.format_exception(error))
    if isinstance(error, ChunkmillError):
        return {"own": error.to_dict(), "label": label, "traceback": trace}
    kind = type(error)
    args = [a for a in error.args if isinstance(a, _PLAIN)]
    return {
        "module": kind.__module__,
        "name": kind.__qualname__,
        "args": args if len(args) == len(error.args) else [str(error)],
        "label": label,
        "traceback": trace,
    }


def failure_from_dict(data: dict[str, Any]) -> BaseException:
    """The exception to raise on the driver for what :func:`failure_to_dict` gave."""
    if "own" in data:
        return _noted(error_from_dict(data["own"]), data)
    kind = _exception_type(data["module"], data["name"])
    if kind is not None:
        try:
            return _noted(kind(*data["args"]), data)
        except TypeError:
            pass  # an exception class with a signature of its own
    text = ": ".join([data["name"], *map(str, data["args"])])
    return _noted(PipelineError(f"a function of the pipeline raised {text}"), data)


def _exception_type(module: str, name: str) -> type[Exception] | None:
    """The class, when it is built in or its module is loaded here; nothing is imported for it."""
    found = getattr(builtins if module == "builtins" else sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _noted(error: BaseException, data: dict[str, Any]) -> BaseException:
    error.add_note(f"In the task for {data['label']}:\n{data['traceback'].rstrip()}")
    return error
