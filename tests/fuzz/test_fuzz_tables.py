"""A slice of ``fuzz_tables.py``, and that the script would notice what it looks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fuzz_tables import fuzz, judged

SEED = 20_261_125


@pytest.mark.parametrize(("kind", "mutants"), [("tables", 12), pytest.param("search", 40, marks=pytest.mark.slow)])
def test_damaged_tables_give_errors_of_ours_or_answers(kind: str, mutants: int) -> None:
    tally = fuzz(kind, range(mutants), SEED)
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.seen["refused"] > 2 and tally.seen["read"] > 2


def test_what_is_wrong_is_noticed() -> None:
    lake, right = Path("/lake"), {"read": "a"}
    good: dict[str, Any] = {
        "outcome": "read",
        "said": {"read": "a"},
        "refused": {},
        "seconds": 0.1,
        "mib": 1.0,
        "slowest": ["read", 0.1],
    }
    error = {"text": "it is bad", "path": "/lake/tables/x", "hint": None}
    assert judged(good, right, lake, is_checked=True) is None
    assert judged(good | {"refused": {"read": error}}, right, lake, is_checked=True) is None
    assert judged(good | {"said": {"read": "b"}}, right, lake, is_checked=False) is None
    for bad in (
        {"outcome": "dead", "text": "it died"},
        {"outcome": "foreign", "text": "PanicException"},
        {"seconds": 11.0},
        {"mib": 600.0},
        {"slowest": ["read", 11.0]},
        {"refused": {"read": error | {"path": "/elsewhere"}}},
        {"said": {"read": "b"}},
    ):
        assert judged(good | bad, right, lake, is_checked=True), bad
