"""The files of a store of recordings: versions, tables, manifests and shards, and who writes them.

The names below are loaded when they are first used: who reads an RRD needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .compaction import MIN_SHARD, CompactionReport, compact_store
    from .entries import BASE_LAYER, IndexRange, Key, LiveEntries, RecordingEntry, entries_in, key_of, removal_of
    from .folder import RecordingsFolder, StoreReader, manifest_bytes
    from .schemas import NewLayer, SchemaFiles, SchemaUnion, join_schemas, join_types
    from .summaries import LayerSummary, properties_of, summaries_of, summarised, summary_of, with_summary
    from .times import times_in
    from .times_making import make_times
    from .vacuum import vacuum_store
    from .verification import check_store, verify_store
    from .versions import RecordingsVersion, check_no_catalog, is_catalog, versions_of_catalog
    from .writer import Arrived, Commit, InPlace, Origin, Rule, StoreWriter

_HOMES = {
    ".compaction": "CompactionReport MIN_SHARD compact_store",
    ".entries": "BASE_LAYER IndexRange Key LiveEntries RecordingEntry entries_in key_of removal_of",
    ".folder": "RecordingsFolder StoreReader manifest_bytes",
    ".schemas": "NewLayer SchemaFiles SchemaUnion join_schemas join_types",
    ".summaries": "LayerSummary properties_of summaries_of summarised summary_of with_summary",
    ".times": "times_in",
    ".times_making": "make_times",
    ".vacuum": "vacuum_store",
    ".verification": "check_store verify_store",
    ".versions": "RecordingsVersion check_no_catalog is_catalog versions_of_catalog",
    ".writer": "Arrived Commit InPlace Origin Rule StoreWriter",
}

__all__ = [
    "Arrived",
    "BASE_LAYER",
    "Commit",
    "CompactionReport",
    "InPlace",
    "IndexRange",
    "Key",
    "LayerSummary",
    "LiveEntries",
    "MIN_SHARD",
    "NewLayer",
    "Origin",
    "RecordingEntry",
    "RecordingsFolder",
    "RecordingsVersion",
    "Rule",
    "SchemaFiles",
    "SchemaUnion",
    "StoreReader",
    "StoreWriter",
    "check_no_catalog",
    "check_store",
    "compact_store",
    "entries_in",
    "is_catalog",
    "join_schemas",
    "join_types",
    "key_of",
    "make_times",
    "manifest_bytes",
    "properties_of",
    "removal_of",
    "summaries_of",
    "summarised",
    "summary_of",
    "times_in",
    "vacuum_store",
    "verify_store",
    "versions_of_catalog",
    "with_summary",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
