"""Samples: a number of rows for each value of some columns; the same seed gives the same rows.

The rows with the least digests are chosen. The digest is of the seed and the columns that identify the row. So the
choice depends neither on the order of rows nor on files, and a larger sample has the rows of a smaller one.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import ReadWarning, UsageError, check_argument
from ...lance import LanceTable, keys_of
from ...units import counted
from ..targets import quoted
from .duplicates import near_duplicates

_DIGEST_BYTES: Final = 16
_SHOWN: Final = 3


class Sampler:
    """Chooses among rows that are added batch by batch.

    Raises ``UsageError`` unless exactly one of ``n`` and ``fraction`` is given, and is valid.
    """

    def __init__(
        self, n: int | None, by: str | Sequence[str] | None, fraction: float | None, seed: int, names: Sequence[str]
    ) -> None:
        if (n is None) == (fraction is None):
            raise UsageError("a sample needs exactly one of n and fraction", hint="Give n= or fraction=.")
        if n is not None:
            check_argument("n", n, int)
            if n < 1 or isinstance(n, bool):
                raise UsageError(f"n: expected 1 or more rows, got {n!r}")
        if fraction is not None:
            check_argument("fraction", fraction, float, int)
            if not 0 < fraction <= 1:
                raise UsageError(f"fraction={fraction!r} is not a fraction above 0 and up to 1")
        check_argument("seed", seed, int)
        self.by = [] if by is None else [by] if isinstance(by, str) else list(by)
        if unknown := [name for name in self.by if name not in names]:
            raise UsageError(f"by: there is no column {unknown[0]!r}", hint=f"There are: {', '.join(names)}.")
        self._n = n
        self._fraction = fraction
        self._seed = str(int(seed)).encode()
        self._digests: list[bytes] = []
        self._codes: list[int] = []
        self._values: dict[str, int] = {}

    def add(self, columns: Mapping[str, pa.Array | pa.ChunkedArray], identity: Sequence[str]) -> None:
        """Add rows: ``columns`` by their names. The columns ``identity`` identify a row."""
        for row in _texts(columns, identity):
            self._digests.append(hashlib.blake2b(self._seed + row.encode(), digest_size=_DIGEST_BYTES).digest())
        self._codes += [self._values.setdefault(row, len(self._values)) for row in _texts(columns, self.by)]

    def chosen(self, *, stacklevel: int) -> npt.NDArray[np.int64]:
        """The numbers of the chosen rows, in the order of their digests. Warns of values with fewer rows than ``n``."""
        codes = np.array(self._codes, np.int64)
        digests = np.frombuffer(b"".join(self._digests), ">u8").reshape(-1, 2)
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        counts = np.bincount(codes, minlength=len(self._values))
        if self._n is not None:
            wanted = np.full(len(counts), self._n)
            self._warn_of_few(counts, self._n, stacklevel + 1)
        else:
            share = self._fraction or 0.0
            wanted = np.array([math.floor(share * count + 0.5) for count in counts.tolist()], np.int64)
        grouped = order[np.argsort(codes[order], kind="stable")]
        place = np.arange(len(grouped)) - np.repeat(np.cumsum(counts) - counts, counts)
        is_chosen = np.zeros(len(codes), bool)
        is_chosen[grouped[place < np.repeat(wanted, counts)]] = True
        return order[is_chosen[order]]

    def _warn_of_few(self, counts: npt.NDArray[np.int64], n: int, stacklevel: int) -> None:
        few = np.flatnonzero(counts < n)
        if not len(few) and len(counts):
            return
        if not self.by or not len(counts):
            text = f"there are {counted(int(counts.sum()), 'row')}"
        else:
            values = list(self._values)
            shown = ", ".join(f"{counts[code]:,} of {values[code]}" for code in few[:_SHOWN])
            more = f" and {len(few) - _SHOWN:,} values more" if len(few) > _SHOWN else ""
            text = f"there are only {shown}{more} in {', '.join(self.by)}"
        warnings.warn(f"the sample is smaller than n={n}: {text}", ReadWarning, stacklevel=stacklevel + 1)


def _texts(columns: Mapping[str, pa.Array | pa.ChunkedArray], names: Sequence[str]) -> list[str]:
    """Return a text for each row. Equal values give equal texts, whatever the width of their type."""
    lists = [_comparable(columns[name]) for name in names]
    rows = len(next(iter(columns.values()), ()))
    if not lists:
        return [""] * rows
    return [", ".join(map(repr, row)) for row in zip(*lists, strict=True)]


def _comparable(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values that have equal texts if they are equal."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        column = column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    if pa.types.is_fixed_size_list(kind) and kind.value_type in (pa.float32(), pa.float64()):
        return _vectors(column, kind.list_size)
    values: list[Any] = column.to_pylist()
    return values


def _vectors(column: pa.Array | pa.ChunkedArray, size: int) -> list[bytes | None]:
    """Return vectors as bytes, with a mask of nulls if any: making their texts takes twenty times as long."""
    numbers, shape = column.drop_null().flatten(), (len(column) - column.null_count, size)
    values = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64).reshape(shape)
    nulls = np.asarray(numbers.is_null()).reshape(shape)
    rows = (row.tobytes() + (mask.tobytes() if mask.any() else b"") for row, mask in zip(values, nulls, strict=True))
    return [next(rows) if is_valid else None for is_valid in column.is_valid().to_pylist()]


class TableCuration:
    """The methods of a table that choose among its rows."""

    _read_table: Callable[[], LanceTable]
    _executor: str | None = None

    def near_duplicates(
        self,
        column: str,
        *,
        threshold: float = 0.98,
        key: str | Sequence[str] | None = None,
        executor: str | None = None,
    ) -> pa.Table:
        """Find near-duplicates: rows whose vector is similar to that of an earlier row.

        Rows are compared in the table's order. A row stays unless it is similar to an earlier row that stays, so the
        first of several similar rows stays. The result has the other rows: the columns that identify a row,
        ``duplicate_of`` (the first similar row that stays; a struct if several columns identify a row) and
        ``similarity``. All rows are compared, without an index. Nulls, zero vectors and vectors with a non-finite
        number are similar to no row; a warning counts them.

        Parameters
        ----------
        column
            The column of vectors: lists of numbers, all of the same size.
        threshold
            The least cosine similarity of similar vectors, above 0 and up to 1.
        key
            The columns that identify a row. By default the key of ``upsert``, else ``rerun_segment_id``, else
            ``_rowid``.
        executor
            ``inline`` or ``spark``; by default this process compares small tables, and Spark large ones.

        Raises
        ------
        ValueError
            There is no such column, it has no vectors or vectors of different sizes, ``key`` does not identify rows, or
            ``threshold`` is out of range.

        Examples
        --------
        >>> features.near_duplicates("embedding", threshold=0.99)  # doctest: +SKIP
        """
        return near_duplicates(self._read_table(), column, threshold, key, executor or self._executor)

    def sample(
        self,
        n: int | None = None,
        *,
        by: str | Sequence[str] | None = None,
        fraction: float | None = None,
        seed: int = 0,
    ) -> pa.Table:
        """Choose rows at random: ``n`` of each value of ``by``, or a fraction of them.

        The same seed chooses the same rows, whatever their order and files. The result has its own order: without
        ``by``, a larger sample begins with the rows of a smaller one. A row is identified by the key of ``upsert``, or
        without a key by all of its values.

        Parameters
        ----------
        n
            The number of rows for each value. A value with fewer rows gives all of them, with a warning.
        by
            A column, or several: ``n`` rows are chosen for each value, null included. By default, from all rows.
        fraction
            The fraction of each value's rows, instead of ``n``; the number of rows is rounded.
        seed
            The seed of the random choice.

        Raises
        ------
        ValueError
            There is no such column, or not exactly one of ``n`` and ``fraction`` is given.

        Examples
        --------
        >>> features.sample(20, by="weather", seed=1)  # doctest: +SKIP
        """
        reader = self._read_table().at()
        names = reader.schema.names
        sampler = Sampler(n, by, fraction, seed, names)
        identity = keys_of(reader.schema) or names
        needed = {name: quoted(name) for name in dict.fromkeys([*sampler.by, *identity])}
        for batch in reader.expressed(needed):
            sampler.add(dict(zip(needed, batch.columns, strict=True)), identity)
        rows = sampler.chosen(stacklevel=2)
        order = np.sort(rows)
        parts, first = [], 0
        for batch in reader.expressed({name: quoted(name) for name in names}):
            own = order[np.searchsorted(order, first) : np.searchsorted(order, first + len(batch))] - first
            parts.append(batch.take(pa.array(own)))
            first += len(batch)
        chosen = pa.Table.from_batches([part.cast(reader.schema) for part in parts], reader.schema)
        return chosen.take(pa.array(np.searchsorted(order, rows)))
