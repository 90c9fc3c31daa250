"""The common ROS messages and their meaning: lenses from decoded messages to Rerun's archetypes.

:mod:`.messages` and :mod:`.sensors` declare them, one function a message type; the other modules hold what those need
beyond selectors, as functions of whole arrays.
"""

from .mappings import needs_reflection, ros2_lenses

__all__ = ["needs_reflection", "ros2_lenses"]
