"""The start of the program: boot Spark's JVM early, import little, and give advice on options.

Only the program uses this, and only if no user code runs in it: in a user's process, the libraries could not use each
other any more.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ..units import size
from .options import ConvertOptions

if TYPE_CHECKING:
    from ..locations import Location
    from .jobs import ConversionJob

_LOOKED_FOR: Final = ("pandas", "dateutil")
"""Modules that pyarrow looks for when it first converts a Python object."""

_WHY: Final = {"inline": "done here before Spark has started", "spark": "worth the start of Spark"}


def resolve_executor(
    options: ConvertOptions, jobs: Sequence[ConversionJob] | None, *, own_functions: bool = False
) -> ConvertOptions:
    """Return the options with the executor resolved; only ``auto`` needs the ``jobs``, and looks at them.

    If that is Spark, its JVM boots while readers are imported and the inputs are looked at.
    """
    sources = None if jobs is None else {job.source for job in jobs}
    executor, chosen = choice(options.executor, sources, own_functions=own_functions)
    if executor == "spark":
        from ..spark import start_ahead

        start_ahead(options.master, options.conf)
    elif not own_functions:
        leave_out_what_nothing_needs()
    return replace(options, executor=executor, chosen=chosen)


def choice(
    given: str | None,
    sources: Collection[Location] | None,
    *,
    unknown: str = "what is not local",
    own_functions: bool = False,
) -> tuple[str, str]:
    """Return the executor, and for ``auto`` the reason; only ``auto`` looks at the files and folders ``sources``.

    ``unknown`` describes the work if ``sources`` is None, or not local.
    """
    from ..execution import executor_for, is_auto

    if not is_auto(given):
        return executor_for(given, lambda: None), ""
    num_bytes = None
    if sources is not None:
        from .jobs import local_bytes

        num_bytes = local_bytes(sources)
    executor = executor_for(given, lambda: num_bytes, own_functions=own_functions)
    amount = unknown if num_bytes is None else f"{size(num_bytes)} of input"
    return executor, f"auto: {amount} is {_WHY[executor]}"


class _Missing:
    """An import hook that hides some modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name in _LOOKED_FOR:
            raise ImportError(name)
        return None


class _NothingMasked(ModuleType):
    """A stand-in for ``numpy.ma`` until it is imported: until then no array can be masked."""

    class MaskedArray:
        """A class without instances."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("numpy.ma"), name)

    @staticmethod
    def is_masked(_array: object) -> bool:
        """Return False: no array is masked."""
        return False


def leave_out_what_nothing_needs() -> None:
    """Keep pyarrow from loading pandas and dateutil, and numpy from loading its masked arrays.

    Without this a cold ``convert`` of the demo recording takes 0.93 s of CPU instead of 0.59 (2 cores, least of nine
    in turns; ``test_cold_convert_of_a_small_file`` guards it), and nothing on the way from a file to an RRD needs them.
    Loaded modules stay as they are.
    """
    import numpy as np
    import pyarrow as pa

    if not sys.modules.keys() & set(_LOOKED_FOR):
        finder = _Missing()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([None])
        finally:
            sys.meta_path.remove(finder)
    if "numpy.ma" not in sys.modules:
        np.ma = _NothingMasked("numpy.ma")
