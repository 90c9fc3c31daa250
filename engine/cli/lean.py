"""What makes a short run shorter."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas:
    """Lets pandas not be found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name == "pandas":
            raise ImportError(name)
        return None


def leave_pandas_out() -> None:
    """Keep pyarrow from loading pandas, which it looks for when it first converts a Python object.

    That takes a fifth of a second, and nothing on the way from a file to an RRD needs it. For the program only: in a
    user's own process pyarrow would not know pandas any more. Does nothing where pandas is loaded already.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)
