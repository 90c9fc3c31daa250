"""Which lenses do what to one chunk: who changes a column, who adds one, who makes a chunk, who gets in the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..engine.errors import LensError
from .compiled import CompiledDerive, CompiledLenses, CompiledMutate


@dataclass(slots=True)
class Assignment:
    """The work on one chunk.

    ``consumed`` are the inputs of derive lenses that no mutate lens keeps; ``errors`` the lenses left out because an
    earlier one writes the same column.
    """

    mutates: list[CompiledMutate] = field(default_factory=list)
    merges: list[CompiledDerive] = field(default_factory=list)
    derived: list[CompiledDerive] = field(default_factory=list)
    consumed: set[str] = field(default_factory=set)
    errors: list[LensError] = field(default_factory=list)


def assign(lenses: CompiledLenses, components: set[str], entity: str, chunk_id: str) -> Assignment:
    """The work on a chunk of ``entity`` that has ``components``."""
    out = Assignment()
    claimed: dict[tuple[str | None, str | None], set[str]] = {}
    mutated: set[str] = set()

    def collide(where: str, what: str, lens: CompiledMutate | CompiledDerive) -> None:
        message = f"Lens collision at entity `{where}`: {what} already claimed by a prior lens"
        out.errors.append(LensError(message, entity_path=entity, component=lens.component, chunk_id=chunk_id))

    for mutate in lenses.mutates:
        if mutate.component in components:
            if mutate.component in mutated:
                collide(entity, f"mutate target `{mutate.component}`", mutate)
            else:
                mutated.add(mutate.component)
                out.mutates.append(mutate)
    matching = [d for d in lenses.derives if d.component in components]
    for derive in sorted(matching, key=lambda d: d.entity is not None or d.child is not None):
        if derive.component not in mutated:
            out.consumed.add(derive.component)
        if derive.condition is not None:
            out.derived.append(derive)
            continue
        taken = claimed.setdefault((derive.entity, derive.child), set())
        twice = _first_twice([d.component for d, _ in derive.outputs], taken)
        if twice is not None:
            collide(derive.target(entity), f"derive output `{twice}`", derive)
            continue
        taken.update(d.component for d, _ in derive.outputs)
        (out.merges if derive.merges else out.derived).append(derive)
    return out


def _first_twice(names: list[str], taken: set[str]) -> str | None:
    seen = set(taken)
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
