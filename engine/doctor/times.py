"""Faults of times: clocks that jump and drift, rates, gaps, order, and topics that start late or stop early.

Each track (the rows of an entity with one set of components) is read once, chunk by chunk. A histogram of its
intervals, its unusual steps, and the mean intervals of blocks of rows are kept, all of bounded size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..chunk import ChunkData, TimelineKind
from .findings import Finding

Ticks = npt.NDArray[np.int64]

SECOND: Final = 1_000_000_000
YEAR: Final = 365 * 24 * 3600 * SECOND
FAR: Final = YEAR
"""The distance from the other times at which a time is an outlier: no recording is that long."""
LEAST_ROWS: Final = 20
"""The least number of rows for a usual rate; half as many are needed to judge their order."""
GAP: Final = 10
"""The least length of a gap, in usual intervals; schedulers delay single messages by a few intervals."""
LEAST_GAP: Final = SECOND // 5
"""The least length of a gap. Shorter ones are jitter of fast topics, such as a buffer that is flushed late."""
LEAPS: Final = 10
"""The least leap ahead of another clock, in median intervals."""
MANY: Final = 0.05
"""If a larger share of rows goes back, the topic has several publishers; if a larger share of intervals are gaps, it
has no rate."""
SHARED_STAMPS: Final = SECOND
"""The allowed difference of clocks between publishers of a topic, whose rows are stored in the order of another
clock."""
DRIFT: Final = 5e-5
"""The least drift of two clocks, in seconds per second: a quartz drifts less."""
LEAST_DRIFT: Final = 0.05
"""The least drift at the end, in seconds: longer than a camera frame."""
OVER_NOISE: Final = 6
"""The least drift over a recording, in standard deviations of the residuals of a line."""
SLOW: Final = 2.0
"""The ratio of the mean interval to the usual one at which a topic is slow."""
CUT: Final = 0.1
"""The share of a recording that a topic misses at its start or end."""
STEADY: Final = 0.6
"""The share of its time in which a regular topic sends; other topics send on events."""
_FEW: Final = 3
_FEWEST_BLOCKS: Final = 8
_STEPS: Final = 512
_BACK: Final = 1e30
_BESIDE: Final = 1e20
"""Weights of a step back and of the steps next to it, which show its cause. They exceed any ratio of intervals."""
_BLOCK_ROWS: Final = 8
_BLOCKS: Final = 256
_PER_OCTAVE: Final = 16
_CHANNEL: Final = "McapChannel:id"
_FIRST_LINES: Final = ("message_log_time", "log_time")


class TimeChecks:
    """The times of a recording, track by track."""

    def __init__(self) -> None:
        self._tracks: dict[tuple[str, tuple[str, ...], tuple[str, ...]], _Track] = {}
        self._epochs: defaultdict[str, _Epoch] = defaultdict(_Epoch)
        self._channels: defaultdict[str, set[Any]] = defaultdict(set)

    def add(self, data: ChunkData) -> None:
        """Take the rows of a chunk; static ones have no times."""
        if not data.timelines or not data.num_rows:
            for component in data.components:
                if component.descriptor.component == _CHANNEL:
                    self._channels[data.entity_path].update(component.values.flatten().to_pylist())
            return
        names = tuple(timeline.name for timeline in data.timelines)
        key = (data.entity_path, tuple(c.descriptor.component for c in data.components), names)
        track = self._tracks.get(key)
        if track is None:
            lines = [_Line(t.name, t.kind) for t in data.timelines]
            track = self._tracks[key] = _Track(data.entity_path, lines)
        ticks = np.stack([t.ticks for t in data.timelines])
        far = np.zeros(data.num_rows, np.bool_)
        for line, times in zip(track.lines, ticks, strict=True):
            if line.kind is TimelineKind.TIMESTAMP:
                far |= self._epochs[line.name].far(data.entity_path, times)
        if len(self._channels[data.entity_path]) > 1:
            track.begin_anew()
        track.add(ticks[:, ~far] if far.any() else ticks)

    def findings(self) -> Iterator[Finding]:
        """The faults of each track, and those that only a comparison of tracks shows."""
        for name, epoch in self._epochs.items():
            yield from epoch.findings(name)
        said: dict[tuple[Any, ...], Finding] = {}
        for track in self._tracks.values():
            for finding in track.findings():  # components of one entity may come in chunks of their own
                place = (finding.kind, finding.entity_path, finding.timeline)
                first = said.setdefault(place, finding)
                said[place] = replace(first, count=max(first.count, finding.count))
        yield from said.values()
        yield from _covered(list(self._tracks.values()))


@dataclass(slots=True)
class _Epoch:
    """The years of one timeline: those of most of its times, and the entities with other years."""

    middle: int | None = None
    near: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    others: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def far(self, entity: str, times: Ticks) -> npt.NDArray[np.bool_]:
        """Return the mask of times that are far from the others."""
        middle = int(np.median(times)) if self.middle is None else self.middle
        far = np.abs(times - middle) > FAR
        if far.sum() > sum(count for count, _ in self.near.values()) + (~far).sum():
            middle = int(np.median(times[far]))
            self.near, self.others = self.others, self.near
            far = np.abs(times - middle) > FAR
        self.middle = middle
        for counts, mask in ((self.near, ~far), (self.others, far)):
            rows = np.flatnonzero(mask)
            if len(rows):
                place = counts[entity]
                place[1] = place[1] if place[0] else int(times[rows[0]])
                place[0] += len(rows)
        return far

    def findings(self, timeline: str) -> Iterator[Finding]:
        usual = f"within a year of {_date(self.middle or 0)}"
        for entity, (count, first) in self.others.items():
            kind = TimelineKind.TIMESTAMP.value
            yield Finding("time-outlier", entity, None, timeline, kind, first, first, _date(first), usual, count)


def _date(time: int) -> str:
    return str(np.datetime64(time, "ns").astype("datetime64[D]"))


class _Intervals:
    """A histogram of intervals, sixteen bins an octave."""

    def __init__(self) -> None:
        self._counts = np.zeros(64 * _PER_OCTAVE + 1, np.int64)
        self.total = 0

    def add(self, intervals: Ticks) -> None:
        ahead = intervals[intervals >= 0]
        bins = np.ceil(np.log2(np.maximum(ahead, 1)) * _PER_OCTAVE).astype(np.int64) + (ahead > 0)
        self._counts += np.bincount(bins, minlength=len(self._counts))
        self.total += len(ahead)

    def quantile(self, share: float) -> float:
        """Return the quantile ``share`` of the intervals, to within 5 %; 0 without intervals."""
        if not self.total:
            return 0.0
        at = int(np.searchsorted(np.cumsum(self._counts), share * self.total))
        return 0.0 if at == 0 else float(2 ** ((at - 1) / _PER_OCTAVE))

    def are_regular(self, share: float) -> bool:
        """Return whether intervals are alike, except this share at either end: then there is a usual rate."""
        middle = self.quantile(0.5)
        return middle > 0 and self.quantile(share) >= middle / 2 and self.quantile(1 - share) <= middle * 2.1


class _Line:
    """The times of a track on one timeline."""

    def __init__(self, name: str, kind: TimelineKind) -> None:
        self.name, self.kind = name, kind
        self.intervals = _Intervals()
        self.first = self.last = self.least = self.most = 0
        self.backward = 0
        self.largest_back = 0

    @property
    def is_clock(self) -> bool:
        return self.kind is not TimelineKind.SEQUENCE

    def finding(self, kind: str, entity: str, start: int, end: int, value: str, expected: str, count: int) -> Finding:
        return Finding(kind, entity, None, self.name, self.kind.value, start, end, value, expected, count)

    def span(self, ticks: float) -> str:
        """An interval as text.

        >>> _Line("t", TimelineKind.DURATION).span(2.5e9), _Line("n", TimelineKind.SEQUENCE).span(7)
        ('2.5 s', '7')
        """
        return f"{ticks / SECOND:.4g} s" if self.is_clock else f"{ticks:.6g}"


class _Step(NamedTuple):
    """An unusual step: the row after it, and the times before and after it, one for each timeline.

    If there are too many, those with the largest ``weight`` are kept.
    """

    row: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    weight: float

    def size(self, line: int) -> int:
        return self.after[line] - self.before[line]


class _Blocks:
    """Blocks of rows that follow each other: where each starts and ends, its intervals, and the largest of these."""

    def __init__(self) -> None:
        self._rows = _BLOCK_ROWS
        self._seen = 0
        self.ends = np.zeros((2, 2 * _BLOCKS), np.int64)
        self.sums = np.zeros((3, 2 * _BLOCKS), np.int64)

    def add(self, before: Ticks, after: Ticks) -> None:
        """Take intervals by their two ends."""
        done = 0
        while done < len(after):
            count = min(len(after) - done, self._rows * 2 * _BLOCKS - self._seen)
            self._add(before[done : done + count], after[done : done + count])
            done += count
            if self._seen == self._rows * 2 * _BLOCKS:
                self._halve()

    def _add(self, before: Ticks, after: Ticks) -> None:
        of = (self._seen + np.arange(len(after))) // self._rows
        starts = np.flatnonzero(np.diff(of, prepend=-1))
        blocks, steps = of[starts], after - before
        empty = self.sums[0, blocks] == 0
        self.ends[0, blocks[empty]] = before[starts[empty]]
        self.ends[1, blocks] = after[np.append(starts[1:], len(after)) - 1]
        self.sums[0, blocks] += np.diff(np.append(starts, len(after)))
        self.sums[1, blocks] += np.add.reduceat(steps, starts)
        self.sums[2, blocks] = np.maximum(self.sums[2, blocks], np.maximum.reduceat(steps, starts))
        self._seen += len(after)

    def _halve(self) -> None:
        self.ends = np.stack([self.ends[0, ::2], self.ends[1, 1::2]])
        self.sums = np.stack(
            [*(row[::2] + row[1::2] for row in self.sums[:2]), np.maximum(self.sums[2, ::2], self.sums[2, 1::2])]
        )
        self.ends, self.sums = (np.concatenate([a, np.zeros_like(a)], axis=1) for a in (self.ends, self.sums))
        self._rows *= 2

    def usual(self) -> float:
        """Return the mean interval of most blocks, or 0 if they are few or differ."""
        filled = self.sums[0] >= self._rows
        if filled.sum() < _FEWEST_BLOCKS:
            return 0.0
        means = self.sums[1, filled] / self.sums[0, filled]
        low, usual, high = np.quantile(means, (0.1, 0.5, 0.9)).tolist()
        return float(usual) if usual / 2 <= low and high <= 2 * usual else 0.0

    def _means(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """The mean interval of each full block, without its largest one, as one gap makes no slow block."""
        filled = self.sums[0] >= self._rows
        counts, sums, largest = self.sums[:, filled].astype(np.float64)
        return (sums - largest) / (counts - 1), filled

    def slowest(self) -> tuple[int, int, float, float] | None:
        """Return start, end and mean interval of the longest run of slow blocks, and the usual interval; or None."""
        means, filled = self._means()
        if len(means) < 4:
            return None
        sums = self.sums[1, filled]
        usual = float(np.median(means))
        slow = means > SLOW * usual
        edges = np.flatnonzero(np.diff(slow.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
        if usual <= 0 or not len(edges) or sums[~slow].sum() < STEADY / 2 * sums.sum():
            return None  # it is slow most of the time, and fast at times
        begin, end = edges[int(np.argmax(edges[:, 1] - edges[:, 0]))].tolist()
        if end - begin < 2:
            return None
        ends = self.ends[:, filled]
        return int(ends[0, begin]), int(ends[1, end - 1]), float(means[begin:end].mean()), usual


class _Fit:
    """A line fitted to the offset of one clock from another, in seconds."""

    def __init__(self) -> None:
        self._sums = np.zeros(5)
        self._count = 0
        self._span = 0.0

    def add(self, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> None:
        self._sums += [x.sum(), y.sum(), (x * x).sum(), (x * y).sum(), (y * y).sum()]
        self._count += len(x)
        self._span = max(self._span, float(x.max(initial=0)))

    def drift(self) -> tuple[float, float] | None:
        """Return the drift per second and in all, both in seconds, or None if the clocks do not drift."""
        if self._count < LEAST_ROWS:
            return None
        x, y, xx, xy, yy = self._sums / self._count
        spread = xx - x * x
        if spread <= 0:
            return None
        slope = (xy - x * y) / spread
        noise = max(yy - y * y - slope * slope * spread, 0.0) ** 0.5
        total = abs(slope) * self._span
        is_drift = abs(slope) >= DRIFT and total >= max(LEAST_DRIFT, OVER_NOISE * noise)
        return (float(slope), float(total)) if is_drift else None


class _Track:
    """The rows of an entity with one set of components."""

    def __init__(self, entity: str, lines: Sequence[_Line]) -> None:
        self.entity = entity
        self.lines = lines
        self.rows = 0
        clocks = [line for line in lines if line.is_clock]
        named = [line for line in clocks if line.name in _FIRST_LINES]
        self.main = lines.index((named or clocks or list(lines))[0])
        self._clocks = [i for i, line in enumerate(lines) if line.is_clock or not clocks]
        self._steps: list[_Step] = []
        self._blocks = _Blocks()
        self._fits = [_Fit() for _ in lines]
        self._last: Ticks | None = None
        self._was_back = False
        self._zeros = 0
        self._run = self._longest = 0
        self._burst = 0

    @property
    def line(self) -> _Line:
        """Its main timeline."""
        return self.lines[self.main]

    def add(self, ticks: Ticks) -> None:
        """Take more rows: ``ticks`` of shape ``(timelines, rows)``."""
        if not ticks.shape[1]:
            return
        if not self.rows:
            for line, first in zip(self.lines, ticks[:, 0].tolist(), strict=True):
                line.first = line.least = line.most = first
        joined, first_row = ticks, self.rows
        if self._last is not None:
            joined, first_row = np.concatenate([self._last, ticks], axis=1), self.rows - 1
        steps = np.diff(joined, axis=1)
        for i, line in enumerate(self.lines):
            line.least = min(line.least, int(ticks[i].min()))
            line.most = max(line.most, int(ticks[i].max()))
            line.last = int(ticks[i, -1])
            if steps.shape[1]:
                line.intervals.add(steps[i])
        if steps.shape[1]:
            self._note(joined, steps, first_row)
        self._fit(ticks)
        self._last = ticks[:, -1:].copy()
        self.rows += ticks.shape[1]

    def begin_anew(self) -> None:
        """Begin a new sequence of rows: each channel of a topic has chunks of its own."""
        self._last = None

    def _note(self, joined: Ticks, steps: Ticks, first_row: int) -> None:
        weights = np.zeros(steps.shape[1])
        for line, sizes in zip(self.lines, steps, strict=True):
            middle = max(line.intervals.quantile(0.5), 1.0)
            np.maximum(weights, sizes / middle, out=weights)
            if sizes.min() < 0:
                line.backward += int((sizes < 0).sum())
                line.largest_back = max(line.largest_back, -int(sizes.min()))
        back: npt.NDArray[np.bool_] = np.logical_or.reduce(steps < 0, axis=0)
        beside = np.concatenate([[self._was_back], back[:-1]]) | np.concatenate([back[1:], [False]])
        weights[beside] = np.maximum(weights[beside], _BESIDE)
        weights[back] = _BACK
        self._was_back = bool(back[-1])
        rows = np.flatnonzero(weights > GAP / 2)
        if len(rows) > _STEPS:
            rows = np.sort(rows[np.argsort(-weights[rows], kind="stable")[:_STEPS]])
        for at in rows.tolist():
            before, after = (tuple(joined[:, column].tolist()) for column in (at, at + 1))
            self._steps.append(_Step(first_row + at + 1, before, after, float(weights[at])))
        if len(self._steps) > 2 * _STEPS:
            largest = sorted(self._steps, key=lambda step: -step.weight)[:_STEPS]
            self._steps = sorted(largest, key=lambda step: step.row)
        self._blocks.add(joined[self.main, :-1], joined[self.main, 1:])
        self._bursts(joined, (steps[self._clocks] == 0).all(axis=0))

    def _bursts(self, joined: Ticks, same: npt.NDArray[np.bool_]) -> None:
        """Keep the longest run of rows that have the same times."""
        if not same.any():
            self._run = 0
            return
        self._zeros += int(same.sum())
        edges = np.flatnonzero(np.diff(same.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
        lengths = edges[:, 1] - edges[:, 0]
        if same[0]:
            lengths[0] += self._run
        self._run = int(lengths[-1]) if same[-1] else 0
        at = int(np.argmax(lengths))
        if lengths[at] > self._longest:
            self._longest, self._burst = int(lengths[at]), int(joined[self.main, edges[at, 1]])

    def _fit(self, ticks: Ticks) -> None:
        """Compare clocks with the main one."""
        main = self.line
        if not main.is_clock:
            return
        x = ticks[self.main] - main.first
        for i, line in enumerate(self.lines):
            if i != self.main and line.is_clock:
                self._fits[i].add(x / SECOND, (ticks[i] - line.first - x) / SECOND)

    # --- at the end

    @cached_property
    def usual(self) -> float:
        """The usual interval on the main timeline, of rows or of blocks of rows; 0 if the topic sends on events."""
        line = self.line
        if self.rows < LEAST_ROWS:
            return 0.0
        interval = line.intervals.quantile(0.5) if line.intervals.are_regular(0.1) else self._blocks.usual()
        gaps = sorted((step.size(self.main) for step in self._steps), reverse=True)[:_FEW]
        time = line.most - line.least - sum(gap for gap in gaps if gap > 0)
        return interval if self.rows * interval >= STEADY * time else 0.0

    def _interval(self, i: int) -> float:
        """The median interval on a timeline, or the mean one if messages come in bursts."""
        line = self.lines[i]
        usual = self.usual if line.is_clock and self.line.is_clock else 0.0
        return max(line.intervals.quantile(0.5), usual)

    def findings(self) -> Iterator[Finding]:
        """The faults of this track."""
        said: set[int] = set()
        jumped: set[int] = set()
        for i in sorted(range(len(self.lines)), key=lambda i: i != self.main):
            for finding, rows in self._order(i):
                if said.isdisjoint(rows):  # a step that clocks share is one fault
                    yield finding
                if finding.kind == "clock-backward":
                    jumped.add(i)
                said.update(rows)
        for i, line in enumerate(self.lines):
            if line.is_clock:
                for finding in self._leaps(i):
                    jumped.add(i)
                    yield finding
        if not jumped:
            yield from self._drifts()
        if self.rows >= LEAST_ROWS and self.line.intervals.are_regular(0.25):
            yield from self._slow()
        if self.usual:
            yield from self._gaps(jumped)
            if self._longest >= 2 and self._zeros <= 2 * MANY * self.rows:
                value = f"{self._longest + 1:,} rows at one time"
                yield self.line.finding("duplicate-times", self.entity, self._burst, self._burst, value, "one row", 1)

    def _order(self, i: int) -> Iterator[tuple[Finding, list[int]]]:
        """Steps back: those of a clock, and those of late rows, for which steps ahead nearby make up."""
        line = self.lines[i]
        if not line.backward or self.rows < LEAST_ROWS // 2:
            return
        middle = self._interval(i)
        back = [step for step in self._steps if step.size(i) < 0]
        is_shared = line.is_clock and i != self.main and line.largest_back < SHARED_STAMPS
        if line.backward > max(_FEW, MANY * self.rows):
            late, jumps = back, []
        else:
            late = [step for step in back if self._is_made_up(step, i, middle)]
            jumps = [step for step in back if step not in late]
        for kind, steps in (("out-of-order", [] if is_shared else late), ("clock-backward", jumps)):
            if steps:
                worst = min(steps, key=lambda step: step.size(i))
                count = line.backward if not jumps else len(steps)
                value, usual = f"{line.span(-worst.size(i))} back", f"{line.span(middle)} ahead"
                place = (worst.after[i], worst.before[i])
                yield line.finding(kind, self.entity, *place, value, usual, count), [step.row for step in steps]

    def _is_made_up(self, step: _Step, i: int, middle: float) -> bool:
        """Return whether steps ahead nearby make up for a step back, so that the clock itself is right."""
        at = self._steps.index(step)
        missing, gained = middle - step.size(i), 0.0
        reach = 2 + 2 * missing / max(middle, 1.0)  # a row is late by about as many rows as fit into the step
        for neighbours in (reversed(self._steps[:at]), self._steps[at + 1 :]):
            for other in neighbours:
                if other.size(i) < 0 or abs(other.row - step.row) > reach:
                    break
                if other.size(i) >= missing / 4:  # a smaller one is a pause between two bursts
                    gained += other.size(i) - middle
        return gained >= missing / 2

    def _leaps(self, i: int) -> Iterator[Finding]:
        """Steps ahead that no other clock makes."""
        line = self.lines[i]
        if not line.intervals.are_regular(0.25) or line.backward:
            return
        least = max(LEAPS * self._interval(i), SECOND / 2)
        leaps = []
        for step in self._steps:
            others = [
                step.size(j)
                for j, other in enumerate(self.lines)
                if j != i and other.is_clock and 0 <= step.size(j) <= GAP / 2 * other.intervals.quantile(0.5)
            ]
            if others and step.size(i) - max(others) >= least:
                leaps.append((step, max(others)))
        if leaps:
            worst, usual = max(leaps, key=lambda leap: leap[0].size(i))
            said = f"{line.span(worst.size(i))} ahead", f"{line.span(usual)} on the other timeline"
            yield line.finding("clock-forward", self.entity, worst.before[i], worst.after[i], *said, len(leaps))

    def _drifts(self) -> Iterator[Finding]:
        for line, fit in zip(self.lines, self._fits, strict=True):
            drift = fit.drift()
            if drift is not None and not line.backward:
                slope, total = drift
                pace = f"{slope * 1e6:+,.0f} ppm" if abs(slope) < MANY else f"{1 + slope:.4g} times as fast"
                value = f"{pace}, {total:.3g} s in all"
                expected = f"the pace of {self.line.name}"
                yield line.finding("clock-drift", self.entity, line.first, line.last, value, expected, 1)

    def _gaps(self, jumped: set[int]) -> Iterator[Finding]:
        line, i = self.line, self.main
        least = max(GAP * self.usual, LEAST_GAP) if line.is_clock else GAP * self.usual
        gaps = [step for step in self._steps if step.size(i) >= least]
        if not gaps or i in jumped or line.backward or len(gaps) > max(_FEW, MANY / 5 * self.rows):
            return
        worst = max(gaps, key=lambda step: step.size(i))
        said = line.span(worst.size(i)), f"about {line.span(self.usual)}"
        yield line.finding("gap", self.entity, worst.before[i], worst.after[i], *said, len(gaps))

    def _slow(self) -> Iterator[Finding]:
        run = self._blocks.slowest()
        if run is not None and self.line.is_clock and not self.line.backward:
            start, end, mean, usual = run
            said = f"{SECOND / mean:.4g} Hz", f"about {SECOND / usual:.4g} Hz"
            yield self.line.finding("rate-drop", self.entity, start, end, *said, 1)


def _covered(tracks: Sequence[_Track]) -> Iterator[Finding]:
    """Topics with a usual rate that miss the start or the end of a recording, which other such topics cover."""
    by_line: defaultdict[str, dict[str, _Track]] = defaultdict(dict)
    for track in tracks:
        if track.usual and track.line.is_clock and not track.line.backward:
            best = by_line[track.line.name].setdefault(track.entity, track)
            if track.line.most - track.line.least > best.line.most - best.line.least:
                by_line[track.line.name][track.entity] = track
    for group in by_line.values():
        lines = [track.line for track in group.values()]
        start, end = min(line.least for line in lines), max(line.most for line in lines)
        for entity, track in group.items():
            line = track.line
            most = max(CUT * (end - start), 2 * GAP * track.usual, SECOND)
            if line.least - start > most:
                said = f"{line.span(line.least - start)} late", "the start of the other topics"
                yield line.finding("late-start", entity, start, line.least, *said, 1)
            if end - line.most > most:
                said = f"{line.span(end - line.most)} early", "the end of the other topics"
                yield line.finding("early-stop", entity, line.most, end, *said, 1)
