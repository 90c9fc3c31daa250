"""What the comparison with lancedb finds, and lets pass."""

from __future__ import annotations

import pytest
from search_beside_lancedb import Found, difference

ONE = Found([4, 2, 9, 7], [0.5, 0.5, 0.25, 0.125])


@pytest.mark.parametrize(
    "other",
    [
        ONE,
        Found([2, 4, 9, 7], ONE.scores),
        Found([4, 2, 9, 8], ONE.scores),
        Found([4, 2, 9, 7], [0.500001, *ONE.scores[1:]]),
    ],
)
def test_the_order_of_equal_scores_and_what_the_limit_cuts_are_no_difference(other: Found) -> None:
    assert difference(ONE, other) is None


@pytest.mark.parametrize(
    "other",
    [
        Found([4, 2, 9], ONE.scores[:3]),
        Found([4, 9, 2, 7], ONE.scores),
        Found([4, 2, 8, 7], ONE.scores),
        Found(ONE.ids, [0.5, 0.5, 0.25, 0.126]),
        Found([], []),
    ],
)
def test_everything_else_is_a_difference(other: Found) -> None:
    assert difference(ONE, other) is not None
