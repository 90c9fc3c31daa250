"""The public selector, units of numbers, and selectors of scalars and vectors without callables."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from ...engine.errors import check_argument
from ..arrays import type_name
from . import evaluation, syntax
from .parser import parse
from .syntax import Cast, Each, Function, Jq, Nanoseconds, Pack, PipelineStep, Scaled, SelectorPipeline

_DEGREE = math.pi / 180

_EXACT = {
    "length": "m 1, mm 1/1000, cm 1/100, km 1000, um 1/1000000, in 0.0254, ft 0.3048, yd 0.9144, mi 1609.344, nmi 1852",
    "time": "s 1, ms 1/1000, us 1/1000000, ns 1/1000000000, min 60, h 3600",
    "velocity": "m/s 1, mm/s 1/1000, km/h 5/18, mph 0.44704, kn 463/900, ft/s 0.3048",
    "acceleration": "m/s2 1, g 9.80665, mg 0.00980665",
    "mass": "kg 1, lb 0.45359237, t 1000",
    "magnetic flux density": "T 1, mT 1/1000, uT 1/1000000, nT 1/1000000000, G 1/10000",
    "pressure": "Pa 1, hPa 100, kPa 1000, mbar 100, bar 100000, psi 6894.757293168",
    "voltage": "V 1, mV 1/1000",
    "current": "A 1, mA 1/1000",
}

UNITS: MappingProxyType[str, dict[str, Fraction | float]] = MappingProxyType(
    {
        **{kind: {n: Fraction(f) for n, f in (u.split(" ") for u in row.split(", "))} for kind, row in _EXACT.items()},
        "angle": {"rad": 1.0, "deg": _DEGREE, "mrad": 1e-3, "rev": 360 * _DEGREE},
        "angular velocity": {"rad/s": 1.0, "deg/s": _DEGREE, "rpm": 6 * _DEGREE},
    }
)
"""Factors to the SI unit, by kind: exact wherever they are rational."""


def unit_factor(unit: float | str, to: str | None = None) -> float:
    """Return the factor from ``unit`` to ``to`` (by default the SI unit). If ``unit`` is a number, it is the factor.

    Raises ``ValueError`` if the unit is unknown, or of another kind than ``to``.

    >>> unit_factor("km"), unit_factor("deg", "deg"), unit_factor("m/s", "km/h")
    (1000.0, 1.0, 3.6)
    """
    if not isinstance(unit, str):
        if to is not None:
            raise ValueError("a factor given as a number cannot be combined with a target unit")
        return float(unit)
    kind = _kind(unit)
    if to is None:
        return float(UNITS[kind][unit])
    if _kind(to) != kind:
        raise ValueError(f"{unit!r} is a unit of {kind}, but {to!r} is a unit of {_kind(to)}")
    return float(UNITS[kind][unit] / UNITS[kind][to])


def _kind(unit: str) -> str:
    for kind, factors in UNITS.items():
        if unit in factors:
            return kind
    units = ", ".join(name for factors in UNITS.values() for name in factors)
    raise ValueError(f"Unknown unit {unit!r}, expected a number or one of {units}")


_DEFAULT_JQ_SECONDS = 2.0


class Selector:
    """A query in a jq-like language, evaluated on whole Arrow arrays.

    ======================  ==============================================================================
    ``.``                   the input
    ``.name`` ``."a b"``    a field of a struct; a missing field gives nothing (None)
    ``[n]``                 one element of each list, from the end where negative; null if there is none
    ``[]``                  all elements of all lists, flat
    ``a | b``, ``.a.b``     one, then the other on its result
    ``map(e)``              ``e`` inside each list
    ``"text"``              a string, once for each value
    ``pack(.x!, .y!)``      lists of one value from each field; a null value makes the list null
    ``x?``                  nothing instead of an error
    ``x!``                  a row whose values are all null becomes null
    ``(e)``                 a group
    ======================  ==============================================================================

    Field access copies nothing. ``[]`` copies at most offsets, and ``[n]`` copies the selected elements. ``==`` is
    identity.

    Raises :class:`~chunkmill.engine.errors.SelectorSyntaxError` (a ``ValueError``), which marks the position of the
    error.

    >>> Selector(".pose.x").execute(pa.array([{"pose": {"x": 1}}, {"pose": None}])).to_pylist()
    [1, None]
    """

    __slots__ = ("_pipeline",)

    _pipeline: SelectorPipeline

    def __init__(self, query: str) -> None:
        check_argument("query", query, str)
        self._pipeline = parse(query)

    @classmethod
    def of(cls, pipeline: SelectorPipeline) -> Selector:
        """Make a selector from existing stages."""
        selector = cls(".")
        selector._pipeline = pipeline
        return selector

    @classmethod
    def jq(
        cls,
        program: str,
        *,
        type: pa.DataType | str | None = None,  # noqa: A002 - the word for it
        timeout: float = _DEFAULT_JQ_SECONDS,
    ) -> Selector:
        """Run a jq program on the JSON form of each element, and replace the element by all outputs.

        ``type`` is the Arrow type of the outputs. Without it, the type is inferred from the outputs of each chunk. This
        is a thousand times slower than other selectors, because data passes as JSON through another process.

        If 1,024 elements take longer than ``timeout`` seconds, the program is stopped and
        :class:`~chunkmill.engine.errors.SelectorError` is raised. Raises ``ValueError`` if ``program`` is not a jq
        program.

        >>> Selector(".xs").pipe(Selector.jq("add / length")).execute(pa.array([{"xs": [1, 2]}])).to_pylist()
        [1.5]
        """
        check_argument("program", program, str)
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        from .jq_program import check_program

        check_program(program)
        datatype = None if type is None else datatype_of(type, "type")
        return _single(Jq(program, datatype, float(timeout)))

    @classmethod
    def pack(cls, *selectors: Selector | str, type: pa.DataType | str = "float32") -> Selector:  # noqa: A002 - the word for it
        """Combine one number from each selector into a vector, a fixed-size list of ``type``.

        A null number makes the vector null.

        All selectors must give the same number of values. A following ``[]`` splits the vectors into numbers.

        >>> Selector.pack(".x", ".y").execute(pa.array([{"x": 1, "y": 2.5}])).to_pylist()
        [[1.0, 2.5]]
        """
        if not selectors:
            raise ValueError("pack requires at least one selector")
        datatype = datatype_of(type, "type")
        if datatype not in (pa.float32(), pa.float64()):
            raise ValueError(f"pack supports float32 and float64, not {datatype}")
        parts = tuple(pipeline_of(selector) for selector in selectors)
        return _single(Pack(parts, datatype, 1.0, whole=True, by_position=False))

    @property
    def pipeline(self) -> SelectorPipeline:
        """The stages."""
        return self._pipeline

    def execute(self, source: pa.Array) -> pa.Array | None:
        """Return the selected values of an array, flat, or None if the selector gives nothing.

        Raises :class:`~chunkmill.engine.errors.SelectorError` (a ``RuntimeError``) if it does not fit the type.
        """
        return evaluation.execute(self._pipeline, _array(source))

    def execute_per_row(self, source: pa.Array) -> pa.Array | None:
        """Return the selected values of each row of a ``list`` array, as a list array with the same number of rows.

        The selector sees the elements of the lists. Raises ``TypeError`` if ``source`` is not a 32-bit list array.
        """
        rows = _array(source)
        if not pa.types.is_list(rows.type):
            raise TypeError(f"expected a ListArray, got {type_name(rows.type)}")
        return evaluation.execute_per_row(self._pipeline, rows)

    def pipe(self, func: Callable[[pa.Array], pa.Array | None] | Selector) -> Selector:
        """Apply this selector, then another selector or a callable.

        A callable gets one flat array for all rows. It returns an array of the same length, or None for no output. It
        may reject values with a :class:`~chunkmill.engine.errors.SelectorError`.
        """
        if isinstance(func, Selector):
            return Selector.of(self._pipeline.then(func.pipeline))
        if not callable(func):
            raise TypeError("pipe() argument must be a callable or a Selector")
        return Selector.of(self._pipeline.then_node(Function(func)))

    def cast(self, datatype: pa.DataType | str) -> Selector:
        """Cast the values to another Arrow type. A value that does not fit is an error.

        >>> Selector(".").cast("float32").execute(pa.array([1, None])).to_pylist()
        [1.0, None]
        """
        return Selector.of(self._pipeline.then_node(Cast(datatype_of(datatype, "datatype"))))

    def scaled(self, factor: float | str, to: str | None = None) -> Selector:
        """Multiply numbers by a factor, or convert them from one unit to another (by default to the SI unit).

        >>> Selector(".").scaled("mm").execute(pa.array([1500.0])).to_pylist()
        [1.5]
        """
        return Selector.of(self._pipeline.then_node(Scaled(unit_factor(factor, to))))

    def nanoseconds(self) -> Selector:
        """Convert stamps to int64 nanoseconds: ``{sec, nanosec}`` structs (ROS, protobuf) or Arrow times.

        >>> Selector(".").nanoseconds().execute(pa.array([{"sec": 1, "nanosec": 5}])).to_pylist()
        [1000000005]
        """
        return Selector.of(self._pipeline.then_node(Nanoseconds()))

    def __str__(self) -> str:
        return syntax.pipeline_text(self._pipeline)

    def __repr__(self) -> str:
        return f"Selector({syntax.quoted(str(self))})"

    def __reduce__(self) -> tuple[Any, ...]:
        if syntax.holds_code(self._pipeline):
            raise TypeError(
                "Cannot pickle Selector containing a Python callable from .pipe(); "
                "pass a Selector to .pipe() instead, or use a pure-string selector."
            )
        if syntax.is_written(self._pipeline):
            return Selector, (str(self),)
        return Selector.of, (self._pipeline,)


def pipeline_of(selector: Selector | str) -> SelectorPipeline:
    """Return the stages of a selector or a query."""
    if isinstance(selector, str):
        return parse(selector)
    if not isinstance(selector, Selector):
        raise TypeError(f"expected a Selector or a query string, got a '{type(selector).__name__}' object")
    return selector.pipeline


def _array(source: object) -> pa.Array:
    if not isinstance(source, pa.Array):
        kind = type(source)
        raise TypeError(
            f"argument 'source': Expected instance of pyarrow.lib.Array, got {kind.__module__}.{kind.__name__}"
        )
    return source


def datatype_of(given: pa.DataType | str, argument: str) -> pa.DataType:
    """Return the Arrow type of an argument.

    Raises ``ValueError`` for an unknown name, and ``TypeError`` for other objects.
    """
    if isinstance(given, pa.DataType):
        return given
    check_argument(argument, given, str)
    try:
        return pa.type_for_alias(given)
    except ValueError:
        raise ValueError(
            f"{given!r} is not an Arrow type; give a pyarrow.DataType or a name such as 'float64'"
        ) from None


def scalars(selectors: tuple[Selector | str, ...], unit: float | str | None, to_unit: str | None) -> Selector:
    """Return a selector that gives, for each element, one float64 from each of ``selectors``, in order."""
    if not selectors:
        raise ValueError("to_scalars requires at least one selector")
    factor = _factor(unit, to_unit)
    if len(selectors) == 1:
        single = Selector.of(pipeline_of(selectors[0])).cast(pa.float64())
        return single if factor == 1.0 else single.scaled(factor)
    parts = tuple(pipeline_of(s) for s in selectors)
    packed = Pack(parts, pa.float64(), factor, whole=False, by_position=False)
    return Selector.of(SelectorPipeline((PipelineStep(packed, False), PipelineStep(Each(), True))))


def vector(
    caller: str, selectors: tuple[Selector | str, ...], axes: str, unit: float | str | None, to_unit: str | None
) -> Selector:
    """Return a selector of fixed-size lists with one float32 for each letter of ``axes``, from as many selectors.

    A single selector can give all numbers; its values are structs with these fields, or lists of this length. A null
    number makes the vector null. Raises ``ValueError`` for another number of selectors; the message names ``caller``.
    """
    factor = _factor(unit, to_unit)
    if len(selectors) == len(axes):
        parts = tuple(pipeline_of(s) for s in selectors)
        return _single(Pack(parts, pa.float32(), factor, whole=True, by_position=False))
    if len(selectors) != 1:
        raise ValueError(f"{caller} takes one selector or {len(axes)}, got {len(selectors)}")
    packed = Pack(tuple(parse(f".{a}") for a in axes), pa.float32(), factor, whole=True, by_position=True)
    return Selector.of(pipeline_of(selectors[0]).then_node(packed))


def _single(node: syntax.Node) -> Selector:
    return Selector.of(SelectorPipeline((PipelineStep(node, False),)))


def _factor(unit: float | str | None, to_unit: str | None) -> float:
    if unit is None:
        if to_unit is not None:
            raise ValueError("`to_unit` needs `unit`, the unit of the data")
        return 1.0
    return unit_factor(unit, to_unit)
