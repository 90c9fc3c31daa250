"""What travels to tasks whole: the code of modules that workers cannot import."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ..errors import PipelineError

_TRAVELS = "What a function refers to travels with it. Make such a thing inside the function, where it is used."
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
    from pyspark import cloudpickle

    register_by_value()
    try:
        cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    except Exception as error:
        said = " ".join(str(error).split())
        raise PipelineError(
            f"{name} cannot be sent to Spark's workers: {type(error).__name__}: {said}",
            hint=_GOES_ROUND if "recursion" in said else _TRAVELS,
        ) from error
