"""Definitions of computed columns, as a field's metadata has them: names, a digest, a version, inputs; never code."""

from __future__ import annotations

import importlib
import json
import os
import secrets
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import pyarrow as pa

from ..errors import ReadError, UsageError
from .functions import MARK, UDF

MODULES: Final = "CHUNKMILL_UDF_MODULES"
"""The variable of the environment that lists modules, with commas between, that may be imported for functions."""

_MOST_JSON: Final = 1 << 20
_SHOWN: Final = 12

_known: dict[tuple[str, str, str], UDF] = {}


@dataclass(frozen=True, slots=True)
class Definition:
    """The function of a computed column, by the names and the digest under which it is looked for.

    ``inputs`` are the columns that it is called with; None for all of the table that are not computed. A column of a
    group, which one function fills together, has its field of ``Columns[T]`` among the ``group_fields``.
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
        """The definition in a field's metadata; None for a column that is not computed.

        Raises ``ReadError`` where the metadata is not what a definition is.
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
        """The columns of a table that the function fills together, in the order of its fields; else this one."""
        if self.group is None:
            return (self.column,)
        places: dict[str, int] = {}
        for field in schema:
            other = Definition.of(field)
            if other is not None and other.group == self.group and other.group_field in self.group_fields:
                places[field.name] = self.group_fields.index(other.group_field)
        return tuple(sorted(places, key=places.__getitem__)) or (self.column,)

    def inputs_of(self, schema: pa.Schema) -> tuple[str, ...]:
        """The columns that the function is called with in a table: where none are named, all that no function fills."""
        if self.inputs is not None:
            return self.inputs
        return tuple(field.name for field in schema if Definition.of(field) is None)


def metadata_of(udf: UDF) -> dict[str, str]:
    """The metadata of the field of a function's column."""
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
    """For each field of a function's ``Columns[T]`` the metadata of its column, whose name begins with ``prefix``."""
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
    """Let this process use the function for the definitions that :func:`metadata_of` makes of it."""
    module, qualname = _place_of(udf)
    _known[module, qualname, udf.digest] = udf


def resolve(definition: Definition, udf_modules: Collection[str] = ()) -> UDF:
    """The function of a definition, called with its inputs.

    It is one that this process remembers, or that its main module has, or one of a module that is imported for it:
    where ``udf_modules``, or the environment's ``CHUNKMILL_UDF_MODULES`` with commas between, names that module or a
    package around it. Naming a package allows all modules in it to be imported, by whoever writes a table.

    Nothing but a ``UDF`` that stands in the module under its name, and whose digest is that of the definition, is ever
    used. Raises ``UsageError`` that says what is missing.
    """
    place = (definition.module, definition.qualname, definition.digest)
    udf = _known.get(place)
    if udf is None:
        udf = _looked_up(definition, [*udf_modules, *_of_environment()])
    if definition.inputs == udf.inputs:
        return udf
    if definition.inputs is None:
        raise _unusable(definition, "the definition names no input columns, and the function takes some")
    return udf.with_inputs(definition.inputs)


def _looked_up(definition: Definition, allowed: Iterable[str]) -> UDF:
    is_main = definition.module == "__main__"
    path = definition.qualname.split(".")
    if not all(map(_is_plain, path if is_main else [*definition.module.split("."), *path])):
        raise _unusable(definition, "the definition has no name by which a function is found in a module")
    if is_main:
        module = sys.modules.get("__main__")
    elif any(_lies_in(definition.module, one) for one in allowed):
        module = _imported(definition)
    else:
        raise _unusable(
            definition,
            f"the module {_shown(definition.module)} is not in the list of those that may be imported for functions",
            f"List it, as udf_modules=[{_shown(definition.module)}], by --module or in {MODULES}",
        )
    found: object = module
    for name in path:
        found = vars(found).get(name) if isinstance(found, (ModuleType, type)) else None
    if not isinstance(found, UDF):
        raise _unusable(
            definition, f"the module {_shown(definition.module)} has no UDF of the name {_shown(definition.qualname)}"
        )
    if found.digest != definition.digest:
        raise _unusable(
            definition,
            f"{_shown(definition.qualname)} of the module {_shown(definition.module)} has another digest, "
            f"{found.digest[:_SHOWN]}…, than the column was defined with, {definition.digest[:_SHOWN]}…",
        )
    return found


def _imported(definition: Definition) -> ModuleType:
    try:
        return importlib.import_module(definition.module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise _unusable(definition, f"the module {_shown(definition.module)} cannot be imported: {why}") from error


def _unusable(definition: Definition, why: str, hint: str | None = None) -> UsageError:
    hint = "Pass" if hint is None else f"{hint}; or pass"
    return UsageError(
        f"the function {_shown(definition.udf_name)} of the column {_shown(definition.column)} is not here: {why}",
        hint=f"{hint} the function itself, as udf=.",
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")


def _is_plain(name: str) -> bool:
    """Whether a name is one that a function, a class or a module would have."""
    return name.isidentifier() and not name.startswith("__")


def _lies_in(module: str, package: str) -> bool:
    return bool(package) and (module == package or module.startswith(f"{package}."))


def _of_environment() -> list[str]:
    return [name.strip() for name in os.environ.get(MODULES, "").split(",")]


def _place_of(udf: UDF) -> tuple[str, str]:
    """The module of a function, and its name there: that of the UDF where the module has it by one, else its own."""
    names = vars(sys.modules.get(udf.module, object)).items()
    own = (name for name, value in list(names) if isinstance(value, UDF) and value.token == udf.token)
    return udf.module, next(own, udf.qualname)


def _metadata(field: pa.Field) -> Iterable[tuple[bytes, bytes]]:
    return (field.metadata or {}).items()


def _names(field: pa.Field, said: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    """A list of names that a field's metadata has as JSON; None where it has none."""
    text = said.get(f"{MARK}.{key}", "null")
    try:
        value: Any = json.loads(text) if len(text) <= _MOST_JSON else text
    except (ValueError, RecursionError):
        value = text
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ReadError(
            f"the metadata {MARK}.{key} of the column {_shown(field.name)} is no list of names: {_shown(text)}",
            hint="The table was damaged, or written by something else.",
        )
    return tuple(value)
