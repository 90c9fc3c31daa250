"""Admission: what a function wants of cores, GPUs and memory, beside what the session has."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..errors import ResourcesUnavailableError, UsageError
from ..execution import RunOptions
from ..spark import Resources, resources_of
from .functions import UDF

_CHECK: Final = "CHUNKMILL_ADMISSION_CHECK"
_STRICT: Final = "CHUNKMILL_ADMISSION_STRICT"


@dataclass(frozen=True)
class TaskNeeds:
    """The cores, GPUs and bytes of memory that a task wants."""

    cores: float = 1
    gpus: float = 0
    memory: int | None = None

    @classmethod
    def of(cls, udf: UDF) -> TaskNeeds:
        """Those that a function wants."""
        return cls(udf.num_cpus, udf.num_gpus or 0, udf.memory)


def admit(name: str, wanted: TaskNeeds, run: RunOptions, *, check: bool | None, strict: bool | None) -> None:
    """Compare what ``name`` wants with what tasks get: a warning where it is more, or an error where ``strict``.

    Raises ``ResourcesUnavailableError``.
    """
    if not _asked(check, _CHECK, default=True) or wanted == TaskNeeds():
        return
    short = list(_lacks(wanted, resources_of(run.executor == "spark", run.master, run.conf)))
    if not short:
        return
    told = f"{name!r} wants {' and '.join(short)}"
    if _asked(strict, _STRICT, default=False):
        raise ResourcesUnavailableError(
            told, hint=f"Give the session more, let it want less, or admit it all the same: {_STRICT}=0."
        )
    warnings.warn(f"{told}; it runs all the same", UserWarning, stacklevel=4)


def _lacks(wanted: TaskNeeds, there: Resources) -> Iterator[str]:
    if wanted.cores > there.cores:
        yield f"{wanted.cores:g} cores, and an executor has {there.cores}"
    if wanted.gpus > there.gpus:
        yield f"{wanted.gpus:g} GPUs, and an executor has {there.gpus:g}"
    if wanted.memory is not None and there.memory is not None and wanted.memory > there.memory:
        yield f"{wanted.memory:,} bytes of memory, and a task has {there.memory:,}"


def _asked(given: bool | None, name: str, *, default: bool) -> bool:
    if given is not None:
        return given
    found = os.environ.get(name, "").strip().lower()
    if found in ("", "1", "true", "yes", "0", "false", "no"):
        return default if not found else found in ("1", "true", "yes")
    raise UsageError(f"{name} is {found!r}, which is neither 1 nor 0")
