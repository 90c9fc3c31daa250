"""``rcl_interfaces/Log`` and ``rosgraph_msgs/Log``: their levels as Rerun's words and colours."""

from __future__ import annotations

from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

LEVELS: Final = {
    10: ("DEBUG", 0x808080FF),
    20: ("INFO", 0x0080FFFF),
    30: ("WARN", 0xFFA500FF),
    40: ("ERROR", 0xFF0000FF),
    50: ("CRITICAL", 0x8B0000FF),
}
"""The levels of ``rcl_interfaces/Log``, by Rerun's words and colours (RGBA); 50 is FATAL there."""

_ROS_1: Final = {1: 10, 2: 20, 4: 30, 8: 40, 16: 50}


@cache
def _codes() -> pa.Array:
    return pa.array(list(LEVELS), pa.int64())


@cache
def _words() -> pa.Array:
    return pa.array([word for word, _ in LEVELS.values()])


@cache
def _colours() -> pa.Array:
    return pa.array([colour for _, colour in LEVELS.values()], pa.uint32())


_OTHER: Final = ("UNKNOWN", 0x808080FF)


def of_ros_1(codes: pa.Array) -> pa.Array:
    """The levels of ``rosgraph_msgs/Log`` as those of ROS 2; null for others."""
    places = pc.index_in(codes.cast(pa.int64()), pa.array(list(_ROS_1), pa.int64()))
    return pa.array(list(_ROS_1.values()), pa.int64()).take(places)


def levels(codes: pa.Array) -> pa.Array:
    """The words for levels; ``UNKNOWN`` for others."""
    return pc.fill_null(_words().take(pc.index_in(codes.cast(pa.int64()), _codes())), _OTHER[0])


def colours(codes: pa.Array) -> pa.Array:
    """The colours (uint32, RGBA) of levels; grey for others."""
    return pc.fill_null(
        _colours().take(pc.index_in(codes.cast(pa.int64()), _codes())), pa.scalar(_OTHER[1], pa.uint32())
    )


def lines(logs: pa.StructArray) -> pa.Array:
    """``[name] message``.

    >>> lines(pa.array([{"name": "planner", "msg": "ready"}])).to_pylist()
    ['[planner] ready']
    """
    return pc.binary_join_element_wise("[", logs.field("name"), "] ", logs.field("msg"), "")
