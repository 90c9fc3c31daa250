# Made of the table in __init__.py: python -m tests.run house stubs
from .alignment import Alignment as Alignment
from .alignment import Outside as Outside
from .alignment import Rule as Rule
from .lerobot import ExportReport as ExportReport
from .lerobot import ExportedRecording as ExportedRecording
from .lerobot import write_lerobot as write_lerobot
from .lerobot_draft import draft_spec as draft_spec
from .lerobot_episodes import EpisodeAccount as EpisodeAccount
from .lerobot_episodes import FeatureAccount as FeatureAccount
from .lerobot_page import check_account as check_account
from .lerobot_page import save_account as save_account
from .lerobot_spec import ExportSpec as ExportSpec

__all__: list[str]
