"""A slice of ``pushed_predicates.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from pushed_predicates import compared


@pytest.mark.heavy
def test_a_filter_gives_the_same_rows_whether_it_is_pushed_or_not(tmp_path: Path) -> None:
    assert sum(compared(seed, tmp_path) for seed in (3, 1104)) > 0
