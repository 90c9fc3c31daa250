"""The run of a diagnosis: each recording is read once, chunk by chunk, in this process or in a task of its own."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...readers import STORE, Format, detect_format, stem_of
from ..chunk import ChunkData, is_property
from ..errors import NotFoundError, ReadError, ReadWarning, UsageError
from ..execution import STAGE_TASKS, Body, Packed, RunOptions, Stage, Task, TaskRun, Work, query_executor
from ..inputs import SourceOptions, Stores, stores_of
from ..locations import Location, reading_location
from ..optimisation import ChunkReferences
from ..recordings import LiveEntries, RecordingEntry, RecordingsFolder
from ..rrd import keeping_open
from ..storage import ObjectUrl
from ..stream import LazyChunkStream, single_tasks
from .cameras import CameraChecks
from .findings import KINDS, Diagnosis, Finding, finding_of, joined, ordered
from .lerobot import dataset_findings
from .times import TimeChecks
from .transforms import FrameChecks
from .values import ValueChecks

_LEROBOT: Final = "lerobot"
_BROKEN: Final = frozenset({"unreadable", "lerobot-missing", "lerobot-length"})
"""Faults of a dataset for which the reader refuses an episode."""
_OF_MESSAGES: Final = frozenset({"mcap", "bag", "rosbag2"})
_OFTEN_SILENT: Final = frozenset({"/rosout", "/parameter_events", "/events/write_split"})
"""Topics that ROS itself makes, and that send on events."""


class Examination:
    """The examination of one recording, chunk by chunk; it keeps facts of bounded size."""

    def __init__(self) -> None:
        self._parts = (TimeChecks(), ValueChecks(), CameraChecks(), FrameChecks())
        self.rows = 0

    def add(self, data: ChunkData) -> None:
        """Look at a chunk. Properties of the recording are left out."""
        if is_property(data.entity_path):
            return
        self.rows += data.num_rows
        for part in self._parts:
            part.add(data)

    def findings(self) -> Iterator[Finding]:
        """All faults, once all chunks were added."""
        for part in self._parts:
            yield from part.findings()


def diagnose(
    source: str | os.PathLike[str],
    *,
    segments: str | Collection[str] | None = None,
    kinds: str | Collection[str] | None = None,
    options: Mapping[str, Any] | None = None,
    executor: str | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Examine recordings for faulty data: clocks, rates, gaps, cameras, sensors, transforms, LeRobot metadata.

    Each recording is read once, a few megabytes at a time. This process reads files; ``executor`` reads the segments of
    a dataset or a store, each in one task. To look for damaged files, use :func:`verify`.

    Parameters
    ----------
    source
        A file of any format, a folder of a format whose recordings are folders (LeRobot), a store, a dataset of a
        catalog, or the URL of one of these.
    segments
        Only these recordings, by their ids.
    kinds
        Report only these kinds of faults, such as ``"gap"``; see `the table <../doctor.md#kinds>`_.
    options
        Options of readers, by their names.
    executor, master, conf
        The executor that reads segments (``"spark"``, ``"inline"`` or ``"auto"``), and Spark's master and settings.

    Raises
    ------
    ReadError
        A recording cannot be read; :func:`verify` finds all damage.
    NotFoundError
        There is no such segment.
    UsageError
        The kind does not exist.

    Examples
    --------
    >>> import tempfile
    >>> from chunkmill import Chunk, ComponentColumn, LazyChunkStream, TimeColumn, diagnose
    >>> parts = [list(range(20)), list(range(10, 30))]
    >>> chunks = [
    ...     Chunk.from_columns("/a", [TimeColumn("step", sequence=p)], [ComponentColumn("value", [[1.0]] * len(p))])
    ...     for p in parts
    ... ]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ids = {"application_id": "app", "recording_id": "a"}
    ...     _ = LazyChunkStream.from_iter(chunks).write_rrd(f"{folder}/a.rrd", executor="inline", **ids)
    ...     print(diagnose(f"{folder}/a.rrd").to_arrow_table().select(["kind", "start", "value"]).to_pylist())
    [{'kind': 'clock-backward', 'start': 10, 'value': '9 back'}]
    """
    chosen = _names(kinds)
    ids = None if segments is None else {segments} if isinstance(segments, str) else set(segments)
    location = reading_location(source)
    is_entry = not isinstance(source, str | PurePath | ObjectUrl)  # of a catalog; an empty one has no folder yet
    row = STORE if is_entry else detect_format(location)
    if row is STORE:
        run = RunOptions(executor, master, conf)
        diagnosis = _of_store(RecordingsFolder(location), (options or {}).get("version"), ids, run)
    else:
        reading = SourceOptions(reading=options or {}, executor="inline")
        if row.name == _LEROBOT:
            diagnosis = joined(_of_episodes(location, reading, ids))
        else:
            parts = [_of_stores(stores, ids) for stores in _inputs(location, reading, ids)]
            diagnosis = joined([*parts, Diagnosis(tuple(_silent(location, row, reading)), 0, 0)])
        if ids and not diagnosis.recordings:
            raise NotFoundError(f"there is no recording {min(ids)!r}", path=str(location))
    findings = (f.within(f.source or str(source), f.segment) for f in diagnosis.findings)
    return replace(diagnosis, findings=ordered(f for f in findings if chosen is None or f.kind in chosen))


def _names(kinds: str | Collection[str] | None) -> Collection[str] | None:
    chosen = [kinds] if isinstance(kinds, str) else kinds
    unknown = next((name for name in chosen or () if name not in KINDS), None)
    if unknown is not None:
        raise UsageError(f"{unknown!r} is not a kind of fault", hint=f"The kinds are {', '.join(KINDS)}.")
    return chosen


# --- files


def _inputs(location: Location, reading: SourceOptions, ids: Collection[str] | None) -> Iterator[Stores]:
    """The recordings of a file, or of a folder of a format whose recordings are folders."""
    row = detect_format(location)
    episodes = row.open(location, reading.reading).episodes()
    for episode in episodes:
        if ids is None or episode.name in ids:
            yield stores_of(location, episode.name, reading, episode.number)
    if not episodes:
        yield stores_of(location, stem_of(location.name), reading)


def _silent(location: Location, row: Format, reading: SourceOptions) -> Iterator[Finding]:
    """The topics without a message, from the index, as a stream lacks them. A damaged file has no such index."""
    if row.name in _OF_MESSAGES and not reading.reading.get("recover"):
        for store in row.open(location, reading.reading).report().stores:
            for topic in store.entities:
                if topic.rows == 0 and topic.path not in _OFTEN_SILENT:
                    segment = store.recording_id or stem_of(location.name)
                    yield Finding("no-messages", topic.path, segment=segment)


def _of_stores(stores: Stores, ids: Collection[str] | None) -> Diagnosis:
    findings: list[Finding] = []
    rows = count = 0
    for store, stream in stores:
        if store.kind == "recording" and (ids is None or store.recording_id in ids):
            examination = _examined(stream)
            findings += [f.within("", store.recording_id) for f in examination.findings()]
            rows, count = rows + examination.rows, count + 1
    return Diagnosis(tuple(findings), count, rows)


def _examined(stream: LazyChunkStream) -> Examination:
    examination = Examination()
    for task in single_tasks(stream):
        for chunk in task.run(0):
            examination.add(chunk.data)
    return examination


def _of_episodes(location: Location, reading: SourceOptions, ids: Collection[str] | None) -> Iterator[Diagnosis]:
    """The recordings of a LeRobot dataset, and the dataset itself. An episode that cannot be read is a finding."""
    findings = [f for f in dataset_findings(Path(str(location))) if ids is None or f.segment in ids]
    yield Diagnosis(tuple(findings), 0, 0)
    broken = {finding.segment for finding in findings if finding.kind in _BROKEN}
    for episode in detect_format(location).open(location, reading.reading).episodes():
        if ids is not None and episode.name not in ids:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ReadWarning)  # missing videos are findings
                yield _of_stores(stores_of(location, episode.name, reading, episode.number), None)
        except ReadError as error:
            said = () if episode.name in broken else (_unreadable(error, episode.name),)
            yield Diagnosis(said, 1, 0)


def _unreadable(error: Exception, segment: str) -> Finding:
    return Finding("unreadable", segment=segment, value=str(error))


# --- stores


@dataclass(frozen=True, slots=True)
class StoredRecording:
    """The chunks of one recording, by reference, layer by layer, and their bytes."""

    recording_id: str
    chunks: tuple[ChunkReferences, ...]
    size: int

    def read(self) -> Iterator[ChunkData]:
        """The chunks, in order. Raises ``ReadError``."""
        with keeping_open():
            for layer in self.chunks:
                yield from layer.read(np.arange(len(layer.table)))


@dataclass(frozen=True, slots=True)
class PipedRecording:
    """The recording of a pipeline, and the bytes of its source."""

    recording_id: str
    work: Work
    size: int

    def read(self) -> Iterator[ChunkData]:
        """The chunks, in order. Raises the errors of the pipeline."""
        for task in self.work.tasks:
            for chunk in self.work.run(task.index):
                yield chunk.data


ExaminedRecording = StoredRecording | PipedRecording


@dataclass(frozen=True, slots=True)
class _ExaminationBody(Body):
    """The stage that examines recordings, one per task, and gives its findings."""

    recordings: Sequence[ExaminedRecording]

    def label(self, index: int) -> str:
        """The id of a recording."""
        return self.recordings[index].recording_id

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Examine one recording."""
        recording, examination = self.recordings[task.index], Examination()
        for data in recording.read():
            examination.add(data)
        findings = [f.within("", recording.recording_id).to_dict() for f in examination.findings()]
        yield from ()
        return {"findings": findings, "examined_rows": examination.rows}


def examine(recordings: Sequence[ExaminedRecording], run: RunOptions) -> list[Diagnosis | Exception]:
    """Examine recordings on the executor of ``run``, each in one task. Return their results or errors in this order."""
    tasks = [Task(i, recording.recording_id, recording.size) for i, recording in enumerate(recordings)]
    outcomes = Stage(_ExaminationBody(Packed(recordings)), tasks).run(run).outcomes()
    return [
        outcome
        if isinstance(outcome, Exception)
        else Diagnosis(ordered(map(finding_of, outcome["findings"])), 1, outcome["examined_rows"])
        for outcome in outcomes
    ]


def _of_store(folder: RecordingsFolder, version: int | None, ids: Collection[str] | None, run: RunOptions) -> Diagnosis:
    """Examine the recordings of a store, some hundreds a stage."""
    newest = folder.newest() if version is None else folder.version(version)
    live = LiveEntries() if newest is None else folder.live(newest)
    by_id: defaultdict[str, list[RecordingEntry]] = defaultdict(list)
    for entry in live:
        if entry.store.kind == "recording" and (ids is None or entry.recording_id in ids):
            by_id[entry.recording_id].append(entry)
    missing = set(ids or ()) - by_id.keys()
    if missing:
        raise NotFoundError(f"there is no recording {min(missing)!r}", path=str(folder.path))
    run = replace(run, executor=query_executor(run.executor, lambda: live.bytes))
    results: list[Diagnosis] = []
    waiting = iter(by_id.items())
    while some := list(islice(waiting, STAGE_TASKS)):
        recordings = []
        for recording_id, entries in some:
            try:
                chunks = tuple(map(folder.references, entries))
            except ReadError as error:
                results.append(Diagnosis((_unreadable(error, recording_id),), 1, 0))
                continue
            recordings.append(StoredRecording(recording_id, chunks, sum(entry.bytes for entry in entries)))
        for recording, outcome in zip(recordings, examine(recordings, run), strict=True):
            if not isinstance(outcome, Diagnosis):
                if not isinstance(outcome, ReadError):
                    raise outcome
                outcome = Diagnosis((_unreadable(outcome, recording.recording_id),), 1, 0)
            results.append(outcome)
    return joined(results)
