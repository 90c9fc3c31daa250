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
