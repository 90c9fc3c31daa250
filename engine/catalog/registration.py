"""Registration: tasks read or copy files, and commits add them as layers; the handle reports each file."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Final

from ..errors import AlreadyExistsError, ChunkmillError, ReadWarning, RegistrationError, SchemaConflictError, UsageError
from ..execution import STAGE_BYTES, RunOptions, Stage, Staging, Task, executor_name, warn_of
from ..limits import MIB, SPLIT_BYTES
from ..recordings import (
    Arrived,
    Commit,
    Key,
    LiveEntries,
    NewLayer,
    RecordingEntry,
    RecordingsFolder,
    RecordingsVersion,
    SchemaFiles,
    SchemaUnion,
    StoreWriter,
    make_times,
    removal_of,
)
from ..rrd import Each
from ..storage import is_url
from .layers import (
    FileIdentity,
    FileRequest,
    FoundLayer,
    LookBody,
    OnDuplicateSegmentLayer,
    copy_in,
    layer_exists,
    look_together,
)


@dataclass(frozen=True, slots=True)
class SegmentRegistrationResult:
    """The outcome of one file: the id of its segment, or its ``error``.

    ``replaced``: the segment had this layer, and the file replaced it.
    """

    uri: str
    segment_id: str | None
    error: str | None = None
    replaced: bool = field(default=False, repr=False, compare=False)

    @property
    def is_success(self) -> bool:
        """Whether the layer is in the dataset."""
        return self.error is None

    @property
    def is_error(self) -> bool:
        """Whether the file failed."""
        return self.error is not None


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """The outcome of a registration: the ids of the segments, in the order of the request."""

    segment_ids: list[str]


class Outcomes:
    """The current outcomes of a registration's files. One thread adds them; others wait for them."""

    def __init__(self, requests: Sequence[FileRequest]) -> None:
        self.requests = requests
        self.cancelled = threading.Event()
        self._changed = threading.Condition()
        self._of: list[list[SegmentRegistrationResult] | None] = [None] * len(requests)
        self._order: list[SegmentRegistrationResult] = []
        self._left = len(requests)
        self._is_over = False
        self.is_transient = True
        """Whether a retry may help for every error."""

    def tell(self, at: int, segments: Mapping[str, bool], error: BaseException | str | None = None) -> None:
        """Report the outcome of file number ``at``: a result for each of its segments, or one result for an error.

        ``segments``: whether the file replaced a layer of the segment.
        """
        with self._changed:
            if self._of[at] is not None:
                return
            uri = self.requests[at].uri
            text = None if error is None else str(error)
            self.is_transient &= error is None or bool(getattr(error, "transient", False))
            results = [SegmentRegistrationResult(uri, s, text, replaced) for s, replaced in segments.items()] or [
                SegmentRegistrationResult(uri, None, text)
            ]
            self._of[at] = results
            self._order += results
            self._left -= 1
            self._changed.notify_all()

    def end(self, error: BaseException | str) -> None:
        """Report the end of the registration, with ``error`` for each file without an outcome."""
        for at in range(len(self.requests)):
            self.tell(at, {}, error)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def at(self, number: int, until: float | None) -> SegmentRegistrationResult | None:
        """Result ``number`` in the order of arrival, or None after the last one. Raises ``TimeoutError``."""
        with self._changed:
            self._wait(lambda: len(self._order) > number or self._is_over, until)
            return self._order[number] if len(self._order) > number else None

    def all(self, until: float | None) -> list[SegmentRegistrationResult]:
        """All results, in the order of the request. Raises ``TimeoutError``."""
        return [result for results in self.by_file(until) for result in results]

    def by_file(self, until: float | None) -> list[list[SegmentRegistrationResult]]:
        """The results of each file, in the order of the request. Raises ``TimeoutError``."""
        with self._changed:
            self._wait(lambda: self._is_over, until)
            return [list(results or ()) for results in self._of]

    def _wait(self, ready: Callable[[], bool], until: float | None) -> None:
        if not self._changed.wait_for(ready, None if until is None else max(until - time.monotonic(), 0.0)):
            raise TimeoutError(
                f"{self._left} of {len(self.requests)} files were not registered in time; their registration continues"
            )


class RegistrationHandle:
    """A running registration. It continues without this handle."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    def iter_results(self, timeout_secs: float | None = None) -> Iterator[SegmentRegistrationResult]:
        """Yield the outcome of each file once its layer is visible or has failed. Each call starts with the first file.

        A file with several recordings has several results.

        Raises
        ------
        TimeoutError
            Some files are not done after ``timeout_secs`` seconds. The registration continues.
        """
        until = _until(timeout_secs)
        number = 0
        while (result := self._outcomes.at(number, until)) is not None:
            yield result
            number += 1

    def wait(self, timeout_secs: float | None = None) -> RegistrationResult:
        """Wait until all files are registered. You can call it again.

        Raises
        ------
        ValueError
            Some files failed; the message names each. The others are registered. The error is a ``RegistrationError``;
            it is ``transient`` if a retry may help for every failed file.
        TimeoutError
            Some files are not done after ``timeout_secs`` seconds. The registration continues.
        """
        results = self._outcomes.all(_until(timeout_secs))
        failed = [result.error for result in results if result.error is not None]
        if failed:
            text = "\n".join(("Registration failed.", "", "The following segments failed:", *failed))
            raise RegistrationError(text, transient=self._outcomes.is_transient)
        return RegistrationResult([result.segment_id for result in results if result.segment_id is not None])

    def results(self, timeout_secs: float | None = None) -> list[list[SegmentRegistrationResult]]:
        """Wait until all files are done, and return their outcomes in the order of the request.

        Raises
        ------
        TimeoutError
            Some files are not done after ``timeout_secs`` seconds. The registration continues.
        """
        return self._outcomes.by_file(_until(timeout_secs))

    def cancel(self) -> None:
        """Start no more files. Registered files stay; the others fail as ``cancelled``."""
        self._outcomes.cancelled.set()

    def __repr__(self) -> str:
        return f"RegistrationHandle({len(self._outcomes.requests)} files)"


def _until(timeout_secs: float | None) -> float | None:
    return None if timeout_secs is None else time.monotonic() + timeout_secs


GROUP_FILES: Final = 256
"""The most files in one commit."""
GROUP_SECONDS: Final = 5.0
"""The approximate time that layers wait for their commit."""
_INLINE_FILES: Final = 32
"""The number of files that this process reads before it checks the time."""
_TOGETHER: Final = 64
"""The number of footers to read together. Twice as many take a tenth less time each, but need twice the open files."""
_FOOTERS: Final = 1024
"""The most files in one commit if this process reads their footers: each commit waits for the disk ten times."""
_THREADS: Final = 32
_MOST_ASSETS: Final = 12
_MOST_ASSET_BYTES: Final = 300 * MIB
_LOCAL_SECONDS: Final = 0.001
_REMOTE_SECONDS: Final = 0.01
_MOST_SECONDS: Final = 20.0
"""The longest time for footers in this process; above, the times per footer on a disk and in an object store."""


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """The choices of a registration; ``kind`` selects the recordings of a file.

    ``copy``: RRDs are copied, as files of other formats always are. ``times``: store the times of RRDs that stay in
    place. ``assets``: the files are assets: few, small, and with static data only.
    """

    on_duplicate: OnDuplicateSegmentLayer = OnDuplicateSegmentLayer.REPLACE
    kind: str = "recording"
    verify: bool = False
    copy: bool = False
    times: bool = False
    assets: bool = False
    run: RunOptions = field(default_factory=RunOptions)


def start_registration(
    folder: RecordingsFolder,
    requests: Sequence[FileRequest],
    options: RegistrationOptions,
    check: Callable[[], object],
) -> RegistrationHandle:
    """Start to register files with a dataset's store, in a new thread that may outlive the main thread.

    ``check`` is called before each commit, and raises ``NotFoundError`` if the dataset was deleted.
    """
    outcomes = Outcomes(requests)
    registration = _Registration(folder, requests, options, outcomes, check)
    threading.Thread(target=registration.run, name="chunkmill-register").start()
    return RegistrationHandle(outcomes)


_NumberedLayer = tuple[int, Arrived]
"""The number of a file, and a layer in it."""


class _Registration:
    def __init__(
        self,
        folder: RecordingsFolder,
        requests: Sequence[FileRequest],
        options: RegistrationOptions,
        outcomes: Outcomes,
        check: Callable[[], object],
    ) -> None:
        self._folder = folder
        self._requests = requests
        self._options = options
        self._outcomes = outcomes
        self._check = check
        self._seen: set[tuple[str, str, str]] = set()
        self._copied: list[bool] = []
        self._each: Each = map

    def run(self) -> None:
        """Register all files, and report an outcome for each, whatever happens."""
        try:
            writer = StoreWriter(self._folder)
            self._copied = [self._options.copy or not request.is_rrd for request in self._requests]
            with self._threads(), contextlib.closing(self._groups()) as groups:
                for layers, staging in groups:
                    self._commit(writer, layers, staging)
            self._outcomes.end("cancelled")
        except BaseException as error:  # noqa: BLE001 (the waiting callers get it: the thread has no other caller)
            self._outcomes.end(error)

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        """A block with threads for reads from object stores. Footers on a disk are read faster without threads."""
        if not self._reads_footers or not any(is_url(request.place) for request in self._requests):
            yield
            return
        with ThreadPoolExecutor(_THREADS, "chunkmill-register") as pool:
            self._each = pool.map
            yield

    def _groups(self) -> Generator[tuple[list[_NumberedLayer], Staging | None]]:
        """Yield groups of layers to commit together.

        The chunks of a group's copied files are in its staging folder until the next group is requested.
        """
        at, count = 0, len(self._requests)
        while at < count and not self._outcomes.cancelled.is_set():
            with contextlib.ExitStack() as stack:
                layers: list[_NumberedLayer] = []
                staging: Staging | None = None
                began, end = time.monotonic(), min(at + self._group_files, count)
                while at < end and time.monotonic() - began < GROUP_SECONDS:
                    some = self._next(at, end)
                    if not self._copied[at]:
                        layers += self._look(some)
                    else:
                        staging = staging or stack.enter_context(Staging.beside(self._folder.path / "register"))
                        layers += self._copy(some, staging)
                    at = some.stop
                yield layers, staging

    @property
    def _group_files(self) -> int:
        """The largest number of files in a commit."""
        return _FOOTERS if self._reads_footers and not any(self._copied) else GROUP_FILES

    def _next(self, at: int, end: int) -> range:
        """The next files, starting with ``at``, to read or copy together."""
        copied, most = self._copied[at], STAGE_BYTES
        if not copied and self._reads_footers:
            end = min(end, at + _TOGETHER)
        elif self._executor(copied) == "inline":
            end, most = min(end, at + _INLINE_FILES), SPLIT_BYTES
        stop = size = 0
        for stop in range(at, end):
            if self._copied[stop] != copied or size >= most:
                return range(at, stop)
            if copied:
                with contextlib.suppress(ChunkmillError, OSError):  # reported as its outcome
                    size += FileIdentity.at(self._requests[stop]).size
        return range(at, end)

    def _executor(self, copied: bool) -> str:
        """The executor for reading files. Few footers are read in this process, as starting Spark takes longer."""
        is_quick = not copied and not self._options.verify and len(self._requests) <= GROUP_FILES
        return (
            "inline" if self._options.run.executor is None and is_quick else executor_name(self._options.run.executor)
        )

    @cached_property
    def _reads_footers(self) -> bool:
        """Whether this process reads many footers together, as starting Spark takes longer."""
        if self._options.verify or self._options.run.executor not in (None, "inline"):
            return False
        remote = sum(is_url(request.place) for request in self._requests)
        seconds = remote * _REMOTE_SECONDS + (len(self._requests) - remote) * _LOCAL_SECONDS
        return self._options.run.executor == "inline" or seconds < _MOST_SECONDS

    def _look(self, some: range) -> list[_NumberedLayer]:
        """The layers of files that are registered in place."""
        if not self._reads_footers:
            return self._look_at_each(some)
        requests = [self._requests[at] for at in some]
        together = look_together(requests, self._options.kind, self._each)
        arrivals = [(some[i], layer.arrived(requests[i])) for i, layers in together.items() for layer in layers]
        rest = [at for i, at in enumerate(some) if i not in together]
        return sorted([*arrivals, *self._look_at_each(rest)], key=lambda arrival: arrival[0])

    def _look_at_each(self, some: Sequence[int]) -> list[_NumberedLayer]:
        """The layers of files, with one task for each file."""
        requests = tuple(self._requests[at] for at in some)
        tasks = [Task(i, request.place, 0) for i, request in enumerate(requests)]
        body = LookBody(requests, self._options.kind, self._options.verify)
        ran = Stage(body, tasks).run(replace(self._options.run, executor=self._executor(copied=False)))
        warn_of(ran.notes, set())
        failed = {i: outcome for i, outcome in enumerate(ran.outcomes()) if isinstance(outcome, Exception)}
        for i, error in failed.items():
            self._outcomes.tell(some[i], {}, error)
        return [
            (some[note.task], FoundLayer.of(note).arrived(requests[note.task]))
            for note in ran.notes
            if note.kind == "layer" and note.task not in failed
        ]

    def _copy(self, some: range, staging: Staging) -> list[_NumberedLayer]:
        """Copy the chunks of files into the staging folder, and return their layers."""
        run = replace(self._options.run, executor=self._executor(copied=True))
        requests = [self._requests[at] for at in some]
        copies: list[_NumberedLayer] = []
        for at, layers in zip(
            some, copy_in(requests, self._options.kind, staging, str(self._folder.path), run), strict=True
        ):
            if isinstance(layers, Exception):
                self._outcomes.tell(at, {}, layers)
            else:
                copies += ((at, layer) for layer in layers)
        return copies

    def _commit(self, writer: StoreWriter, layers: Sequence[_NumberedLayer], staging: Staging | None) -> None:
        """Publish a group as one version, and report the outcome of each file."""
        layers = self._each_once(layers)
        if not layers:
            return
        rule = _Rule(SchemaFiles(self._folder), self._options, self._check)
        with contextlib.suppress(_NothingLeftError):
            writer.commit(staging, [layer for _, layer in layers], Commit("register"), rule=rule)
            if self._options.times:
                self._make_times(writer, {layer.key for _, layer in layers})
        self._tell(layers, rule)

    def _make_times(self, writer: StoreWriter, keys: set[Key]) -> None:
        """Store the times of the committed recordings. A failure is a warning, as the recordings are registered."""
        try:
            make_times(writer, replace(self._options.run, executor=self._executor(copied=True)), keys)
        except ChunkmillError as error:
            warnings.warn(f"no times were stored: {error}", ReadWarning, stacklevel=2)

    def _each_once(self, layers: Sequence[_NumberedLayer]) -> list[_NumberedLayer]:
        """Leave out, and report, files with the same layer and segment as an earlier file of the request."""
        twice = set()
        for at, layer in layers:
            key = (layer.store.kind, layer.store.recording_id, layer.layer)
            if key in self._seen:
                twice.add(at)
                text = f"another file of the request has segment '{key[1]}', layer '{key[2]}'"
                self._outcomes.tell(at, {}, UsageError(text, path=self._requests[at].place))
            self._seen.add(key)
        return [(at, layer) for at, layer in layers if at not in twice]

    def _tell(self, layers: Sequence[_NumberedLayer], rule: _Rule) -> None:
        files: dict[int, dict[str, bool]] = {}
        errors: dict[int, ChunkmillError] = {}
        for at, layer in layers:
            files.setdefault(at, {})[layer.store.recording_id] = layer.key in rule.replaced
            if layer.key in rule.refused:
                errors.setdefault(at, rule.refused[layer.key])
        for at, segments in files.items():
            if at in errors:
                self._outcomes.tell(at, {}, errors[at])
            else:
                self._outcomes.tell(at, segments)


RegistrationOperation = RegistrationHandle
"""The name of the class in Rerun 0.41 and newer."""


class UnregistrationHandle:
    """The handle of a finished removal of layers. ``removed`` has the segment id and name of each layer."""

    def __init__(self, removed: Sequence[tuple[str, str]] = ()) -> None:
        self.removed = list(removed)

    def wait(self, timeout_secs: float | None = None) -> None:
        """Return at once."""

    def cancel(self) -> None:
        """Do nothing: the removal is done."""

    def __repr__(self) -> str:
        return "UnregistrationHandle()"


def unregister(
    folder: RecordingsFolder, kind: str, segments: Sequence[str], layers: Sequence[str]
) -> list[tuple[str, str]]:
    """Remove layers by segment ids and layer names, where an empty list means all; return the removed layers."""
    writer = StoreWriter(folder)
    meant: list[RecordingEntry] = []

    def gone(
        live: LiveEntries, version: RecordingsVersion | None, entries: Sequence[RecordingEntry]
    ) -> Sequence[RecordingEntry]:
        del version, entries
        wanted = dict.fromkeys(segments) or dict.fromkeys(live.columns("recording_id")["recording_id"].to_pylist())
        candidates = (entry for segment in wanted for entry in live.of_recording(segment, kind))
        meant[:] = [entry for entry in candidates if not layers or entry.layer in layers]
        if not meant:
            raise _NothingLeftError
        return [removal_of(entry) for entry in meant]

    with contextlib.suppress(_NothingLeftError):
        writer.publish([], Commit("unregister"), rule=gone)
    return [(entry.recording_id, entry.layer) for entry in meant]


class _NothingLeftError(Exception):
    """A group has nothing left to publish."""


class _Rule:
    """The rule that selects the layers of a group that may be published after a version.

    It leaves out existing layers that are to stay, and layers with conflicting types. An error refuses all layers of
    its file. ``refused`` has the refused layers, each with its error, and ``replaced`` the replaced ones, of the last
    call.
    """

    def __init__(self, schemas: SchemaFiles, options: RegistrationOptions, check: Callable[[], object]) -> None:
        self._schemas = schemas
        self._check = check
        self._kind = options.kind
        self._on_duplicate = options.on_duplicate
        self._assets = options.assets
        self.refused: dict[Key, ChunkmillError] = {}
        self.replaced: set[Key] = set()

    def __call__(
        self, live: LiveEntries, version: RecordingsVersion | None, entries: Sequence[RecordingEntry]
    ) -> Sequence[RecordingEntry]:
        """The entries that may be added. Raises ``NotFoundError`` if the dataset was deleted meanwhile."""
        del version
        self._check()
        self.refused, self.replaced = {}, set()
        union = SchemaUnion(self._schemas, live.schemas(self._kind))
        accepted: list[RecordingEntry] = []
        segments = set(live.columns("recording_id")["recording_id"].to_pylist()) if self._assets else set()
        for _, some in groupby(entries, key=lambda entry: (entry.source, entry.layer)):
            of_file = list(some)
            try:
                if self._assets:
                    _check_assets(of_file, segments)
                new, gone = self._new(of_file, live)
                layers = [NewLayer(e.recording_id, e.layer, e.source, e.schema) for e in new if e.schema is not None]
                union = union.with_layers(layers, [old.schema for old in gone])
            except (AlreadyExistsError, SchemaConflictError, UsageError) as error:
                self.refused |= dict.fromkeys((entry.key for entry in of_file), error)
                continue
            segments |= {entry.recording_id for entry in new}
            accepted += new
            self.replaced |= {old.key for old in gone}
        if not accepted:
            raise _NothingLeftError
        return accepted

    def _new(
        self, of_file: Sequence[RecordingEntry], live: LiveEntries
    ) -> tuple[list[RecordingEntry], list[RecordingEntry]]:
        """The entries of a file to add, and the entries that they replace."""
        existing = [live.get(entry.key) for entry in of_file]
        if self._on_duplicate is OnDuplicateSegmentLayer.ERROR:
            for entry, old in zip(of_file, existing, strict=True):
                if old is not None:
                    raise layer_exists(entry.recording_id, entry.layer, entry.source)
        if self._on_duplicate is OnDuplicateSegmentLayer.SKIP:
            return [entry for entry, old in zip(of_file, existing, strict=True) if old is None], []
        return list(of_file), [old for old in existing if old is not None]


def _check_assets(of_file: Sequence[RecordingEntry], existing_ids: Set[str]) -> None:
    """Raise ``UsageError`` if a dataset of assets cannot take the recordings of a file."""
    for entry in of_file:
        about = f"asset '{entry.recording_id}'"
        if entry.ranges:
            text = f"asset datasets only accept static chunks, but {about} contains temporal data"
            raise UsageError(text, path=entry.source)
        if entry.bytes > _MOST_ASSET_BYTES:
            text = f"{about} has {entry.bytes:,} bytes, more than the limit of {_MOST_ASSET_BYTES:,} for an asset"
            raise UsageError(text, path=entry.source)
    if len(existing_ids | {entry.recording_id for entry in of_file}) > _MOST_ASSETS:
        raise UsageError(
            f"this asset dataset already holds the maximum of {_MOST_ASSETS} assets",
            path=of_file[0].source,
            hint="Unregister one first.",
        )
