"""Sinks that are wrong in ways that are easily built, planted to see that the check finds each."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from chunkmill.engine.execution import commit as rrd_commit
from chunkmill.engine.faults import reach
from chunkmill.engine.ingest.batch import BatchRunner
from chunkmill.engine.recordings.entries import LiveEntries
from chunkmill.engine.recordings.vacuum import NewShards
from chunkmill.engine.recordings.writer import Commit, StoreWriter


def append_always() -> None:
    """Appends whatever a batch gives, as a plain ``foreachBatch`` does: neither batch nor content is looked up."""
    publish = StoreWriter._publish

    def appending(self: StoreWriter, change: Callable[[], Any], commit: Commit) -> Any:
        def renamed() -> Any:
            entries, anew = change()
            return [replace(e, recording_id=f"{e.recording_id}-{uuid.uuid4().hex}") for e in entries], anew

        return publish(self, renamed, replace(commit, query_id=""))

    StoreWriter._publish = appending  # type: ignore[method-assign]
    StoreWriter.is_done = lambda *_: False  # type: ignore[method-assign]
    LiveEntries.of_digest = lambda *_: []  # type: ignore[method-assign]


def publish_before_writing() -> None:
    """Publishes a version, and lets the shards that it names appear after that."""
    finish, publish = NewShards.finish, StoreWriter._publish
    waiting: list[NewShards] = []

    def later(self: NewShards) -> None:
        self._seal()
        waiting.append(self)

    def early(self: StoreWriter, change: Callable[[], Any], commit: Commit) -> Any:
        version = publish(self, change, commit)
        time.sleep(0.2)
        while waiting:
            finish(waiting.pop())
        return version

    NewShards.finish = later  # type: ignore[method-assign]
    StoreWriter._publish = early  # type: ignore[method-assign]


def write_in_place() -> None:
    """Writes RRDs under their final name, bit by bit."""

    def in_place(new: Path, target: Path) -> None:
        data = new.read_bytes()
        with target.open("wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            time.sleep(0.1)
            file.write(data[len(data) // 2 :])

    rrd_commit.replace_file = in_place


def note_first() -> None:
    """Notes that a batch is done before it is: at most once."""
    publish = StoreWriter._publish

    def noting(self: StoreWriter, change: Callable[[], Any], commit: Commit) -> Any:
        changed = change()
        publish(self, lambda: ([], False), commit)
        return publish(self, lambda: changed, commit)

    StoreWriter._publish = noting  # type: ignore[method-assign]


def delete_first() -> None:
    """Removes the sources before their recordings are committed."""
    arrived = BatchRunner._arrived

    def deleting(self: BatchRunner, found: Sequence[Any], staging: Any) -> Any:
        made = arrived(self, found, staging)
        for one in found:
            if one.is_open:
                Path(one.file.path).unlink()
        reach("source.dispose")
        return made

    BatchRunner._arrived = deleting  # type: ignore[method-assign]


def a_version_a_file() -> None:
    """Commits each recording of a batch by itself."""
    publish = StoreWriter._publish

    def one_by_one(self: StoreWriter, change: Callable[[], Any], commit: Commit) -> Any:
        entries, anew = change()
        for entry in entries[:-1]:
            publish(self, lambda entry=entry: ([entry], anew), commit)  # type: ignore[misc]
            time.sleep(0.1)
        return publish(self, lambda: (entries[-1:], anew), commit)

    StoreWriter._publish = one_by_one  # type: ignore[method-assign]


def leave_staging() -> None:
    """Never clears away what it staged, under a name that nobody knows."""
    arrived = BatchRunner._arrived

    def leaving(self: BatchRunner, found: Sequence[Any], staging: Any) -> Any:
        left = staging.local.parent / f"staged-{uuid.uuid4().hex}"
        shutil.copytree(staging.local, left)
        return arrived(self, found, staging)

    BatchRunner._arrived = leaving  # type: ignore[method-assign]


SINKS: Final[Mapping[str, Callable[[], None]]] = {
    made.__name__: made
    for made in (
        append_always,
        publish_before_writing,
        write_in_place,
        note_first,
        delete_first,
        a_version_a_file,
        leave_staging,
    )
}
"""Each, by its name; called in the process that it is to make unsafe."""

FOUND_AT: Final[Mapping[str, tuple[str, str]]] = {
    "append_always": ("batch.commit", "kill"),
    "publish_before_writing": ("version.done", "kill"),
    "write_in_place": ("rrd.rename", "exception"),
    "note_first": ("version.done", "kill"),
    "delete_first": ("source.dispose", "kill"),
    "a_version_a_file": ("version.done", "kill"),
    "leave_staging": ("batch.run", "exception"),
}
"""The point and kind of fault by which each is found."""
