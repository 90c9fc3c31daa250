# Made of the table in __init__.py: python -m tests.run house stubs
from .server import CallLimits as CallLimits
from .server import lake_server as lake_server

__all__: list[str]
