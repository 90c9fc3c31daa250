"""What is kept of things that were read: no more than fits, and some of them however they are asked for."""

from __future__ import annotations

from chunkmill.engine.rrd import Recent


def test_what_is_asked_for_in_turns_is_found_in_part_where_a_little_more_than_fits() -> None:
    recent = Recent[int](100 * 10_000, largest=10_000)
    size = 10_000 - 4096  # its objects take that much
    found = []
    for _ in range(10):
        for key in range(120):
            found.append(recent.find(key))
            recent.keep(key, key, size)
    assert {one for one in found if one is not None} <= set(range(120))
    assert sum(one is not None for one in found[-120:]) > 60


def test_no_more_is_kept_than_fits() -> None:
    recent = Recent[int](30_000, largest=10_000)
    recent.keep("large", 1, 10_000)
    assert recent.find("large") is None
    for key in range(50):
        recent.keep(key, key, 1_000)
        recent.keep(key, key, 1_000)
        assert recent.find(key) == key
    assert sum(recent.find(key) is not None for key in range(50)) == 5
