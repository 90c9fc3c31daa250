"""A slice of ``fuzz_serve.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("grpc")
pytest.importorskip("uvicorn")


def test_hostile_requests_are_answered_with_a_status_and_change_nothing(tmp_path: Path) -> None:
    from fuzz_serve import fuzzed
    from served_lake import Served

    served = Served(tmp_path)
    try:
        assert fuzzed(served, requests=60, connections=150, seed=1, mib=20, whole=False) == []
    finally:
        served.close()


def test_bombs_at_once_take_no_more_than_the_budget(tmp_path: Path) -> None:
    """A slice of ``bombs_at_once.py``, on a machine that others use."""
    from bombs_at_once import bombed
    from served_lake import Served

    served = Served(tmp_path, "--request-memory", "256 MiB")
    try:
        figures = bombed(served, clients=8, seconds=4, rest=20, mib=100, budget=256 << 20)
    finally:
        served.close()
    assert [fault for fault in figures.faults() if "ordinary call took" not in fault] == []
    assert max(figures.seconds) < 10
    assert "Traceback" not in served.log()
