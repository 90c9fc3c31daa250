"""The common ROS messages and their meaning: lenses from decoded messages to Rerun's archetypes."""

from .mappings import needs_reflection, ros2_lenses
from .sensors import STAMP_TIMELINE, at_stamp, stamp_of

__all__ = ["STAMP_TIMELINE", "at_stamp", "needs_reflection", "ros2_lenses", "stamp_of"]
