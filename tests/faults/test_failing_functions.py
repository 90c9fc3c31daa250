"""A slice of ``failing_functions.py``: by itself, and on Spark."""

from __future__ import annotations

import failing_functions
import pytest


@pytest.mark.parametrize("seed", range(12))
def test_tables_tell_of_the_rows_for_which_functions_fail(seed: int) -> None:
    assert not failing_functions.compared(seed)


@pytest.mark.parametrize("seed", [14, 58])
def test_rows_that_were_too_many_to_skip_are_told_of(seed: int) -> None:
    assert not failing_functions.compared(seed)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", [3, 5, 8, 14])
def test_tables_tell_of_the_rows_for_which_functions_fail_on_spark(seed: int) -> None:
    assert not failing_functions.compared(seed, "spark")
