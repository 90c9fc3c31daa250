"""The command line: ``chunkmill convert`` and ``chunkmill inspect``.

Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted. This package is the top of the tree: it imports readers,
and nothing imports it.
"""

from __future__ import annotations

from .command import main

__all__ = ["main"]
