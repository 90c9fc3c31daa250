"""Writers of formats: each written format is a class and a row of a table.

The names below are loaded when they are first used.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".alignment": "Aligned Alignment EXACT HELD INTERPOLATED MISSING Outside Rule align frame_times",
    ".lerobot": "write_lerobot write_recording",
    ".lerobot_draft": "draft_spec",
    ".lerobot_episodes": "EpisodeAccount FeatureAccount",
    ".lerobot_hub": "check_hub push_lerobot",
    ".lerobot_page": "ExportReport check_account save_account",
    ".lerobot_sources": (
        "Exportable ExportedRecording ExportedStore Recordings exported_entries exported_store recordings_of"
    ),
    ".lerobot_spec": "ExportSpec",
    ".mcap": "write_mcap",
    ".parquet": "write_parquet write_parquet_recording",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
