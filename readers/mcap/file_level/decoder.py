"""A decoder of the file level: what one is, and the chunks of one row without a time that they make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Final

import pyarrow as pa

from ....engine.chunk import Chunk, ComponentDescriptor
from ....engine.errors import ReadError
from ..file import McapFile
from ..layout import Summary
from ..records import DAMAGED_HINT, HEAD, Place, record_name
from ..registry import Registry
from ..scan import Bytes, Found
from .facts import FileFacts

BLOB: Final = pa.list_(pa.field("item", pa.uint8(), nullable=False))
PAIRS: Final = pa.list_(
    pa.field(
        "item",
        pa.struct([pa.field("first", pa.string(), nullable=False), pa.field("second", pa.string(), nullable=False)]),
        nullable=False,
    )
)
"""Rerun's ``KeyValuePairs``."""


class FileDecoder(ABC):
    """Makes chunks of what a file says of itself; one is made for each split whose chunks they are.

    ``entity`` is where they lie, if that is known; ``opcode`` the kind of records that it reads, and so checks.
    One that ``looks_at_messages`` is given those of the file, and comes behind them. ``registry`` has the channels of
    the file, ``selects`` says which topics are wanted.
    """

    name: ClassVar[str]
    entity: ClassVar[str | None] = None
    opcode: ClassVar[int | None] = None
    looks_at_messages: ClassVar[bool] = False

    def __init__(self, registry: Registry, selects: Callable[[str], bool]) -> None:
        self._registry = registry
        self._selects = selects

    @classmethod
    def is_told_by(cls, summary: Summary) -> bool:  # noqa: ARG003 (of those that the summary tells all of)
        """Whether its chunks can be made of the summary, nothing missing."""
        return True

    @classmethod
    def has_messages(cls, summary: Summary, selects: Callable[[str], bool]) -> bool:  # noqa: ARG003 (of those that look)
        """Whether the summary has a channel whose messages it looks at."""
        return False

    def add(self, arena: Bytes, found: Found) -> None:  # noqa: B027 (most look at none)
        """Look at messages, which come behind those that were looked at before."""

    def look_up(self, file: McapFile) -> None:  # noqa: B027 (most look at none)
        """Find messages by the index, where those of the file are read in several splits."""

    @abstractmethod
    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:
        """The chunks of a file of which ``facts`` are known. Raises ``ReadError`` on damage."""


def described(archetype: str, field: str, component_type: str) -> ComponentDescriptor:
    """The descriptor of a field of one of Rerun's archetypes.

    >>> described("McapChannel", "id", "ChannelId")
    ComponentDescriptor(component='McapChannel:id', archetype='rerun.archetypes.McapChannel', \
component_type='rerun.components.ChannelId')
    """
    return ComponentDescriptor(
        f"{archetype}:{field}",
        archetype=f"rerun.archetypes.{archetype}",
        component_type=f"rerun.components.{component_type}",
    )


def static_chunk(entity_path: str, columns: Iterable[tuple[ComponentDescriptor, pa.Array]]) -> Chunk:
    """A chunk of one row; each column is given as the instances of that row."""
    return Chunk.build(entity_path, {}, [(descriptor, one_row(instances)) for descriptor, instances in columns])


def one_row(instances: pa.Array) -> pa.ListArray:
    """All of ``instances`` as one list."""
    return pa.ListArray.from_arrays(pa.array([0, len(instances)], pa.int32()), instances)


def pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    """One value of ``KeyValuePairs``, in the order of ``values``."""
    return [{"first": key, "second": value} for key, value in values.items()]


def check_place(file: McapFile, place: Place, expected: int) -> None:
    """Raise ``ReadError`` unless a record of opcode ``expected`` and of the right length begins at ``place``."""
    opcode, length = file.head_at(place.offset, file.size)
    if opcode != expected or length + HEAD.size != place.length:
        raise ReadError(
            f"the summary points at a record {record_name(expected)} of {place.length:,} bytes, where there is a record"
            f" {record_name(opcode)} of {length + HEAD.size:,}",
            path=file.path,
            offset=place.offset,
            hint=DAMAGED_HINT,
        )
