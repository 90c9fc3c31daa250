"""Functions of computed columns: declared by ``udf``, pickled for workers, with one object of a class per process."""

from __future__ import annotations

import inspect
import os
import site
import sys
import sysconfig
import threading
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, overload

import pyarrow as pa

from ..errors import UsageError, check_argument
from ..execution import register_by_value, send_by_value
from .computing import compute_batch
from .digests import digest_of, is_plain, text_digest
from .policies import Policies, Policy, policies_of
from .signatures import FunctionKind, FunctionSignature, Parameter, signature_of


def send_modules_beside(function: Callable[..., Any]) -> None:
    """Pickle by value the loaded modules in the folder of ``function``'s module.

    Modules that a new process can import are excluded: installed ones, and those on ``PYTHONPATH``.
    """
    top = function.__module__.partition(".")[0]
    home = _home_of(sys.modules.get(top), top)
    if home is None or home in _importable() or _is_installed(top):
        return
    for name, module in list(sys.modules.items()):
        if "." not in name and name not in ("__main__", "chunkmill") and _home_of(module, name) == home:
            send_by_value(module)
    register_by_value()


def _home_of(module: ModuleType | None, name: str) -> Path | None:
    """Return the folder of a top-level module; for a session without a file, its start folder."""
    if module is None:
        return None
    places = [place for place in (*getattr(module, "__path__", ()), getattr(module, "__file__", None)) if place]
    if places and isinstance(places[0], str):
        return _folder_of(places[0])
    return Path(os.path.realpath(".")) if name == "__main__" else None


@cache
def _folder_of(place: str) -> Path:
    """Return the folder of a file, cached: resolving the links of 200 modules took 10 ms for each stage."""
    return Path(os.path.realpath(place)).parent


def _is_installed(name: str) -> bool:
    """Return whether a package that is installed for editing has the module."""
    finders = [finder for finder in sys.meta_path if getattr(finder, "__module__", "").startswith("__editable__")]
    return any(finder.find_spec(name, None) is not None for finder in finders)


@cache
def _importable() -> frozenset[Path]:
    """The folders from which every process of this Python imports."""
    folders = {*sysconfig.get_paths().values(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    sites = {*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_paths()["purelib"]}
    for place in map(Path, sites):
        for listing in place.glob("*.pth"):
            lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
            folders |= {str(place / line) for line in lines if line and not line.startswith(("import", "#"))}
    dynload = {str(Path(folder) / "lib-dynload") for folder in folders if folder}
    return frozenset(Path(os.path.realpath(folder)) for folder in {*folders, *sites, *dynload} if folder)


_MOST: Final = 8
"""The most objects kept in a process: a model may be large, and a session may run for days."""

_made: dict[str, Callable[..., Any]] = {}
_making = threading.RLock()


def instance_of(
    token: str, kind: Callable[..., Any], arguments: tuple[tuple[Any, ...], dict[str, Any]] | None
) -> Callable[..., Any]:
    """Return this process's object of the class ``kind`` for ``token``. Create and prepare it if it does not exist.

    The eight most recently used objects stay in memory.
    """
    with _making:
        instance = _made.pop(token, None)
        if instance is None:
            args, kwargs = arguments or ((), {})
            instance = kind(*args, **kwargs)
            prepare = getattr(instance, "preprocess", None)
            if callable(prepare):
                prepare()
        _made[token] = instance
        while len(_made) > _MOST:
            del _made[next(iter(_made))]
        return instance


MARK: Final = "virtual_column"
"""The metadata key whose value is ``true`` for a computed column. The column's other keys begin with this key."""


@dataclass(frozen=True, eq=False, repr=False)
class UDF:
    """A function that computes one or several columns, created by :func:`udf`.

    ``kind`` says how it is called; ``inputs`` are its input columns in order (None: all). ``data_type`` is the type of
    its result: for several columns, a struct of the ``outputs``. ``digest`` is the digest of its code
    (:func:`~chunkmill.engine.tables.digests.digest_of`), and the default of ``version``.

    Calling a UDF calls the function. Calling a UDF of a class returns a UDF with these arguments for the constructor.

    Workers get its code by cloudpickle, with the modules next to the user's script. Guarantee: each process creates one
    object of a class, and calls its ``preprocess``, if any, once, before the first batch.
    """

    function: Callable[..., Any]
    name: str
    version: str
    digest: str
    signature: FunctionSignature
    data_type: pa.DataType
    inputs: tuple[str, ...] | None
    policy: tuple[Policy, ...] = ()
    num_cpus: float = 1
    num_gpus: float | None = None
    memory: int | None = None
    checkpoint_size: int | None = None
    min_checkpoint_size: int = 1
    max_checkpoint_size: int | None = None
    task_size: int | None = None
    timeout: float | None = None
    field_metadata: Mapping[str, str] = field(default_factory=dict)
    auto_backfill: bool = False
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The key of a class's object in a process. Copies of the UDF, such as with other inputs, share the object."""

    @property
    def kind(self) -> FunctionKind:
        """The call convention of the function."""
        return self.signature.kind

    @property
    def outputs(self) -> tuple[pa.Field, ...] | None:
        """The columns of a function that returns ``Columns[T]``; None for a single column."""
        return self.signature.returned.fields

    @property
    def module(self) -> str:
        """The module that defines the function."""
        return self.function.__module__

    @property
    def qualname(self) -> str:
        """The function's name in its module."""
        return self.function.__qualname__

    @property
    def is_class(self) -> bool:
        """Return whether the UDF is a class. Each process then creates one object of it."""
        return isinstance(self.function, type)

    def __repr__(self) -> str:
        inputs = "all columns" if self.inputs is None else ", ".join(self.inputs)
        return f"UDF({self.name}({inputs}) -> {self.data_type}, {self.kind.value})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or set a class's constructor arguments. Raises ``TypeError`` for unknown arguments."""
        if not self.is_class or self.arguments is not None:
            return self._callable()(*args, **kwargs)
        with suppress(ValueError):  # a class without a readable signature
            inspect.signature(self.function).bind(*args, **kwargs)
        if self.version == self.digest and not is_plain((args, kwargs)):
            raise UsageError(
                f"UDF {self.name!r} has arguments without a digest, because they are not plain values",
                hint="Give a `version=`, and change it when the arguments change.",
            )
        digest = text_digest(self.digest, args, kwargs) if args or kwargs else self.digest
        version = digest if self.version == self.digest else self.version
        return replace(self, arguments=(args, kwargs), digest=digest, version=version, token=uuid.uuid4().hex)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that is pickled for workers. Modules beside the user's module are pickled by value."""

        send_modules_beside(self.function)
        return dict(vars(self))

    @property
    def has_own_names(self) -> bool:
        """Whether its inputs are the columns named like its parameters, and not others."""
        return self.inputs is not None and self.inputs == tuple(
            parameter.name for parameter in self.signature.parameters if parameter.required
        )

    def with_inputs(self, inputs: Sequence[str]) -> UDF:
        """Return the same function for these columns, by position.

        Raises ``UsageError`` if the number of columns is wrong, or the function takes a batch of all columns.
        """
        return replace(self, inputs=_checked_inputs(self.name, self.signature, inputs))

    def compute(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the column, or the struct of columns, for a batch with the input columns: by name, or in order.

        Raises the function's errors (those of row functions with a note that names the row), and
        ``FunctionResultError`` unless it returns one value of ``data_type`` for each row. A row that exceeds
        ``timeout`` raises a ``TimeoutError``: immediately in a process's main thread, elsewhere when the row ends.
        """
        return compute_batch(
            self._callable,
            batch,
            name=self.name,
            kind=self.kind,
            inputs=self.inputs,
            data_type=self.data_type,
            timeout=self.timeout,
        )

    def _callable(self) -> Callable[..., Any]:
        return instance_of(self.token, self.function, self.arguments) if self.is_class else self.function


@dataclass(frozen=True, slots=True)
class UnpackedUDF:
    """A function that returns ``Columns[T]``, with a prefix for the names of its columns."""

    udf: UDF
    prefix: str = ""

    def __post_init__(self) -> None:
        check_argument("udf", self.udf, UDF)
        check_argument("prefix", self.prefix, str)
        if self.udf.outputs is None:
            raise UsageError(
                f"UDF {self.udf.name!r} returns one column: UnpackedUDF is for functions that return Columns[T]"
            )


def _checked_inputs(name: str, signature: FunctionSignature, inputs: Sequence[str]) -> tuple[str, ...]:
    if isinstance(inputs, str) or not all(isinstance(column, str) for column in inputs):
        raise TypeError(f"UDF {name!r}: input_columns must be a list of column names, not {inputs!r}")
    given, least, most = len(inputs), signature.fewest, len(signature.parameters)
    if signature.kind is FunctionKind.RECORD_BATCH:
        least, most = 1, given
    if given < max(least, 1):
        raise UsageError(
            f"UDF {name!r} expects at least {max(least, 1)} parameters but {given} input_columns were provided."
        )
    if given > most and not signature.takes_any_number:
        raise UsageError(f"UDF {name!r} expects at most {most} parameters but {given} input_columns were provided.")
    return tuple(inputs)


@overload
def udf(data_type: Callable[..., Any], /) -> UDF: ...


@overload
def udf(
    data_type: pa.DataType | None = None,
    *,
    name: str | None = None,
    version: str | None = None,
    input_columns: Sequence[str] | None = None,
    num_cpus: float = 1,
    num_gpus: float | None = None,
    memory: int | None = None,
    batch_size: int | None = None,
    checkpoint_size: int | None = None,
    min_checkpoint_size: int = 1,
    max_checkpoint_size: int | None = None,
    task_size: int | None = None,
    timeout: float | None = None,
    on_error: Policies | None = None,
    error_handling: Policies | None = None,
    field_metadata: Mapping[str, str] | None = None,
    auto_backfill: bool = False,
) -> Callable[[Callable[..., Any]], UDF]: ...


def udf(
    data_type: pa.DataType | Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    version: str | None = None,
    input_columns: Sequence[str] | None = None,
    num_cpus: float = 1,
    num_gpus: float | None = None,
    memory: int | None = None,
    batch_size: int | None = None,
    checkpoint_size: int | None = None,
    min_checkpoint_size: int = 1,
    max_checkpoint_size: int | None = None,
    task_size: int | None = None,
    timeout: float | None = None,
    on_error: Policies | None = None,
    error_handling: Policies | None = None,
    field_metadata: Mapping[str, str] | None = None,
    auto_backfill: bool = False,
) -> UDF | Callable[[Callable[..., Any]], UDF]:
    """Create a :class:`UDF` from a function, or from a class with ``__call__``.

    Use it as a decorator, with or without arguments.

    By default it is called for each row with the row's values (None for null). Parameters annotated as
    ``pyarrow.Array`` receive whole columns of a batch, and a single parameter annotated as ``pyarrow.RecordBatch``
    receives the batch. Parameters are named like columns. A parameter with a default is a constant, unless
    ``input_columns`` names a column for it. The return annotation ``Columns[T]`` gives a column for each field of
    ``T``.

    Parameters
    ----------
    data_type
        The type of the column. Functions of rows can give it by their return annotation: ``float`` (float32), ``int``
        (int64), ``str``, ``bool`` or ``bytes``.
    name
        By default the function's name.
    version
        By default a digest of the function's code. A new version computes all values again.
    input_columns
        The input columns, by position, instead of the parameters' names.
    num_cpus, num_gpus, memory
        Resources of one call: cores, GPUs, bytes.
    checkpoint_size, min_checkpoint_size, max_checkpoint_size
        Rows per batch: the number in the first, the minimum and the maximum. ``batch_size`` is an older name for
        ``checkpoint_size``.
    task_size
        Rows of a task.
    timeout
        Seconds for a row; only for functions of rows.
    on_error
        Policies for errors: ``Retry``, ``Skip`` and ``Fail``; the first that matches applies. By default the run fails.
        ``error_handling`` is another name for it.
    field_metadata
        Metadata of the column's field.
    auto_backfill
        Whether to compute the column when it is added.

    Examples
    --------
    >>> @udf
    ... def doubled(a: int) -> int:
    ...     return a * 2
    >>> doubled
    UDF(doubled(a) -> int64, scalar)
    >>> doubled.compute(pa.record_batch({"a": [1, 2]})).to_pylist()
    [2, 4]
    """
    frame = inspect.currentframe()
    local_names = {} if frame is None or frame.f_back is None else frame.f_back.f_locals
    _check_one_of("on_error", on_error, "error_handling", error_handling)
    _check_one_of("checkpoint_size", checkpoint_size, "batch_size", batch_size)
    if batch_size is not None:
        warnings.warn("batch_size is an older name of checkpoint_size", DeprecationWarning, stacklevel=2)
    options: dict[str, Any] = {
        "num_cpus": num_cpus,
        "num_gpus": num_gpus,
        "memory": memory,
        "checkpoint_size": batch_size if checkpoint_size is None else checkpoint_size,
        "min_checkpoint_size": min_checkpoint_size,
        "max_checkpoint_size": max_checkpoint_size,
        "task_size": task_size,
        "timeout": timeout,
        "policy": policies_of(error_handling if on_error is None else on_error),
        "field_metadata": dict(field_metadata or {}),
        "auto_backfill": auto_backfill,
    }

    def make(function: Callable[..., Any], given: pa.DataType | None) -> UDF:
        called = _named(function, name)
        signature = signature_of(_called(function), called, local_names, given)
        inputs = None if input_columns is None else _checked_inputs(called, signature, input_columns)
        _check_options(called, options, signature.kind)
        data_type = _checked_type(called, signature)
        digest = digest_of(function, str(data_type))
        return UDF(
            function=function,
            name=called,
            version=digest if version is None else str(version),
            digest=digest,
            signature=signature,
            data_type=data_type,
            inputs=_own_inputs(called, signature) if inputs is None else inputs,
            **options,
        )

    if data_type is None or isinstance(data_type, pa.DataType):
        return lambda function: make(function, data_type)
    return make(data_type, None)


def _check_one_of(name: str, value: object, other: str, older: object) -> None:
    if value is not None and older is not None:
        raise UsageError(f"{name} and {other} are two names of the same argument, but both were given")


def _check_options(name: str, options: Mapping[str, Any], kind: FunctionKind) -> None:
    """Raise for an invalid option."""
    for option, least in _LEAST.items():
        value = options[option]
        if value is None and option not in _NEEDED:
            continue
        kinds = (int,) if option in _WHOLE else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise TypeError(f"UDF {name!r}: {option} must be a number, not {value!r}")
        if not value >= least:
            raise UsageError(f"UDF {name!r}: {option} is {value!r}, but must be at least {least}")
    fewest, most = options["min_checkpoint_size"], options["max_checkpoint_size"]
    if most is not None and most < fewest:
        raise UsageError(f"UDF {name!r}: max_checkpoint_size {most} is less than min_checkpoint_size {fewest}")
    timeout = options["timeout"]
    if timeout is not None and timeout <= 0:
        raise UsageError(f"UDF {name!r}: timeout is {timeout!r} seconds, but must be more than 0")
    if timeout is not None and kind is not FunctionKind.SCALAR:
        raise UsageError(f"UDF {name!r}: a timeout is for one row, but the function is called with whole columns")
    if any(key == MARK or key.startswith(f"{MARK}.") for key in options["field_metadata"]):
        raise UsageError(f"UDF {name!r}: field_metadata has a key that begins with {MARK}, which is reserved")


_LEAST: Final = {
    "num_cpus": 0,
    "num_gpus": 0,
    "memory": 0,
    "checkpoint_size": 0,
    "min_checkpoint_size": 1,
    "max_checkpoint_size": 1,
    "task_size": 1,
    "timeout": 0,
}
_WHOLE: Final = frozenset({"memory", "checkpoint_size", "min_checkpoint_size", "max_checkpoint_size", "task_size"})
_NEEDED: Final = frozenset({"num_cpus", "min_checkpoint_size"})


def _named(function: Callable[..., Any], name: str | None) -> str:
    if not callable(function):
        raise TypeError(f"udf needs a function, a class, or a pyarrow.DataType, not {function!r}")
    if not hasattr(function, "__qualname__"):
        raise TypeError(
            f"udf is for functions and for classes, not for a {type(function).__name__!r} object: an object of a class "
            "is made in each worker process"
        )
    if isinstance(function, type) and "__call__" not in {n for kind in function.__mro__ for n in vars(kind)}:
        raise TypeError(f"udf is for functions, and for classes with a method __call__, which {function!r} lacks")
    return function.__name__ if name is None else name


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callable that takes columns: the function, or the method ``__call__`` of a class without ``self``."""
    if not isinstance(function, type):
        return function
    method = inspect.getattr_static(function, "__call__")
    return method.__get__(object()) if isinstance(method, FunctionType) else function.__call__


def _checked_type(name: str, signature: FunctionSignature) -> pa.DataType:
    returned, kind = signature.returned, signature.kind
    if returned.data_type is not None:
        return returned.data_type
    if kind is not FunctionKind.SCALAR:
        raise UsageError(
            f"UDF {name!r} takes "
            f"{'a pyarrow.RecordBatch' if kind is FunctionKind.RECORD_BATCH else 'pyarrow.Arrays'}, so the type of "
            "its column must be given",
            hint="Write @udf(data_type=pyarrow.…).",
        )
    said = "no return annotation" if returned.text is None else f"the return annotation {returned.text}"
    raise UsageError(
        f"UDF {name!r} has {said}, which does not determine the type of its column",
        hint="Write @udf(data_type=pyarrow.…), or annotate it as float, int, str, bool or bytes.",
    )


def _own_inputs(name: str, signature: FunctionSignature) -> tuple[str, ...] | None:
    """Return the input columns according to the names of the function's parameters; None: all columns."""
    if signature.kind is FunctionKind.RECORD_BATCH:
        return None
    names = tuple(parameter.name for parameter in signature.parameters if parameter.required)
    if not names:
        raise UsageError(
            f"UDF {name!r} has no parameter without a default, so it has no input column",
            hint="Name its columns: @udf(input_columns=[…]).",
        )
    return names


types = pa.types

_EXPECTED: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "int": (types.is_integer,),
    "float": (types.is_floating, types.is_integer, types.is_decimal),
    "str": (types.is_string, types.is_large_string, types.is_string_view),
    "bool": (types.is_boolean,),
    "bytes": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view),
    "list": (types.is_list, types.is_large_list, types.is_fixed_size_list),
    "dict": (types.is_struct, types.is_map),
    "datetime": (types.is_timestamp,),
    "date": (types.is_date,),
    "time": (types.is_time,),
    "timedelta": (types.is_duration,),
    "Decimal": (types.is_decimal,),
}
"""The column types that fit an annotation."""


def check_against(schema: pa.Schema, udf: UDF) -> None:
    """Check that a table with ``schema`` has the input columns of ``udf``, with fitting types.

    Raises ``UsageError`` if a column is missing or does not fit its parameter's annotation, or if a function of a batch
    of all columns has ``input_columns``. Warns, with a ``UserWarning``, if annotations are missing.
    """
    if udf.kind is FunctionKind.RECORD_BATCH:
        if udf.inputs is not None:
            raise UsageError(f"UDF {udf.name!r} takes a pyarrow.RecordBatch of all columns, but has input_columns")
        return
    inputs = udf.inputs or ()
    missing = [name for name in inputs if name not in schema.names]
    if missing:
        raise UsageError(
            f"UDF {udf.name!r} expects input columns {missing} which are not found in table schema. "
            f"Available columns: {schema.names}"
        )
    if udf.kind is FunctionKind.ARRAY:
        return
    unknown = []
    parameters = (*udf.signature.parameters, *[_MORE] * len(inputs))
    for parameter, name in zip(parameters, inputs, strict=False):
        if not _is_checked(udf, parameter, schema.field(name)):
            unknown.append(parameter.name)
    if unknown:
        warnings.warn(
            f"UDF {udf.name!r}: the types of the columns {list(inputs)} are not checked, as {', '.join(unknown)} "
            f"{'has' if len(unknown) == 1 else 'have'} no type annotation",
            UserWarning,
            stacklevel=3,
        )


_MORE: Final = Parameter("*", None, required=False)


def _is_checked(udf: UDF, parameter: Parameter, column: pa.Field) -> bool:
    """Return whether a column's type can be compared with its parameter's annotation."""
    expected: Any = _EXPECTED.get(parameter.annotation or "")
    if parameter.annotation in ("Any", "object"):
        return True
    if expected is None:
        return False
    plain = column.type.value_type if types.is_dictionary(column.type) else column.type
    plain = plain.storage_type if isinstance(plain, pa.BaseExtensionType) else plain
    if types.is_null(plain) or any(family(plain) for family in expected):
        return True
    raise UsageError(
        f"UDF {udf.name!r}: its parameter {parameter.name!r} is annotated as {parameter.annotation}, but the column "
        f"{column.name!r} has type {column.type}",
        hint="Change the annotation, or name another column in input_columns.",
    )
