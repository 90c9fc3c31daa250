"""Entries of a catalog: ids, kinds, names, and the handles that users hold."""

from __future__ import annotations

import re
import string
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ..chunk import from_text, mint, tuid_text
from ..errors import UsageError, check_argument
from ..storage import author

MOST_CHARACTERS_OF_A_NAME: Final = 180
SYSTEM_PREFIX: Final = "__"
"""The prefix of the names of the catalog's own entries."""

_OF_NAMES: Final = frozenset(string.ascii_letters + string.digits + "_-.:[] ")
_DATASETS: Final = "datasets"


class EntryId:
    """The id of an entry: 16 bytes that sort by creation time. It never changes.

    Its text has 32 hex digits, in upper or lower case.

    >>> str(EntryId("18e9f1ab5adeed165250c4c05ec3b71c"))
    '18E9F1AB5ADEED165250c4c05ec3b71c'
    """

    __slots__ = ("_tuid",)

    def __init__(self, id: str) -> None:  # noqa: A002 (the name it has with Rerun)
        check_argument("id", id, str)
        try:
            self._tuid = from_text(id, "")
        except ValueError as error:
            raise TypeError(str(error).replace("Invalid TUID", "invalid Tuid")) from None

    @classmethod
    def new(cls) -> EntryId:
        """Return a new id."""
        return cls(mint().hex())

    def as_bytes(self) -> bytes:
        """The 16 bytes."""
        return self._tuid

    def __eq__(self, other: object) -> bool:
        return self._tuid == other._tuid if isinstance(other, EntryId) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._tuid)

    def __str__(self) -> str:
        return tuid_text(self._tuid, "")

    def __repr__(self) -> str:
        return f"EntryId({str(self)!r})"


class EntryKind(Enum):
    """The kinds of entries.

    >>> int(EntryKind.DATASET), str(EntryKind.DATASET)
    (1, 'EntryKind.DATASET')
    """

    DATASET = 1
    DATASET_VIEW = 2
    TABLE = 3
    TABLE_VIEW = 4
    BLUEPRINT_DATASET = 5
    ASSET_DATASET = 6

    def __int__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return str(self)


HIDDEN_KINDS: Final = (EntryKind.BLUEPRINT_DATASET, EntryKind.ASSET_DATASET)
"""Datasets that belong to another entry, and are deleted with it."""
DATASET_KINDS: Final = (EntryKind.DATASET, *HIDDEN_KINDS)
_OWNED: Final = {EntryKind.BLUEPRINT_DATASET: "bp", EntryKind.ASSET_DATASET: "as"}


def check_entry_name(name: str) -> None:
    """Raise ``UsageError`` if users must not give an entry this ``name``.

    It may have up to 180 ASCII letters, digits, ``_ - . : [ ]`` and spaces. Names that begin with ``__`` are reserved
    for the catalog. A name is never part of a path.

    >>> check_entry_name("a/b")
    Traceback (most recent call last):
    chunkmill.engine.errors.UsageError: CM501: invalid entry name: name 'a/b' contains invalid character '/'...
    """
    check_argument("name", name, str)
    reason = _fault_of(name)
    if reason:
        raise UsageError(
            f"invalid entry name: {reason}",
            hint=f"A name has 1 to {MOST_CHARACTERS_OF_A_NAME} ASCII letters, digits, spaces or _ - . : [ ].",
        )
    if name.startswith(SYSTEM_PREFIX):
        raise UsageError(
            f"invalid entry name: name '{name}' begins with '{SYSTEM_PREFIX}'",
            hint="The catalog reserves such names for its own entries.",
        )


def _fault_of(name: str) -> str | None:
    if not name:
        return "a name must not be empty"
    if len(name) > MOST_CHARACTERS_OF_A_NAME:
        return f"name '{name}' exceeds maximum length of {MOST_CHARACTERS_OF_A_NAME} characters (got {len(name)})"
    odd = next((c for c in name if c not in _OF_NAMES), None)
    return None if odd is None else f"name '{name}' contains invalid character '{odd}'"


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry in the log.

    ``place`` is the place of its data: relative to the catalog, or an absolute path or URL. ``created_ns`` and
    ``updated_ns`` are in nanoseconds since the epoch. ``blueprints`` is the dataset of its blueprints. Its segment
    ``default_blueprint`` shows all segments, or the table, and its segment ``table_blueprint`` shows the table of
    segments. ``assets`` is the dataset of the entry's assets.
    """

    id: EntryId
    name: str
    kind: EntryKind
    place: str
    created_ns: int
    updated_ns: int
    blueprints: EntryId | None = None
    default_blueprint: str | None = None
    table_blueprint: str | None = None
    assets: EntryId | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "id": str(self.id),
            "name": self.name,
            "kind": int(self.kind),
            "place": self.place,
            "created_ns": self.created_ns,
            "updated_ns": self.updated_ns,
            "blueprints": None if self.blueprints is None else str(self.blueprints),
            "default_blueprint": self.default_blueprint,
            "table_blueprint": self.table_blueprint,
            "assets": None if self.assets is None else str(self.assets),
        }

    @classmethod
    def of(cls, data: dict[str, Any]) -> EntryRow:
        """The inverse of :meth:`to_dict`. Raises ``TypeError``, ``ValueError`` or ``KeyError`` for something else."""
        blueprints, assets = data["blueprints"], data.get("assets")  # earlier releases had no assets
        row = cls(
            EntryId(data["id"]),
            data["name"],
            EntryKind(data["kind"]),
            data["place"],
            data["created_ns"],
            data["updated_ns"],
            None if blueprints is None else EntryId(blueprints),
            data["default_blueprint"],
            data.get("table_blueprint"),
            None if assets is None else EntryId(assets),
        )
        check_argument("name", row.name, str)
        check_argument("place", row.place, str)
        check_argument("created_ns", row.created_ns, int)
        check_argument("updated_ns", row.updated_ns, int)
        check_argument("default_blueprint", row.default_blueprint, str, type(None))
        check_argument("table_blueprint", row.table_blueprint, str, type(None))
        if ".." in row.place.split("/") and not row.place.startswith("/"):
            raise ValueError(f"entry {row.id} lies outside of the catalog, at {row.place}")
        return row


def place_of_dataset(id: EntryId) -> str:  # noqa: A002 (it is one)
    """The place of a dataset's data in a catalog, named by its id."""
    return f"{_DATASETS}/{id}"


def dataset_rows(
    name: str,
    now_ns: int,
    place: str | None = None,
    id: EntryId | None = None,  # noqa: A002 (it is one)
    *,
    with_assets: bool = False,
) -> list[EntryRow]:
    """The rows of a new dataset and its hidden dataset of blueprints; ``with_assets`` adds one of assets."""
    id_ = id or EntryId.new()
    hidden = hidden_row(EntryKind.BLUEPRINT_DATASET, id_, now_ns)
    row = EntryRow(id_, name, EntryKind.DATASET, place or place_of_dataset(id_), now_ns, now_ns, hidden.id)
    if not with_assets:
        return [row, hidden]
    assets = hidden_row(EntryKind.ASSET_DATASET, id_, now_ns)
    return [replace(row, assets=assets.id), hidden, assets]


def hidden_row(kind: EntryKind, owner: EntryId, now_ns: int) -> EntryRow:
    """The row of an entry's hidden dataset of a kind."""
    id_ = EntryId.new()
    return EntryRow(id_, _hidden_name(kind, owner), kind, place_of_dataset(id_), now_ns, now_ns)


def is_owned_by(row: EntryRow, owner: EntryId) -> bool:
    """Return whether an entry is the hidden dataset of ``owner``, by its name, which never changes."""
    return row.kind in HIDDEN_KINDS and row.name == _hidden_name(row.kind, owner)


def owner_of(kind: EntryKind, name: str) -> str | None:
    """The id of a hidden dataset's owner, as text, or None for another entry."""
    return name.rpartition("_")[2] if kind in HIDDEN_KINDS else None


def _hidden_name(kind: EntryKind, owner: EntryId) -> str:
    return f"{SYSTEM_PREFIX}{_OWNED[kind]}_{owner}"


def time_of(nanoseconds: int) -> datetime:
    """A time since the epoch, to the microsecond, in UTC."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


DEFAULT_CATALOG: Final = "datafusion"
DEFAULT_SCHEMA: Final = "public"

_MOST_PARTS: Final = 3
_TOKEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[0-9]+|\S)")


class TableName(NamedTuple):
    """A name in SQL."""

    catalog: str
    schema: str
    table: str


def check_table_name(name: str) -> None:
    """Raise ``UsageError`` if SQL cannot write ``name`` without quotes.

    >>> check_table_name("created-table")
    Traceback (most recent call last):
    chunkmill.engine.errors.UsageError: CM501: Invalid table name. sql parser error: Unexpected token in...
    """
    if isinstance(name, str):
        fault = _name_fault(name)
        if fault:
            raise UsageError(
                f"Invalid table name. sql parser error: {fault}",
                hint="A name has letters, digits and _, and begins with no digit; up to two dots divide it into a "
                "catalog, a schema and a table.",
            )
    check_entry_name(name)


def _name_fault(name: str) -> str | None:
    if not name:
        return "Empty input when parsing identifier"
    wants_name = True
    for word in _TOKEN.findall(name):
        is_name = word[0].isalpha() or word[0] == "_"
        if is_name != wants_name or not (is_name or word == "."):
            return f"Unexpected token in identifier: {word}"
        wants_name = not wants_name
    if wants_name:
        return "Trailing period in identifier"
    if re.search(r"\s", name):
        return "Unexpected space in identifier"
    if name.count(".") >= _MOST_PARTS:
        return f"Unexpected token in identifier: {name.split('.')[_MOST_PARTS]}"
    return None


def parts_of(name: str) -> TableName:
    """The catalog, the schema and the table of a name.

    >>> parts_of("fleet.drives")
    TableName(catalog='datafusion', schema='fleet', table='drives')
    """
    parts = name.split(".")[-_MOST_PARTS:]
    defaults = (DEFAULT_CATALOG, DEFAULT_SCHEMA, "")
    return TableName(*defaults[: _MOST_PARTS - len(parts)], *parts)


MOST_CHANGES: Final = 500
"""The number of recent changes in each version of a catalog, including its own: 60 kB, as much as the entries."""
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

    ``version`` is the first catalog version with the change; ``name`` is the name after it, or the last name.
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
    """Yield the changes of this user between two states of the entries, except changes of hidden datasets."""
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
    """Parse changes from JSON data. Raises ``TypeError`` or ``ValueError`` for other data."""
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
