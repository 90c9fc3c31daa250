"""A version of a Lance table by fragments, and new files for some columns of a fragment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from .expressions import translate_sql_errors
from .gate import outer_columns
from .place import LancePlace
from .rows import blobs_as_bytes

if TYPE_CHECKING:
    from types import TracebackType

OFFSET: Final = "chunkmill:offset"
"""The column with the offsets of rows in their fragment."""
_ADDRESS: Final = "_rowaddr"
_ROW_BITS: Final = 32
_READ_BYTES: Final = 32 << 20
"""Bytes that Lance reads ahead: with its default, 2 GiB, a worker with 1 GiB dies on large rows."""
_BATCHES_AHEAD: Final = 2
_FEW_ROWS: Final = 16


@dataclass(frozen=True)
class Fragment:
    """A fragment of a version: its number of rows, including deleted ones, and the files of its columns.

    A column that was never written has no file. ``deletions`` is the file that lists the deleted rows.
    """

    id: int
    rows: int
    deleted: int
    files: Mapping[str, str]
    deletions: str = ""

    def files_of(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return the files of some columns, in the order of the columns; an empty name for a column without a file."""
        return tuple(self.files.get(column, "") for column in columns)


class FragmentReader:
    """A version of a table, by fragments. Lance's errors become ``ReadError``."""

    def __init__(self, table: LancePlace, dataset: Any) -> None:
        self._table = table
        self._dataset = dataset
        self.schema = blobs_as_bytes(dataset.schema)
        self._outer = outer_columns(dataset.schema)

    def _check_blobs(self, texts: Iterable[str | None], fragments: Sequence[int] | None = None) -> None:
        """Raise ``ForeignFileError`` if SQL or column names may read blobs that are not allowed."""
        if self._outer:
            said = " ".join(text for text in texts if text is not None).lower()
            outer = [name for name in self._outer if name.lower() in said]
            self._table.check_blobs(self._dataset, outer, fragments)

    @property
    def version(self) -> int:
        """The number of the version."""
        return int(self._dataset.version)

    @property
    def has_stable_ids(self) -> bool:
        """Return whether rows keep their ids permanently."""
        return bool(self._dataset.has_stable_row_ids)

    @cached_property
    def fragments(self) -> list[Fragment]:
        """All fragments of the version, in order."""
        with self._table.reading():
            fields = [(field.name(), frozenset(_ids(field))) for field in self._dataset.lance_schema.fields()]
            fragments = []
            for fragment in self._dataset.get_fragments():
                metadata = fragment.metadata
                files = {
                    name: file.path
                    for file in metadata.files
                    for ids in [set(file.fields)]
                    for name, own in fields
                    if own & ids
                }
                deletions = "" if metadata.deletion_file is None else metadata.deletion_file.path(metadata.id)
                deleted = int(fragment.num_deletions)
                fragments.append(Fragment(metadata.id, int(metadata.physical_rows or 0), deleted, files, deletions))
            return fragments

    @cached_property
    def by_id(self) -> dict[int, Fragment]:
        """The fragments by their numbers."""
        return {fragment.id: fragment for fragment in self.fragments}

    def has(self, fragment: Fragment) -> bool:
        """Return whether the version has exactly this fragment, with the same files."""
        with self._table.reading():
            existing = self._dataset.get_fragment(fragment.id)
            return existing is not None and {*fragment.files.values()} <= {
                file.path for file in existing.metadata.files
            }

    def field_ids(self, columns: Iterable[str]) -> tuple[int, ...]:
        """Return Lance's field ids of columns. Earlier columns with the same names have other ids."""
        ids = {field.name(): field.id() for field in self._dataset.lance_schema.fields()}
        return tuple(ids.get(column, -1) for column in columns)

    def count(self, fragment: Fragment, where: str | None = None) -> int:
        """Return the number of a fragment's rows in which ``where`` is true.

        Raises ``UsageError`` for an invalid condition.
        """
        if where is None:
            return fragment.rows - fragment.deleted
        with self._table.reading(), translate_sql_errors(self, where=where):
            return int(self._dataset.get_fragment(fragment.id).count_rows(f"({where})"))

    def counts(self, fragments: Sequence[Fragment], conditions: Sequence[str | None]) -> list[int]:
        """Return the number of matching rows in each fragment; ``conditions`` has one per fragment (None: all rows).

        One scan reads all fragments with the same condition, in a fifth of the time of :meth:`count` per fragment.
        """
        counts: dict[tuple[int, str], int] = {}
        for condition in {sql: None for sql in conditions if sql is not None}:
            first, *rest = (fragment for fragment, own in zip(fragments, conditions, strict=True) if own == condition)
            counts[first.id, condition] = self.count(first, condition)  # raises for an invalid condition
            if not rest:
                continue
            for batch in self.expressed(
                {_ADDRESS: _ADDRESS}, f"({condition})", fragments=[fragment.id for fragment in rest]
            ):
                ids, rows = np.unique(batch.column(_ADDRESS).to_numpy() >> np.uint64(_ROW_BITS), return_counts=True)
                for id_, count in zip(ids.tolist(), rows.tolist(), strict=True):
                    counts[id_, condition] = counts.get((id_, condition), 0) + count
        return [
            fragment.rows - fragment.deleted if condition is None else counts.get((fragment.id, condition), 0)
            for fragment, condition in zip(fragments, conditions, strict=True)
        ]

    def count_all(self, where: str | None = None) -> int:
        """Return the number of rows in which ``where`` is true. Raises ``UsageError`` for an invalid condition."""
        with self._table.reading(), translate_sql_errors(self, where=where):
            return int(self._dataset.count_rows(None if where is None else f"({where})"))

    def size_of(self, fragment: Fragment) -> int:
        """Return the bytes of a fragment's files, as far as its version records them."""
        files = self._dataset.get_fragment(fragment.id).metadata.files
        return sum(file.file_size_bytes or 0 for file in files)

    def selected(
        self,
        fragment: Fragment,
        columns: Sequence[str] | Mapping[str, str],
        where: str | None = None,
        span: tuple[int, int] | None = None,
        *,
        rows: int,
        size: int,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in which ``where`` is true, in order: their ``OFFSET``, and some columns, with blobs as bytes.

        ``columns`` may map names to SQL. ``span`` is the first offset and the one after the last. Batches have at most
        ``rows`` rows and about as many bytes as ``size``.
        """
        conditions = [] if where is None else [f"({where})"]
        base = fragment.id << _ROW_BITS
        if span is not None and span != (0, fragment.rows):
            conditions = [f"{_ADDRESS} >= {base + span[0]} AND {_ADDRESS} < {base + span[1]}", *conditions]
        wanted = dict(columns) if isinstance(columns, Mapping) else list(columns)
        with self._table.reading(), translate_sql_errors(self, where=where):
            self._check_blobs([*wanted, *(wanted.values() if isinstance(wanted, dict) else ()), where], [fragment.id])
            batches = self._dataset.scanner(
                columns=wanted,
                filter=" AND ".join(conditions) or None,
                fragments=[self._dataset.get_fragment(fragment.id)],
                with_row_address=True,
                batch_size=min(rows, self._rows_of(size, fragment, wanted, 0 if span is None else span[0])),
                batch_size_bytes=size,
                batch_readahead=_BATCHES_AHEAD,
                io_buffer_size=max(_READ_BYTES, size),
                scan_in_order=True,
                blob_handling="all_binary",
            ).to_batches()
            for batch in batches:
                yield from _with_offsets(batch, columns, base, rows)

    def stored(
        self, fragment: Fragment, columns: Sequence[str], span: tuple[int, int], *, size: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the values of columns in the rows of a span, including deleted rows."""
        with self._table.reading():
            self._check_blobs(columns, [fragment.id])
            for batch in self._dataset.scanner(
                columns=list(columns),
                fragments=[self._dataset.get_fragment(fragment.id)],
                include_deleted_rows=True,
                with_row_id=True,
                offset=span[0],
                limit=span[1] - span[0],
                batch_size=self._rows_of(size, fragment, list(columns), span[0]),
                batch_size_bytes=size,
                batch_readahead=_BATCHES_AHEAD,
                io_buffer_size=max(_READ_BYTES, size),
                scan_in_order=True,
                blob_handling="all_binary",
            ).to_batches():
                yield batch.select(list(columns))

    def _rows_of(self, size: int, fragment: Fragment, columns: list[str] | dict[str, str], first: int) -> int:
        """Return how many rows of some columns have about ``size`` bytes, according to their types or a sample.

        With ``batch_size_bytes`` alone, Lance cuts larger batches: it read 7,500 blobs of 64 kB in 1 s, but in batches
        of 64 rows in 0.13 s (bench_computed.py).
        """
        width = None if isinstance(columns, dict) else _width_of(self.schema.field(column).type for column in columns)
        if width is None:
            few = self._dataset.scanner(
                columns=columns,
                fragments=[self._dataset.get_fragment(fragment.id)],
                offset=first,
                limit=_FEW_ROWS,
                batch_size=_FEW_ROWS,
                blob_handling="all_binary",
            ).to_table()
            width = few.nbytes // max(few.num_rows, 1)
        return max(1, size // max(width, 1))

    def expressed(
        self,
        expressions: Mapping[str, str],
        where: str | None = None,
        *,
        fragments: Sequence[int] | None = None,
        limit: int | None = None,
        offset: int = 0,
        rows: int | None = None,
        size: int = _READ_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the values of named SQL expressions in the rows in which ``where`` is true, in order.

        ``_rowid`` and ``_rowaddr`` are columns, too. ``fragments`` are the numbers of the fragments to read. Batches
        have at most ``rows`` rows. Raises ``UsageError`` for invalid SQL on this table.
        """
        with self._table.reading(), translate_sql_errors(self, *expressions.values(), where=where):
            self._check_blobs([*expressions.values(), where], fragments)
            yield from self._dataset.scanner(
                columns=dict(expressions),
                filter=where,
                fragments=None if fragments is None else [self._dataset.get_fragment(id_) for id_ in fragments],
                limit=limit,
                offset=offset or None,
                batch_size=rows,
                batch_size_bytes=size,
                batch_readahead=_BATCHES_AHEAD,
                io_buffer_size=max(_READ_BYTES, size),
                scan_in_order=True,
                blob_handling="all_binary",
            ).to_batches()

    def expressed_schema(self, expressions: Mapping[str, str]) -> pa.Schema:
        """The columns of the result of :meth:`expressed`."""
        with self._table.reading(), translate_sql_errors(self, *expressions.values()):
            return self._dataset.scanner(columns=dict(expressions), blob_handling="all_binary").projected_schema

    def check(self, expressions: Iterable[str], where: str | None = None) -> None:
        """Raise ``UsageError`` for invalid SQL on this version."""
        named = {str(number): expression for number, expression in enumerate((_ADDRESS, *expressions))}
        list(self.expressed(named, where, limit=0))

    def new_file(self, name: str, schema: pa.Schema) -> ColumnFile:
        """A new file for some columns of a fragment."""
        return ColumnFile(self._table, name, schema, self._dataset.data_storage_version)

    def scanned(self, columns: Mapping[str, str], where: str | None, **options: Any) -> pa.Table:
        """Return the rows of a Lance scan. Errors about SQL become ``UsageError``."""
        with self._table.reading(), translate_sql_errors(self, *columns.values(), where=where):
            self._check_blobs([*columns.values(), where])
            scanner = self._dataset.scanner(columns=dict(columns), filter=where, blob_handling="all_binary", **options)
            return scanner.to_table()


class ColumnFile:
    """A file with some columns of a fragment that is being written. No version names it yet."""

    def __init__(self, table: LancePlace, name: str, schema: pa.Schema, version: str) -> None:
        from lance.file import LanceFileWriter

        self.name = name
        self._table = table
        with table.writing():
            self._writer = LanceFileWriter(
                table.file_address(name), schema, version=version, storage_options=table.storage_options
            )
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        with self._table.writing():
            self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def __enter__(self) -> ColumnFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file. If the block failed, the file is useless."""
        if kind is None:
            with self._table.writing():
                self._writer.close()
        else:
            del self._writer  # its upload is never completed


def fragments_of(written: Sequence[str]) -> list[Any]:
    """Return the fragments that ``LanceTable.written`` reported."""
    import lance

    return [lance.FragmentMetadata.from_json(fragment) for fragment in written]


def _width_of(types: Iterable[pa.DataType]) -> int | None:
    """Return the bytes per row of columns of these types, or None if rows differ in size."""
    bits = 0
    for type_ in types:
        try:
            bits += type_.bit_width
        except ValueError:
            return None
    return bits // 8


def _ids(field: Any) -> Iterator[int]:
    yield field.id()
    for child in field.children():
        yield from _ids(child)


def _with_offsets(batch: pa.RecordBatch, columns: Collection[str], base: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch with the offsets of its rows, in pieces of at most ``rows`` rows."""
    addresses = batch.column(_ADDRESS).to_numpy(zero_copy_only=False)
    offsets = pa.array((addresses - np.uint64(base)).astype(np.uint32))
    made = pa.RecordBatch.from_arrays([offsets, *(batch.column(name) for name in columns)], [OFFSET, *columns])
    for begin in range(0, made.num_rows, rows):
        yield made.slice(begin, rows)
