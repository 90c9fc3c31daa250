"""What calls of Rerun's SDK answer, as facts that can be compared, and which of its calls were made.

A fact has a name and a value. A frame is its fields and its rows, a schema its fields, an error its class and its text,
a list or an object what is in it. Ids, places and times of one catalog are left out.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import hashlib
import inspect
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

OWN = (
    "rerun_storage_url",
    "rerun_storage_urls",
    "rerun_last_updated_at",
    "rerun_registration_time",
    "rerun_schema_sha256",
    "rerun.controls.RowId",
)
"""Columns whose values are those of one catalog."""

IDS = (
    (re.compile(r"rerun\+http://[^/\s]*"), "<server>"),
    (re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{32}(?![0-9A-Fa-f])"), "<id>"),
    (re.compile(r"(file|memory)://[^\s\"'`,)]*"), "<place>"),
    (re.compile(r"(?<![\w<])/[\w.@+-]+(/[\w.@+-]+)+"), "<place>"),
)
"""What texts have that is of one catalog, and what stands for it."""

TRANSPORT = re.compile(
    r"""
    \n-\ (Server|Endpoint|trace-id|metadata):.* | .*\btrace-id:\ \w+$ | \s*\(trace-id:\ \w+\)
    | \s*\((Client|Some|Internal|Operation)\ [^()]*\)\s*Details:(.|\n)* | \ \([A-Z][A-Za-z]+\)(?=\n|$)
    """,
    re.VERBOSE | re.MULTILINE,
)
"""What the SDK says of a call behind the text of an error."""

LUCK = "column types must match schema types"
"""The error of SDK 0.33 where it confuses two columns of an entity whose names end alike: in every second call.

Where there are many such entities, hardly a call has the luck that none is confused.
"""

TRIES, SECONDS = 40, 4.0
"""How often luck is tried, and for how long."""

TEXT_LENGTH = 240


Ask = Callable[[], Any]


class Difference(NamedTuple):
    """A fact that is another here than there."""

    fact: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.fact} is {_short(self.ours)} here, and {_short(self.theirs)} there"


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a table, in whatever order."""

    table: pa.Table

    def differing(self, other: Rows) -> Iterator[Difference]:
        """The columns, of those that both have, whose values differ; or the number of rows."""
        names = sorted({*self.table.column_names} & {*other.table.column_names} - {*OWN})
        ours, theirs = (_ordered(rows.table.select(names)) for rows in (self, other))
        if len(ours) != len(theirs):
            yield Difference("rows", len(ours), len(theirs))
        elif not ours.equals(theirs) and _texts(ours) != _texts(theirs):
            for name in names:
                here, there = (side[name].to_pylist() for side in (ours, theirs))
                if repr(here) != repr(there):
                    at = next(i for i, (one, two) in enumerate(zip(here, there, strict=True)) if repr(one) != repr(two))
                    yield Difference(name, here[at], there[at])


@dataclasses.dataclass(frozen=True)
class Text:
    """What an error says: the same where it has what Rerun says, beside the place and what to do."""

    text: str

    def is_like(self, other: Text) -> bool:
        """Whether this has the other's text in it, but for what call it was and a full stop."""
        return re.sub(r"^/\w+ failed \(\w+\), ", "", other.text).rstrip(".") in self.text


def message_of(text: str) -> str:
    """The text of an error without ids and our codes, and without what the transport says of the call."""
    text = TRANSPORT.sub("", text.replace("\\n", "\n"))
    return " ".join(re.sub(r"\bCM\d{3}: ", "", without_ids(text)).split())


def _ordered(table: pa.Table) -> pa.Table:
    """The rows, ordered by the columns that can be ordered."""
    keys = [(field.name, "ascending") for field in table.schema if _can_order(field.type)]
    table = table.combine_chunks()
    return table.take(pc.sort_indices(table, keys)).combine_chunks() if keys and len(table) > 1 else table


def _can_order(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_temporal(kind)


def _texts(table: pa.Table) -> list[str]:
    """The rows as text, in the order of those: so a value that is not a number is like itself."""
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


def answered(ask: Ask) -> dict[str, Any] | None:
    """The facts of an answer, or of the error; None where luck was wanted, in vain."""
    end = time.monotonic() + SECONDS
    for _ in range(TRIES):
        try:
            return facts_of(ask())
        except Exception as error:  # noqa: BLE001 (it is compared)
            if LUCK not in str(error):
                return {"error": type(error).__name__, "text": Text(message_of(str(error)))}
            if time.monotonic() > end:
                break
    return None


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[Difference]:
    """The facts that are not the same; of an answer and an error, the error."""
    is_one_refused = ("error" in ours) != ("error" in theirs)
    for fact in ("error", "text") if is_one_refused else sorted({*ours, *theirs}):
        here, there = ours.get(fact), theirs.get(fact)
        if isinstance(here, Rows) and isinstance(there, Rows):
            yield from here.differing(there)
        elif isinstance(here, Text) and isinstance(there, Text):
            if not here.is_like(there):
                yield Difference(fact, here.text, there.text)
        elif here != there:
            yield Difference(fact, here, there)


def facts_of(answer: Any) -> dict[str, Any]:
    """An answer as facts by their names."""
    if isinstance(answer, pa.RecordBatchReader):
        return _of_batches(answer.schema, answer)
    if hasattr(answer, "execute_stream"):
        return _of_batches(answer.schema(), (batch.to_pyarrow() for batch in answer.execute_stream()))
    if isinstance(answer, pa.Schema):
        return {f"field {field.name}": _of_field(field) for field in answer} | _metadata(answer)
    if isinstance(answer, dict):
        return {
            name: Rows(pa.table(value)) if isinstance(value, pa.RecordBatch) else value
            for name, value in answer.items()
        }
    if dataclasses.is_dataclass(answer):
        return {field.name: plain(getattr(answer, field.name)) for field in dataclasses.fields(answer)}
    return {"answer": plain(answer)}


def _of_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
    """The fields and the rows of a table; of long values digests, as a filled table repeats them."""
    parts = []
    for batch in batches:
        schema = batch.schema
        parts.append(pa.table([_light(column) for column in batch.columns], batch.schema.names))
    rows = pa.concat_tables(parts, promote_options="permissive") if parts else schema.empty_table()
    return facts_of(schema) | {"rows": Rows(rows)}


def _light(column: pa.Array) -> pa.Array:
    """A column, or where its values are lists of lists or the like, their digests."""
    kind = column.type
    is_flat = not pa.types.is_nested(kind) or (_is_list(kind) and not pa.types.is_nested(kind.value_type))
    return column if is_flat else pa.array(digests(column), pa.string())


_DIGESTS: dict[bytes, list[str]] = {}
"""Those of columns that came, by their bytes: calls give the same ones again and again, some of 1,000 fields a row."""

_MOST_DIGESTS = 500


def digests(column: pa.Array) -> list[str]:
    """The digest of each value of a column, wherever the column was cut out."""
    if len(column) > 1 and column[1:].equals(
        column[:-1]
    ):  # as of what is static: 3,500 rows of 60 columns took seconds
        return digests(column[:1]) * len(column)
    batch = pa.RecordBatch.from_arrays([column], ["values"])
    key = hashlib.blake2b(str(column.type).encode() + batch.serialize().to_pybytes()).digest()
    if key not in _DIGESTS:
        if len(_DIGESTS) >= _MOST_DIGESTS:
            _DIGESTS.clear()
        _DIGESTS[key] = [hashlib.blake2b(row, digest_size=16).hexdigest() for row in _rows(column)]
    return _DIGESTS[key]


def _rows(column: pa.Array) -> list[bytes]:
    """Each value as bytes that say where they end."""
    kind = column.type
    if _is_list(kind):
        return list(_lists(pc.list_value_length(column).to_pylist(), column.flatten()))
    if pa.types.is_struct(kind):
        fields = [*map(_rows, column.flatten())] or [[b""] * len(column)]
        valid = column.is_valid().to_pylist()
        return [b"{%b}" % b"".join(row) if valid[at] else b"-" for at, row in enumerate(zip(*fields, strict=True))]
    if _has_plain_bytes(kind) and not column.null_count:
        return list(_lists([1] * len(column), column))
    return [repr(value).encode() + b"," for value in column.to_pylist()]


def _lists(lengths: list[int | None], values: pa.Array) -> Iterator[bytes]:
    """Lists of so many values each; none where the length is none."""
    if _has_plain_bytes(values.type) and not values.null_count:
        data = values.to_numpy(zero_copy_only=False).tobytes()
        width = len(data) // max(1, len(values))
        parts: Callable[[int, int], bytes] = lambda start, end: data[start * width : end * width]  # noqa: E731
    else:
        rows = _rows(values)
        parts = lambda start, end: b"".join(rows[start:end])  # noqa: E731
    at = 0
    for length in lengths:
        yield b"-" if length is None else b"%d[%b" % (length, parts(at, at + length))
        at += length or 0


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _has_plain_bytes(kind: pa.DataType) -> bool:
    """Whether numpy has the values as bytes, and not as objects."""
    flat = (pa.types.is_integer, pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp, pa.types.is_duration)
    return any(is_one(kind) for is_one in flat)


def _of_field(field: pa.Field) -> tuple[str, bool, dict[bytes, bytes]]:
    return str(field.type), field.nullable, dict(sorted((field.metadata or {}).items()))


def _metadata(schema: pa.Schema) -> dict[str, Any]:
    return {f"metadata {key.decode()}": value for key, value in (schema.metadata or {}).items()}


def plain(value: Any) -> Any:
    """A value as what can be compared: objects of the SDK as what they show."""
    if value is None or isinstance(value, bool | int | float | bytes | datetime.timedelta | pa.Scalar):
        return value
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, str):
        return without_ids(value)
    if isinstance(value, np.generic | type):
        return repr(value)
    if isinstance(value, pa.RecordBatch):
        return repr((_of_field_all(value.schema), value.to_pydict()))
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(one) for one in value), key=repr)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return _of_object(value)


def _of_field_all(schema: pa.Schema) -> list[Any]:
    return [(field.name, _of_field(field)) for field in schema]


def _of_object(value: Any) -> Any:
    """What an object of the SDK's shows: the attributes of what is not written in Python, else the text."""
    names = [name for name in dir(type(value)) if not name.startswith("_")]
    if type(value).__module__.startswith("rerun_bindings") and names:
        shown = {name: getattr(value, name) for name in names}
        CALLED.note(type(value), *names)
        return {name: plain(one) for name, one in shown.items() if not callable(one)} or without_ids(repr(value))
    return without_ids(repr(value))


def without_ids(text: str) -> str:
    """A text without what is of one catalog."""
    for pattern, stands in IDS:
        text = pattern.sub(stands, text)
    return text


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= TEXT_LENGTH else f"{text[:TEXT_LENGTH]}…"


class Called:
    """Which public members of the SDK's classes were used by a script, and not by the SDK itself."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._public: set[str] = set()
        self._depth = 0

    def watch(self, kinds: list[type]) -> None:
        """Notice from now on what is called of these classes; of those not in Python, what is noted."""
        for kind in kinds:
            for name in public_members(kind):
                self._public.add(f"{kind.__name__}.{name}")
                if kind.__module__.startswith("rerun."):
                    setattr(kind, name, self._watched(f"{kind.__name__}.{name}", inspect.getattr_static(kind, name)))

    def note(self, kind: type, *names: str) -> None:
        """Say that members were used that cannot be watched."""
        self._names.update(f"{kind.__name__}.{name}" for name in names)

    def note_names(self, names: Iterable[str]) -> None:
        """Say that members were used in another run."""
        self._names.update(names)

    def names(self) -> list[str]:
        """The members that were used."""
        return sorted(self._names)

    def missing(self) -> set[str]:
        """The public members that were not used."""
        return self._public - self._names

    def __len__(self) -> int:
        return len(self._public & self._names)

    def _watched(self, name: str, member: Any) -> Any:
        if isinstance(member, property):
            return property(self._counted(name, member.fget))
        if isinstance(member, classmethod | staticmethod):
            return type(member)(self._counted(name, member.__func__))
        return self._counted(name, member)

    def _counted(self, name: str, function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if not self._depth:
                self._names.add(name)
            self._depth += 1
            try:
                return function(*args, **options)
            finally:
                self._depth -= 1

        return call


def public_members(kind: type) -> list[str]:
    """The names of a class's public methods and properties that Rerun wrote."""
    return [
        name
        for name in dir(kind)
        if not name.startswith("_")
        and any(name in vars(one) for one in kind.__mro__ if one.__module__.startswith("rerun"))
        and not isinstance(getattr(kind, name, None), kind)
    ]


CALLED = Called()
