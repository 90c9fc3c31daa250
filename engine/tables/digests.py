"""Digests of functions, and the provenance of values, which is in the names of their files."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple
from uuid import uuid4

from ..rrd import digest_of as content_digest_of

_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes, type(...)})
_GROUPS: Final = frozenset({tuple, list, dict, set, frozenset})


def digest_of(function: Callable[..., Any], *more: object) -> str:
    """Return the digest of a function or class and of ``more`` plain values, in hex.

    It covers the source text without the function's own decorators, the defaults, and the plain values (numbers, text,
    bytes, and tuples, lists, sets and dicts of them) that the function refers to by names outside of itself. For a
    function without source text, and for a lambda, it covers the compiled code instead, as one line may hold several
    lambdas. Compiled code differs between versions of Python.

    The values are those when the digest is computed. The digest does not cover other functions that the function calls:
    change the ``version`` with them.
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
    """Yield a function, and the functions that it wraps."""
    while True:
        yield function
        inner = getattr(function, "__wrapped__", None)
        if not callable(inner):
            return
        function = inner


def _functions_of(layer: Callable[..., Any]) -> Iterator[FunctionType]:
    """Yield the function, or the functions that a class itself defines."""
    if isinstance(layer, FunctionType):
        yield layer
    elif isinstance(layer, type):
        for _, member in sorted(vars(layer).items()):
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(function, FunctionType):
                yield function


def is_plain(value: object) -> bool:
    """Return whether a value has only numbers, text and bytes, so that its text describes it fully."""
    kind = type(value)
    if isinstance(value, dict) and kind is dict:
        return all(is_plain(part) for item in value.items() for part in item)
    if isinstance(value, (tuple, list, set, frozenset)) and kind in _GROUPS:
        return all(is_plain(part) for part in value)
    return kind in _PLAIN


def plain_text(value: object) -> str:
    """Return a value as text, the same in every process. A part that is not plain is its type's name."""
    kind = type(value)
    if isinstance(value, dict) and kind is dict:
        return f"{{{', '.join(f'{plain_text(k)}: {plain_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, (tuple, list)) and kind in _GROUPS:
        return f"{kind.__name__}({', '.join(map(plain_text, value))})"
    if isinstance(value, (set, frozenset)) and kind in _GROUPS:
        return f"{kind.__name__}({', '.join(sorted(map(plain_text, value)))})"
    return repr(value) if kind in _PLAIN else f"<{kind.__module__}.{kind.__qualname__}>"


def _outside(function: FunctionType) -> dict[str, object]:
    """Return the values that a function and its inner functions use from its module and enclosing functions."""
    outside = values_around(function)
    for name in _names_of(function.__code__) - outside.keys():
        if name in function.__globals__ and not _is_dunder(name):
            outside[name] = function.__globals__[name]
    return outside


def values_around(function: FunctionType) -> dict[str, object]:
    """Return the values that a function uses from enclosing functions, except unbound ones."""
    values: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            continue
    return values


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _names_of(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names, *(name for part in inner for name in _names_of(part))}


def _text_of(function: Callable[..., Any]) -> str | None:
    """Return the source of a function or class from its ``def`` or ``class`` on, or None if it has none."""
    if getattr(function, "__name__", "") == "<lambda>":
        return None
    try:
        code = getattr(function, "__code__", function)  # of itself, not of the wrapped function
        text = textwrap.dedent(inspect.getsource(code))
        node = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError, IndexError, ValueError):
        return None
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return None
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return "\n".join(line.rstrip() for line in lines)


def _code_text(code: CodeType) -> str:
    """Return compiled code as text, without its position."""
    constants = ", ".join(
        _code_text(constant) if isinstance(constant, CodeType) else plain_text(constant) for constant in code.co_consts
    )
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} ({constants})"


COMPUTED_BY: Final = "virtual_column.computed_by"
"""The metadata key with the token of the function that computed values in files whose names have no provenance."""

SEVERAL: Final = "several"
"""The value of ``COMPUTED_BY`` if the values may be from several functions, or from outdated inputs."""

_DIGITS: Final = 12
_NAME: Final = re.compile(rf"([0-9a-f]{{{_DIGITS}}})([0-9a-f]{{{_DIGITS}}})(s?)-([0-9a-f]{{16}})[0-9a-f]{{16}}\.lance")
_NOT_ALL: Final = "0" * _DIGITS


class Provenance(NamedTuple):
    """The tokens of a function and of the files of its inputs."""

    function: str
    inputs: str

    def file_name(self, job: str, *, keeps_stale: bool = False) -> str:
        """Return the name of a new file with values of this provenance, written by a job."""
        return f"{self.function}{self.inputs}{'s' * keeps_stale}-{job_digits(job)}{uuid4().hex[:16]}.lance"

    def beside(self, *, function: bool = False, inputs: bool = False) -> Provenance:
        """Return the provenance for a file that also keeps values of another function, or of other inputs."""
        return Provenance(_NOT_ALL if function else self.function, _NOT_ALL if inputs else self.inputs)


def provenance_of(file: str) -> Provenance | None:
    """Return the provenance in a file's name, or None if the name has none.

    >>> provenance_of(Provenance("a" * 12, "b" * 12).file_name("job"))
    Provenance(function='aaaaaaaaaaaa', inputs='bbbbbbbbbbbb')
    >>> provenance_of("1000110100001010111110101a0e47c9b8c6e4d61b7d0b4ff2.lance") is None
    True
    """
    match = _NAME.fullmatch(file)
    return None if match is None else Provenance(match[1], match[2])


def keeps_stale(file: str) -> bool:
    """Return whether a file's name says that it has stale values.

    >>> keeps_stale(Provenance("a" * 12, "b" * 12).file_name("job", keeps_stale=True))
    True
    """
    match = _NAME.fullmatch(file)
    return match is not None and match[3] == "s"


def job_digits(job: str) -> str:
    """Return the digits that stand for a job in names of files."""
    return content_digest_of(job.encode()).hex()[:16]


def job_of(file: str) -> str | None:
    """Return the digits of the job that wrote a column's file, or None for another file.

    >>> job_of(Provenance("a" * 12, "b" * 12).file_name("job")) == job_digits("job")
    True
    """
    match = _NAME.fullmatch(file)
    return None if match is None else match[4]


def token_of(*parts: object) -> str:
    """Return the token of JSON values."""
    return content_digest_of(json.dumps(parts, sort_keys=True).encode()).hex()[:_DIGITS]


def inputs_token(files: Sequence[str]) -> str:
    """Return the token of a function's input files in a fragment."""
    return token_of(sorted(set(files)))
