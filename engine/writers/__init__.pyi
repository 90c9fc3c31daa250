# Made of the table in __init__.py: python -m tests.run house stubs
from .alignment import Aligned as Aligned
from .alignment import Alignment as Alignment
from .alignment import EXACT as EXACT
from .alignment import HELD as HELD
from .alignment import INTERPOLATED as INTERPOLATED
from .alignment import MISSING as MISSING
from .alignment import Outside as Outside
from .alignment import Rule as Rule
from .alignment import align as align
from .alignment import frame_times as frame_times
from .lerobot import write_lerobot as write_lerobot
from .lerobot import write_recording as write_recording
from .lerobot_draft import draft_spec as draft_spec
from .lerobot_episodes import EpisodeAccount as EpisodeAccount
from .lerobot_episodes import FeatureAccount as FeatureAccount
from .lerobot_hub import check_hub as check_hub
from .lerobot_hub import push_lerobot as push_lerobot
from .lerobot_page import ExportReport as ExportReport
from .lerobot_page import check_account as check_account
from .lerobot_page import save_account as save_account
from .lerobot_sources import Exportable as Exportable
from .lerobot_sources import ExportedRecording as ExportedRecording
from .lerobot_sources import ExportedStore as ExportedStore
from .lerobot_sources import Recordings as Recordings
from .lerobot_sources import exported_entries as exported_entries
from .lerobot_sources import exported_store as exported_store
from .lerobot_sources import recordings_of as recordings_of
from .lerobot_spec import ExportSpec as ExportSpec
from .mcap import write_mcap as write_mcap
from .parquet import write_parquet as write_parquet
from .parquet import write_parquet_recording as write_parquet_recording

__all__: list[str]
