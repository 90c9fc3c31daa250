"""The messages of the catalog service, and how ids, names and times are written in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ...rrd import message_classes
from ..entries import EntryId

_class_of: Final = message_classes(Path(__file__).with_name("messages.binpb").read_bytes())
_NANOSECONDS: Final = 1_000_000_000


def cloud(name: str) -> Any:
    """The class of a message of the service, such as ``WhoAmIRequest``."""
    return _class_of(f"rerun.cloud.v1alpha1.{name}")


def shared(name: str) -> Any:
    """The class of a message that names something, such as ``EntryId`` or ``DataframePart``."""
    return _class_of(f"rerun.common.v1alpha1.{name}")


RrdManifest: Final = _class_of("rerun.log_msg.v1alpha1.RrdManifest")


def entry_id_message(id: EntryId) -> Any:  # noqa: A002 (it is one)
    """An entry's id as a message."""
    half = int.from_bytes
    return shared("EntryId")(id={"time_ns": half(id.as_bytes()[:8], "big"), "inc": half(id.as_bytes()[8:], "big")})


def entry_id_of(message: Any) -> EntryId:
    """The inverse of :func:`entry_id_message`."""
    return EntryId(f"{message.id.time_ns:016x}{message.id.inc:016x}")


def time_message(nanoseconds: int) -> dict[str, int]:
    """A time since the epoch as the fields of a ``Timestamp``."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return {"seconds": seconds, "nanos": rest}
