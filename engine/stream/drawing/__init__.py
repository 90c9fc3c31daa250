"""Plans as pictures."""

from .svg import draw_plan

__all__ = ["draw_plan"]
