"""Component descriptors: what a component column is called and means."""

from __future__ import annotations

from dataclasses import dataclass, replace


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

    def __post_init__(self) -> None:
        if self.archetype == "":
            object.__setattr__(self, "archetype", None)
        if self.component_type == "":
            object.__setattr__(self, "component_type", None)

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

    def with_overrides(self, archetype: str | None = None, component_type: str | None = None) -> ComponentDescriptor:
        """With another archetype or component type, where given."""
        return replace(
            self, archetype=archetype or self.archetype, component_type=component_type or self.component_type
        )

    def or_with_overrides(self, archetype: str | None = None, component_type: str | None = None) -> ComponentDescriptor:
        """With this archetype or component type where there is none yet."""
        return replace(
            self, archetype=self.archetype or archetype, component_type=self.component_type or component_type
        )

    def with_builtin_archetype(self, archetype: str) -> ComponentDescriptor:
        """As a field of ``archetype``, whose short name then leads the component's.

        >>> str(ComponentDescriptor("positions").with_builtin_archetype("rerun.archetypes.Points3D"))
        'Points3D:positions'
        """
        if not archetype:
            return self
        name = self.component.removeprefix(f"{self.archetype_short_name}:") if self.archetype else self.component
        moved = replace(self, archetype=archetype)
        return replace(moved, component=f"{moved.archetype_short_name}:{name}")
