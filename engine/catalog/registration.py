"""Registration: files are looked at by tasks, and what is found is committed in groups, each as one version."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from ..errors import AlreadyExistsError, ChunkmillError, SchemaConflictError, UsageError
from ..execution import RunOptions, Stage, Task, executor_name, warn_of
from ..recordings import (
    Commit,
    LiveEntries,
    NewFiles,
    RecordingEntry,
    RecordingsFolder,
    RecordingsVersion,
    SchemaFiles,
    StoreWriter,
    join_schemas,
    manifest_bytes,
    removal_of,
    summary_of,
)
from ..rrd import digest_of
from .layers import FoundLayer, LookBody
from .registration_handle import Outcomes, RegistrationHandle
from .requests import FileRequest, OnDuplicateSegmentLayer

GROUP_FILES: Final = 256
"""Files that one commit makes visible, at most."""
GROUP_SECONDS: Final = 5.0
"""How long what was found waits for its commit, about."""
_INLINE_FILES: Final = 32
"""Files that are looked at in this process before it looks at the clock."""


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """The choices of a registration; ``kind`` is that of the recordings that count."""

    on_duplicate: OnDuplicateSegmentLayer = OnDuplicateSegmentLayer.REPLACE
    kind: str = "recording"
    verify: bool = False
    run: RunOptions = field(default_factory=RunOptions)


def start_registration(
    folder: RecordingsFolder, requests: Sequence[FileRequest], options: RegistrationOptions
) -> RegistrationHandle:
    """Begin to register files with a dataset's store, in a thread of its own, that outlives the main one."""
    outcomes = Outcomes(requests)
    registration = _Registration(folder, requests, options, outcomes)
    threading.Thread(target=registration.run, name="chunkmill-register").start()
    return RegistrationHandle(outcomes)


class _Registration:
    def __init__(
        self,
        folder: RecordingsFolder,
        requests: Sequence[FileRequest],
        options: RegistrationOptions,
        outcomes: Outcomes,
    ) -> None:
        self._folder = folder
        self._requests = requests
        self._options = options
        self._outcomes = outcomes
        self._seen: set[tuple[str, str, str]] = set()

    def run(self) -> None:
        """Register all files; whatever happens, something is said of each."""
        try:
            writer = StoreWriter(self._folder)
            for group in self._groups():
                self._commit(writer, group)
            self._outcomes.tell_rest("cancelled")
        except BaseException as error:  # noqa: BLE001 (told to who waits, as the thread has nobody else to tell)
            self._outcomes.tell_rest(error)

    def _groups(self) -> Iterator[list[tuple[int, FoundLayer]]]:
        """The layers found in files, by groups that are to be committed together."""
        at, count = 0, len(self._requests)
        while at < count and not self._outcomes.cancelled.is_set():
            found: list[tuple[int, FoundLayer]] = []
            began, first = time.monotonic(), at
            while at < count and at - first < GROUP_FILES and time.monotonic() - began < GROUP_SECONDS:
                some = range(at, min(at + self._at_once(), count, first + GROUP_FILES))
                found += self._look(some)
                at = some.stop
            yield found

    def _at_once(self) -> int:
        return _INLINE_FILES if self._executor == "inline" else GROUP_FILES

    @property
    def _executor(self) -> str:
        """Who looks: footers are read in this process, whoever runs pipelines, where starting Spark takes longer."""
        if self._options.run.executor is None and not self._options.verify and len(self._requests) <= GROUP_FILES:
            return "inline"
        return executor_name(self._options.run.executor)

    def _look(self, some: range) -> list[tuple[int, FoundLayer]]:
        requests = tuple(self._requests[at] for at in some)
        tasks = [Task(i, request.place, 0) for i, request in enumerate(requests)]
        body = LookBody(requests, self._options.kind, self._options.verify)
        ran = Stage(body, tasks).run(replace(self._options.run, executor=self._executor))
        warn_of(ran.notes, set())
        failed = {i: told for i, told in enumerate(ran.outcomes()) if isinstance(told, Exception)}
        for i, error in failed.items():
            self._outcomes.tell(some[i], (), error)
        return [
            (some[note.task], FoundLayer.of(note))
            for note in ran.notes
            if note.kind == "layer" and note.task not in failed
        ]

    def _commit(self, writer: StoreWriter, found: Sequence[tuple[int, FoundLayer]]) -> None:
        """Publish a group as one version, and say what became of each file."""
        found = self._each_once(found)
        if not found:
            return
        commit = Commit("register")
        schemas = [layer.summary.schema for _, layer in found]

        def publish(files: NewFiles) -> _Rule:
            entries = []
            for at, layer in found:
                data = manifest_bytes(layer.table)
                name, offset = files.add_manifest(data)
                entries.append(self._entry(self._requests[at], layer, name, offset, data))
            files.finish()
            rule = _Rule(SchemaFiles(self._folder), entries, schemas, self._options)
            try:
                writer.publish(entries, commit, rule=rule)
            except _NothingLeftError:
                files.discard()
            return rule

        writer.catch_up()
        self._tell(found, writer.with_files(publish))

    def _each_once(self, found: Sequence[tuple[int, FoundLayer]]) -> list[tuple[int, FoundLayer]]:
        """Leave out, and say so, files with a layer of a segment that another file of the request has, too."""
        twice = set()
        for at, layer in found:
            request = self._requests[at]
            key = (layer.store.kind, layer.store.recording_id, request.layer)
            if key in self._seen:
                twice.add(at)
                text = f"another file of the request has segment '{key[1]}', layer '{key[2]}', too"
                self._outcomes.tell(at, (), UsageError(text, path=request.place))
            self._seen.add(key)
        return [(at, layer) for at, layer in found if at not in twice]

    def _entry(
        self, request: FileRequest, layer: FoundLayer, manifest: str, offset: int, data: bytes
    ) -> RecordingEntry:
        table, identity = layer.table, layer.identity
        return RecordingEntry(
            recording_id=layer.store.recording_id,
            application_id=layer.store.application_id,
            kind=layer.store.kind,
            segment_version=1,
            source=request.place,
            source_size=identity.size,
            source_modified_ns=identity.modified_ns,
            source_digest="",
            source_kept=False,
            rrd=None,
            manifest=manifest,
            manifest_offset=offset,
            manifest_size=len(data),
            manifest_digest=digest_of(data).hex(),
            shards=(),
            chunks=len(table),
            rows=int(table.num_rows.sum()),
            bytes=table.message_bytes,
            query_id="",
            batch=0,
            added=time.time(),
            layer=request.layer,
            in_place=True,
            source_etag=identity.etag,
            ranges=layer.summary.ranges,
            properties=layer.summary.properties,
        )

    def _tell(self, found: Sequence[tuple[int, FoundLayer]], rule: _Rule) -> None:
        files: dict[int, list[str]] = {}
        errors: dict[int, ChunkmillError] = {}
        for number, (at, layer) in enumerate(found):
            files.setdefault(at, []).append(layer.store.recording_id)
            if number in rule.refused:
                errors.setdefault(at, rule.refused[number])
        for at, segments in files.items():
            if at in errors:
                self._outcomes.tell(at, (), errors[at])
            else:
                self._outcomes.tell(at, segments)


def unregister(folder: RecordingsFolder, kind: str, segments: Sequence[str], layers: Sequence[str]) -> None:
    """Remove layers by the ids of their segments and by their names; an empty list stands for all."""
    writer = StoreWriter(folder)

    def gone(
        live: LiveEntries, version: RecordingsVersion | None, entries: Sequence[RecordingEntry]
    ) -> Sequence[RecordingEntry]:
        del version, entries
        wanted = dict.fromkeys(segments) or dict.fromkeys(live.columns("recording_id")["recording_id"].to_pylist())
        found = (entry for segment in wanted for entry in live.of_recording(segment, kind))
        meant = [entry for entry in found if not layers or entry.layer in layers]
        if not meant:
            raise _NothingLeftError
        return [removal_of(entry) for entry in meant]

    with contextlib.suppress(_NothingLeftError):
        writer.publish([], Commit("unregister"), rule=gone)


def summarised(folder: RecordingsFolder, live: LiveEntries) -> LiveEntries:
    """The same entries, with the summary of those that were written without one, by an earlier release."""
    if not live.columns("schema")["schema"].null_count:
        return live
    schemas = SchemaFiles(folder)
    return LiveEntries(entry if entry.schema else _with_summary(folder, schemas, entry) for entry in live)


def _with_summary(folder: RecordingsFolder, schemas: SchemaFiles, entry: RecordingEntry) -> RecordingEntry:
    summary = summary_of(folder.references(entry))
    digest = schemas.put(summary.schema)
    return replace(entry, schema=digest, ranges=summary.ranges, properties=summary.properties)


class _NothingLeftError(Exception):
    """Nothing of a group is to be published."""


class _Rule:
    """The part of a group that may be published on a base.

    That is no layer that is there and is to stay, and none with a type that conflicts. A file with several recordings
    is taken whole or not at all.
    """

    def __init__(
        self,
        schemas: SchemaFiles,
        entries: Sequence[RecordingEntry],
        columns: Sequence[pa.Schema],
        options: RegistrationOptions,
    ) -> None:
        self._schemas = schemas
        self._entries = entries
        self._options = options
        self._digests = [schemas.put(schema) for schema in columns]
        self.refused: dict[int, ChunkmillError] = {}

    def __call__(
        self, live: LiveEntries, version: RecordingsVersion | None, entries: Sequence[RecordingEntry]
    ) -> Sequence[RecordingEntry]:
        """The entries that may be added."""
        del version, entries
        self.refused = {}
        there = Counter(d for d in live.columns("schema")["schema"].to_pylist() if d)
        accepted = []
        for number, entry in enumerate(self._entries):
            old = live.get(entry.key)
            if old is not None and self._options.on_duplicate is OnDuplicateSegmentLayer.SKIP:
                continue
            digest = self._digests[number]
            try:
                if old is not None and self._options.on_duplicate is OnDuplicateSegmentLayer.ERROR:
                    raise AlreadyExistsError(f"Layer '{entry.layer}' already exists", path=entry.source)
                others = there if old is None or old.schema is None else there - Counter([old.schema])
                if digest not in others:
                    join_schemas([*map(self._schemas.get, sorted(others)), self._schemas.get(digest)])
            except SchemaConflictError as error:
                self.refused[number] = SchemaConflictError(
                    f"schema incompatibility on segment '{entry.recording_id}', layer '{entry.layer}': {error.message}",
                    path=entry.source,
                    hint=error.hint,
                )
                continue
            except AlreadyExistsError as error:
                self.refused[number] = error
                continue
            there = others + Counter([digest])
            accepted.append(
                replace(entry, schema=digest, segment_version=1 if old is None else old.segment_version + 1)
            )
        failed = {self._entries[number].source for number in self.refused}
        whole = [entry for entry in accepted if entry.source not in failed]
        if not whole:
            raise _NothingLeftError
        return whole
