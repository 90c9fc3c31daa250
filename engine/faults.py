"""Fault points: named places at which tests can interrupt a durable step.

``reach("version.publish")`` does nothing, unless the environment variable ``CHUNKMILL_FAULTS`` plans a fault for that
point: ``POINT:KIND[:NTH]``, separated by commas. Kinds: ``kill`` (SIGKILL to this process), ``exception`` (a
``RuntimeError``), ``enospc`` (the ``OSError`` of a full disk), ``torn`` (the file that was just written is cut to half
its length, then SIGKILL), ``stop`` (SIGTERM; the run continues). The plan fires at the ``NTH`` time (default 1) that
any process of the run reaches the point; hits are counted in the folder ``CHUNKMILL_FAULTS_LOG``, in which every
reached point leaves a file with its name.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PLAN: Final = "CHUNKMILL_FAULTS"
LOG: Final = "CHUNKMILL_FAULTS_LOG"

POINTS: Final[Mapping[str, str]] = {
    "part.write": "a task has written its part, which is not synced and has no name yet",
    "part.rename": "a task's part has its name",
    "announce.write": "a run is announced, but has no file yet",
    "announce.clear": "a run is over, its announcement is about to be removed",
    "shard.write": "a shard is written and synced, and has no name yet",
    "shard.rename": "a shard is in the store's folder, but no version names it",
    "manifest.write": "the manifest of a batch exists",
    "schema.write": "the schema of a layer exists",
    "table.write": "the table of a batch's recordings exists",
    "version.draft": "a version is written under another name",
    "version.publish": "a version has its number, its folder is not synced",
    "version.rebase": "another writer took a version's number; the table of the version is removed",
    "version.done": "a version is final",
    "entry.draft": "a version of a catalog's entries is written under another name",
    "entry.publish": "a version of a catalog's entries has its number, its folder is not synced",
    "entry.prune": "old versions of a catalog's entries are about to be removed",
    "search.rows": "the rows of a search index are in files that nothing names",
    "search.index": "a search index is made, and not in use",
    "search.draft": "a version of a dataset's search indexes is written under another name",
    "search.publish": "a version of a dataset's search indexes has its number, its folder is not synced",
    "lance.create": "a table of a catalog is made, and has no entry yet",
    "lance.rows": "all rows of a write to a table were handed over, no version has them",
    "lance.fragments": "tasks have written the rows of a DataFrame to a table's files, no version has them",
    "lance.merge": "the rows of an upsert are written, no version has them",
    "lance.commit": "a version of a table exists, its writer does not know it",
    "lance.digests": "a version of a table exists, its digests are written under another name",
    "lance.compact": "the small fragments of a table are written as larger ones, no version has these",
    "lance.cleanup": "old versions of a table are removed",
    "lance.remove": "an empty table without an entry is about to be removed",
    "upload.draft": "a part of an upload is written to a draft, which is incomplete and not synced",
    "upload.whole": "the draft of an upload is complete and synced; the file has no name yet",
    "upload.publish": "an upload has its name, and that of its draft, too; its folder is not synced",
    "upload.done": "an upload has only its final name; its client does not know it",
    "checkpoint.write": "a checkpoint of a computed column exists",
    "errors.write": "failures of a fragment or a batch are in a file that no job names",
    "column.write": "the file of a computed column of a fragment exists, no version names it",
    "checkpoint.file": "a checkpoint says which file has a whole fragment",
    "column.commit": "files of a computed column are about to be committed",
    "view.write": "rows of a view are in fragments that no version names",
    "view.commit": "the files of a refresh are about to be committed",
    "view.deletions": "the lists of removed rows of a view are written, but no version names them",
    "column.remove": "unused files of computed columns are about to be removed",
    "job.write": "the record of a job is written under another name",
    "rrd.write": "an RRD is written and synced, and has no name yet",
    "rrd.rename": "an RRD has its name",
    "landing.write": "an entry of the landing log is written under another name",
    "landing.append": "an entry of the landing log has its number",
    "landing.compact": "old entries of the landing log are merged into one file, and not removed yet",
    "batch.begin": "a batch has begun",
    "batch.run": "the tasks of a batch have run, nothing is committed",
    "batch.quarantine": "failures of a batch are in the quarantine table, its version is not there",
    "batch.commit": "the version of a batch exists, the query does not know it",
    "source.archive": "a source file is both in the archive and in the landing folder",
    "source.dispose": "a source file was archived or deleted, others of its batch not yet",
    "export.part": "a task has written an episode, which is in no dataset yet",
    "export.write": "a dataset is written in the staging folder, and not synced",
    "export.draft": "a dataset is whole and synced, and has no name yet",
    "export.publish": "a dataset has its name, the previous one is in the staging folder; the folder of both is not "
    "synced",
    "parquet.part": "a task has written a Parquet file, which is in no folder yet",
    "parquet.manifest": "the manifest of a folder of Parquet is written in the staging folder, and not synced",
    "parquet.draft": "a folder of Parquet is whole and synced, and has no name yet",
    "parquet.publish": "a folder of Parquet has its name; the folder above is not synced",
    "mcap.part": "a task has written chunks or runs of an MCAP, which are in no file yet",
    "mcap.write": "an MCAP is whole and synced in the staging folder, and has no name yet",
    "mcap.rename": "an MCAP has its name",
    "staging.remove": "a run is over, its staging folder is about to be removed",
    "lease.take": "the lease on a store is taken",
    "compact.run": "compaction has written its shards, nothing names them",
    "compact.commit": "the version of a compaction exists",
    "forget.begin": "the request to forget recordings is written, but nothing is removed",
    "forget.run": "shards and manifests without forgotten recordings are written, nothing names them",
    "forget.commit": "the version without forgotten recordings exists, nothing is removed",
    "forget.schemas": "unused copies of schemas exist, and are about to be removed",
    "forget.search": "search indexes without forgotten recordings are made; the old files are about to be removed",
    "forget.table": "a table has no rows of forgotten recordings; its old files are about to be removed",
    "forget.file": "a file of a forgotten recording is about to be removed",
    "forget.end": "a recording is forgotten completely, but the request still exists",
    "copy.plan": "the list of versions to copy is written, but no file of them",
    "copy.file": "a file of a copy has its name, but is not verified",
    "copy.version": "all files with content of a copy exist, not all versions of datasets and tables",
    "copy.draft": "the catalog's version of a copy is written under another name",
    "copy.entries": "the catalog's version of a copy has its number, its folder is not synced",
    "copy.publish": "a copy is whole, and not recorded as such",
    "copy.record": "the record of a copy is written under another name",
    "copy.tidy": "unused files of a copy are about to be removed",
    "vacuum.publish": "the version of a vacuum exists, nothing is removed",
    "vacuum.versions": "vacuum has removed old versions, but not their unused files",
    "vacuum.files": "vacuum has removed some files",
}
"""Every point, and the state in which it is reached."""


def reach(point: str, written: str | os.PathLike[str] | None = None) -> None:
    """Note that a durable step has reached ``point``; ``written`` is the file that a torn write would cut."""
    plan = os.environ.get(PLAN)
    log = os.environ.get(LOG)
    if plan is None and log is None:
        return
    if point not in POINTS:
        raise LookupError(f"there is no fault point {point!r}")
    count = _count(point, log)
    for item in (plan or "").split(","):
        name, _, rest = item.partition(":")
        kind, _, nth = rest.partition(":")
        if name == point and count == int(nth or 1):
            _fail(point, kind, written)


def _count(point: str, log: str | None) -> int:
    """Count a hit of the point, and return the sum of its hits: with a log, those of all processes."""
    if log is None:
        _here[point] = _here.get(point, 0) + 1
        return _here[point]
    handle = os.open(Path(log) / point, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, b".")
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


_here: dict[str, int] = {}


def _fail(point: str, kind: str, written: str | os.PathLike[str] | None) -> None:
    if kind == "exception":
        raise RuntimeError(f"planned failure at {point}")
    if kind == "enospc":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(written) if written else point)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGTERM)
        return
    if kind == "torn" and written is not None and Path(written).is_file():
        os.truncate(written, Path(written).stat().st_size // 2)
    elif kind not in ("kill", "torn"):
        raise ValueError(f"{point}: there is no kind of fault {kind!r}")
    os.kill(os.getpid(), signal.SIGKILL)
