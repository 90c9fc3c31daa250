# Made of the table in __init__.py: python -m tests.run house stubs
from .reading import value_frame as value_frame
from .sources import data_source_of as data_source_of
from .sources import get_session as get_session
from .sources import register as register

__all__: list[str]
