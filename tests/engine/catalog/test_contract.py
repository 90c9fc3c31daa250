"""The catalog has every name of Rerun's page of it, with its parameters, defaults and errors.

The page is the text of ``../shared/reference/catalog-api.txt``, where that is.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from chunkmill.engine import catalog
from chunkmill.engine.catalog.registration_handle import Outcomes, RegistrationHandle
from chunkmill.engine.catalog.requests import FileRequest
from places import SHARED
from reference_page import Name, check, differences, names, signature_of

PAGE = SHARED / "reference" / "catalog-api.txt"

pytestmark = pytest.mark.wide

OTHER_PARAMETERS = {
    "CatalogClient.create_table": "as with 0.33, a table without a url lies in the catalog's folder",
    "Schema.__init__": "the page's takes an object of Rerun's bindings, ours the columns",
    "DatasetView.__init__": "the page's takes an object of Rerun's bindings, ours the dataset and what is filtered",
}
"""Signatures that differ on purpose, and why."""


def wanted() -> list[Name]:
    return list(names(PAGE.read_text(encoding="utf-8"))) if PAGE.exists() else []


def thing_of(name: Name) -> Any:
    home = getattr(catalog, name.owner) if name.owner else catalog
    return inspect.getattr_static(home, name.name) if name.owner else getattr(home, name.name)


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
    check(name, thing_of(name), name.full not in OTHER_PARAMETERS)


def test_the_reader_of_the_page_sees_what_differs() -> None:
    class Other:
        def method(self, a: int, *, b: int = 2, c: int) -> None: ...

    ours = inspect.signature(Other.method)
    assert differences(signature_of("a, *, b=2, c"), ours) == []
    assert differences(signature_of("a, *, b=3"), ours) == ["b is keyword-only, 2", "c must be given"]
    assert differences(signature_of("z, *, b=2, c"), ours) == ["z is missing", "a must be given"]


def test_waiting_for_a_registration_ends_in_time() -> None:
    handle = RegistrationHandle(Outcomes([FileRequest("/a.rrd", "/a.rrd", "base", "a")]))
    with pytest.raises(TimeoutError, match="1 of 1 files were not registered in time"):
        handle.wait(0.01)
    with pytest.raises(TimeoutError):
        list(handle.iter_results(timeout_secs=0.01))
