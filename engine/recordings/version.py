"""A version of a store of recordings: what its file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class TableRef(NamedTuple):
    """A table of entries: its file, its digest, and how many entries it has."""

    name: str
    digest: str
    entries: int


@dataclass(frozen=True, slots=True)
class RecordingsVersion:
    """One version of a store of recordings.

    ``created`` is in seconds since the epoch; ``operation`` what made it (``ingest``, ``compact``, ``vacuum``);
    ``first`` the number of the first version that counts, as earlier ones are removed; ``tables`` those
    that hold its entries, oldest first; ``batches`` the last batch of each query that it holds; ``recordings``,
    ``chunks``, ``rows`` and ``bytes`` (of chunks, as stored) are those of all recordings; ``files`` counts what became
    of the files of the batch that made it, ``bytes_in`` their bytes, ``seconds`` what the batch took; ``totals`` counts
    what became of the files of all batches so far.
    """

    number: int
    created: float
    operation: str
    tables: tuple[TableRef, ...]
    batches: Mapping[str, int]
    recordings: int
    chunks: int
    rows: int
    bytes: int
    files: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    seconds: float = 0.0
    totals: Mapping[str, int] = field(default_factory=dict)
    first: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    @classmethod
    def of(cls, data: dict[str, Any]) -> RecordingsVersion:
        """The inverse of :meth:`to_dict`. Raises ``TypeError`` or ``ValueError`` for something else."""
        tables = tuple(TableRef(*table) for table in data.pop("tables"))
        return cls(tables=tables, **data)
