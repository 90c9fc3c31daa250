"""One batch: files into recordings, laid out by a profile, and committed as one version of the store.

Small recordings are laid out in one stage, large ones in two. If RRDs are wanted, it names and writes these, too.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath, PurePosixPath
from typing import Final

from ...readers import rrd_suffix, stem_of
from ..doctor import Finding, PipedRecording, examine
from ..errors import (
    ChunkmillError,
    FaultyDataError,
    ReadWarning,
    SameRecordingError,
    SchemaConflictError,
    WriteError,
    writing,
)
from ..execution import (
    Folder,
    Group,
    Outputs,
    RrdCommit,
    RunOptions,
    Staging,
    extents_in_order,
    is_of_all,
)
from ..faults import reach
from ..inputs import SourceOptions, stores_of
from ..locations import Location, exists, located
from ..optimisation import OptimizationProfile, run_laid_out
from ..recordings import (
    Arrived,
    Commit,
    Key,
    LiveEntries,
    Origin,
    RecordingEntry,
    RecordingsVersion,
    Rule,
    StoreWriter,
    key_of,
)
from ..rrd import RrdFile, StoreEntry
from ..stream import plan_outputs
from .files import (
    BatchResult,
    Claims,
    DatasetRules,
    Displacement,
    Disposal,
    FileResult,
    LandedFile,
    LandingFolder,
    Outcome,
    digest_files,
    displacement_of,
    file_at,
)
from .quarantine import FileQuarantine

_NAMESPACE: Final = uuid.UUID("6f5c2a5e-9d0b-4f0e-9a53-6f0d3f1c7a11")
DIAGNOSE: Final = ("warn", "quarantine")
"""The policies for files with faulty data: store them with warnings, or do not store those with errors."""
_MOST_SAID: Final = 10
"""The most findings of a file that are reported; a diagnosis of the file gives all."""
_PAUSES: Final = (0.5, 2.0)
"""Seconds before each retry of a file that failed for a transient reason."""


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The choices of an ingestion: how files are read and run, and where their recordings go.

    ``rrds``: the folder of RRDs, if they are wanted; ``keep_chunks``: whether the store takes the chunks;
    ``replace_same_id``: whether a recording takes the place of another file's with the same id, or is refused.
    ``dataset``: the store's dataset in a catalog, with one type for each column; it may be deleted meanwhile.
    ``diagnose``: the policy for files with faulty data, one of :data:`DIAGNOSE`; None: no diagnosis.
    """

    source: Location
    reading: SourceOptions
    run: RunOptions
    profile: OptimizationProfile | None
    keep_chunks: bool
    rrds: Location | None
    replace_same_id: bool = False
    dataset: os.PathLike[str] | None = None
    diagnose: str | None = None


@dataclass
class _File:
    """A file on its way through a batch."""

    file: LandedFile
    digest: str | None = None
    outputs: Outputs = ()
    replaces: list[RecordingEntry] = field(default_factory=list)
    group: Group | None = None
    result: FileResult | None = None
    findings: tuple[Finding, ...] | None = None
    twin: _File | None = None
    """The file of the same batch that has the same content, and came first."""

    def end(self, outcome: Outcome, error: Exception | None = None) -> None:
        """Set the outcome of a file that gives no recording."""
        said = None if error is None else error_record(error)
        self.result = FileResult(self.file, outcome, self.digest, error=said, findings=self.findings or ())

    @property
    def is_open(self) -> bool:
        """Whether it is still on its way."""
        return self.result is None

    @property
    def is_duplicate(self) -> bool:
        """Whether the store has its content already."""
        return self.result is not None and self.result.outcome is Outcome.DUPLICATE


class BatchRunner:
    """Runs the batches of one query, one after the other.

    Before the commit, ``landing`` learns which files of a batch had vanished or changed: it offers them again if they
    come back.
    """

    def __init__(
        self,
        query_id: str,
        writer: StoreWriter,
        options: BatchOptions,
        quarantine: FileQuarantine,
        disposal: Disposal,
        landing: LandingFolder,
    ) -> None:
        self._query_id = query_id
        self._writer = writer
        self._options = options
        self._quarantine = quarantine
        self._disposal = disposal
        self._landing = landing
        self._dataset = DatasetRules(options.dataset, writer.folder)
        self._dataset.check()

    def run(self, number: int, files: Sequence[LandedFile]) -> BatchResult:
        """Ingest the files of batch ``number`` into the store; a committed batch is left unchanged.

        A file that fails goes into quarantine and stops nothing. Raises ``WriteError``, ``SessionError`` and the like
        if the batch as a whole failed; another run completes it.
        """
        while True:
            with contextlib.suppress(_OvertakenError):
                return self._run_once(number, files)

    def _run_once(self, number: int, files: Sequence[LandedFile]) -> BatchResult:
        began = time.perf_counter()
        if self._writer.is_done(self._query_id, number):
            self.finish(files)
            return BatchResult(self._query_id, number, self._writer.number, seconds=0.0, replayed=True)
        self._dataset.check()
        reach("batch.begin")
        home = self._writer.folder.path
        candidates = [_File(file) for file in files]
        with Staging.beside(home / "batch") as staging:
            before = self._writer.live
            self._look(candidates)
            displaced = self._displaced(candidates)
            self._run(candidates, staging)
            reach("batch.run")
            self._look_again(candidates)
            self._check_schemas(candidates)
            while self._has_heirs(candidates):
                displaced = self._displaced(candidates)
                self._run(candidates, staging)
                self._look_again(candidates)
                self._check_schemas(candidates)
            arrived = self._arrived(candidates, staging)
            failed = [f.result for f in candidates if f.result is not None and f.result.outcome is Outcome.QUARANTINED]
            self._writer.check()
            self._quarantine.note(self._query_id, number, failed)
            reach("batch.quarantine")
            results = [self._result(f) for f in candidates]
            through = [r.file for r in results if r.outcome in (Outcome.ADDED, Outcome.REPLACED, Outcome.DUPLICATE)]
            gone = displaced.gone_with(results, through)
            self._forget(number, results, displaced.doubtful if gone else [])
            counts = Counter(result.outcome.value for result in results)
            size = sum(f.file.size for f in candidates)
            commit = Commit("ingest", self._query_id, number, dict(counts), size, began)
            moved = tuple(displaced.moved.values())
            claims = Claims({f.file.path: f.digest for f in candidates}, arrived, displaced)
            rule = self._rule(number, claims, before, displaced)
            self._writer.commit(staging, arrived, commit, moved=moved, gone=gone, rule=rule)
            reach("batch.commit")
            self._let_go(through)
            reach("staging.remove")
        return BatchResult(
            self._query_id, number, self._writer.number, tuple(results), seconds=time.perf_counter() - began
        )

    def _rule(self, number: int, claims: Claims, before: LiveEntries, displaced: Displacement) -> Rule:
        """Return a check that a commit's base answers ``claims`` as ``before`` does; else the batch runs again."""
        seen, schemas = claims.answers(before), self._dataset.schemas(before)

        def rule(
            live: LiveEntries, version: RecordingsVersion | None, entries: Sequence[RecordingEntry]
        ) -> Sequence[RecordingEntry]:
            done = version.batches.get(self._query_id, 0) if version else 0
            if done >= number or claims.answers(live) != seen:
                raise _OvertakenError
            self._dataset.check()
            if self._dataset.schemas(live) != schemas and not self._dataset.takes(entries, displaced, live):
                raise _OvertakenError
            return entries

        return rule

    def finish(self, files: Sequence[LandedFile]) -> None:
        """Complete a run of a batch with these files that was interrupted right after its commit.

        Files whose content is in the store leave the quarantine, and are disposed of.
        """
        held = self._quarantine.held([file.path for file in files])
        asked = [file for file in files if file.path in held or not self._disposal.keeps]
        unchanged = [file for file in asked if file_at(file.path) == file]
        digests = zip(unchanged, digest_files(unchanged, self._options.run), strict=True)
        through = [f for f, digest in digests if isinstance(digest, str) and self._writer.live.of_digest(digest)]
        self._let_go(through)

    def _let_go(self, through: Sequence[LandedFile]) -> None:
        """Take files whose content is in the store out of quarantine, and dispose of them."""
        self._quarantine.resolve([file.path for file in through])
        for file in through:
            self._disposal.dispose(file)

    def _forget(self, number: int, results: Sequence[FileResult], more: Sequence[str]) -> None:
        vanished = [r.file.path for r in results if r.outcome is Outcome.VANISHED]
        self._landing.forget(number, [*vanished, *more], [r.file for r in results if r.outcome is Outcome.CHANGED])

    # --- before

    def _look(self, candidates: Sequence[_File]) -> None:
        """End files that vanished, changed, or are duplicates under another name."""
        for candidate in candidates:
            self._check_unchanged(candidate)
        still = [f for f in candidates if f.is_open]
        first: dict[str, _File] = {}
        for candidate, digest in zip(still, digest_files([f.file for f in still], self._options.run), strict=True):
            if isinstance(digest, Exception):
                self._check_unchanged(candidate)
                if candidate.is_open:
                    candidate.end(Outcome.QUARANTINED, digest)
                continue
            candidate.digest = digest
            candidate.twin = first.setdefault(digest, candidate)
            if candidate.twin is not candidate or self._writer.live.of_digest(digest):
                candidate.end(Outcome.DUPLICATE)

    def _displaced(self, candidates: Sequence[_File]) -> Displacement:
        """Find the recordings that came from the same names, and set them as ``replaces`` of each file."""
        batch = {f.file: f.digest for f in candidates if f.digest and (f.is_open or f.is_duplicate)}
        displaced = displacement_of(batch, self._writer.live, self._landing, kept=self._disposal.keeps)
        for candidate in candidates:
            candidate.replaces = [e for e in displaced.gone.values() if e.source == candidate.file.path]
        return displaced

    def _check_unchanged(self, candidate: _File) -> None:
        now = file_at(candidate.file.path)
        if now != candidate.file:
            candidate.end(Outcome.VANISHED if now is None else Outcome.CHANGED)

    def _look_again(self, candidates: Sequence[_File]) -> None:
        """End files that changed while they were read: neither their recordings nor their errors count."""
        for candidate in candidates:
            if candidate.is_open or (candidate.result is not None and candidate.result.outcome is Outcome.QUARANTINED):
                self._check_unchanged(candidate)

    def _check_schemas(self, candidates: Sequence[_File]) -> None:
        """End files with a column of another type than in the dataset, or in earlier files of the batch."""
        union = self._dataset.union(self._writer.live)
        for candidate in candidates:
            if union is None or not candidate.is_open or candidate.group is None:
                continue
            try:
                union = self._dataset.joined(
                    union, candidate.file, candidate.group, candidate.replaces, self._writer.live
                )
            except SchemaConflictError as error:
                candidate.end(Outcome.QUARANTINED, error)

    def _has_heirs(self, candidates: Sequence[_File]) -> bool:
        """Reopen the first duplicate of each file that failed; return whether there are any."""
        heirs: dict[str, _File] = {}
        for candidate in candidates:
            if candidate.twin is None or candidate.twin is candidate or candidate.digest is None:
                continue
            if candidate.twin.result is not None and candidate.twin.result.outcome is not Outcome.DUPLICATE:
                heir = heirs.setdefault(candidate.digest, candidate)
                candidate.twin = heir
                if heir is candidate:
                    candidate.result = None
        return bool(heirs)

    # --- running

    def _run(self, candidates: Sequence[_File], staging: Staging) -> None:
        planned = [f.group for f in candidates if f.is_open and f.group is not None]
        ids = {key_of(store) for group in planned for store, _ in group.chunks}
        for candidate in candidates:
            if candidate.is_open and candidate.group is None:
                self._plan(candidate, ids)
        self._diagnose([f for f in candidates if f.is_open and f.group is None])
        todo = [f for f in candidates if f.is_open and f.group is None]
        for pause in (*_PAUSES, None):
            again: list[_File] = []
            groups = self._into_parts(todo, staging)
            if any(isinstance(group, Exception) for group in groups):
                staging.check()
            for candidate, group in zip(todo, groups, strict=True):
                if isinstance(group, Group):
                    candidate.group = group
                    for text in group.warnings[:_MOST_SAID]:
                        said = text if candidate.file.path in text else f"{candidate.file.path}: {text}"
                        warnings.warn(said, ReadWarning, stacklevel=2)
                elif is_of_all(group):
                    raise group
                elif pause is not None and getattr(group, "transient", False):
                    again.append(candidate)
                else:
                    candidate.end(Outcome.QUARANTINED, self._explained(group))
            if not again or pause is None:
                return
            time.sleep(pause)
            todo = again

    def _into_parts(self, todo: Sequence[_File], staging: Staging) -> list[Group | Exception]:
        destination = str(self._writer.folder.path)
        options = self._options
        return run_laid_out([f.outputs for f in todo], options.profile, staging, destination, options.run)

    def _diagnose(self, candidates: Sequence[_File]) -> None:
        """Examine recordings as the pipeline gives them, before they are laid out."""
        if self._options.diagnose is None:
            return
        todo = [candidate for candidate in candidates if candidate.findings is None]
        for pause in (*_PAUSES, None):
            again: list[_File] = []
            for candidate, result in self._examined(todo):
                if not isinstance(result, Exception):
                    self._judge(candidate, result)
                elif is_of_all(result):
                    raise result
                elif pause is not None and getattr(result, "transient", False):
                    again.append(candidate)
                elif self._options.diagnose == "quarantine":
                    candidate.end(Outcome.QUARANTINED, self._explained(result))
                else:
                    text = f"{candidate.file.path}: could not be examined: {result}"
                    warnings.warn(text, ReadWarning, stacklevel=2)
            if not again or pause is None:
                return
            time.sleep(pause)
            todo = again

    def _examined(self, candidates: Sequence[_File]) -> Iterator[tuple[_File, list[Finding] | Exception]]:
        """The findings of each file, or the error of its diagnosis."""
        recordings = [
            (candidate, PipedRecording(store.recording_id, work, candidate.file.size))
            for candidate in candidates
            for store, work in candidate.outputs
            if store.kind == "recording"
        ]
        findings: dict[str, list[Finding] | Exception] = {candidate.file.path: [] for candidate in candidates}
        results = examine([recording for _, recording in recordings], self._options.run)
        for (candidate, recording), result in zip(recordings, results, strict=True):
            path = candidate.file.path
            said = findings[path]
            if isinstance(result, Exception):
                findings[path] = result
            elif not isinstance(said, Exception):
                said += [finding.within(path, recording.recording_id) for finding in result.findings]
        return ((candidate, findings[candidate.file.path]) for candidate in candidates)

    def _judge(self, candidate: _File, findings: Sequence[Finding]) -> None:
        """Warn of findings, and end a file with errors if that is wanted."""
        candidate.findings = tuple(findings)
        for finding in findings[:_MOST_SAID]:
            warnings.warn(f"{finding.source}: {finding}. {finding.hint}", ReadWarning, stacklevel=2)
        errors = [finding for finding in findings if finding.severity == "error"]
        if errors and self._options.diagnose == "quarantine":
            candidate.end(Outcome.QUARANTINED, _faulty(errors))

    def _plan(self, candidate: _File, ids: set[Key]) -> None:
        """Open a file, and plan its outputs."""
        assert candidate.digest is not None
        location = located(candidate.file.path)
        name = str(uuid.uuid5(_NAMESPACE, candidate.digest))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ReadWarning)
                stores = stores_of(location, name, self._options.reading)
            candidate.outputs = plan_outputs(stores, executor=self._options.run.executor)
            mine = {key_of(store) for store, _ in stores}
            self._check_ids(candidate, mine, ids)
            ids |= mine
        except WriteError:
            raise
        except Exception as error:  # noqa: BLE001 (the file's own)
            candidate.end(Outcome.QUARANTINED, self._explained(error))

    def _check_ids(self, candidate: _File, mine: set[Key], ids: set[Key]) -> None:
        """Raise ``SameRecordingError`` if another file has a recording of the same id that is not replaced."""
        for key in mine:
            existing = self._writer.live.get(key)
            if key in ids:
                raise _refusal(candidate, key, "another file of the same batch")
            if existing is not None and existing not in candidate.replaces and not self._options.replace_same_id:
                if key[0] == "blueprint":
                    continue  # the newest blueprint of an application is the one to be used
                raise _refusal(candidate, key, existing.source)

    def _explained(self, error: Exception) -> Exception:
        pipeline = self._options.reading.pipeline
        return error if pipeline is None else pipeline.explained(error)

    # --- after

    def _arrived(self, candidates: Sequence[_File], staging: Staging) -> list[Arrived]:
        """The recordings to be committed. RRDs are written here."""
        names: RrdNames | None = None
        arrived: list[Arrived] = []
        for candidate in candidates:
            if not candidate.is_open:
                continue
            assert candidate.group is not None
            assert candidate.digest is not None
            rrd = None
            if self._options.rrds is not None:
                names = names or RrdNames(self._options.source, self._options.rrds, self._writer.live)
                rrd = names.name_for(
                    candidate.file, candidate.digest, [s for s, _ in candidate.group.chunks], candidate.replaces
                )
                self._write_rrd(candidate.group, self._options.rrds, rrd, staging)
            file = candidate.file
            source = Origin(file.path, file.size, file.modified_ns, candidate.digest, kept=self._disposal.keeps)
            keep = self._options.keep_chunks
            arrived += [Arrived(store, source, chunks, rrd, keep) for store, chunks in candidate.group.chunks]
        return arrived

    def _write_rrd(self, group: Group, folder: Location, name: str, staging: Staging) -> None:
        target = folder / name
        with writing(str(target)):
            Folder.at(target.parent).make()
        # Beside its destination, as the rename must stay within one file system.
        with Staging.beside(target) as beside:
            place = staging.folder.place
            chunks = [
                replace(c, task=i, part=place(c.part))
                for i, (_, part_chunks) in enumerate(group.chunks)
                for c in part_chunks
            ]
            stores = [store for store, _ in group.chunks]
            RrdCommit(beside, target, stores).finish(stores, extents_in_order(chunks))

    def _result(self, candidate: _File) -> FileResult:
        if candidate.result is not None:
            return candidate.result
        assert candidate.group is not None
        chunks = [c for _, part_chunks in candidate.group.chunks for c in part_chunks]
        return FileResult(
            candidate.file,
            Outcome.REPLACED if candidate.replaces else Outcome.ADDED,
            candidate.digest,
            recordings=tuple(store.recording_id for store, _ in candidate.group.chunks if store.kind == "recording"),
            chunks=len(chunks),
            rows=sum(c.entry.header.num_rows for c in chunks),
            bytes_out=sum(c.entry.size for c in chunks),
            findings=candidate.findings or (),
        )


class _OvertakenError(Exception):
    """Another writer has changed the state on which this batch is based."""


def error_record(error: Exception) -> dict[str, object]:
    """An error as JSON data, whatever it is."""
    if isinstance(error, ChunkmillError):
        return error.to_dict()
    return ChunkmillError(f"{type(error).__name__}: {error}").to_dict()


def _refusal(candidate: _File, key: Key, other: str) -> ChunkmillError:
    return SameRecordingError(
        f"a {key[0]} with the id {key[2]!r} is already in the store; it came from {other}",
        path=candidate.file.path,
        hint="Nothing of this file was ingested. Give one of the two another id; or ingest with --replace-same-id, and "
        "retry this file with `chunkmill quarantine retry`.",
    )


def _faulty(errors: Sequence[Finding]) -> ChunkmillError:
    more = f"; and {len(errors) - _MOST_SAID:,} more" if len(errors) > _MOST_SAID else ""
    return FaultyDataError(
        "; ".join(map(str, errors[:_MOST_SAID])) + more,
        path=errors[0].source,
        hint=f"{errors[0].hint} To ingest the file as it is, use --diagnose warn, and retry it with `chunkmill "
        "quarantine retry`.",
    )


class RrdNames:
    """Gives each file of a batch an RRD in ``folder``: its own name below the landing folder, with another suffix.

    No two recordings get the same name, and foreign files in the folder are not overwritten. A replayed batch gives the
    same names: the recordings' ids identify a file that a crashed run left under a name.
    """

    def __init__(self, source: Location, folder: Location, live: LiveEntries) -> None:
        self._source = source
        self._folder = folder
        self._live = live
        self._taken: set[str] = set()

    def name_for(self, file: LandedFile, digest: str, stores: list[StoreEntry], replaces: list[RecordingEntry]) -> str:
        """The name, relative to the folder. ``replaces``: the recordings of the file's earlier content."""
        ours = {e.rrd for e in replaces}
        for name in self._candidates(file, digest):
            if name in self._taken:
                continue
            existing = self._live.of_rrd(name)
            free = name in ours if existing is not None else self._is_free(name, stores)
            if free:
                self._taken.add(name)
                return name
        raise AssertionError("the last candidate is free")  # pragma: no cover

    def _candidates(self, file: LandedFile, digest: str) -> Iterator[str]:
        below = _below(self._source, file.path)
        suffix = rrd_suffix(below.name)
        yield str(below.with_name(f"{stem_of(below.name)}{suffix}"))
        yield f"{below}{suffix}"
        yield str(below.with_name(f"{stem_of(below.name)}-{digest[:8]}{suffix}"))
        yield str(below.with_name(f"{stem_of(below.name)}-{digest}{suffix}"))

    def _is_free(self, name: str, stores: list[StoreEntry]) -> bool:
        """Return whether the name is free, or its file was written for the same recordings by an interrupted run."""
        place = self._folder / name
        if not exists(place):
            return True
        try:
            written = RrdFile(place).stores()
        except Exception:  # noqa: BLE001 (whatever it is, it is not ours)
            return False
        return {s.recording_id for s in stores} == {s.recording_id for s in written}


def _below(source: Location, path: str) -> PurePath:
    root = str(source).rstrip("/")
    below = PurePosixPath(path[len(root) + 1 :]) if path.startswith(root + "/") else PurePosixPath(path).name
    parts = [part for part in PurePosixPath(below).parts if part not in ("/", "..")]  # keys of objects may hold them
    return PurePosixPath(*parts) if parts else PurePosixPath("recording")
