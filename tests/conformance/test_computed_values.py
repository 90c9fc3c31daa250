"""A slice of ``computed_values.py``: by itself, and on Spark."""

from __future__ import annotations

import computed_values
import pytest


@pytest.mark.parametrize("seed", [2, 33, 36, 54, 500, 501, 502, 503])
def test_columns_have_what_their_functions_give(seed: int) -> None:
    assert not computed_values.compared(seed)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", [2, 3, 33, 54])
def test_columns_have_what_their_functions_give_on_spark(seed: int) -> None:
    assert not computed_values.compared(seed, "spark")
