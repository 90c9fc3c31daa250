"""A slice of ``query_invariance.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
import query_invariance


@pytest.mark.heavy
def test_rows_in_other_chunks_and_layers_answer_the_same() -> None:
    assert sum(query_invariance.compared(seed) for seed in range(10)) > 0


@pytest.mark.heavy
def test_a_store_answers_the_same_in_place_with_times_copied_compacted_and_laid_out_anew(tmp_path: Path) -> None:
    assert sum(query_invariance.compared_stores(seed, tmp_path) for seed in (1, 2)) > 0
