"""The catalog has every name of Rerun's page of it, with its parameters, defaults and errors.

The page is the text of ``../shared/reference/catalog-api.txt``, where that is.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine import catalog
from chunkmill.engine.catalog.registration_handle import Outcomes, RegistrationHandle
from chunkmill.engine.catalog.requests import FileRequest
from places import SHARED

PAGE = SHARED / "reference" / "catalog-api.txt"

pytestmark = pytest.mark.wide

OTHER_PARAMETERS = {
    "CatalogClient.create_table": "as with 0.33, a table without a url lies in the catalog's folder",
    "Schema.__init__": "the page's takes an object of Rerun's bindings, ours the columns",
    "DatasetView.__init__": "the page's takes an object of Rerun's bindings, ours the dataset and what is filtered",
}
"""Signatures that differ on purpose, and why."""

# Of search alone.
_TO_COME_OF = {
    "": "VectorDistanceMetricLike VectorDistanceMetric",
    "DatasetEntry": (
        "create_fts_index create_fts_search_index create_vector_index create_vector_search_index "
        "delete_indexes delete_search_indexes list_indexes list_search_indexes search_fts search_vector"
    ),
}
TO_COME = {f"{owner}.{name}".strip(".") for owner, names in _TO_COME_OF.items() for name in names.split()}
"""Names of the page that chunkmill does not have. It only shrinks."""

_CLASS = re.compile(r"class (\w+)(?: dataclass)?$")
_FUNCTION = re.compile(r"def (\w+)\((.*)\)( deprecated)?$")
_ATTRIBUTE = re.compile(
    r"(\w+): (.+?) (property|instance-attribute|module-attribute)$|(\w+): TypeAlias = .* module-attribute$"
)
_ERROR = re.compile(r"(\w*Error)$")


@dataclass
class Name:
    """A name of the page: of a class (``owner`` is empty), a method or a property."""

    owner: str
    name: str
    kind: str
    parameters: str = ""
    deprecated: bool = False
    bases: str = ""
    errors: list[str] = field(default_factory=list)

    @property
    def full(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name


def names(text: str) -> Iterator[Name]:
    """Every name of the page."""
    owner, last, in_errors = "", None, False
    for line in text.splitlines():
        if made := _CLASS.match(line):
            owner, last = made[1], Name("", made[1], "class")
        elif made := _FUNCTION.match(line):
            last = Name(owner, made[1], "method", made[2], bool(made[3]))
        elif made := _ATTRIBUTE.match(line):
            is_alias = made[3] == "module-attribute"
            last = Name("" if is_alias else owner, made[1], "alias" if is_alias else "property")
        else:
            if last is not None and line.startswith("Bases: "):
                last.bases = line.removeprefix("Bases: ")
            in_errors = line.startswith("RAISES") or (in_errors and not line.isupper() and "DESCRIPTION" not in line)
            if last is not None and in_errors and (error := _ERROR.match(line)):
                last.errors.append(error[1])
            continue
        in_errors = False
        yield last


def wanted() -> list[Name]:
    return list(names(PAGE.read_text(encoding="utf-8"))) if PAGE.exists() else []


def thing_of(name: Name) -> Any:
    home = getattr(catalog, name.owner) if name.owner else catalog
    return inspect.getattr_static(home, name.name) if name.owner else getattr(home, name.name)


def signature_of(text: str) -> inspect.Signature:
    """The signature of a method of the page, from its text."""
    scope: dict[str, Any] = {}
    exec(f"def method(self{', ' if text else ''}{text}): ...", scope)
    return inspect.signature(scope["method"])


def differences(theirs: inspect.Signature, ours: inspect.Signature) -> list[str]:
    found = []
    mine = dict(ours.parameters)
    for at, (name, parameter) in enumerate(theirs.parameters.items()):
        own = mine.pop(name, None)
        if own is None:
            found.append(f"{name} is missing")
            continue
        if (own.kind, own.default) != (parameter.kind, parameter.default):
            found.append(f"{name} is {own.kind.description}, {own.default!r}")
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and list(ours.parameters)[at] != name:
            found.append(f"{name} has another place")
    found += [f"{name} must be given" for name, own in mine.items() if own.default is own.empty]
    return found


def test_the_page_is_read_whole() -> None:
    if not PAGE.exists():
        pytest.skip("the page is not at hand")
    found = wanted()
    full = [name.full for name in found]
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    declared = [line for line in lines if re.match(r"(class|def) |\w+: .* (property|\S+-attribute)$", line)]
    assert len(found) == len(declared), "each declaration of the page is one of the names"
    assert sum(len(name.errors) for name in found) == sum(bool(re.fullmatch(r"\w+Error", line)) for line in lines)
    assert len(full) == len(set(full)) and len(full) > 150
    assert {name.name for name in found if name.kind == "class"} >= {"CatalogClient", "DatasetEntry", "EntryKind"}
    assert next(n for n in found if n.full == "RegistrationHandle.wait").errors == ["ValueError", "TimeoutError"]


@pytest.mark.parametrize("name", wanted(), ids=lambda name: name.full)
def test_every_name_is_there_as_the_page_has_it(name: Name) -> None:
    is_to_come = name.full in TO_COME or name.owner in TO_COME
    try:
        thing = thing_of(name)
    except AttributeError:
        assert is_to_come, "it is missing"
        return
    assert not is_to_come, "it is there: take it off the list of what is to come"
    if name.kind == "class":
        for base in {"Exception", "Enum", "Entry"} & set(re.findall(r"\w+", name.bases)):
            assert base in {c.__name__ for c in thing.__mro__}
    elif name.kind == "property":
        assert isinstance(thing, property) or inspect.ismemberdescriptor(thing)
    elif name.kind == "method" and name.full not in OTHER_PARAMETERS:
        assert differences(signature_of(name.parameters), inspect.signature(thing)) == []
        assert bool(getattr(thing, "__deprecated__", None)) == name.deprecated
    for error in name.errors:
        assert error in (inspect.getdoc(thing) or ""), f"{error} is not told"


def test_the_reader_of_the_page_sees_what_differs() -> None:
    class Other:
        def method(self, a: int, *, b: int = 2, c: int) -> None: ...

    ours = inspect.signature(Other.method)
    assert differences(signature_of("a, *, b=2, c"), ours) == []
    assert differences(signature_of("a, *, b=3"), ours) == ["b is keyword-only, 2", "c must be given"]
    assert differences(signature_of("z, *, b=2, c"), ours) == ["z is missing", "a must be given"]


def test_what_is_to_come_is_on_the_page() -> None:
    if PAGE.exists():
        assert not TO_COME - {name.full for name in wanted()}
    assert isinstance(PAGE, Path)


def test_waiting_for_a_registration_ends_in_time() -> None:
    handle = RegistrationHandle(Outcomes([FileRequest("/a.rrd", "/a.rrd", "base", "a")]))
    with pytest.raises(TimeoutError, match="1 of 1 files were not registered in time"):
        handle.wait(0.01)
    with pytest.raises(TimeoutError):
        list(handle.iter_results(timeout_secs=0.01))
