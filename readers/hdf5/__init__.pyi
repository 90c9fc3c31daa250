# Made of the table in __init__.py: python -m tests.run house stubs
from .file import Hdf5DatasetInfo as Hdf5DatasetInfo
from .reader import Hdf5Demo as Hdf5Demo
from .reader import Hdf5Reader as Hdf5Reader
from .recording import Hdf5Recording as Hdf5Recording

__all__: list[str]
