"""Checkpoints of a run, and dataclasses read from JSON, such as job records.

::

    <table>/_computed/checkpoints/<key>/<first>-<last>-<digest>.arrow     values of rows, by offset
    <table>/_computed/checkpoints/<key>/file-<digest>.json                a table file that has the whole fragment

The key identifies the values: the function's version, its inputs, the condition, and the fragment's files of the
columns concerned. So changed data has another key, and the key changes once a version has the values. Offsets are those
of single rows, so batches of another size compute nothing again.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import ReadError, writing
from ..faults import reach
from ..lance import OFFSET
from ..locations import located
from ..rrd import digest_of
from ..storage.folder import Folder
from .digests import provenance_of
from .policies import RowFailure

R = TypeVar("R")


def parsed(data: bytes | str) -> Any:
    """Parse JSON. Raises ``ValueError``, also if it is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def record_of(kind: type[R], data: Any) -> R:
    """Return a dataclass made of JSON data: numbers, texts, times, lists, dicts and nested dataclasses.

    Raises ``ValueError`` for a field that is missing, unknown, or of another type; the message names it.
    """
    if not isinstance(data, dict):
        raise ValueError(f"it is {type(data).__name__}, not an object")
    of: Any = kind
    hints = _hints(of)
    if unknown := sorted(map(str, data.keys() - hints.keys())):
        raise ValueError(f"it has a field {unknown[0][:40]!r}")
    values = {name: _value(hints[name], value, name) for name, value in data.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any, name: str) -> Any:
    """The value of a field. Raises ``ValueError`` if it is not of the type."""
    arguments = get_args(hint)
    if hint is Any:
        return value
    if get_origin(hint) in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        return _value(next(argument for argument in arguments if argument is not NoneType), value, name)
    if get_origin(hint) is list and isinstance(value, list):
        return [_value(arguments[0], item, name) for item in value]
    if get_origin(hint) is dict and isinstance(value, dict):
        return {key: _value(arguments[1], item, name) for key, item in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return record_of(hint, value)
    if hint is datetime and isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            return moment
    elif type(value) is hint:
        return value
    raise ValueError(f"its {name} is {str(value)[:40]!r}")


COMPUTED: Final = "_computed"
"""The subfolder of a table's folder with the data of its computed columns."""

_FAILURES: Final = b"failures"
_ROWS: Final = ".arrow"
_FILE: Final = ("file-", ".json")
_READ_ONCE: Final = 32 << 20
"""Bytes of checkpoints that stay in memory after the first read, because each is read twice."""

Offsets = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Computed:
    """The values of some rows of a fragment, by ascending offset: a column for each output.

    ``failures`` are the rows that are null because the function failed, each with its error.
    """

    offsets: Offsets
    values: pa.RecordBatch
    failures: tuple[dict[str, Any], ...] = ()

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def joined(cls, pieces: Sequence[Computed]) -> Computed:
        """Join several in row order, each row once."""
        if len(pieces) == 1:
            return pieces[0]
        offsets = np.concatenate([piece.offsets for piece in pieces])
        values = pa.Table.from_batches([piece.values for piece in pieces]).combine_chunks()
        failures = tuple(failure for piece in pieces for failure in piece.failures)
        if (np.diff(offsets.astype(np.int64)) <= 0).any():
            order = np.argsort(offsets, kind="stable")  # np.unique hashes, which took 3 s for a million
            order = order[np.concatenate([[True], np.diff(offsets[order].astype(np.int64)) > 0])]
            offsets, values = offsets[order], values.take(pa.array(order)).combine_chunks()
        batch = next(iter(values.to_batches()), None) or pa.RecordBatch.from_pylist([], values.schema)
        return cls(offsets, batch, failures)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file with the columns of a whole fragment that no version has yet: its name and counts of its rows.

    ``skipped`` counts the failed rows by the index of the policy that skipped them.
    """

    name: str
    rows: int
    computed: int
    skipped: dict[str, int] = field(default_factory=dict)
    errors: str = ""
    """The name of the file with error records, if a row failed."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}


class FragmentCheckpoints:
    """The checkpoints of one key. ``schema`` are their columns; checkpoints with other columns count as damaged."""

    def __init__(self, folder: Folder, schema: pa.Schema | None = None) -> None:
        self._folder = folder
        self._schema = schema
        self._made = False
        self._known: dict[str, Computed] = {}
        self._room = _READ_ONCE

    def spans(self) -> list[tuple[int, int, str]]:
        """The first and the last offset of each checkpoint, and its name, sorted."""
        return sorted(span for name in self._names() if (span := _span_of(name)) is not None)

    def size(self) -> int:
        """The total size in bytes."""
        return self._folder.total()

    def covered(self, span: tuple[int, int]) -> list[Offsets]:
        """Return the offsets of checkpoints that may have rows of a span. Damaged ones have none."""
        return [piece.offsets for piece in self.read(self.spans(), span)]

    def read(self, spans: Iterable[tuple[int, int, str]], within: tuple[int, int] | None = None) -> Iterator[Computed]:
        """Yield the values of some checkpoints. Damaged ones are left out, with a warning."""
        for first, last, name in spans:
            if within is not None and (last < within[0] or first >= within[1]):
                continue
            piece = self._read(name)
            if piece is not None:
                yield piece

    def in_order(self, within: tuple[int, int] | None = None) -> Iterator[Computed]:
        """Yield the values of all checkpoints in row order. Checkpoints with overlapping spans are joined.

        With ``within``, only checkpoints that may have rows of that span.
        """
        group: list[tuple[int, int, str]] = []
        end = -1
        for span in self.spans():
            if within is not None and (span[1] < within[0] or span[0] >= within[1]):
                continue
            if group and span[0] > end:
                yield from self._joined(group)
                group = []
            group.append(span)
            end = max(end, span[1])
        yield from self._joined(group)

    def write(self, piece: Computed) -> None:
        """Store computed values."""
        if not len(piece):
            return
        table = pa.table([pa.array(piece.offsets), *piece.values.columns], [OFFSET, *piece.values.schema.names])
        table = table.replace_schema_metadata({_FAILURES: json.dumps(piece.failures).encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue().to_pybytes()
        name = f"{int(piece.offsets[0]):08x}-{int(piece.offsets[-1]):08x}-{digest_of(data).hex()}{_ROWS}"
        self._put(name, data)
        reach("checkpoint.write", self._folder.place(name))

    def keep_file(self, written: WrittenFile) -> None:
        """Record that a file has the whole fragment."""
        data = json.dumps(written.to_dict()).encode()
        name = f"{_FILE[0]}{digest_of(data).hex()}{_FILE[1]}"
        self._put(name, data)
        reach("checkpoint.file", self._folder.place(name))

    def files(self) -> Iterator[WrittenFile]:
        """Yield the files recorded for the whole fragment: several if an earlier one was useless."""
        for name in self._names():
            if name.startswith(_FILE[0]) and name.endswith(_FILE[1]):
                data = self._checked(name, name[len(_FILE[0]) : -len(_FILE[1])])
                if data is None:
                    continue
                try:
                    written = record_of(WrittenFile, parsed(data))
                    if provenance_of(written.name) is None:
                        raise ValueError("it does not name a file of a column")
                except ValueError as error:
                    self._damaged(name, error)
                else:
                    yield written

    def remove(self) -> None:
        """Remove all of them."""
        self._folder.remove()

    def _joined(self, group: Sequence[tuple[int, int, str]]) -> Iterator[Computed]:
        pieces = list(self.read(group))
        if pieces:
            yield Computed.joined(pieces)

    def _names(self) -> list[str]:
        try:
            return list(self._folder.names())
        except FileNotFoundError:
            return []

    def _put(self, name: str, data: bytes) -> None:
        with writing(str(self._folder.location)):
            if not self._made:
                self._folder.make()
                self._made = True
            self._folder.put(name, data, durable=False)

    def _read(self, name: str) -> Computed | None:
        if name in self._known:  # a name has the digest of its content
            return self._known[name]
        data = self._checked(name, name[18 : -len(_ROWS)])
        if data is None:
            return None
        try:
            piece = _piece_of(data)
            span = (int(piece.offsets[0]), int(piece.offsets[-1]), name)
            if span != _span_of(name) or (piece.offsets[1:] <= piece.offsets[:-1]).any():
                raise ValueError("its rows differ from those in its name")
            if self._schema is not None and piece.values.schema != self._schema:
                raise ValueError("its columns or their types differ from the expected ones")
        except (KeyError, IndexError, TypeError, OSError, ValueError, pa.ArrowException) as error:
            self._damaged(name, error)
            return None
        if len(data) <= self._room:
            self._known[name] = piece
            self._room -= len(data)
        return piece

    def _checked(self, name: str, digest: str) -> bytes | None:
        try:
            data = self._folder.get(name)
        except FileNotFoundError:
            return None
        except (OSError, ReadError) as error:
            self._damaged(name, error)
            return None
        if digest_of(data).hex() != digest:
            self._damaged(name, ValueError("its digest differs"))
            return None
        return data

    def _damaged(self, name: str, error: Exception) -> None:
        text = f"the checkpoint {self._folder.place(name)} is damaged, and its rows are computed again: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of a table, in its folder. Picklable."""

    table: str

    def of(self, key: str, schema: pa.Schema | None = None) -> FragmentCheckpoints:
        """Return the checkpoints of a key, with the columns of ``schema``."""
        return FragmentCheckpoints(self._home.sub(key), schema)

    def keys(self) -> list[str]:
        """All keys with checkpoints."""
        return self._home.folders()

    @property
    def _home(self) -> Folder:
        return Folder.at(located(self.table) / COMPUTED / "checkpoints")


def _piece_of(data: bytes) -> Computed:
    """Return the rows in the bytes of a checkpoint. Raises ``ValueError`` and others if the bytes are damaged."""
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all().combine_chunks()
    table.validate(full=True)
    offsets = table.column(OFFSET)
    if offsets.type != pa.uint32() or offsets.null_count:
        raise ValueError("its offsets are invalid")
    failures = parsed((table.schema.metadata or {}).get(_FAILURES, b"[]"))
    for failure in failures:
        RowFailure.from_dict(failure)
    (values,) = table.drop_columns([OFFSET]).replace_schema_metadata(None).to_batches()
    return Computed(offsets.to_numpy(), values, tuple(failures))


def _span_of(name: str) -> tuple[int, int, str] | None:
    if not name.endswith(_ROWS) or len(name) != 18 + 32 + len(_ROWS):
        return None
    try:
        return int(name[:8], 16), int(name[9:17], 16), name
    except ValueError:
        return None
