"""A slice of ``fuzz_catalog.py``."""

from __future__ import annotations

from pathlib import Path

from fuzz_catalog import wrong_layers, wrong_mutants, wrong_names, wrong_store_mutants


def test_a_damaged_version_is_an_error_that_names_the_file_and_never_gives_other_entries(tmp_path: Path) -> None:
    assert wrong_mutants(tmp_path, 400, 1) == []


def test_a_damaged_file_of_a_store_is_an_error_that_names_it_and_never_gives_other_data(tmp_path: Path) -> None:
    assert wrong_store_mutants(tmp_path, 12, 1) == []


def test_names_come_back_exact_and_no_file_lies_outside(tmp_path: Path) -> None:
    assert wrong_names(tmp_path, 60, 1) == []
    assert wrong_layers(tmp_path, 10, 1) == []
