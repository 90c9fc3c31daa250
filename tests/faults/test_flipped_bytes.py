"""A slice of ``flipped_bytes.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from flipped_bytes import SILENT, met

pytestmark = pytest.mark.filterwarnings("ignore")


def test_no_byte_that_changes_is_read_in_silence(tmp_path: Path) -> None:
    silent = [found for found in met(tmp_path, 12, seed=1) if found[-1] == SILENT]
    assert not silent
