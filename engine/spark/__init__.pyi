# Made of the table in __init__.py: python -m tests.run house stubs
from .gateway import INTERRUPTED as INTERRUPTED
from .gateway import TERMINATED as TERMINATED
from .gateway import Terminated as Terminated
from .gateway import cancel_jobs_while as cancel_jobs_while
from .gateway import cancel_tagged as cancel_tagged
from .gateway import check_not_in_task as check_not_in_task
from .gateway import in_task as in_task
from .gateway import interrupt_behind as interrupt_behind
from .gateway import interruptible as interruptible
from .gateway import make_active as make_active
from .gateway import note_signal as note_signal
from .gateway import raise_in_thread as raise_in_thread
from .gateway import signal_since as signal_since
from .gateway import tag_jobs as tag_jobs
from .gateway import tries_before as tries_before
from .gateway import waiting_for_jobs as waiting_for_jobs
from .session import Resources as Resources
from .session import give_up_start as give_up_start
from .session import resources_of as resources_of
from .session import running_session as running_session
from .session import said_by_cluster as said_by_cluster
from .session import session_for_user as session_for_user
from .session import session_is_ours as session_is_ours
from .session import session_is_there as session_is_there
from .session import start_ahead as start_ahead
from .session import stop_session as stop_session
from .session_conf import is_local as is_local
from .value_types import arrow_of as arrow_of
from .value_types import spark_array as spark_array
from .value_types import spark_form as spark_form
from .value_types import spark_schema as spark_schema

__all__: list[str]
