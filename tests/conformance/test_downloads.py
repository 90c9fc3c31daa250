"""What ``rerun download`` fetches of a served lake is what was ingested."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest


@pytest.mark.slow
def test_downloads_hold_what_was_ingested(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("rerun.catalog")
    from downloads import compare_all

    files = [data / "demo.mcap", data / "generated" / "pq_base.parquet"]
    assert compare_all(files, tmp_path) == {"equal": 2, "segments": 2}


def test_what_differs_is_told() -> None:
    from downloads import differing
    from golden_content import Held

    about = {"type": str(pa.int64())}
    ours, theirs = (
        {("/a", False, "x"): Held([about], ["1=a"], set())},
        {("/a", False, "x"): Held([about], ["1=b"], set())},
    )
    assert list(differing(ours, ours)) == []
    assert "values became" in next(differing(ours, theirs))
    assert "is missing" in next(differing(ours, {}))
    assert "not in the original" in next(differing({}, ours))
    assert "other types" in next(differing(ours, {("/a", False, "x"): Held([{}], ["1=a"], set())}))
    assert "other types" in next(differing(held("list<item: list<item: uint8 not null>>"), held("list<item: uint8>")))
    mapped = [held(f"list<item: list<item: uint8 not null>{end}>") for end in (" not null", "")]
    assert list(differing(*mapped)) == []
    assert "other timelines" in next(differing(ours, {("/a", False, "x"): Held([about], ["1=a"], {"t"})}))


def held(kind: str) -> dict:
    """A component of a type, with a value."""
    from golden_content import Held

    return {("/a", False, "x"): Held([{"type": kind}], ["1=a"], set())}
