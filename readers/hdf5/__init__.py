"""HDF5: groups as entities, datasets as columns.

The names below are loaded when they are first used, so that a program that reads one format does not load the others.
"""

from ...engine.lazy_names import lazy_names

_HOMES = {
    ".file": "Hdf5DatasetInfo",
    ".reader": "Hdf5Demo Hdf5Reader",
    ".recording": "Hdf5Recording",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
