"""Slices of ``view_points.py`` and ``view_schedules.py``."""

from __future__ import annotations

from test_table_writers import ran


def test_a_view_is_whole_wherever_a_refresh_is_cut() -> None:
    said = ran("view_points.py", "--case", "view.deletions:torn:3")
    assert "1 passed, 0 failed" in said, said


def test_a_refresh_gives_what_making_the_view_anew_would_give() -> None:
    said = ran("view_schedules.py", "--number", "2")
    assert "2 passed, 0 failed" in said, said
