"""Indexes of Lance tables: on user tables' columns, and in separate tables of the elements that a catalog searches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from ..errors import ChunkmillError, UsageError, WriteError, check_argument
from ..locations import Location
from .faults import is_conflict, shortened
from .place import LancePlace
from .table import LanceTable

ENTRY: Final = "entry"
"""The column with the number of the row's layer."""
INSTANCE: Final = "instance"
"""The column to search."""

_INDEX_NAME: Final = f"{INSTANCE}_idx"
_FLAT_ROWS: Final = 20_000
"""Tables with fewer rows are searched row by row: for 128 numbers each, this takes 5 ms (2 cores), and misses none."""
_PROBES: Final = 32
_REFINED: Final = 200
"""How many partitions are searched, and for how many times ``k`` vectors the uncompressed vectors are compared."""
_OF_INDEXES: Final = ("LanceError(Index)", "already exists", "cannot train")


@dataclass(frozen=True)
class TextIndex:
    """An index of words that ignores case and accents, without stemming or stop words."""

    store_position: bool
    base_tokenizer: str

    def check(self) -> None:
        """Raise ``UsageError`` for a tokenizer that Lance does not have. To find out, index one text in memory."""
        import lance

        check_argument("store_position", self.store_position, bool)
        check_argument("base_tokenizer", self.base_tokenizer, str)
        self.make(lance.write_dataset(pa.table({INSTANCE: [""]}), "memory://"), anew=True)

    def make(self, dataset: Any, *, anew: bool) -> None:
        """Index all rows; keep an existing index unless ``anew``."""
        if not anew and _has_index(dataset):
            return
        try:
            dataset.create_scalar_index(
                INSTANCE,
                "INVERTED",
                name=_INDEX_NAME,
                replace=True,
                with_position=self.store_position,
                base_tokenizer=self.base_tokenizer,
                max_token_length=None,
                stem=False,
                remove_stop_words=False,
            )
        except (ValueError, OSError) as error:
            if "tokenizer" not in str(error) and "Invalid directory path" not in str(error):
                raise
            hint = "Give 'simple', 'whitespace' or 'raw'."
            raise UsageError(f"base_tokenizer={self.base_tokenizer!r}: {shortened(error)}", hint=hint) from None

    def found(self, dataset: Any, query: str, condition: str | None) -> pa.Table:
        """Return all rows with a word of the query, best first."""
        builder = dataset.scanner(
            full_text_query=query,
            filter=condition,
            prefilter=condition is not None,
            disable_scoring_autoprojection=True,
            columns=[*dataset.schema.names, "_score"],
        )
        return builder.to_table()


@dataclass(frozen=True)
class VectorIndex:
    """An index of vectors of ``dimension`` numbers. ``metric`` is a metric's name in Lance."""

    metric: str
    dimension: int
    num_sub_vectors: int
    partition_rows: int

    def make(self, dataset: Any, *, anew: bool) -> None:
        """Create the index of all rows; replace an existing one only with ``anew``. Small tables get none.

        They are compared row by row: an index trained on a few hundred vectors would miss most later ones.
        """
        if (not anew and _has_index(dataset)) or dataset.count_rows() < _FLAT_ROWS:
            return
        options: dict[str, Any] = {} if self.metric == "hamming" else {"num_sub_vectors": self.num_sub_vectors}
        dataset.create_index(
            INSTANCE,
            "IVF_FLAT" if self.metric == "hamming" else "IVF_PQ",
            name=_INDEX_NAME,
            replace=True,
            metric=self.metric,
            target_partition_size=self.partition_rows,
            **options,
        )

    def found(self, dataset: Any, query: pa.Array, k: int, condition: str | None) -> pa.Table:
        """Return the ``k`` rows nearest to the query, nearest first."""
        nearest: dict[str, Any] = {"column": INSTANCE, "q": query, "k": k, "metric": self.metric}
        if dataset.count_rows() < _FLAT_ROWS or not _has_index(dataset):
            nearest["use_index"] = False
        else:
            nearest |= {"minimum_nprobes": _PROBES, "maximum_nprobes": None}
            if self.metric != "hamming":
                nearest["refine_factor"] = _REFINED
        scanner = dataset.scanner(
            nearest=nearest,
            filter=condition,
            prefilter=condition is not None,
            disable_scoring_autoprojection=True,
            columns=[*dataset.schema.names, "_distance"],
        )
        return scanner.to_table()


SearchIndex = TextIndex | VectorIndex


class IndexTable(LancePlace):
    """The Lance table of an index. It has one writer at a time, which records the valid version."""

    def __init__(self, place: Location, name: str) -> None:
        super().__init__(
            place,
            name=f"the search index of {name}",
            unread="Create the index again; no data is lost.",
            unwritten="The earlier index is still in use.",
        )

    def create(self, schema: pa.Schema) -> int:
        """Create the table without rows, and return its version."""
        self.make(schema, enable_stable_row_ids=True)
        return 1

    def written(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[str]:
        """Write rows into files that no version names yet, and return their descriptions for :meth:`upkeep`."""
        from lance.fragment import write_fragments

        with self.writing():
            reader = pa.RecordBatchReader.from_batches(schema, batches)
            made = write_fragments(
                reader,
                self.address,
                schema=schema,
                mode="append",
                storage_options=self.storage_options,
                enable_stable_row_ids=True,
            )
            return [json.dumps(fragment.to_json()) for fragment in made]

    def upkeep(
        self, version: int, dead: Sequence[int], added: Sequence[str], index: SearchIndex, *, retrain: bool
    ) -> int:
        """Remove rows of some layers, add rows of other layers, update the index, and return the new version.

        The valid version is the basis, even if a newer one exists. Raises a transient ``WriteError`` if another process
        writes meanwhile.
        """
        import lance

        with self.writing():
            dataset = self.dataset(version)
            number = self.dataset().version
            if number != version:
                dataset.restore()
                dataset = self._next(number := number + 1)
            if dead:
                dataset.delete(_of(dead))
                dataset = self._next(number := number + 1)
            if added:
                fragments = [lance.FragmentMetadata.from_json(fragment) for fragment in added]
                operation = lance.LanceOperation.Append(fragments)
                options = self.storage_options
                lance.LanceDataset.commit(self.address, operation, read_version=number, storage_options=options)
                dataset = self._next(number := number + 1)
            if retrain or not _has_index(dataset):
                index.make(dataset, anew=True)
            else:
                dataset.optimize.optimize_indices()
            made = int(dataset.version)
            if made > number + 1 or self.dataset().version != made:
                raise _disturbed(self.place)
            return made

    def search(self, version: int, index: SearchIndex, *query: Any, dead: Sequence[int]) -> pa.Table:
        """Return the matching rows of a version, without the rows of some layers."""
        with self.reading():
            dataset = self.admitted(_kept(self.address, version, tuple((self.storage_options or {}).items())))
            return index.found(dataset, *query, f"NOT ({_of(dead)})" if dead else None)  # type: ignore[call-arg]

    def statistics(self, version: int) -> str:
        """Return the index's statistics as JSON; without an index, the number of rows."""
        with self.reading():
            dataset = self.dataset(version)
            if not _has_index(dataset):
                return json.dumps({"num_indexed_rows": 0, "num_unindexed_rows": dataset.count_rows()})
            statistics = dict(dataset.stats.index_stats(_INDEX_NAME))
        for part in (*statistics.get("indices", ()), *statistics.get("segments", ())):
            part.pop("centroids", None)
            part.pop("uri", None)
        return json.dumps(statistics)

    def newest_version(self) -> int:
        """Return the number of the newest version, valid or not."""
        with self.reading():
            return int(self.dataset().version)

    def clean(self, version: int, age_seconds: float, *, unverified: bool = False) -> None:
        """Remove data that only versions older than ``age_seconds`` need, if ``version`` is the newest version.

        With ``unverified``, also remove files that no version names. Then no other process may write meanwhile.
        """
        from datetime import timedelta

        with self.writing():
            dataset = self.dataset()
            if dataset.version == version:
                age = timedelta(seconds=age_seconds)
                dataset.cleanup_old_versions(older_than=age, delete_unverified=unverified)

    def _next(self, number: int) -> Any:
        """Return the newest version. Raises if it has another number, because others write."""
        dataset = self.dataset()
        if dataset.version != number:
            raise _disturbed(self.place)
        return dataset


@lru_cache(maxsize=8)
def _kept(address: str, version: int, options: tuple[tuple[str, str], ...]) -> Any:
    """Return a version of an index, cached with its partitions: otherwise each search would read them again."""
    import lance

    return lance.dataset(address, version=version, storage_options=dict(options) or None)


def found_in(batches: Sequence[pa.RecordBatch], schema: pa.Schema, index: SearchIndex, *query: Any) -> pa.Table:
    """Return the matching rows of a table in memory."""
    import lance

    rows = pa.Table.from_batches(batches, schema)
    dataset = lance.write_dataset(rows, f"memory://{uuid4().hex}")
    if isinstance(index, TextIndex):
        index.make(dataset, anew=True)
    return index.found(dataset, *query, None)  # type: ignore[call-arg]


def _of(entries: Sequence[int]) -> str:
    return f"{ENTRY} IN ({', '.join(map(str, entries))})"


def _has_index(dataset: Any) -> bool:
    return any(index.name == _INDEX_NAME for index in dataset.describe_indices())


def _disturbed(place: str) -> WriteError:
    return WriteError(
        "another process is writing this search index",
        path=place,
        hint="Try again when the other process has finished.",
        transient=True,
    )


def make_index(table: LanceTable, column: str, kind: str, options: Mapping[str, Any]) -> None:
    """Create an index on a user table's column: on its vectors for an IVF type, else on its values or words.

    Raises ``UsageError`` for arguments that Lance refuses.
    """

    def indexed(dataset: Any) -> None:
        make = dataset.create_index if kind.startswith("IVF_") else dataset.create_scalar_index
        with _refusals():
            make(column, kind, **options)

    table.commit(indexed)


@contextmanager
def _refusals() -> Iterator[None]:
    """In the block, Lance's errors about the arguments of an index become ``UsageError``."""
    try:
        yield
    except ChunkmillError:
        raise
    except ImportError as error:
        raise UsageError(f"the accelerator needs a package: {error}", hint="Leave accelerator out.") from None
    except (KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        said = shortened(error)
        of_lance = isinstance(error, (OSError, RuntimeError))
        if is_conflict(error) or (of_lance and not any(word in said for word in _OF_INDEXES)):
            raise
        if isinstance(error, TypeError) and len(error.args) > 1:
            said = "".join(map(str, error.args))  # Lance splits its message
        said = said.removeprefix("Invalid user input: ").removeprefix("LanceError(Index): ")
        raise UsageError(f"this index cannot be created: {said}") from None
