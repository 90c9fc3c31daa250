"""Two processes that register recordings, one that ingests, one that compacts and vacuums: one store, all at once.

    python tests/faults/many_writers.py [--commits 50] [--files 30] [--where FOLDER|s3] [--seed 1]

The two register one recording a commit, half of them under ids that the other registers, too, and remove some; the
third ingests files in batches of one; the fourth compacts and vacuums until the others are done, and takes some of the
runs that it finds for dead. Nobody may be refused, or fail; at the end each recording that was registered last or
ingested is there, once, and reads as it was written; what was removed is not; a reader that opened the store again and
again never met a mix; and after a last vacuum nothing is left over. Prints ``N passed, M failed``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from chunkmill.engine import Ingest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import WriteError
from chunkmill.engine.execution import PartChunk, Staging
from chunkmill.engine.recordings import (
    Arrived,
    Commit,
    LiveEntries,
    Origin,
    RecordingEntry,
    RecordingsFolder,
    StoreWriter,
    removal_of,
    vacuum,
)
from chunkmill.engine.rrd import MessageWriter, StoreEntry
from chunkmill.engine.store import RecordingStore
from fault_runs import s3_bucket
from fault_world import recording

REGISTERING: Final = ("left", "right")
PATIENCE: Final = 300.0


@dataclass(frozen=True)
class Work:
    """What one process does, and where."""

    role: str
    home: str
    own: str
    commits: int
    seed: int


# --- registering


def chunk_of(value: int) -> Chunk:
    """A chunk that holds a number."""
    times = TimeColumn("tick", sequence=[0, 1])
    return Chunk.from_columns("/value", [times], [ComponentColumn("value", [float(value)] * 2)])


def arrived(staging: Staging, recording_id: str, value: int, who: str) -> Arrived:
    """A recording that holds a number."""
    store, file, name = StoreEntry("recording", "tests", recording_id), io.BytesIO(), f"part-{value}.rrd"
    writer = MessageWriter(file, store, path=name, digests=True, times=True)
    entry = writer.append(chunk_of(value))
    writer.flush()
    staging.folder.put(name, file.getvalue())
    return Arrived(
        store, Origin(f"{who}:{recording_id}", 1, 1, f"{value:032x}", kept=False), [PartChunk(0, 0, name, entry)]
    )


def register(work: Work) -> list[dict[str, Any]]:
    """Commit recordings one by one, and remove some; gives what was done, with the versions that say so."""
    draw = random.Random(f"{work.seed}:{work.role}")
    writer = StoreWriter(RecordingsFolder(work.home))
    done: list[dict[str, Any]] = []
    own = REGISTERING.index(work.role)
    for at in range(work.commits):
        value = 10 * at + own + 1
        name = f"{draw.choice((work.role, 'both'))}-{draw.randrange(work.commits)}"
        if draw.random() < 0.15:
            version = _removed(writer, name)
            done.append({"version": version, "id": name, "value": None})
            continue
        with Staging.beside(writer.folder.path / f"register-{work.role}") as staging:
            one = arrived(staging, name, value, work.role)
            version = writer.commit(staging, [one], Commit("register")).number
        done.append({"version": version, "id": name, "value": value})
    return done


def _removed(writer: StoreWriter, name: str) -> int:
    def rule(live: LiveEntries, _: object, __: object) -> Sequence[RecordingEntry]:
        return [removal_of(entry) for entry in live if entry.recording_id == name]

    writer.catch_up()
    return writer.publish([], Commit("unregister"), rule=rule).number


# --- the others


def ingest(work: Work) -> list[dict[str, Any]]:
    """Ingest files in batches of one."""
    landing = Path(work.own) / "landing"
    query = Ingest(
        landing,
        into=work.home,
        checkpoint=Path(work.own) / "checkpoint",
        executor="inline",
        settle=0,
        optimize=None,
        max_files_per_trigger=1,
        compact_every=5,
    ).start(once=True)
    if not query.await_termination(PATIENCE):
        raise TimeoutError("the ingestion does not end")
    return [{"batch": batch.number, "version": batch.version} for batch in query.recent]


def keep_up(work: Work) -> list[dict[str, Any]]:
    """Compact, vacuum, and read what is there, until the others are done."""
    draw = random.Random(f"{work.seed}:{work.role}")
    usual = vacuum.announced_runs
    times = {"compacted": 0, "vacuumed": 0, "busy": 0, "read": 0}

    def doubting(folder: RecordingsFolder) -> tuple[set[str], set[str]]:
        living, dead = usual(folder)
        taken = {run for run in living if draw.random() < 0.1}
        return living - taken, dead | taken

    with patch.object(vacuum, "announced_runs", doubting):
        while not (Path(work.own) / "stop").exists():
            if not RecordingsFolder(work.home).newest():
                continue
            for name, do in (
                ("compacted", lambda: RecordingStore.open(work.home).compact(executor="inline")),
                ("vacuumed", lambda: RecordingStore.open(work.home).vacuum(keep=3)),
            ):
                try:
                    do()
                    times[name] += 1
                except WriteError as error:
                    if "is writing here" not in str(error):  # the ingestion keeps the store up, too
                        raise
                    times["busy"] += 1
            times["read"] += _read(work.home)
    return [times]


def _read(home: str) -> int:
    """Read a version, whole, unless a vacuum was faster than that."""
    store = RecordingStore.open(home)
    try:
        values_in(store)
    except (OSError, RuntimeError):
        if RecordingsFolder(home).files.numbers()[0] <= store.version.number:
            raise
        return 0
    return 1


def values_in(store: RecordingStore) -> dict[str, float]:
    """What each registered recording holds."""
    found = {}
    for entry in store:
        chunks = [chunk.to_record_batch().to_pydict() for chunk in store.recording(entry)]
        if entry.source_digest.startswith("000000"):
            found[entry.recording_id] = chunks[0]["value"][0][0]
    return found


ROLES: Final[Mapping[str, Callable[[Work], list[dict[str, Any]]]]] = {
    "left": register,
    "right": register,
    "ingest": ingest,
    "keep up": keep_up,
}


def play(home: str, scratch: Path, commits: int, files: int, seed: int) -> list[str]:
    """Let all of them work, each in a process of its own; what went wrong."""
    (scratch / "landing").mkdir(parents=True)
    for number in range(files):
        recording(scratch / "landing" / f"{number}.rrd", number, rows=2)
    running = {}
    for role in ROLES:
        work = Work(role, home, str(scratch), commits, seed)
        log = (scratch / f"{role}.log").open("wb")
        arguments = [sys.executable, str(Path(__file__).resolve()), "--work", json.dumps(asdict(work))]
        running[role] = subprocess.Popen(arguments, stdout=log, stderr=log)
    wrong = []
    for role, process in running.items():
        if role == "keep up":
            (scratch / "stop").touch()
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code:
            wrong.append(f"{role} ended with {code}: {(scratch / f'{role}.log').read_text()[-3000:]}")
    return wrong or checked(home, scratch, files)


def said_by(scratch: Path, role: str) -> list[dict[str, Any]]:
    """What a process said that it has done."""
    said: list[dict[str, Any]] = json.loads((scratch / f"{role}.json").read_text())
    return said


def checked(home: str, scratch: Path, files: int) -> list[str]:
    """Replay what was done in the order of versions, and compare; what is wrong."""
    wrong = []
    done = sorted((one for role in REGISTERING for one in said_by(scratch, role)), key=lambda one: one["version"])
    numbers = [one["version"] for one in done] + [one["version"] for one in said_by(scratch, "ingest")]
    if len(set(numbers)) != len(numbers):
        wrong.append("two commits have one version")
    expected = {one["id"]: float(one["value"]) for one in done if one["value"] is not None}
    for name in list(expected):
        if [one["value"] for one in done if one["id"] == name][-1] is None:
            del expected[name]
        else:
            expected[name] = float([one["value"] for one in done if one["id"] == name][-1])
    RecordingStore.open(home).vacuum()
    store = RecordingStore.open(home)
    if (found := values_in(store)) != expected:
        wrong.append(f"it differs in {sorted(set(found.items()) ^ set(expected.items()))}")
    if len(store) != len(expected) + files:
        wrong.append(f"{len(store)} recordings, not {len(expected)} + {files}")
    folder = RecordingsFolder(home)
    version = folder.version()
    manifests, shards = folder.named(version.tables)
    named = {"tables": {t.name for t in version.tables}, "manifests": manifests, "shards": shards, "writers": set()}
    for kind, names in named.items():
        if (there := set(getattr(folder, kind).names())) != names - {""}:
            wrong.append(f"{kind}: {sorted(there ^ names)}")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--where", help="a new folder, or s3; by default a temporary folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work = Work(**json.loads(options.work))
        warnings.simplefilter("ignore")
        done = ROLES[work.role](work)
        (Path(work.own) / f"{work.role}.json").write_text(json.dumps(done))
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chunkmill-writers-") as scratch, contextlib.ExitStack() as served:
        home = options.where or f"{scratch}/lake"
        if home == "s3":
            home = f"{served.enter_context(s3_bucket(Path(scratch)))}/lake"
        wrong = play(home, Path(scratch) / "own", options.commits, options.files, options.seed)
        if not wrong:
            kept = said_by(Path(scratch) / "own", "keep up")[0]
            print(f"version {RecordingsFolder(home).version().number}; {kept}")
    print("\n".join(wrong) or "nothing is wrong")
    print(f"{int(not wrong)} passed, {int(bool(wrong))} failed; seed {options.seed}, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
