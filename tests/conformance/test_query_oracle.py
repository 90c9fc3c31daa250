"""A slice of the comparison with the oracle of queries; ``query_oracle.py`` by itself compares thousands."""

from __future__ import annotations

import pytest
import query_oracle

pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(not query_oracle.ORACLE.exists(), reason="the oracle is not at hand"),
]


@pytest.mark.parametrize("seed", range(0, 40, 10))
def test_generated_datasets_answer_as_the_oracle_does(seed: int) -> None:
    assert sum(query_oracle.compared(seed + i) for i in range(10)) > 0
