# Made of the table in __init__.py: python -m tests.run house stubs
from .duplicates import Vectors as Vectors
from .duplicates import near_duplicates as near_duplicates
from .sampling import Sampler as Sampler
from .sampling import TableCuration as TableCuration

__all__: list[str]
