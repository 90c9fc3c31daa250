"""The catalog has every name of Rerun's page of it, with its parameters, defaults and errors.

The page is the text of ``../shared/reference/catalog-api.txt``, where that is.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from typing import Any

import pytest
from chunkmill.engine import catalog
from chunkmill.engine.catalog.layers import FileRequest
from chunkmill.engine.catalog.registration import Outcomes, RegistrationHandle
from places import SHARED
from reference_page import SUBCLASSES, Name, check, differences, names, returned, signature_of

PAGE = SHARED / "reference" / "catalog-api.txt"

pytestmark = pytest.mark.wide

OTHER_PARAMETERS = {
    "CatalogClient.create_table": "as with 0.33, a table without a url lies in the catalog's folder",
    "Schema.__init__": "the page's takes an object of Rerun's bindings, ours the columns",
    "DatasetView.__init__": "the page's takes an object of Rerun's bindings, ours the dataset and what is filtered",
}
"""Signatures that differ on purpose, and why."""

_RETURNED = {
    "DataFrame": (
        "DatasetEntry.manifest DatasetEntry.search_fts DatasetEntry.search_vector DatasetView.reader TableEntry.reader"
    ),
    "DatasetEntry": "CatalogClient.create_dataset CatalogClient.get_dataset CatalogClient.get_dataset_entry",
    "DatasetEntry | None": "DatasetEntry.blueprint_dataset",
    "IndexingResult": "DatasetEntry.create_vector_index DatasetEntry.create_vector_search_index",
    "Iterator[IndexColumnDescriptor | ComponentColumnDescriptor]": "Schema.__iter__",
    "Iterator[SegmentRegistrationResult]": "RegistrationHandle.iter_results",
    "None": (
        "CatalogClient.append_to_table CatalogClient.do_global_maintenance CatalogClient.update_table "
        "CatalogClient.write_table DatasetEntry.create_fts_index DatasetEntry.create_fts_search_index "
        "DatasetEntry.delete DatasetEntry.do_maintenance DatasetEntry.register_blueprint "
        "DatasetEntry.set_default_blueprint DatasetEntry.set_default_blueprint_partition_id DatasetEntry.update "
        "Entry.delete Entry.update TableEntry.append TableEntry.delete TableEntry.overwrite TableEntry.update "
        "TableEntry.upsert"
    ),
    "Recording": "DatasetEntry.download_partition DatasetEntry.download_segment",
    "RegistrationHandle": "DatasetEntry.register_prefix",
    "Schema": "DatasetEntry.schema",
    "TableEntry": (
        "CatalogClient.create_table CatalogClient.create_table_entry CatalogClient.get_table "
        "CatalogClient.get_table_entry CatalogClient.register_table"
    ),
    "bool": "Schema.__eq__ DatasetEntry.__eq__ Entry.__eq__ TableEntry.__eq__",
    "list[ComponentColumnDescriptor]": "Schema.component_columns",
    "list[DatasetEntry | TableEntry]": "CatalogClient.all_entries CatalogClient.entries",
    "list[DatasetEntry]": "CatalogClient.dataset_entries CatalogClient.datasets",
    "list[IndexColumnDescriptor]": "Schema.index_columns",
    "list[IndexConfig]": "DatasetEntry.delete_indexes DatasetEntry.delete_search_indexes",
    "list[IndexingResult]": "DatasetEntry.list_indexes DatasetEntry.list_search_indexes",
    "list[TableEntry]": "CatalogClient.table_entries CatalogClient.tables",
    "list[str]": (
        "Schema.column_names CatalogClient.dataset_names CatalogClient.entry_names CatalogClient.table_names "
        "DatasetEntry.blueprints DatasetEntry.partition_ids DatasetEntry.segment_ids"
    ),
    "pa.RecordBatchReader": "TableEntry.to_arrow_reader",
    "pa.Schema": "DatasetEntry.arrow_schema TableEntry.arrow_schema",
    "str": "Schema.__repr__ DatasetView.__repr__ EntryId.__str__ DatasetEntry.partition_url",
    "str | None": "DatasetEntry.default_blueprint DatasetEntry.default_blueprint_partition_id",
}
RETURNED = {name: type_ for type_, some in _RETURNED.items() for name in some.split()}
"""What methods give whose types the page leaves to the annotations of Rerun 0.33.1, and of 0.28 what has gone since."""


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
    thing = thing_of(name)
    check(name, thing, name.full not in OTHER_PARAMETERS)
    if name.full in RETURNED:
        found = returned(thing, name.owner)
        assert SUBCLASSES.get(found, found) == RETURNED[name.full]


def test_every_method_has_a_type_to_be_compared_with() -> None:
    plain = {name.full for name in wanted() if name.kind == "method" and not name.returns}
    pythons = {"EntryKind.__int__", "EntryKind.__str__", "TableEntry.__datafusion_table_provider__"}
    assert {full for full in plain - pythons if not full.endswith("__init__")} == RETURNED.keys() or not PAGE.exists()


@pytest.mark.parametrize("name", [n for n in wanted() if n.deprecated], ids=lambda name: name.full)
def test_a_deprecated_name_warns_with_the_text_of_the_page(name: Name) -> None:
    bare = object.__new__(getattr(catalog, name.owner))
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(name.text)}$"), contextlib.suppress(Exception):
        getattr(bare, name.name)()


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
