"""Digests of functions: the version of one that has no other, and how another process knows that it has the same."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, Final

_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes, type(...)})
_GROUPS: Final = frozenset({tuple, list, dict, set, frozenset})


def digest_of(function: Callable[..., Any], *more: object) -> str:
    """The digest of a function or class and of ``more`` plain values, in hex.

    It is of the text without decorators of its own, of the defaults, and of the plain values (numbers, text, bytes, and
    tuples, lists, sets and dicts of them) that the function refers to by names outside of itself. Of one that has no
    text, and of a lambda, of which a line of text may hold several, it is of the compiled code, which another version
    of Python compiles otherwise.

    The values are those of the moment at which the function is made. What other functions do that it calls is not in
    it: change the ``version`` with them.
    """
    parts: list[object] = list(more)
    for layer in _layers(function):
        text = _text_of(layer)
        for plain in _functions_of(layer):
            outside = {name: value for name, value in _outside(plain).items() if is_plain(value)}
            code = _code_text(plain.__code__) if text is None else None
            parts.append((code, plain.__defaults__, plain.__kwdefaults__, dict(sorted(outside.items()))))
        if text is None and isinstance(layer, type):
            own = {name: value for name, value in vars(layer).items() if is_plain(value) and not _is_dunder(name)}
            parts.append(own)
        parts.append(text)
    return text_digest(*parts)


def text_digest(*parts: object) -> str:
    """The digest of plain values, in hex."""
    return hashlib.sha256(plain_text(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _layers(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """A function, and what it wraps."""
    while True:
        yield function
        inner = getattr(function, "__wrapped__", None)
        if not callable(inner):
            return
        function = inner


def _functions_of(layer: Callable[..., Any]) -> Iterator[FunctionType]:
    """The functions of Python that a function is, or that a class defines itself."""
    if isinstance(layer, FunctionType):
        yield layer
    elif isinstance(layer, type):
        for _, member in sorted(vars(layer).items()):
            found = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(found, FunctionType):
                yield found


def is_plain(value: object) -> bool:
    """Whether a value is of numbers, text and bytes alone, so that its text says all of it."""
    kind = type(value)
    if isinstance(value, dict) and kind is dict:
        return all(is_plain(part) for item in value.items() for part in item)
    if isinstance(value, (tuple, list, set, frozenset)) and kind in _GROUPS:
        return all(is_plain(part) for part in value)
    return kind in _PLAIN


def plain_text(value: object) -> str:
    """A value as text, the same in every process; of parts that are not plain only their type."""
    kind = type(value)
    if isinstance(value, dict) and kind is dict:
        return f"{{{', '.join(f'{plain_text(k)}: {plain_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, (tuple, list)) and kind in _GROUPS:
        return f"{kind.__name__}({', '.join(map(plain_text, value))})"
    if isinstance(value, (set, frozenset)) and kind in _GROUPS:
        return f"{kind.__name__}({', '.join(sorted(map(plain_text, value)))})"
    return repr(value) if kind in _PLAIN else f"<{kind.__module__}.{kind.__qualname__}>"


def _outside(function: FunctionType) -> dict[str, object]:
    """The values that a function, and functions inside of it, refer to in its module and in functions around."""
    outside = values_around(function)
    for name in _names_of(function.__code__) - outside.keys():
        if name in function.__globals__ and not _is_dunder(name):
            outside[name] = function.__globals__[name]
    return outside


def values_around(function: FunctionType) -> dict[str, object]:
    """The values that a function refers to in functions around it, but those that are not bound yet."""
    found: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _names_of(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names, *(name for one in inner for name in _names_of(one))}


def _text_of(function: Callable[..., Any]) -> str | None:
    """The text of a function or class from its ``def`` or ``class`` on; None where there is none, or more than it."""
    if getattr(function, "__name__", "") == "<lambda>":
        return None
    try:
        code = getattr(function, "__code__", function)  # itself, not what it wraps
        text = textwrap.dedent(inspect.getsource(code))
        node = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError, IndexError, ValueError):
        return None
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return None
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return "\n".join(line.rstrip() for line in lines)


def _code_text(code: CodeType) -> str:
    """Compiled code as text, without where it stands."""
    constants = ", ".join(
        _code_text(constant) if isinstance(constant, CodeType) else plain_text(constant) for constant in code.co_consts
    )
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} ({constants})"
