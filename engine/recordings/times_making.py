"""Times and statistics for recordings without them: registered in place, or stored by an earlier release."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from ..errors import ReadError, ReadWarning, writing
from ..execution import STAGE_TASKS, Body, RunOptions, Stage, Staging, Task, TaskRun, executor_for
from ..optimisation import ChunkReferences
from ..rrd import Times, part_end
from ..storage import is_url
from .entries import Key, RecordingEntry
from .folder import RecordingsFolder
from .times import TimesBytes, made_times, times_in
from .vacuum import NewFiles
from .writer import Commit, StoreWriter


@dataclass(frozen=True)
class _TimesBody(Body):
    """The stage that reads layers, one a task, and writes parts that have only the times of their chunks."""

    layers: tuple[tuple[str, ChunkReferences], ...]

    def label(self, index: int) -> str:
        """The id of a recording."""
        return self.layers[index][0]

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the part of one layer."""
        name = f"{task.name}.times"
        with writing(task.location):
            new = task.folder.new(name)
        try:
            for piece in part_end(made_times(self.layers[task.index][1])):
                with writing(task.location):
                    new.file.write(piece)
            with writing(task.location):
                new.finish()
        except BaseException:
            new.discard()
            raise
        task.rows.note("times", {"part": name})
        yield from ()
        return {}


def make_times(writer: StoreWriter, run: RunOptions, keys: Collection[Key] | None = None) -> int:
    """Publish versions with the missing times and statistics of recordings; return the number of these recordings.

    ``keys`` selects layers, by default all. Chunks are read in place, by the executor of ``run``. An unreadable
    recording is unchanged, with a warning. Raises the errors of :meth:`StoreWriter.rewrite`.
    """
    made, tried = 0, set[tuple[str, int]]()

    def lacks(entry: RecordingEntry) -> bool:
        is_asked = entry.manifest and (keys is None or entry.key in keys)
        return bool(is_asked) and (entry.manifest, entry.manifest_offset) not in tried and not has_all(entry)

    def has_all(entry: RecordingEntry) -> bool:
        if not entry.times_size:
            return False
        try:
            times = times_in(writer.folder, entry)
        except ReadError:
            return False
        return times is not None and times.directory.has_statistics

    while True:
        writer.catch_up()
        entries = list(islice(filter(lacks, writer.live), STAGE_TASKS))
        if not entries:
            return made
        tried.update((entry.manifest, entry.manifest_offset) for entry in entries)
        with Staging.beside(writer.folder.path / "times") as staging:
            made += _make_some(writer, entries, staging, run)


def _make_some(writer: StoreWriter, entries: Sequence[RecordingEntry], staging: Staging, run: RunOptions) -> int:
    folder = writer.folder
    layers: list[tuple[RecordingEntry, ChunkReferences]] = []
    for entry in entries:
        try:
            layers.append((entry, folder.references(entry)))
        except ReadError as error:
            _warn(folder, entry, error)
    tasks = [Task(i, entry.recording_id, entry.bytes) for i, (entry, _) in enumerate(layers)]
    body = _TimesBody(tuple((entry.recording_id, chunks) for entry, chunks in layers))
    size = None if any(is_url(entry.source) for entry, _ in layers) else sum(task.size for task in tasks)
    run = replace(run, executor=executor_for(run.executor, lambda: size))
    ran = Stage(body, tasks, staging, tuple(range(len(tasks))), str(folder.path)).run(run)
    parts = {note.task: note.data["part"] for note in ran.notes if note.kind == "times"}
    for (entry, _), outcome in zip(layers, ran.outcomes(), strict=True):
        if isinstance(outcome, Exception):
            _warn(folder, entry, outcome)

    def write(files: NewFiles) -> int:
        new: dict[Key, RecordingEntry] = {}
        for at, part in parts.items():
            entry = layers[at][0]
            times = Times.in_part(staging.folder.place(part))
            if times is not None:
                times_bytes = TimesBytes.of([times.read_pieces()], times.directory)
                data = folder.manifest(entry)
                name, offset = files.add_manifest(data, times_bytes.pieces)
                new[entry.key] = replace(times_bytes.noted(entry), manifest=name, manifest_offset=offset)
        files.finish()
        version = None
        if new:
            version = writer.rewrite([new.get(e.key, e) for e in writer.live], Commit("times"))
        if version is None:
            files.discard()
        return 0 if version is None else len(new)

    return writer.with_files(write)


def _warn(folder: RecordingsFolder, entry: RecordingEntry, error: Exception) -> None:
    text = f"{folder.path}: the times of recording {entry.recording_id} cannot be made: {error}"
    warnings.warn(text, ReadWarning, stacklevel=2)
