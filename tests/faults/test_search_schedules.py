"""A slice of ``search_schedules.py``."""

from __future__ import annotations

from collections import Counter

import pytest
import search_schedules


@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_is_what_is_live(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    told: Counter[str] = Counter()
    search_schedules.run(seed, told)
    assert told["rows compared"] > 50
