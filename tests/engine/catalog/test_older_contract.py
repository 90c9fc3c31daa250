"""The older API has every name of the page of Rerun 0.27, with its parameters, defaults and return types.

The page is the text of ``../shared/reference/catalog-api-older.txt``, where that is.
"""

from __future__ import annotations

import inspect

import pytest
from chunkmill.engine.catalog import v0_27
from places import SHARED
from reference_page import Name, check, names, returned

PAGE = SHARED / "reference" / "catalog-api-older.txt"

pytestmark = pytest.mark.wide

OTHER_PARAMETERS = {"EntryKind.__int__", "EntryKind.__str__", "EntryId.__str__"}
"""What Python itself has for a class."""

_RETURNED = {
    "DataFrame": (
        "CatalogClient.datasets CatalogClient.entries CatalogClient.tables DataframeQueryView.df TableEntry.df"
    ),
    "pa.RecordBatchReader": "DataframeQueryView.to_arrow_reader TableEntry.to_arrow_reader",
    "DataFusionTable": (
        "DatasetEntry.manifest DatasetEntry.partition_table DatasetEntry.search_fts DatasetEntry.search_vector"
    ),
    "DataframeQueryView": (
        "DataframeQueryView.fill_latest_at DataframeQueryView.filter_index_values "
        "DataframeQueryView.filter_is_not_null "
        "DataframeQueryView.filter_partition_id DataframeQueryView.filter_range_nanos "
        "DataframeQueryView.filter_range_secs DataframeQueryView.filter_range_sequence "
        "DataframeQueryView.using_index_values DatasetEntry.dataframe_query_view"
    ),
    "DatasetEntry": "CatalogClient.create_dataset CatalogClient.get_dataset CatalogClient.get_dataset_entry",
    "DatasetEntry | None": "DatasetEntry.blueprint_dataset",
    "EntryId | None": "DatasetEntry.blueprint_dataset_id",
    "None": (
        "CatalogClient.append_to_table CatalogClient.do_global_maintenance CatalogClient.write_table "
        "DatasetEntry.create_fts_index DatasetEntry.do_maintenance "
        "DatasetEntry.set_default_blueprint_partition_id Entry.delete Entry.update Task.wait"
    ),
    "IndexingResult": "DatasetEntry.create_vector_index",
    "Recording": "DatasetEntry.download_partition",
    "Schema": "DatasetEntry.schema",
    "TableEntry": (
        "CatalogClient.create_table_entry CatalogClient.get_table CatalogClient.get_table_entry "
        "CatalogClient.register_table"
    ),
    "Tasks": "DatasetEntry.register_batch DatasetEntry.register_prefix",
    "list[DatasetEntry]": "CatalogClient.dataset_entries",
    "list[DatasetEntry | TableEntry]": "CatalogClient.all_entries",
    "list[IndexConfig]": "DatasetEntry.delete_indexes",
    "list[IndexingResult]": "DatasetEntry.list_indexes",
    "list[TableEntry]": "CatalogClient.table_entries",
    "list[str]": (
        "CatalogClient.dataset_names CatalogClient.entry_names CatalogClient.table_names DatasetEntry.partition_ids"
    ),
    "pa.Schema": "DatasetEntry.arrow_schema",
    "str": "DatasetEntry.partition_url DatasetEntry.register",
    "str | None": "DatasetEntry.default_blueprint_partition_id",
}
RETURNED = {name: type_ for type_, some in _RETURNED.items() for name in some.split()}
"""What methods of the page give. ``get_table`` is said to give a table; in 0.27 it gave its rows."""


def wanted() -> list[Name]:
    return list(names(PAGE.read_text(encoding="utf-8"))) if PAGE.exists() else []


@pytest.mark.parametrize("name", wanted(), ids=lambda name: name.full)
def test_every_name_is_there_as_the_page_has_it(name: Name) -> None:
    home = getattr(v0_27, name.owner) if name.owner else v0_27
    thing = inspect.getattr_static(home, name.name) if name.owner else getattr(home, name.name)
    check(name, thing, name.full not in OTHER_PARAMETERS)
    if name.full in RETURNED:
        assert returned(thing, name.owner) == RETURNED[name.full]


def test_what_is_known_of_names_is_on_the_page() -> None:
    if PAGE.exists():
        full = {name.full for name in wanted()}
        assert not RETURNED.keys() - full
        methods = {name.full for name in wanted() if name.kind == "method" and "__" not in name.name}
        of_entries = {
            f"{owner}.{method}" for owner in ("DatasetEntry", "TableEntry") for method in ("delete", "update")
        }
        assert not methods - RETURNED.keys() - of_entries
