"""Pages of Rerun's catalog, as text: the names of an API with their parameters, defaults, errors and deprecations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_CLASS = re.compile(r"class (\w+)(?: dataclass)?$")
_FUNCTION = re.compile(r"def (\w+)\((.*)\)( deprecated)?$")
_ATTRIBUTE = re.compile(
    r"(\w+): (.+?) (property|instance-attribute|module-attribute)$|(\w+): TypeAlias = .* module-attribute$"
)
_TYPE = re.compile(r"[\w.\[\]]+( \| None)?$")
_ERROR = re.compile(r"(\w*Error)$")


@dataclass
class Name:
    """A name of the page: of a class (``owner`` is empty), a method or a property."""

    owner: str
    name: str
    kind: str
    parameters: str = ""
    deprecated: bool = False
    text: str = ""
    returns: str = ""
    bases: str = ""
    errors: list[str] = field(default_factory=list)

    @property
    def full(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name


def names(text: str) -> Iterator[Name]:
    """Every name of the page."""
    owner, last, in_errors, in_returns = "", None, False, False
    for line in text.splitlines():
        if made := _CLASS.match(line):
            owner, last = made[1], Name("", made[1], "class")
        elif made := _FUNCTION.match(line):
            last = Name(owner, made[1], "method", made[2], bool(made[3]))
        elif made := _ATTRIBUTE.match(line):
            is_alias = made[3] == "module-attribute"
            last = Name("" if is_alias else owner, made[1] or made[4], "alias" if is_alias else "property")
            last.returns = "" if is_alias else made[2] or ""
        else:
            if last is not None and in_returns and _TYPE.match(line):
                last.returns, in_returns = line, False
            in_returns = line.startswith("RETURNS") or (in_returns and not line)
            if last is not None and line.startswith("Bases: "):
                last.bases = line.removeprefix("Bases: ")
            if last is not None and last.deprecated and not last.text and line not in ("", "Deprecated"):
                last.text = line
            in_errors = line.startswith("RAISES") or (in_errors and not line.isupper() and "DESCRIPTION" not in line)
            if last is not None and in_errors and (error := _ERROR.match(line)):
                last.errors.append(error[1])
            continue
        in_errors = in_returns = False
        yield last


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
        is_open = parameter.default is ... and own.default is not own.empty  # the page does not say which it is
        if own.kind != parameter.kind or not (is_open or own.default == parameter.default):
            found.append(f"{name} is {own.kind.description}, {own.default!r}")
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and list(ours.parameters)[at] != name:
            found.append(f"{name} has another place")
    found += [f"{name} must be given" for name, own in mine.items() if own.default is own.empty]
    return found


OTHER_NAMES = {
    "CatalogClientInternal": "CatalogClient",
    "RecordingView": "DataframeQueryView",
    "partition_id": "str",
}
"""What pages say of types, and mean."""

OTHER_TYPES = {"ComponentColumnDescriptor.archetype": "str | None"}
"""Types that pages give, although they go on to say "if any"."""

SUBCLASSES = {"Any": "CatalogClient", "CatalogContext": "SessionContext", "QueryFrame": "DataFrame"}
"""Ours of types that pages name. Entries stand below the client, and name no type of it."""


def returned(thing: Any, owner: str) -> str:
    """The type of what a method gives, or of a property, as its annotation has it, without the module."""
    if inspect.ismemberdescriptor(thing):
        return str(thing.__objclass__.__annotations__[thing.__name__])
    function = thing.fget if isinstance(thing, property) else thing
    found = str(function.__annotations__.get("return")).replace("datafusion.", "")
    return re.sub(r"\bSelf\b", owner, found)


def check(name: Name, thing: Any, has_its_parameters: bool = True) -> None:
    """A thing is what the page says of a name."""
    if name.kind == "class":
        for base in {"Exception", "Enum", "Entry"} & set(re.findall(r"\w+", name.bases)):
            assert base in {c.__name__ for c in thing.__mro__}
    elif name.kind == "property":
        assert isinstance(thing, property) or inspect.ismemberdescriptor(thing)
    elif name.kind == "method" and has_its_parameters:
        assert differences(signature_of(name.parameters), inspect.signature(thing)) == []
        assert getattr(thing, "__deprecated__", "") == name.text
    if name.returns:
        wanted = OTHER_TYPES.get(name.full, OTHER_NAMES.get(name.returns, name.returns)).rpartition(".")[2]
        found = returned(thing, name.owner).rpartition(".")[2]
        assert SUBCLASSES.get(found, found) == wanted
    for error in name.errors:
        assert error in (inspect.getdoc(thing) or ""), f"{error} is not told"
