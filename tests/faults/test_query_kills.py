"""A slice of ``query_kills.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from query_kills import run


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_query_gives_other_rows_or_leaves_files_whoever_is_killed(tmp_path: Path) -> None:
    counts, wrong = run(tmp_path, 3, 1.0, 5)
    assert wrong == []
    assert counts["worker"] == counts["driver"] == counts["jvm"] == 1
