"""What was recovered of a cut or damaged MCAP, and what was lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_NAMED: Final = 3
_KEPT: Final = 1000


@dataclass(slots=True)
class McapRecoveryReport:
    """What was recovered of a file and what was lost.

    ``whole_until`` is the first byte that could not be read as it should be (the size of the file when there is none).
    ``chunks`` and ``messages`` count what was recovered, ``lost_bytes`` what was passed over, ``lost_messages`` the
    messages that the summary counts, or that name no known channel, and that are not among them. ``reason`` says why
    the file does not end as it should, None when it does. ``damaged`` holds offset and reason of what was lost,
    ``doubtful`` of chunks whose messages were recovered without a checksum that confirms them; both hold the first
    1,000. ``last_times`` maps ``message_log_time`` to the latest time recovered, in ns.
    """

    path: str
    size: int
    whole_until: int = 0
    chunks: int = 0
    messages: int = 0
    lost_bytes: int = 0
    lost_messages: int = 0
    reason: str | None = None
    damaged: list[tuple[int, str]] = field(default_factory=list)
    doubtful: list[tuple[int, str]] = field(default_factory=list)
    last_times: dict[str, int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was lost, and nothing is in doubt."""
        return self.reason is None and not self.damaged and not self.doubtful and not self.lost_messages

    def lost(self, offset: int, reason: str) -> None:
        """Note that something at ``offset`` was lost."""
        self._note(self.damaged, offset, reason)

    def doubted(self, offset: int, reason: str) -> None:
        """Note that the messages of the chunk at ``offset`` may be wrong."""
        self._note(self.doubtful, offset, reason)

    def _note(self, notes: list[tuple[int, str]], offset: int, reason: str) -> None:
        self.whole_until = min(self.whole_until or self.size, offset)
        if len(notes) < _KEPT and (offset, reason) not in notes[-1:]:
            notes.append((offset, reason))

    def __str__(self) -> str:
        until = "".join(f" (last time: {name} {time:,})" for name, time in self.last_times.items())
        text = f"{self.path}: recovered {self.messages:,} messages in {self.chunks:,} chunks{until}"
        if not self.is_whole:
            text += f"; the file of {self.size:,} bytes is whole up to byte {self.whole_until:,}"
        if self.reason is not None:
            text += f"; {self.reason}"
        if self.lost_bytes:
            text += f"; {self.lost_bytes:,} bytes were passed over"
        if self.lost_messages:
            text += f"; {self.lost_messages:,} messages are missing"
        text += "".join(f"; lost at byte {offset:,}: {reason}" for offset, reason in self.damaged[:_NAMED])
        text += "".join(f"; in doubt at byte {offset:,}: {reason}" for offset, reason in self.doubtful[:_NAMED])
        more = sum(max(0, len(notes) - _NAMED) for notes in (self.damaged, self.doubtful))
        return f"{text}; and {more:,} places more" if more else text
