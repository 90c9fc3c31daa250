"""A slice of ``flipped_bytes.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from flipped_bytes import REFUSED, SILENT, met, met_tables

pytestmark = pytest.mark.filterwarnings("ignore")


def test_no_byte_that_changes_is_read_in_silence(tmp_path: Path) -> None:
    silent = [found for found in met(tmp_path, 12, seed=1) if found[-1] == SILENT]
    assert not silent


def test_no_byte_of_a_table_that_changes_passes_a_verification(tmp_path: Path) -> None:
    found = list(met_tables(tmp_path, 40, seed=1))
    assert not [one for one in found if one[-1] == SILENT]
    assert sum(one[-1] == REFUSED for one in found) > 20


def test_without_digests_some_would_pass(tmp_path: Path) -> None:
    assert any(one[-1] == SILENT for one in met_tables(tmp_path, 60, seed=2, digests=False))
