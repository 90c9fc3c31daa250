"""Messages as stored in their container, for writers that copy them without making chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

MESSAGE_HEAD: Final = np.dtype(
    [
        ("opcode", "u1"),
        ("length", "<u8"),
        ("channel", "<u2"),
        ("sequence", "<u4"),
        ("log_time", "<u8"),
        ("publish_time", "<u8"),
    ]
)
"""The head of a message: the first 31 bytes of a Message record of MCAP, packed; the data follows them."""


class RecordSchema(NamedTuple):
    """The definition of a message type."""

    name: str
    encoding: str
    data: bytes


class RecordChannel(NamedTuple):
    """A topic with its messages' encoding and schema; ``metadata`` has (key, value) pairs."""

    topic: str
    message_encoding: str
    schema: RecordSchema | None
    metadata: tuple[tuple[str, str], ...] = ()


class Records(NamedTuple):
    """Messages in the order of their container.

    ``starts`` and ``lengths`` locate the data of each message in ``arena``. ``heads`` are the heads (``MESSAGE_HEAD``),
    with the channel ids of the source. With ``framed``, the head is also in ``arena``, in the 31 bytes before the data.
    """

    arena: Bytes
    starts: Ints
    lengths: Ints
    heads: np.ndarray
    framed: bool

    def at(self, which: npt.NDArray[np.bool_]) -> Records:
        """Select the messages for which ``which`` is true."""
        if which.all():
            return self
        return Records(self.arena, self.starts[which], self.lengths[which], self.heads[which], self.framed)


class ExtraPlace(NamedTuple):
    """The place of an Attachment or Metadata record in a file, and its length including the head."""

    offset: int
    length: int


@dataclass(slots=True)
class RecordFacts:
    """The known facts of a recording other than messages: channels by id, and other records.

    ``schemas`` and ``schema_ids`` (by channel) come from an MCAP, whose chunks repeat them.
    """

    channels: dict[int, RecordChannel] = field(default_factory=dict)
    schemas: dict[int, RecordSchema] = field(default_factory=dict)
    schema_ids: dict[int, int] = field(default_factory=dict)
    attachments: list[ExtraPlace] = field(default_factory=list)
    metadata: list[ExtraPlace] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RecordUnit:
    """A separately readable part of a source: about ``size`` bytes of uncompressed records.

    ``start`` and ``end`` are its first and last log time in ns, or None if unknown.
    """

    split: Any
    size: int
    start: int | None = None
    end: int | None = None


class CompressedChunk(NamedTuple):
    """A chunk of an MCAP that can be copied unchanged: ``length`` bytes at ``offset``, followed by its indexes.

    ``indexes`` has, for each message index, its channel, offset relative to ``offset``, and number of messages.
    """

    offset: int
    length: int
    index_length: int
    start_time: int
    end_time: int
    compression: str
    compressed_size: int
    uncompressed_size: int
    indexes: tuple[tuple[int, int, int], ...]


class RecordOutline(NamedTuple):
    """The content of a source before its messages are read.

    ``profile`` is None if unknown. ``units`` are in the order of the source, and have all its messages. If
    ``is_complete``, ``facts`` has all channels.
    """

    profile: str | None
    facts: RecordFacts
    units: tuple[RecordUnit, ...]
    is_complete: bool


class Extra(NamedTuple):
    """An Attachment or Metadata record: its bytes in pieces, including the head, and the fields of its index.

    Times are in ns, ``data_size`` in bytes. For metadata, only the name is used.
    """

    is_attachment: bool
    length: int
    pieces: Iterator[bytes]
    name: str
    log_time: int = 0
    create_time: int = 0
    data_size: int = 0
    media_type: str = ""


class RecordSource(ABC):
    """The stored messages of one file. Can be pickled."""

    path: str

    @abstractmethod
    def outline(self) -> RecordOutline:
        """Describe the file by its index; runs on the driver. Raises ``ReadError``."""

    @abstractmethod
    def read(self, units: Sequence[RecordUnit], facts: RecordFacts) -> Iterator[tuple[int, Records]]:
        """Yield the messages of some units, in order, each with the position of its unit in ``units``.

        It yields only messages that the source's options select. New facts are added to ``facts``. Runs in a task.
        Raises ``ReadError``.
        """

    @abstractmethod
    def entities(self, channel: RecordChannel) -> set[str]:
        """Return the entities with the messages of a channel."""

    def stored(self) -> list[CompressedChunk] | None:
        """Return the chunks of the file if they can be copied unchanged, or None (the default)."""
        return None

    def extras(self, facts: RecordFacts, entities: Callable[[str], bool]) -> Iterator[Extra]:  # noqa: ARG002
        """Yield the selected attachments and metadata at wanted entities. Raises ``ReadError``."""
        yield from ()
