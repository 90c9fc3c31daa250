"""Findings of a diagnosis: faults of a recording's meaning, their places, and their remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ..chunk import TimelineKind, timestamp_text
from ..errors import UsageError, writing
from ..markup import escaped, panel, table
from ..reports import page
from ..units import counted

SEVERITIES: Final = ("error", "warning", "note")
"""An ``error`` makes data wrong, a ``warning`` makes it doubtful, a ``note`` is worth knowing."""


class FaultKind(NamedTuple):
    """A kind of fault: how severe it is, what it means, and what to do."""

    severity: str
    meaning: str
    hint: str


KINDS: Final[Mapping[str, FaultKind]] = {
    "unreadable": FaultKind(
        "error", "a recording cannot be read", "Run `chunkmill verify`, and restore the file from a copy."
    ),
    "clock-backward": FaultKind(
        "error", "a clock steps back", "Split the recording there, or shift the times after it."
    ),
    "clock-forward": FaultKind(
        "error",
        "a clock leaps ahead of another clock",
        "Shift the times after the leap, or use the timeline that does not leap.",
    ),
    "clock-drift": FaultKind(
        "warning",
        "two clocks move apart",
        "Synchronise the clocks of the devices (PTP, NTP), or align by only one of the timelines.",
    ),
    "time-outlier": FaultKind(
        "error",
        "times are far from all others, such as 1970",
        "Drop the rows, or set their times: the clock was probably not set when they were stamped.",
    ),
    "out-of-order": FaultKind(
        "warning",
        "rows are stored after rows of later times",
        "Queries sort rows by their index; for programs that read in the order of a file, sort them first.",
    ),
    "duplicate-times": FaultKind(
        "warning",
        "rows of a burst have the same time",
        "Check the driver: it stamps buffered data with the time of sending.",
    ),
    "gap": FaultKind(
        "warning", "rows are missing", "Leave the gap out of training and averages; check the network and the disk."
    ),
    "rate-drop": FaultKind(
        "warning", "a topic is slower than its usual rate", "Check the robot's load, or leave this time out."
    ),
    "late-start": FaultKind(
        "warning", "a topic starts long after the others", "Cut the recording to the time that all topics cover."
    ),
    "early-stop": FaultKind(
        "warning", "a topic stops long before the others", "Cut the recording to the time that all topics cover."
    ),
    "no-messages": FaultKind(
        "note", "a topic has no messages", "Check that its publisher ran, or leave the topic out of the recording."
    ),
    "constant-sensor": FaultKind(
        "warning",
        "an inertial or magnetic sensor gives the same value throughout",
        "Check the sensor: a real one has noise. Leave the channel out.",
    ),
    "not-finite": FaultKind(
        "warning", "some values are NaN or infinite", "Drop or fill these rows before you compute."
    ),
    "clipped": FaultKind(
        "warning", "a sensor is at the end of its range", "Choose a larger range in the driver; treat peaks as unknown."
    ),
    "non-unit-quaternion": FaultKind(
        "error", "a rotation is not a unit quaternion", "Normalise it, or drop the row if all its numbers are zero."
    ),
    "frozen-camera": FaultKind(
        "error", "a camera gives the same image again and again", "Leave these images out; check the camera's driver."
    ),
    "blank-camera": FaultKind(
        "error", "images of a camera have one colour", "Leave these images out; check lens cap, exposure and cable."
    ),
    "video-start": FaultKind(
        "error",
        "a video does not begin with a key frame",
        "Cut the samples before the first key frame: they cannot be decoded.",
    ),
    "video-keyframes": FaultKind(
        "warning",
        "key frames of a video are missing or far apart",
        "Encode with a shorter interval: readers decode from the preceding key frame.",
    ),
    "missing-transform": FaultKind(
        "warning",
        "data is in a frame that no transform names",
        "Record the transforms of this frame (/tf, /tf_static), or correct its name.",
    ),
    "disconnected-frames": FaultKind(
        "warning", "the transforms form several trees", "Record the transform that joins the trees."
    ),
    "transform-cycle": FaultKind("error", "transforms form a circle", "Correct the parent of one of these frames."),
    "missing-calibration": FaultKind(
        "warning",
        "a camera has no calibration, but others have one",
        "Record its CameraInfo, or log a Pinhole on the entity of its images.",
    ),
    "lerobot-timestamps": FaultKind(
        "error",
        "timestamps disagree with the frame rate",
        "Correct `fps` in meta/info.json, or write the dataset again (write_lerobot).",
    ),
    "lerobot-index": FaultKind(
        "error", "the numbers of frames are not consecutive", "Write the dataset again, or delete the episode."
    ),
    "lerobot-length": FaultKind(
        "error",
        "an episode has another length than in the metadata",
        "Correct the metadata of the episode, or write the dataset again.",
    ),
    "lerobot-missing": FaultKind("error", "a file or video frames of a dataset are missing", "Copy the dataset again."),
}
"""The kinds of faults, by their names."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault in the data.

    ``source`` is the input and ``segment`` its recording. ``subject`` is the component or frame, if the fault is about
    one. ``start`` and ``end`` are values of ``timeline``, both inclusive: nanoseconds, or numbers of a sequence
    (``timeline_type``). ``count`` is the number of occurrences; the other fields describe the first or the largest one.
    """

    kind: str
    entity_path: str | None = None
    subject: str | None = None
    timeline: str | None = None
    timeline_type: str | None = None
    start: int | None = None
    end: int | None = None
    value: str = ""
    expected: str = ""
    count: int = 1
    segment: str | None = None
    source: str = ""

    @property
    def severity(self) -> str:
        """``"error"``, ``"warning"`` or ``"note"``."""
        return KINDS[self.kind].severity

    @property
    def hint(self) -> str:
        """The remedy, in a sentence or two."""
        return KINDS[self.kind].hint

    def within(self, source: str, segment: str | None) -> Finding:
        """The finding with this input and recording."""
        return replace(self, source=source, segment=segment)

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON data, with its severity and hint."""
        return {"severity": self.severity, **asdict(self), "hint": self.hint}

    @property
    def when(self) -> str:
        """The place in time, as text.

        >>> Finding("gap", timeline="frame", timeline_type="sequence", start=3, end=9).when
        'frame 3 to 9'
        """
        if self.timeline is None or self.start is None:
            return self.timeline or ""
        start = _shown(self.start, self.timeline_type)
        end = "" if self.end is None or self.end == self.start else f" to {_shown(self.end, self.timeline_type)}"
        return f"{self.timeline} {start}{end}"

    def __str__(self) -> str:
        """The fault in a line, without the remedy.

        >>> str(Finding("gap", "/imu", value="2 s", expected="about 0.01 s"))
        'gap: /imu: rows are missing: 2 s instead of about 0.01 s'
        """
        place = " ".join(filter(None, (self.entity_path, self.subject, self.when)))
        said = f"{self.value} instead of {self.expected}" if self.expected else self.value
        times = f" ({self.count:,} times)" if self.count > 1 else ""
        return ": ".join(filter(None, (self.kind, place, KINDS[self.kind].meaning, said))) + times


def _shown(value: int, timeline_type: str | None) -> str:
    if timeline_type == TimelineKind.TIMESTAMP.value:
        return timestamp_text(value, pa.timestamp("ns"), None)
    return f"{value / 1e9:.6f} s" if timeline_type == TimelineKind.DURATION.value else f"{value:,}"


_TEXTS: Final = ("severity", "kind", "source", "segment", "entity_path", "subject", "timeline", "timeline_type")
SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        *((name, pa.int64()) for name in ("start", "end")),
        *((name, pa.string()) for name in ("value", "expected")),
        ("count", pa.int64()),
        ("hint", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """The result of a diagnosis:

    ``findings``, most severe first, and the numbers of ``recordings`` and ``rows``. A diagnosis without findings is
    true. A notebook shows a table of them.
    """

    findings: tuple[Finding, ...]
    recordings: int
    rows: int

    def __bool__(self) -> bool:
        """Return whether there are no findings."""
        return not self.findings

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __repr__(self) -> str:
        return f"Diagnosis({self.summary})"

    @property
    def summary(self) -> str:
        """The counts, in words.

        >>> Diagnosis((), 2, 100).summary
        '2 recordings, 100 rows: no findings'
        """
        by_severity = Counter(finding.severity for finding in self.findings)
        counts = ", ".join(counted(by_severity[name], name) for name in SEVERITIES if by_severity[name])
        return f"{counted(self.recordings, 'recording')}, {counted(self.rows, 'row')}: {counts or 'no findings'}"

    def of_severity(self, *names: str) -> tuple[Finding, ...]:
        """The findings of these severities. Raises ``UsageError`` for an unknown severity."""
        unknown = next((name for name in names if name not in SEVERITIES), None)
        if unknown is not None:
            raise UsageError(f"{unknown!r} is not a severity", hint=f"The severities are {', '.join(SEVERITIES)}.")
        return tuple(finding for finding in self.findings if finding.severity in names)

    def to_arrow_table(self) -> pa.Table:
        """One row for each finding: severity, kind, place, value, expected value and hint."""
        rows = [finding.to_dict() for finding in self.findings]
        return pa.table({f.name: pa.array([row[f.name] for row in rows], f.type) for f in SCHEMA}, SCHEMA)

    def save_html(self, path: str | Path) -> None:
        """Write a page of HTML. Raises ``WriteError``."""
        with writing(str(path)):
            Path(path).write_text(page("Diagnosis", self.summary, self._table()), encoding="utf-8")

    def _repr_html_(self) -> str:
        return panel("Diagnosis", [self.summary], self._table())

    def _table(self) -> str:
        if not self.findings:
            return f"<p>{escaped('Nothing was found.')}</p>"
        headings = ("severity", "kind", "recording", "place", "when", "value", "expected", "times", "what to do")
        return table(headings, map(_cells, self.findings), len(self.findings), kind="wide")


def _cells(finding: Finding) -> tuple[str, ...]:
    recording = " ".join(filter(None, (finding.source, finding.segment)))
    place = " ".join(filter(None, (finding.entity_path, finding.subject)))
    measured = (finding.value, finding.expected, f"{finding.count:,}", finding.hint)
    return (finding.severity, finding.kind, recording, place, finding.when, *measured)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings by severity; those of one severity by their input, recording, entity and time."""

    def key(finding: Finding) -> tuple[Any, ...]:
        place = (finding.source, finding.segment or "", finding.entity_path or "", finding.kind)
        return (SEVERITIES.index(finding.severity), *place, finding.subject or "", finding.start or 0)

    return tuple(sorted(findings, key=key))


def joined(parts: Iterable[Diagnosis]) -> Diagnosis:
    """Join several results."""
    findings: list[Finding] = []
    recordings = rows = 0
    for part in parts:
        findings += part.findings
        recordings, rows = recordings + part.recordings, rows + part.rows
    return Diagnosis(ordered(findings), recordings, rows)


def finding_of(data: Mapping[str, Any]) -> Finding:
    """The inverse of :meth:`Finding.to_dict`."""
    return Finding(**{name: data[name] for name in _FIELDS})


_FIELDS: Final[Sequence[str]] = [field.name for field in fields(Finding)]
