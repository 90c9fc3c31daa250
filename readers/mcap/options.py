"""What a McapReader was asked for, validated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import UsageError
from .decoders import DECODERS, FILE_DECODERS
from .split import TimeRange, checked_range

_RE2_COMPLAINTS: Final = {
    "missing ]": "found unclosed character class",
    "missing )": "found open group without closing ')'",
    "unexpected )": "found closing ')' without matching '('",
    "no argument for repetition operator": "found a repetition operator with nothing to repeat",
    "invalid perl operator": "look-around is not supported",
}


@dataclass(frozen=True)
class McapOptions:
    """The options of :class:`McapReader`, checked and ready to pickle.

    ``offset_ns`` is what is added to every timestamp (0 for duration timelines). ``include`` and ``exclude`` are RE2
    patterns searched for in topics. ``times`` is the range of log times whose messages are read, None for all.
    """

    timeline_type: str = "timestamp"
    offset_ns: int = 0
    decoders: frozenset[str] = frozenset(DECODERS)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    times: TimeRange | None = None
    recover: bool = False

    @classmethod
    def checked(
        cls,
        timeline_type: str = "timestamp",
        timestamp_offset_ns: int | None = None,
        decoders: Iterable[str] | None = None,
        include_topic_regex: Iterable[str] | None = None,
        exclude_topic_regex: Iterable[str] | None = None,
        start_time_ns: int | None = None,
        end_time_ns: int | None = None,
        recover: bool = False,
    ) -> McapOptions:
        """Validate the arguments of the reader. Raises ``ValueError``, ``TypeError`` or ``OverflowError``."""
        if timeline_type not in ("timestamp", "duration", "timestamp_ns", "duration_ns"):
            raise UsageError(f'Invalid timeline_type: "{timeline_type}". Expected "timestamp" or "duration"')
        timeline_type = timeline_type.removesuffix("_ns")
        selected = DECODERS if decoders is None else tuple(decoders)
        for name in selected:
            if name not in DECODERS:
                valid = ", ".join(f'"{d}"' for d in DECODERS)
                raise UsageError(f'Unknown decoder: "{name}". Valid decoders: [{valid}]')
        offset = _checked_offset(timestamp_offset_ns)
        return cls(
            timeline_type,
            offset if timeline_type == "timestamp" else 0,
            frozenset(selected),
            _checked_patterns("include", include_topic_regex),
            _checked_patterns("exclude", exclude_topic_regex),
            checked_range(start_time_ns, end_time_ns),
            bool(recover),
        )

    def selects(self, topic: str) -> bool:
        """Whether messages of ``topic`` are wanted.

        >>> options = McapOptions.checked(include_topic_regex=["imu", "^/tf$"], exclude_topic_regex=["raw"])
        >>> [options.selects(t) for t in ("/imu/data", "/imu/raw", "/tf", "/tf_static")]
        [True, False, True, False]
        """
        if self.include and not any(_found(pattern, topic) for pattern in self.include):
            return False
        return not any(_found(pattern, topic) for pattern in self.exclude)

    @property
    def reads_messages(self) -> bool:
        """Whether any decoder of messages is selected."""
        return bool(self.decoders - FILE_DECODERS.keys())

    @property
    def time_type(self) -> pa.DataType:
        """Arrow type of the timelines, ``timestamp[ns]`` or ``duration[ns]``."""
        return pa.timestamp("ns") if self.timeline_type == "timestamp" else pa.duration("ns")


def _checked_offset(value: int | None) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        kind = type(value).__name__
        raise TypeError(f"argument 'timestamp_offset_ns': '{kind}' object cannot be interpreted as an integer")
    value = value.__index__()
    if not -(2**63) <= value < 2**63:
        raise OverflowError("argument 'timestamp_offset_ns': the number does not fit into 64 bits")
    return value


def _checked_patterns(which: str, patterns: Iterable[str] | None) -> tuple[str, ...]:
    checked = tuple(patterns or ())
    for pattern in checked:
        try:
            _found(pattern, "")
        except pa.ArrowInvalid as error:
            why = _complaint(str(error), pattern)
            raise UsageError(f'Invalid {which} topic regex "{pattern}": {why}') from error
    return checked


def _complaint(text: str, pattern: str) -> str:
    reason = re.sub(r"^Invalid regular expression: ", "", text)
    if re.search(r"\\[1-9]", pattern) and "escape" in reason:
        return "backreferences are not supported"
    for theirs, ours in _RE2_COMPLAINTS.items():
        if reason.startswith(theirs):
            return ours
    return reason


def _found(pattern: str, topic: str) -> bool:
    """Whether RE2 finds ``pattern`` somewhere in ``topic``."""
    return bool(pc.match_substring_regex(pa.scalar(topic), pattern).as_py())
