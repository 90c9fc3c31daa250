# Made of the table in catalog_0_27.py: python -m tests.run house stubs
from .engine.catalog.v0_27 import *

__all__: list[str]
