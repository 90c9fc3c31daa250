"""A slice of ``fuzz_queries.py``."""

from __future__ import annotations

from pathlib import Path

from fuzz_queries import KINDS, wrong_answers


def test_a_damaged_file_is_an_error_that_names_it_and_never_gives_other_rows(tmp_path: Path) -> None:
    wrong, counts = wrong_answers(tmp_path / "fuzz", 6, 1)
    assert wrong == []
    assert all(counts[f"{kind}: refused"] for kind in KINDS)
