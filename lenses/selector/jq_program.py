"""jq programs on Arrow arrays: out to JSON, through jq, back typed.

The JSON form: structs are objects, lists are arrays; times, durations and dates are their integers; maps are arrays of
``[key, value]``; dictionaries are their values; binary is base64 text, decimals are text. NaN is null and infinity the
largest double, as in jq itself.
"""

from __future__ import annotations

import base64
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import SelectorError, UsageError
from . import jq_process
from .lists import Offsets
from .syntax import Jq
from .type_names import type_name

_PIECE = 1024
"""Elements in one request: the time limit is for this many."""

_LARGEST = 1.7976931348623157e308


def check_program(program: str) -> None:
    """Raise :class:`UsageError` with jq's own words where ``program`` cannot be compiled. Runs nothing."""
    import jq

    try:
        jq.compile(program)
    except ValueError as error:
        raise UsageError(f"not a jq program: {error}") from None


def run_jq(node: Jq, values: pa.Array) -> tuple[pa.Array, Offsets]:
    """The outputs of the program, typed, and the offsets that say which come from which element."""
    plain = _plain(values)
    outputs: list[Any] = []
    counts = np.zeros(len(values) + 1, dtype=np.int64)
    for start in range(0, len(values), _PIECE):
        piece = plain.slice(start, _PIECE)
        answer = json.loads(jq_process.ask(node.program, to_json(piece), node.seconds))
        counts[start + 1 : start + 1 + len(piece)] = [len(each) for each in answer]
        for each in answer:
            outputs.extend(each)
    return _typed(outputs, node.datatype), np.cumsum(counts)


def to_json(plain: pa.Array) -> str:
    """The JSON array of the elements of an array of plain types."""
    rows = plain.to_pylist()
    try:
        return json.dumps(rows, allow_nan=False, default=_text)
    except ValueError:
        return json.dumps(_finite(rows), default=_text)


def _typed(outputs: list[Any], datatype: pa.DataType | None) -> pa.Array:
    try:
        return pa.array(outputs, type=datatype, from_pandas=False)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        wanted = "one type; give `type=`" if datatype is None else type_name(datatype)
        raise SelectorError(f"the outputs of the jq program do not fit {wanted}: {error}") from error


def _plain(values: pa.Array) -> pa.Array:
    """``values`` with times as integers and dictionaries unpacked, at every depth."""
    wanted = _plain_type(values.type)
    if wanted == values.type:
        return values
    try:
        return pc.cast(values, wanted)
    except pa.ArrowException as error:
        raise SelectorError(f"{type_name(values.type)} has no JSON form here: {error}") from error


def _plain_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([f.with_type(_plain_type(f.type)) for f in kind])
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)), kind.list_size)
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    if types.is_date32(kind) or types.is_time32(kind):
        return pa.int32()
    return pa.int64() if types.is_temporal(kind) else kind


def _text(value: object) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return str(value)
    raise SelectorError(f"a {type(value).__name__} has no JSON form")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else math.copysign(_LARGEST, value)
    if isinstance(value, list):
        return [_finite(v) for v in value]
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return value
