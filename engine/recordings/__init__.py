"""The files of a store of recordings: versions, tables, manifests and shards, and their writers.

The names below are loaded on first use: reading an RRD needs none of them.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".compaction": "CompactionReport MIN_SHARD compact_store",
    ".entries": "BASE_LAYER IndexRange Key LiveEntries RecordingEntry entries_in key_of layers_digest removal_of",
    ".folder": "MANIFEST_ERRORS RecordingsFolder StoreReader manifest_bytes",
    ".history": "History",
    ".removal": "StoreRemoval all_layers_of remove_recordings tags_with",
    ".schemas": "NewLayer SchemaFiles SchemaUnion join_schemas join_types",
    ".summaries": "LayerSummary properties_of summaries_of summarised summary_of with_summary",
    ".times": "times_in",
    ".times_making": "make_times",
    ".vacuum": "vacuum_store",
    ".verification": "check_store verify_store",
    ".versions": "RecordingsVersion check_no_catalog is_catalog versions_of_catalog",
    ".writer": "Arrived Commit InPlace Origin Rule StoreWriter",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
