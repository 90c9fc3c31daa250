# Made of the table in __init__.py: python -m tests.run house stubs
from .comparison import Comparison as Comparison
from .comparison import Difference as Difference
from .comparison import compare as compare
from .stores import APPLICATION_ID as APPLICATION_ID
from .stores import FoundInput as FoundInput
from .stores import SourceOptions as SourceOptions
from .stores import Stores as Stores
from .stores import is_table as is_table
from .stores import search_inputs as search_inputs
from .stores import stores_of as stores_of
from .stores import verify as verify

__all__: list[str]
