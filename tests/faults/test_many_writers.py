"""Slices of ``many_writers.py`` and ``writers_model.py``."""

from __future__ import annotations

import pytest
from many_writers import main
from writers_model import UNSAFE, found_at, played


def test_four_processes_write_one_store_and_nobody_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--commits", "8", "--files", "4"]) == 0, capsys.readouterr().out


def test_no_order_of_steps_loses_anything() -> None:
    wrong = {number: run.story + run.wrong for number in range(1500) if (run := played(number, 1)).wrong}
    assert not wrong


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_a_mistake_is_found(unsafe: str) -> None:
    assert found_at(unsafe) is not None
