"""The cores, GPUs and memory that tasks of a session have, as far as its settings tell."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from .session import running_session
from .session_conf import is_local

_MIB = 1 << 20
_UNITS = {"b": 1, "k": 1 << 10, "m": _MIB, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


@dataclass(frozen=True)
class Resources:
    """Those of one executor; ``slots`` is how many tasks run at once in all. None: nobody says."""

    cores: int
    gpus: float
    memory: int | None
    slots: int


def resources_of(is_spark: bool, master: str | None = None, conf: Mapping[str, str] | None = None) -> Resources:
    """The resources of the session, which is started where there is none; without Spark, of this process."""
    cores = os.cpu_count() or 1
    if not is_spark:
        return Resources(cores, _gpus_here(), _memory_here(), 1)
    spark = running_session(master, conf)
    told = spark.conf.get("spark.master", None) or ""

    def asked(name: str) -> str | None:
        return spark.conf.get(name, None)

    gpus = float(asked("spark.executor.resource.gpu.amount") or 0)
    memory = _bytes_of(asked("spark.executor.pyspark.memory"))
    if is_local(told):
        slots = _threads(told) or cores
        here = _memory_here()
        return Resources(slots, gpus or _gpus_here(), memory or (here and here // slots), slots)
    own = int(asked("spark.executor.cores") or 1)
    instances = int(asked("spark.executor.instances") or 1)
    memory = memory or _bytes_of(asked("spark.executor.memoryOverhead"))
    return Resources(own, gpus, memory and memory // own, own * instances)


def _threads(master: str) -> int | None:
    found = re.match(r"local\[(\d+)", master)
    return int(found[1]) if found else 1 if master == "local" else None


def _gpus_here() -> float:
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is not None:
        return float(len([device for device in asked.split(",") if device.strip() not in ("", "-1")]))
    return float(sum(1 for number in range(16) if os.path.exists(f"/dev/nvidia{number}")))  # noqa: PTH110 (no path is kept)


def _memory_here() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _bytes_of(told: str | None) -> int | None:
    """The bytes of a setting of Spark, such as ``2g``; one without a unit is in MiB."""
    found = re.fullmatch(r"(\d+)([bkmgtp]?)b?", (told or "").strip().lower())
    return None if found is None else int(found[1]) * (_UNITS[found[2]] if found[2] else _MIB)
