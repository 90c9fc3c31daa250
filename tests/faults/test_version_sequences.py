"""Slices of ``version_sequences.py``."""

from __future__ import annotations

import pytest
from version_sequences import main


@pytest.mark.parametrize("of", ["dataset", "table"])
def test_no_order_of_changes_tags_restorations_and_vacuums_mixes_versions(
    of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--runs", "6", "--of", of]) == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("of", ["dataset", "table"])
def test_nor_do_many(of: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--runs", "120", "--of", of]) == 0, capsys.readouterr().out
