"""Columns that are filled together, with their function or source, and their stale rows."""

from __future__ import annotations

import importlib
import json
import os
import re
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import ReadError, UsageError
from ..lance import Fragment, FragmentReader, LanceTable
from .digests import COMPUTED_BY, Provenance, inputs_token, keeps_stale, provenance_of, token_of
from .function import MARK, UDF
from .policies import RowFailure, Skip, check_skipped, guarded_compute, policy_for

Addresses = npt.NDArray[np.int64]
"""Addresses of rows: the fragment's number times 2**32 plus the offset in it."""


@dataclass(frozen=True)
class FilledColumns(ABC):
    """Columns that a function or source fills together, and its inputs. Picklable."""

    name: str
    fields: tuple[pa.Field, ...]
    inputs: tuple[str, ...]

    is_cheap: ClassVar[bool] = False
    """Whether computing values is faster than writing them. Then fragments are not cut, and have no checkpoints."""
    keeps_others: ClassVar[bool] = False
    """Whether selected rows may keep their values."""

    @property
    @abstractmethod
    def token(self) -> str:
        """A text that identifies the function or source."""

    @property
    @abstractmethod
    def described(self) -> dict[str, str]:
        """The name and the version of the function or source, for error records."""

    @abstractmethod
    def compute(
        self, batch: pa.RecordBatch, addresses: Addresses
    ) -> tuple[npt.NDArray[np.bool_] | None, pa.RecordBatch, Sequence[RowFailure]]:
        """Return the values of rows, and the mask of rows with a value (None: all).

        Raises the function's error, unless a policy skips the row. A skipped row is null, and has a failure.
        """

    @abstractmethod
    def state_of(self, fragment: Fragment) -> int:
        """Return the origin of a fragment's values, from the names of its files."""

    def check_skipped(self, skipped: Mapping[str, int], rows: int | None) -> None:
        """Raise ``SkipThresholdExceededError`` if too many of ``rows`` (None: unknown) failed."""
        del skipped, rows  # without a function, no row fails

    def died(self, error: Exception, address: int) -> tuple[RowFailure, bool]:
        """Return the failure of a row that killed its worker process, and whether the row may stay null."""
        return RowFailure.of(error, address), False

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, without field metadata."""
        return pa.schema([pa.field(field.name, field.type) for field in self.fields])

    @property
    def is_null(self) -> str:
        """The condition on rows in which a column has no value."""
        return " OR ".join(f"{quoted(column)} IS NULL" for column in self.columns)

    def provenance(self, fragment: Fragment) -> Provenance:
        """Return the provenance of new values in a fragment."""
        return Provenance(self.token, inputs_token(fragment.files_of(self.inputs)))


@dataclass(frozen=True)
class FunctionColumns(FilledColumns):
    """Columns that a function fills."""

    udf: UDF

    @cached_property
    def token(self) -> str:
        """The token of the function, with its inputs."""
        return token_of(self.udf.name, self.udf.version, self.udf.inputs)

    @property
    def described(self) -> dict[str, str]:
        """The function's name and version."""
        return {"udf_name": self.udf.name, "udf_version": self.udf.version}

    def compute(self, batch: pa.RecordBatch, addresses: Addresses) -> tuple[None, pa.RecordBatch, Sequence[RowFailure]]:
        """Return the function's values, and the failures that its policies skip."""
        values, failures = guarded_compute(self.udf, batch, cast("Sequence[int]", addresses))
        columns = values.flatten() if self.udf.outputs is not None else [values]
        return None, pa.RecordBatch.from_arrays(columns, schema=self.schema), failures

    def died(self, error: Exception, address: int) -> tuple[RowFailure, bool]:
        """Return the failure of a row, and whether the policy for ``error`` skips it."""
        at, policy = policy_for(self.udf.policy, error) or (None, None)
        return RowFailure.of(error, address, policy=at), isinstance(policy, Skip)

    def check_skipped(self, skipped: Mapping[str, int], rows: int | None) -> None:
        """Compare the failed rows with the limits of their policies."""
        check_skipped(self.udf.policy, {int(at): count for at, count in skipped.items()}, rows)

    def state_of(self, fragment: Fragment) -> int:
        """Return the origin of a fragment's values."""
        files = set(fragment.files_of(self.columns))
        if files == {""}:
            return NEVER
        wanted = self.provenance(fragment)
        provenances = {provenance_of(file) for file in files}
        if any(provenance is not None and provenance.function != wanted.function for provenance in provenances):
            return OTHER_FUNCTION
        if None in provenances:
            before = (self.fields[0].metadata or {}).get(COMPUTED_BY.encode())
            if before is not None and before.decode() != wanted.function:
                return OTHER_FUNCTION
            # If an input has a file of its own, the file is newer than the one that has both columns.
            newer = {file for file in fragment.files_of(self.inputs) if provenance_of(file) is not None}
            return OTHER_INPUTS if newer - files else KNOWN
        return KNOWN if provenances == {wanted} else OTHER_INPUTS


NEVER, KNOWN, OTHER_FUNCTION, OTHER_INPUTS, ALL = range(5)
"""Origins of a fragment's values: no values; the function; another function; other inputs; always to be filled."""


def has_value(columns: Sequence[str]) -> str:
    """Return the condition on rows that have a value in any of the columns."""
    return " OR ".join(f"{quoted(column)} IS NOT NULL" for column in columns)


def quoted(column: str) -> str:
    """Return a column's name quoted for SQL.

    >>> quoted("null"), quoted("it's /a:b")
    ('`null`', "`it's /a:b`")
    """
    return f"`{column}`"


def simplify_sql(condition: str) -> str:
    """Return a condition without unneeded quotes.

    >>> simplify_sql(f"{quoted('a')} IS NULL OR {quoted('a b')} IS NULL")
    'a IS NULL OR `a b` IS NULL'
    """
    return re.sub("`([a-z_][a-z0-9_]*)`", r"\1", condition)


MODULES: Final = "CHUNKMILL_UDF_MODULES"
"""The environment variable with a comma-separated list of modules from which functions may be imported."""

_MOST_JSON: Final = 1 << 20
_SHOWN: Final = 12

_known: dict[tuple[str, str, str], UDF] = {}


@dataclass(frozen=True, slots=True)
class Definition:
    """The function of a computed column, identified by name, module and digest.

    ``inputs`` are its input columns; None: all columns that are not computed. If one function fills a group of columns,
    ``group_fields`` are their fields of ``Columns[T]``.
    """

    column: str
    udf_name: str
    module: str
    qualname: str
    digest: str
    version: str
    inputs: tuple[str, ...] | None
    auto_backfill: bool = False
    group: str | None = None
    group_field: str | None = None
    group_fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, field: pa.Field) -> Definition | None:
        """Return the definition in a field's metadata, or None for a column that is not computed.

        Raises ``ReadError`` if the metadata is not a definition.
        """
        said = {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in _metadata(field)}
        if said.get(MARK) != "true":
            return None
        inputs = _names(field, said, "udf_inputs")
        return cls(
            field.name,
            said.get(f"{MARK}.udf_name", ""),
            said.get(f"{MARK}.udf_module", ""),
            said.get(f"{MARK}.udf_qualname", ""),
            said.get(f"{MARK}.udf_digest", ""),
            said.get(f"{MARK}.udf_version", ""),
            inputs,
            said.get(f"{MARK}.auto_backfill") == "true",
            said.get(f"{MARK}.unpack_group"),
            said.get(f"{MARK}.unpack_field"),
            _names(field, said, "unpack_fields") or (),
        )

    def columns_in(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that the function fills, in the order of its fields; without fields, only this column."""
        if self.group is None:
            return (self.column,)
        places: dict[str, int] = {}
        for field in schema:
            other = Definition.of(field)
            if other is not None and other.group == self.group and other.group_field in self.group_fields:
                places[field.name] = self.group_fields.index(other.group_field)
        return tuple(sorted(places, key=places.__getitem__)) or (self.column,)

    def inputs_of(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the function's input columns in a table; by default, all columns that are not computed."""
        if self.inputs is not None:
            return self.inputs
        return tuple(field.name for field in schema if Definition.of(field) is None)


def metadata_of(udf: UDF) -> dict[str, str]:
    """Return the field metadata for a function's column."""
    module, qualname = _place_of(udf)
    return {
        MARK: "true",
        f"{MARK}.udf_name": udf.name,
        f"{MARK}.udf_module": module,
        f"{MARK}.udf_qualname": qualname,
        f"{MARK}.udf_digest": udf.digest,
        f"{MARK}.udf_version": udf.version,
        f"{MARK}.udf_inputs": json.dumps(None if udf.inputs is None else list(udf.inputs)),
        f"{MARK}.auto_backfill": "true" if udf.auto_backfill else "false",
    }


def group_metadata(udf: UDF, prefix: str = "") -> dict[str, dict[str, str]]:
    """Return the column metadata for each field of a function's ``Columns[T]``; column names have ``prefix``."""
    names = [field.name for field in udf.outputs or ()]
    shared = {
        **metadata_of(udf),
        f"{MARK}.unpack": "true",
        f"{MARK}.unpack_group": secrets.token_hex(8),
        f"{MARK}.unpack_prefix": prefix,
        f"{MARK}.unpack_fields": json.dumps(names),
    }
    return {name: {**shared, f"{MARK}.unpack_field": name} for name in names}


def remember(udf: UDF) -> None:
    """Register a function in this process, so that definitions find it."""
    module, qualname = _place_of(udf)
    _known[module, qualname, udf.digest] = udf


def resolve(definition: Definition, udf_modules: Collection[str] = ()) -> UDF:
    """Return the function of a definition, with its inputs.

    The function must be registered in this process, or be in its main module or in a module that is imported. A module
    is imported only if ``udf_modules``, or the environment variable ``CHUNKMILL_UDF_MODULES`` (comma-separated), names
    it or a package around it. Naming a package lets anyone who writes a table import any module in it. Only a ``UDF``
    of the definition's name and digest is used. Raises a ``UsageError`` that names the missing part.
    """
    place = (definition.module, definition.qualname, definition.digest)
    udf = _known.get(place)
    if udf is None:
        udf = _looked_up(definition, [*udf_modules, *_of_environment()])
    if definition.inputs == udf.inputs:
        return udf
    if definition.inputs is None:
        raise _unusable(definition, "the definition names no input columns, but the function needs some")
    return udf.with_inputs(definition.inputs)


def _looked_up(definition: Definition, allowed: Iterable[str]) -> UDF:
    is_main = definition.module == "__main__"
    path = definition.qualname.split(".")
    if not all(map(_is_plain, path if is_main else [*definition.module.split("."), *path])):
        raise _unusable(definition, "the definition does not name a function in a module")
    if is_main:
        module = sys.modules.get("__main__")
    elif any(_lies_in(definition.module, parent) for parent in allowed):
        module = _imported(definition)
    else:
        raise _unusable(
            definition,
            f"the module {_shown(definition.module)} is not in the list of modules that may be imported for functions",
            f"List it, as udf_modules=[{_shown(definition.module)}], by --module or in {MODULES}",
        )
    value: object = module
    for name in path:
        value = vars(value).get(name) if isinstance(value, (ModuleType, type)) else None
    if not isinstance(value, UDF):
        raise _unusable(
            definition, f"the module {_shown(definition.module)} has no UDF with the name {_shown(definition.qualname)}"
        )
    if value.digest != definition.digest:
        raise _unusable(
            definition,
            f"{_shown(definition.qualname)} of the module {_shown(definition.module)} has another digest, "
            f"{value.digest[:_SHOWN]}…; the column was defined with {definition.digest[:_SHOWN]}…",
        )
    return value


def _imported(definition: Definition) -> ModuleType:
    try:
        return importlib.import_module(definition.module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise _unusable(definition, f"the module {_shown(definition.module)} cannot be imported: {why}") from error


def _unusable(definition: Definition, why: str, hint: str | None = None) -> UsageError:
    module = "MODULE" if definition.module == "__main__" else definition.module
    option = f"--udf {_shown(f'{module}:{definition.qualname}')}"
    hint = hint or "Provide the function with which the column was defined"
    altering = f'alter_columns({{"path": {json.dumps(definition.column)}, "udf": f}})'
    return UsageError(
        f"the function {_shown(definition.udf_name)} of the column {_shown(definition.column)} is not available: {why}",
        hint=f"{hint}; a backfill also takes the function itself: udf= or {option}. "
        f"To use a function f from now on, also in a view: {altering}.",
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")


def _is_plain(name: str) -> bool:
    """Return whether a name is a plain name of a function, a class or a module."""
    return name.isidentifier() and not name.startswith("__")


def _lies_in(module: str, package: str) -> bool:
    return bool(package) and (module == package or module.startswith(f"{package}."))


def _of_environment() -> list[str]:
    return [name.strip() for name in os.environ.get(MODULES, "").split(",")]


def _place_of(udf: UDF) -> tuple[str, str]:
    """Return a function's module, and its name there: that of the UDF if the module has one, else its own."""
    names = vars(sys.modules.get(udf.module, object)).items()
    own = (name for name, value in list(names) if isinstance(value, UDF) and value.token == udf.token)
    return udf.module, next(own, udf.qualname)


def _metadata(field: pa.Field) -> Iterable[tuple[bytes, bytes]]:
    return (field.metadata or {}).items()


def _names(field: pa.Field, said: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    """Return the list of names that is JSON in a field's metadata, or None if it is missing."""
    text = said.get(f"{MARK}.{key}", "null")
    try:
        value: Any = json.loads(text) if len(text) <= _MOST_JSON else text
    except (ValueError, RecursionError):
        value = text
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ReadError(
            f"the metadata {MARK}.{key} of the column {_shown(field.name)} is not a list of names: {_shown(text)}",
            hint="The table is damaged, or was written by other software.",
        )
    return tuple(value)


FRESH_FILES: Final = "virtual_column.fresh_files"
"""The metadata key with the tokens of files that Lance wrote without stale values."""

_CHANGED: Final = "_row_last_updated_at_version > _row_created_at_version"


def stale_condition(reader: FragmentReader, columns: Sequence[str], fragment: Fragment) -> str | None:
    """Return the condition on a fragment's stale rows in one function's ``columns``, or None if no row is stale.

    If a backfill filled some rows of a fragment and kept stale ones, all rows with a value count as stale. The same
    applies if row ids are not stable, because the versions of rows are then unknown.
    """
    files = set(fragment.files_of(columns)) - {""}
    if not files:
        return None
    if any(keeps_stale(file) for file in files):
        return has_value(columns)
    written = {token_of(file) for file in files if provenance_of(file) is None}
    if written <= fresh_tokens(reader.schema, columns):
        return None
    return f"{_CHANGED} AND ({has_value(columns)})" if reader.has_stable_ids else has_value(columns)


def stale_rows(reader: FragmentReader, columns: Sequence[str], fragments: Sequence[Fragment]) -> list[int]:
    """Return the number of stale rows of each fragment."""
    conditions = {fragment.id: stale_condition(reader, columns, fragment) for fragment in fragments}
    asked = [
        fragment for fragment in fragments if (condition := conditions[fragment.id]) and condition.startswith(_CHANGED)
    ]
    for fragment, changed in zip(asked, reader.counts(asked, [_CHANGED] * len(asked)), strict=True):
        if not changed:  # known without reading the values
            conditions[fragment.id] = None
    asked = [fragment for fragment in fragments if conditions[fragment.id] is not None]
    counts = dict(
        zip([fragment.id for fragment in asked], reader.counts(asked, [conditions[o.id] for o in asked]), strict=True)
    )
    return [counts.get(fragment.id, 0) for fragment in fragments]


def groups_of(schema: pa.Schema) -> list[tuple[str, ...]]:
    """Return the computed columns, grouped by function."""
    groups = {
        definition.columns_in(schema): None for field in schema if (definition := Definition.of(field)) is not None
    }
    return list(groups)


def note_fresh(
    table: LanceTable,
    *,
    only: Collection[int] | None = None,
    but: Sequence[str] = (),
    made: Mapping[tuple[str, ...], Iterable[str]] | None = None,
) -> None:
    """Record which files written by Lance have no stale values, before a change moves the versions of their rows.

    ``only`` are the fragments to check, ``but`` are the columns to leave out, and ``made`` are new files without stale
    values, by their columns.
    """
    reader = table.at()
    changes: dict[str, dict[str, str | None]] = {}
    for columns in groups_of(reader.schema):
        fresh = fresh_tokens(reader.schema, columns)
        new = {token_of(file) for file in (made or {}).get(columns, ())}
        present = set()
        for fragment in reader.fragments:
            written = {token_of(file) for file in fragment.files_of(columns) if file and provenance_of(file) is None}
            present |= written
            is_asked = columns != tuple(but) and (only is None or fragment.id in only)
            if is_asked and not written <= fresh and _is_fresh(reader, columns, fragment):
                new |= written
        if not new <= fresh:
            changes |= {column: {FRESH_FILES: " ".join(sorted(new | fresh & present))} for column in columns}
    if changes:
        table.describe(changes)


def fresh_tokens(schema: pa.Schema, columns: Sequence[str]) -> set[str]:
    """Return the tokens of the columns' files that Lance wrote without stale values."""
    said = [(schema.field(column).metadata or {}).get(FRESH_FILES.encode(), b"") for column in columns]
    return set.intersection(*(set(text.decode().split()) for text in said))


def _is_fresh(reader: FragmentReader, columns: Sequence[str], fragment: Fragment) -> bool:
    """Return whether a fragment has values and no stale ones. A fragment without values needs no record."""
    condition = stale_condition(reader, columns, fragment)
    if condition is None or not reader.count(fragment, has_value(columns)):
        return False
    return not reader.count(fragment, condition)
