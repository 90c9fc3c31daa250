"""Earlier names of methods: each calls the current method, and may give a ``DeprecationWarning``.

Parameters have their earlier names.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast, overload

from ..errors import UsageError

if TYPE_CHECKING:
    from .registration import RegistrationHandle

P = ParamSpec("P")
R = TypeVar("R")


class TableInsertMode(Enum):
    """The modes of the deprecated ``write_table``."""

    APPEND = 1
    OVERWRITE = 2
    REPLACE = 3


def replaced_by(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function warn that ``name`` replaces it."""
    return warned(f"Use {name}() instead")


def warned(message: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a deprecated function give a warning with this text."""

    def deprecated(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def warning(*args: P.args, **kwargs: P.kwargs) -> R:
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        vars(warning)["__deprecated__"] = message  # like warnings.deprecated of Python 3.13
        return warning

    return deprecated


@overload
def older(
    new: Callable[Concatenate[Any, P], R], warning: str = "", *, doc: str = "", within: str = ""
) -> Callable[Concatenate[Any, P], R]: ...
@overload
def older(
    new: Callable[..., R], warning: str = "", *, doc: str = "", within: str = "", **parameters: str
) -> Callable[..., R]: ...
def older(
    new: Callable[..., Any], warning: str = "", *, doc: str = "", within: str = "", **parameters: str
) -> Callable[..., Any]:
    """Return a method with an earlier name that calls the current method ``new``.

    ``parameters`` map earlier parameter names to current ones. With a ``warning``, the method gives this warning. The
    current method belongs to the object itself, or to the object in its attribute ``within``.

    >>> class Box:
    ...     def size_of(self, part):
    ...         return len(part)
    ...     length = older(size_of, piece="part")
    >>> Box().length(piece="abc"), str(inspect.signature(Box.length))
    (3, '(self, piece)')
    """
    earlier = {today: then for then, today in parameters.items()}
    signature = inspect.signature(new)
    taken = [
        parameter.replace(name=earlier.get(parameter.name, parameter.name))
        for parameter in signature.parameters.values()
    ]
    signature = signature.replace(parameters=taken)

    @wraps(new)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(self, *args, **kwargs)
        holder = getattr(self, within) if within else self
        return getattr(holder, new.__name__)(*bound.args[1:], **bound.kwargs)

    method.__doc__ = doc or f"The earlier name of :meth:`{new.__name__}`."
    vars(method)["__signature__"] = signature
    return warned(warning)(method) if warning else method


def with_older_keywords(register: Callable[P, RegistrationHandle]) -> Callable[P, RegistrationHandle]:
    """Let ``register`` also take ``recording_layer`` and ``timeout_secs``, as in 0.27.

    With one of them it waits, and returns the id of the segment in place of a handle.
    """

    @wraps(register)
    def registering(*args: Any, recording_layer: Any = None, timeout_secs: float | None = None, **kwargs: Any) -> Any:
        if recording_layer is None and timeout_secs is None:
            return register(*args, **kwargs)
        if recording_layer is not None:
            warn_renamed("recording_layer", "layer_name")
            if "layer_name" in kwargs:
                raise UsageError("only one of layer_name and recording_layer can be given")
            kwargs["layer_name"] = recording_layer
        if timeout_secs is not None:
            warn_renamed("timeout_secs", "register(...).wait(timeout_secs)")
        return register(*args, **kwargs).wait(60 if timeout_secs is None else timeout_secs).segment_ids[0]

    taken = inspect.signature(register)
    older = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=f"{type_} | None")
        for name, type_ in (("recording_layer", "str"), ("timeout_secs", "float"))
    ]
    vars(registering)["__signature__"] = taken.replace(parameters=[*taken.parameters.values(), *older])
    return cast("Callable[P, RegistrationHandle]", registering)


def warn_renamed(old: str, new: str) -> None:
    """Warn a caller's caller that the parameter ``old`` is called ``new``."""
    warnings.warn(f"'{old}' is deprecated, use '{new}'", DeprecationWarning, stacklevel=3)
