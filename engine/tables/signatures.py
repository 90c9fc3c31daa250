"""Signatures of functions of computed columns: the way they are called, their input columns and result types."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import pyarrow as pa

from ..errors import UsageError
from .digests import values_around

T = TypeVar("T")


class FunctionKind(Enum):
    """The call convention of a computed column's function."""

    SCALAR = "scalar"
    """With the Python values of one row."""
    ARRAY = "array"
    """With whole columns of a batch, as ``pyarrow.Array``."""
    RECORD_BATCH = "record batch"
    """With a batch."""


class _Siblings:
    """The marker in ``Columns[T]``."""

    def __repr__(self) -> str:
        return "Columns"


_SIBLINGS: Final = _Siblings()

Columns = Annotated[T, _SIBLINGS]
"""The return annotation of a function with several columns: one for each field of ``T``, which is a NamedTuple,
dataclass or TypedDict. Type checkers see ``T`` itself.
"""

ARROW_TYPES: Final[Mapping[Any, pa.DataType]] = {
    float: pa.float32(),
    int: pa.int64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}
"""The column types for annotations; give other types as ``data_type``."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function.

    ``annotation`` is the name of the expected type of its column's values, or None. A parameter that is not
    ``required`` has a default, and reads a column only if ``input_columns`` names one for it.
    """

    name: str
    annotation: str | None
    required: bool


@dataclass(frozen=True, slots=True)
class ReturnType:
    """The return annotation: the type of the column, and the fields of ``Columns[T]``."""

    data_type: pa.DataType | None = None
    fields: tuple[pa.Field, ...] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """The parameters of a function, the way it is called, and its return type."""

    kind: FunctionKind
    parameters: tuple[Parameter, ...]
    takes_any_number: bool
    returned: ReturnType

    @property
    def fewest(self) -> int:
        """The least number of columns that the function needs."""
        return sum(parameter.required for parameter in self.parameters)


def signature_of(
    function: Callable[..., Any], name: str, local_names: Mapping[str, Any], data_type: pa.DataType | None
) -> FunctionSignature:
    """Return the signature of a function that is called with columns. Errors call it ``name``.

    ``local_names`` are the local names at its definition, in which string annotations are looked up.

    Raises ``TypeError`` for a function that returns several rows per row, and ``UsageError`` for one that cannot be
    called with columns by position.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"UDF {name!r} yields rows: table functions, which return several rows for each row, are not supported"
        )
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"UDF {name!r} is a coroutine function: a column needs a function that returns its values")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"UDF {name!r} has no signature that Python can read: {error}", hint=_WRAP) from error
    names = _Names(function, local_names)
    parameters, annotations, many = [], [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            many = True
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        required = parameter.default is parameter.empty
        if parameter.kind is parameter.KEYWORD_ONLY:
            if required:
                raise UsageError(
                    f"UDF {name!r} has the keyword-only parameter {parameter.name!r}, but columns are passed by "
                    "position"
                )
            continue
        annotation = names.resolved(parameter.annotation)
        annotations.append(annotation)
        parameters.append(Parameter(parameter.name, _name_of(annotation), required))
    if not parameters and not many:
        raise UsageError(f"UDF {name!r} has no parameter, so it has no input column")
    kind = _kind(annotations, name)
    returned = _returned(names.resolved(signature.return_annotation), kind, name, data_type)
    return FunctionSignature(kind, tuple(parameters), many, returned)


_WRAP = "Call it in your own function."


class _Unknown:
    """A missing annotation, or one that cannot be resolved."""

    def __init__(self, text: str | None, reason: str | None = None) -> None:
        self.text = text
        self.reason = reason


class _Names:
    """The names in which a function's annotations are looked up."""

    def __init__(self, function: Callable[..., Any], local_names: Mapping[str, Any]) -> None:
        plain = inspect.unwrap(function)
        cells = values_around(plain) if inspect.isfunction(plain) else {}
        self._globals = getattr(plain, "__globals__", {})
        self._locals = {**local_names, **cells}

    def resolved(self, annotation: Any) -> Any:
        """Return an annotation with strings resolved, or ``_Unknown``."""
        if annotation is inspect.Parameter.empty:
            return _Unknown(None)

        def holder() -> None: ...

        holder.__annotations__ = {"it": annotation}
        try:
            return typing.get_type_hints(holder, self._globals, self._locals, include_extras=True)["it"]
        except Exception as error:  # noqa: BLE001 (whatever the text of an annotation does)
            return _Unknown(str(annotation), f"{type(error).__name__}: {error}")


def _kind(annotations: list[Any], name: str) -> FunctionKind:
    batches = [plain_annotation(annotation) is pa.RecordBatch for annotation in annotations]
    if any(batches):
        if len(batches) > 1:
            raise UsageError(
                f"UDF {name!r} takes a pyarrow.RecordBatch and other parameters: a batch must be the only one"
            )
        return FunctionKind.RECORD_BATCH
    arrays = [_is_array(annotation) for annotation in annotations]
    if any(arrays) and not all(arrays):
        raise UsageError(
            f"UDF {name!r} mixes pyarrow.Array and row values",
            hint="Annotate all of its parameters as pyarrow.Array, or none.",
        )
    return FunctionKind.ARRAY if any(arrays) else FunctionKind.SCALAR


def _is_array(annotation: Any) -> bool:
    plain = plain_annotation(annotation)
    return isinstance(plain, type) and issubclass(plain, (pa.Array, pa.ChunkedArray))


def plain_annotation(annotation: Any) -> Any:
    """Strip ``Annotated``, ``None`` and parameters: ``int | None`` gives ``int``, and ``list[int]`` gives ``list``."""
    if get_origin(annotation) is Annotated:
        return plain_annotation(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        rest = [part for part in get_args(annotation) if part is not NoneType]
        return plain_annotation(rest[0]) if len(rest) == 1 else annotation
    return get_origin(annotation) or annotation


def _name_of(annotation: Any) -> str | None:
    if isinstance(annotation, _Unknown):
        return None
    plain = plain_annotation(annotation)
    return plain.__qualname__ if isinstance(plain, type) else str(plain)


def _returned(annotation: Any, kind: FunctionKind, name: str, data_type: pa.DataType | None) -> ReturnType:
    if isinstance(annotation, _Unknown):
        text = annotation.text
        if text is not None and "Columns[" in text:
            raise UsageError(
                f"UDF {name!r} returns {text}, which cannot be resolved: {annotation.reason}",
                hint="Define the class at the top of the module.",
            )
        return ReturnType(data_type, text=text)
    if get_origin(annotation) is Annotated and _SIBLINGS in get_args(annotation)[1:]:
        fields = _fields(get_args(annotation)[0], name, data_type)
        return ReturnType(pa.struct(fields), fields, f"Columns[{_name_of(annotation)}]")
    follows = _arrow_type(annotation) if kind is FunctionKind.SCALAR else None
    return ReturnType(follows if data_type is None else data_type, text=_name_of(annotation))


def _arrow_type(annotation: Any) -> pa.DataType | None:
    """Return the column type for an annotation, or None if the annotation does not determine it."""
    if get_origin(annotation) is Annotated:
        said = [part for part in get_args(annotation)[1:] if isinstance(part, pa.DataType)]
        if said:
            return said[0]
    plain = plain_annotation(annotation)
    return ARROW_TYPES.get(plain) if isinstance(plain, type) else None


def _fields(kind: Any, name: str, data_type: pa.DataType | None) -> tuple[pa.Field, ...]:
    """Return the fields of ``Columns[kind]``, with types from the struct ``data_type`` or the annotations."""
    is_named_tuple = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    if not (is_named_tuple or (isinstance(kind, type) and dataclasses.is_dataclass(kind)) or typing.is_typeddict(kind)):
        raise UsageError(f"UDF {name!r}: Columns[T] needs a NamedTuple, a dataclass or a TypedDict, not {kind!r}")
    names = (
        list(kind._fields)
        if is_named_tuple
        else [field.name for field in dataclasses.fields(kind)]
        if dataclasses.is_dataclass(kind)
        else list(typing.get_type_hints(kind))
    )
    if not names:
        raise UsageError(f"UDF {name!r}: {kind.__qualname__} of Columns[T] has no fields")
    if data_type is not None:
        given = [field.name for field in data_type] if pa.types.is_struct(data_type) else None
        if given != names:
            raise UsageError(
                f"UDF {name!r} returns Columns of {names}, but its data_type is {data_type}",
                hint="Give a struct of these fields, in this order, or omit data_type.",
            )
        return tuple(data_type)
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = []
    for field in names:
        type_ = _arrow_type(hints.get(field))
        if type_ is None:
            raise UsageError(
                f"UDF {name!r}: the type of the column {field!r} cannot be derived from its annotation "
                f"{hints.get(field)}",
                hint="Give the types as data_type=pyarrow.struct(…), or annotate it as Annotated[…, pyarrow type].",
            )
        fields.append(pa.field(field, type_))
    return tuple(fields)
