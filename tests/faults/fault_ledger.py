"""The account at the end of a case: what should be there, once each, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from chunkmill.engine.ingest.quarantine import FileQuarantine
from chunkmill.engine.recordings.folder import RecordingsFolder
from chunkmill.engine.store import RecordingStore
from fault_content import digest_of_path, kept_content, rrd_contents
from fault_driver import Drive
from fault_world import GOOD, POISON, REPLACED, STORY, Template, landed_names


def account(drive: Drive, template: Template, *, spoilt: bool) -> list[str]:
    """What is wrong. ``spoilt``: the planned failure put a file into quarantine, which then was tried again."""
    return [
        *_recordings(drive, template),
        *_quarantine(drive, spoilt=spoilt),
        *_sources(drive, template),
        *_rrds(drive, template),
        *_versions(drive, spoilt=spoilt),
    ]


def _recordings(drive: Drive, template: Template) -> Iterator[str]:
    expected = Counter(template.digests[name] for name in _final(drive))
    store = RecordingStore.open(drive.home)
    found: dict[str, list[str]] = {}
    for entry in store:
        contents = found.setdefault(entry.source_digest, [])
        contents.append(kept_content(store, entry) if drive.into else "")
    for digest in expected:
        name = next(n for n, d in template.digests.items() if d == digest)
        if digest not in found:
            yield f"{name} is lost"
        elif drive.into and sorted(found[digest]) != template.known[digest]:
            yield f"{name} is there {len(found[digest])} times, or differs from what it is converted to"
        elif len(found[digest]) != len(template.known[digest]):
            yield f"{name} became {len(found[digest])} recordings"
    for digest in found.keys() - expected.keys():
        yield f"something is there that should not be: {digest}"


def _final(drive: Drive) -> list[str]:
    return [name for name in GOOD if drive.source_done != "keep" or name != REPLACED]


def _quarantine(drive: Drive, *, spoilt: bool) -> Iterator[str]:
    rows = FileQuarantine(drive.home).rows()
    expected = [str(drive.root / "landing" / POISON)]
    if sorted(row.path for row in rows) != expected:
        yield f"in quarantine are {[(Path(row.path).name, row.message) for row in rows]}"
    for row in rows:
        if row.tries != 1 and not spoilt:
            yield f"{row.path} was tried {row.tries} times"


def _sources(drive: Drive, template: Template) -> Iterator[str]:
    landing = drive.root / "landing"
    left = {str(p.relative_to(landing)) for p in landing.rglob("*") if p.is_file()}
    expected = set(landed_names()) if drive.source_done == "keep" else {POISON}
    if left != expected:
        yield f"in the landing folder are {sorted(left)}"
    if drive.source_done == "archive":
        archived = [p for p in (drive.root / "archive").rglob("*") if p.is_file()]
        found = Counter(digest_of_path(p) for p in archived)
        came = Counter(
            template.digests[source] for act in STORY for _, source in act if source not in (POISON, "torn.mcap")
        )
        if found != came:
            yield f"in the archive are {sorted(p.name for p in archived)}"


def _rrds(drive: Drive, template: Template) -> Iterator[str]:
    if not drive.rrds:
        return
    folder = drive.root / "rrds"
    named = {entry.rrd for entry in RecordingStore.open(drive.home)}
    there = {
        str(p.relative_to(folder)) for p in folder.rglob("*.rrd") if ".chunkmill" not in str(p.relative_to(folder))
    }
    if named != there:
        yield f"RRDs are {sorted(there)}; the store names {sorted(map(str, named))}"
    contents = sorted(content for name in there for content in rrd_contents(folder / name))
    if contents != sorted(c for name in _final(drive) for c in template.known[template.digests[name]]):
        yield "RRDs hold something else than the files"


def _versions(drive: Drive, *, spoilt: bool) -> Iterator[str]:
    version = RecordingStore.open(drive.home).version
    if spoilt:
        return
    expected = {"added": 6, "duplicate": 1, "quarantined": 2}
    if drive.source_done == "keep":
        expected = {"added": 5, "replaced": 1, "duplicate": 1, "quarantined": 2}
    if version.operation == "ingest" and dict(version.totals) != expected:
        yield f"the store counts {dict(version.totals)} files"
    if list(version.batches.values()) != [3]:
        yield f"the store knows the batches {dict(version.batches)}"


def left_over(drive: Drive) -> list[str]:
    """What lies about after a vacuum that nothing names."""
    folder = RecordingsFolder(drive.home)
    versions = folder.versions()
    tables = {table for version in versions for table in version.tables}
    entries = folder.entries(sorted(tables))
    named = {
        "versions": {f"{version.number:08d}.json" for version in versions},
        "tables": {table.name for table in tables},
        "manifests": {entry.manifest for entry in entries if entry.manifest},
        "shards": {shard for entry in entries for shard in entry.shards},
        "schemas": {f"{entry.schema}.arrow" for entry in entries if entry.schema},
        "writers": set[str](),
    }
    wrong = []
    for name, expected in named.items():
        there = {p.name for p in (drive.home / name).iterdir()}
        if there != expected:
            wrong.append(f"{name}: {sorted(there - expected)} are named by nothing, {sorted(expected - there)} missing")
    usual = {*named, "quarantine", "ingest", "lease"}
    wrong += [f"{p} is left over" for p in drive.home.iterdir() if p.name not in usual]
    for below in (drive.home, drive.root / "rrds", drive.root / "archive", drive.root / "landing"):
        marks = (".chunkmill-", ".draft", ".open", ".tmp")
        found = [p for p in below.rglob("*") if any(mark in p.name for mark in marks)]
        wrong += [f"{p.relative_to(drive.root)} is left over" for p in found if "_versions" not in p.parts]
    return wrong
