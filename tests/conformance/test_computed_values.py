"""Slices of ``computed_values.py`` and ``loaded_values.py``: by themselves, and on Spark."""

from __future__ import annotations

import computed_values
import loaded_values
import pytest


@pytest.mark.parametrize("seed", [2, 33, 36, 54, 500, 501, 502, 503])
@pytest.mark.heavy
def test_columns_have_what_their_functions_give(seed: int) -> None:
    assert not computed_values.compared(seed)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", [2, 3, 33, 54])
def test_columns_have_what_their_functions_give_on_spark(seed: int) -> None:
    assert not computed_values.compared(seed, "spark")


@pytest.mark.parametrize("seed", [8, 9, 16, 26, 31, 32])
@pytest.mark.heavy
def test_columns_have_what_their_sources_have(seed: int) -> None:
    assert not loaded_values.compared(seed)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", [8, 16])
def test_columns_have_what_their_sources_have_on_spark(seed: int) -> None:
    assert not loaded_values.compared(seed, "spark")
