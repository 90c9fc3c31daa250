"""A slice of the comparison of the older query view with the oracle; ``older_query_view.py`` compares thousands."""

from __future__ import annotations

from pathlib import Path

import older_query_view
import pytest
import query_oracle

pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(not query_oracle.ORACLE.exists(), reason="the oracle is not at hand"),
]


def test_generated_calls_of_a_view_are_answered_as_the_oracle_does(tmp_path: Path) -> None:
    assert sum(older_query_view.compared(seed, tmp_path) for seed in (0, 5)) > 20
