"""Memory that was freed, and what glibc does with it; nothing is said to another C library."""

from __future__ import annotations

import ctypes

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _MOST_ARENAS = -3, -1, -8
"""Numbers of glibc's ``mallopt``."""


def keep_freed_memory(arenas: int | None = None) -> None:
    """Let glibc hand out again what was freed, up to 64 MiB, instead of giving it back to the system at once.

    Buffers of a few hundred kB come and go with every chunk, and each page of them cost a fault again: 74,000 in an
    optimised collect of 400 MB, now 12,000 (``benchmarks/bench_rrd.py``). Each of glibc's arenas keeps so much. It
    makes up to eight for each core, as threads need them, unless ``arenas`` says how many it may.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_MMAP_THRESHOLD, 32 << 20)
    mallopt(_TRIM_THRESHOLD, 64 << 20)
    if arenas is not None:
        mallopt(_MOST_ARENAS, arenas)
