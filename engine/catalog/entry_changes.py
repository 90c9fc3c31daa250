"""Changes of the entries of a catalog: created, renamed and removed ones, by whom and when."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ..storage import author
from .entries import DATASET_KINDS, HIDDEN_KINDS, EntryId, EntryKind, EntryRow

MOST_CHANGES: Final = 500
"""The changes that a version of a catalog carries along, its own among them: some 60 kB, where entries take as much."""
CHANGES: Final = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("made_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("author", pa.string()),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("earlier_name", pa.string()),
    ]
)
"""The columns of a catalog's list of versions."""


class EntryChange(NamedTuple):
    """A change of an entry: ``operation`` is ``create``, ``rename``, ``change`` or ``remove``.

    ``version`` is that of the catalog that has it first, ``name`` the name since then, or the last one.
    """

    version: int
    made_ns: int
    author: str | None
    operation: str
    kind: int
    name: str
    id: str
    earlier_name: str | None = None


def changes_between(
    before: Mapping[EntryId, EntryRow], after: Mapping[EntryId, EntryRow], version: int
) -> Iterator[EntryChange]:
    """Yield what this user has changed from some entries to the next, those of hidden datasets left out."""
    made_ns, who = time.time_ns(), author()

    def change(operation: str, row: EntryRow, earlier: str | None = None) -> EntryChange:
        return EntryChange(version, made_ns, who, operation, int(row.kind), row.name, str(row.id), earlier)

    for id_ in dict.fromkeys([*before, *after]):
        old, new = before.get(id_), after.get(id_)
        if old == new or (new or old).kind in HIDDEN_KINDS:  # type: ignore[union-attr] # one of them has the id
            continue
        if old is None:
            assert new is not None
            yield change("create", new)
        elif new is None:
            yield change("remove", old)
        elif old.name != new.name:
            yield change("rename", new, old.name)
        else:
            yield change("change", new)


def parsed_changes(data: Iterable[Any]) -> tuple[EntryChange, ...]:
    """Return changes of JSON data. Raises ``TypeError`` or ``ValueError`` for something else."""
    changes = tuple(EntryChange(*values) for values in data)
    for change in changes:
        EntryKind(change.kind)
        if not isinstance(change.version, int) or not isinstance(change.made_ns, int):
            raise TypeError("a change has no version, or no time")
    return changes


def changes_table(changes: Iterable[EntryChange]) -> pa.Table:
    """Return a row for each change, in the columns :data:`CHANGES`."""
    rows = [
        {
            **change._asdict(),
            "made_at": change.made_ns // 1000,
            "kind": "dataset" if EntryKind(change.kind) in DATASET_KINDS else "table",
        }
        for change in changes
    ]
    return pa.Table.from_pylist(rows, CHANGES)
