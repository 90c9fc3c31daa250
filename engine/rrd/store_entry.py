"""The name of a store of a file: its kind, application id and recording id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..errors import ReadError
from .messages import StoreId

RECORDING = "recording"
BLUEPRINT = "blueprint"
_BLUEPRINT_NUMBER = 2


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A recording or a blueprint in an RRD; equal by value.

    >>> StoreEntry("recording", "a", "b")
    StoreEntry(kind='recording', application_id='a', recording_id='b')
    """

    kind: str
    application_id: str
    recording_id: str

    def __post_init__(self) -> None:
        if self.kind not in (RECORDING, BLUEPRINT):
            raise ValueError(f"kind must be 'recording' or 'blueprint', not {self.kind!r}")

    @property
    def sort_key(self) -> tuple[bool, bytes, bytes]:
        """Recordings before blueprints, then application id, then recording id, by their bytes."""
        return self.kind == BLUEPRINT, self.application_id.encode(), self.recording_id.encode()

    @property
    def text(self) -> str:
        """As it stands in messages to people.

        >>> StoreEntry("recording", "a", "b").text
        'StoreId(Recording, "a", "b")'
        """
        quoted = (json.dumps(s, ensure_ascii=False) for s in (self.application_id, self.recording_id))
        return f"StoreId({self.kind.capitalize()}, {', '.join(quoted)})"

    def to_message(self) -> Any:
        """The entry as a protobuf ``StoreId``."""
        message = StoreId(kind=_BLUEPRINT_NUMBER if self.kind == BLUEPRINT else 1, recording_id=self.recording_id)
        message.application_id.id = self.application_id
        return message


StoreKey = tuple[str, str]
"""Kind and recording id: what identifies a store in files from before application ids were part of a store id."""


def key_of(message: Any) -> StoreKey:
    """Kind and recording id of a protobuf ``StoreId``; unknown kinds count as recordings."""
    return (BLUEPRINT if message.kind == _BLUEPRINT_NUMBER else RECORDING), message.recording_id


def from_message(message: Any, legacy_ids: dict[StoreKey, str], *, path: str, offset: int | None) -> StoreEntry:
    """The entry that a protobuf ``StoreId`` names.

    ``legacy_ids`` supplies the application id where the message has none (files from before 0.25). Raises
    :class:`ReadError` where both lack it.
    """
    kind, recording_id = key_of(message)
    if message.HasField("application_id"):
        return StoreEntry(kind, message.application_id.id, recording_id)
    if (kind, recording_id) in legacy_ids:
        return StoreEntry(kind, legacy_ids[kind, recording_id], recording_id)
    raise ReadError(
        f"the {kind} {recording_id!r} has no application id, neither in its store id nor in its store info",
        path=path,
        offset=offset,
        hint="The file is damaged, or its writer is.",
    )
