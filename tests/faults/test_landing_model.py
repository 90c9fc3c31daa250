"""A slice of ``landing_model.py``."""

from __future__ import annotations

from landing_model import play_all


def test_what_a_landing_folder_holds_is_in_the_store_whatever_happens_to_its_names() -> None:
    failures = play_all(range(40), seed=1)
    assert not failures, "\n".join(failures)
