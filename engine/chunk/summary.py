"""A store in a few lines: what chunks it has, for people and for comparison."""

from __future__ import annotations

from collections.abc import Iterable

from .header import ChunkHeader


def summarise_chunks(headers: Iterable[ChunkHeader]) -> str:
    """One line for each chunk, sorted by entity path as text, static chunks first, then in the order given.

    ::

        {entity_path} rows={n} static={True|False} timelines=[{names}] cols=[{timelines and components}]

    Names stand in single quotes without escapes. Headers from an RRD's footer lack components without any value,
    so these lack here, too.

    >>> summarise_chunks([])
    ''
    """
    ordered = sorted(headers, key=lambda h: (h.entity_path.encode(), not h.is_static))
    return "\n".join(map(_line, ordered))


def _line(header: ChunkHeader) -> str:
    timelines = [t.name for t in header.timelines]
    columns = timelines + [c.descriptor.component for c in header.components]
    return (
        f"{header.entity_path} rows={header.num_rows} static={header.is_static} "
        f"timelines=[{_names(timelines)}] cols=[{_names(columns)}]"
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names, key=str.encode))
