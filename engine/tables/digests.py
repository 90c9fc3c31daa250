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


def digest_of(function: Callable[..., Any], arguments: object = None) -> str:
    """The digest of a function or class, in hex: of its text without decorators, of its defaults, and of the plain
    values (numbers, text, bytes, and tuples, lists, sets and dicts of them) that it refers to by names outside of it.

    Of one that has no text, and of a lambda, of which a line of text may hold several, it is of the compiled code,
    which another version of Python compiles otherwise. What other functions do that it calls is not in it: give such a
    function a ``version`` of its own, or change that of this one.
    """
    hasher = hashlib.sha256()
    text = _text_of(function)
    if text is not None:
        hasher.update(text.encode("utf-8", "surrogatepass"))
    for plain in functions_of(function):
        if text is None:
            hasher.update(_code_text(plain.__code__).encode("utf-8", "surrogatepass"))
        hasher.update(plain_text((plain.__defaults__, plain.__kwdefaults__)).encode("utf-8", "surrogatepass"))
        for name, value in sorted(_outside(plain).items()):
            hasher.update(f"{name}={plain_text(value)}".encode("utf-8", "surrogatepass"))
    if arguments is not None:
        hasher.update(plain_text(arguments).encode("utf-8", "surrogatepass"))
    return hasher.hexdigest()


def functions_of(function: Callable[..., Any]) -> Iterator[FunctionType]:
    """The functions of Python that a function is, or that a class defines itself."""
    plain = inspect.unwrap(function)
    if isinstance(plain, FunctionType):
        yield plain
    elif isinstance(plain, type):
        for _, member in sorted(vars(plain).items()):
            found = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(found, FunctionType):
                yield inspect.unwrap(found)


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
    """The plain values that a function, and functions inside of it, refer to in its module and in functions around."""
    code = function.__code__
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    outside: dict[str, object] = {}
    for name, cell in cells.items():
        try:
            outside[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    for name in _names_of(code) - outside.keys():
        if name in function.__globals__ and not (name.startswith("__") and name.endswith("__")):
            outside[name] = function.__globals__[name]
    return {name: value for name, value in outside.items() if is_plain(value)}


def _names_of(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names, *(name for one in inner for name in _names_of(one))}


def _text_of(function: Callable[..., Any]) -> str | None:
    """The text of a function or class from its ``def`` or ``class`` on; None where there is none, or more than it."""
    plain = inspect.unwrap(function)
    if getattr(plain, "__name__", "") == "<lambda>":
        return None
    try:
        text = textwrap.dedent(inspect.getsource(plain))
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
