"""Component descriptors: what a component column is called and means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ComponentDescriptor:
    """Names a component column.

    ``component`` identifies it within its entity (``Points3D:positions``); ``archetype`` and ``component_type`` are
    the fully qualified names, where there are any.

    >>> str(ComponentDescriptor("Points3D:positions", archetype="rerun.archetypes.Points3D"))
    'Points3D:positions'
    """

    component: str
    archetype: str | None = None
    component_type: str | None = None

    def __str__(self) -> str:
        return self.component

    @property
    def sort_key(self) -> tuple[str, str, str]:
        """The order of component columns: archetype (None first), component, component type."""
        return self.archetype or "", self.component, self.component_type or ""

    @property
    def archetype_short_name(self) -> str | None:
        """The archetype without Rerun's own prefixes, ``Points3D``."""
        if self.archetype is None:
            return None
        for prefix in ("rerun.archetypes.", "rerun.blueprint.archetypes.", "rerun."):
            if self.archetype.startswith(prefix):
                return self.archetype[len(prefix) :]
        return self.archetype
