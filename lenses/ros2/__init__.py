"""The common ROS messages and their meaning: lenses from decoded messages to Rerun's archetypes."""

from .mappings import needs_reflection, ros2_lenses
from .sensors import at_stamp

__all__ = ["at_stamp", "needs_reflection", "ros2_lenses"]
