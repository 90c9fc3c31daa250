"""Static data: which chunk provides a component, and which chunks nobody needs any more.

Works on facts small enough to travel without their chunk, so that a store over many parts decides like one in memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..chunk import Chunk, ComponentDescriptor

_KEPT = frozenset(("Transform3D", "Pinhole"))
"""Archetypes that several static chunks of one entity may hold side by side."""


class StaticFacts(NamedTuple):
    """The components that a static chunk provides: for each with a value, the largest row id of a row that has one.

    ``replaceable`` is False for a chunk that stays whatever comes after it.
    """

    chunk_id: bytes
    entity_path: str
    provides: dict[str, bytes]
    replaceable: bool


class StaticRegister:
    """The static chunks of a store."""

    def __init__(self) -> None:
        self._providers: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        self._needed: dict[bytes, int] = {}
        self._replaceable: dict[bytes, bool] = {}

    def add(self, facts: StaticFacts) -> list[bytes]:
        """Note a chunk; gives the ids of the chunks it has overwritten whole, which the store drops.

        A chunk is overwritten when, for every component it provided, a later inserted one holds a larger row id.
        """
        self._replaceable[facts.chunk_id] = facts.replaceable
        overtaken = []
        for component, row_id in facts.provides.items():
            key = facts.entity_path, component
            known = self._providers.get(key)
            if known is not None:
                if row_id <= known[1]:
                    continue
                self._needed[known[0]] -= 1
                overtaken.append(known[0])
            self._providers[key] = facts.chunk_id, row_id
            self._needed[facts.chunk_id] = self._needed.get(facts.chunk_id, 0) + 1
        gone = [c for c in dict.fromkeys(overtaken) if not self._needed[c] and self._replaceable[c]]
        for chunk_id in gone:
            del self._needed[chunk_id], self._replaceable[chunk_id]
        return gone


def static_facts(chunk: Chunk) -> StaticFacts:
    """The facts of a static chunk whose row ids ascend."""
    data = chunk.data
    provides: dict[str, bytes] = {}
    for c in data.components:
        row = _last_value(c.values)
        if row is not None:
            provides[c.descriptor.component] = data.row_ids[row].as_py()
    replaceable = not any(_is_kept(c.descriptor) for c in data.components)
    return StaticFacts(data.chunk_id, data.entity_path, provides, replaceable)


def _last_value(values: pa.ListArray) -> int | None:
    """The last row that is not null."""
    if not values.null_count:
        return len(values) - 1
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    return int(rows[-1]) if len(rows) else None


def _is_kept(descriptor: ComponentDescriptor) -> bool:
    return descriptor.archetype_short_name in _KEPT or descriptor.component.partition(":")[0] in _KEPT
