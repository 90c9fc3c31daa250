"""The counts of what a run on the columns of a table has done so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class RunCounts:
    """Counts of a run: rows with a value, and that failed, by their policy, of ``rows``; fragments, of ``total``.

    ``errors`` are the names of files with error records, ``taken`` the fragments that another job filled meanwhile.
    """

    processed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    fragments: int = 0
    total: int = 0
    errors: list[str] = field(default_factory=list)
    commits: int = 0
    taken: set[int] = field(default_factory=set)
