"""Commits whose outcome is not known, batches that come again, lost checkpoints: the store holds every file once.

    python tests/faults/replay_schedules.py [--schedules 100] [--seed 1] [--only N]

A schedule lets files land and starts the ingestion, again and again. Publishing a version is made to fail before it is
visible, after it is, or so that nobody can tell; batches that are done are handed over once more; the checkpoint is
thrown away. At the end every content is there once, each batch made one version, and a vacuum leaves nothing that no
version names. Prints ``N passed, M failed`` and a command for each failure.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from chunkmill.engine.errors import CommitUnknownError, WriteError
from chunkmill.engine.ingest.ingest import Ingest
from chunkmill.engine.recordings.folder import RecordingsFolder
from chunkmill.engine.storage import VersionFiles
from chunkmill.engine.store import RecordingStore
from fault_content import converted, digest_of_path, kept_content
from fault_driver import Drive
from fault_ledger import left_over
from fault_world import LONG_AGO, recording

FAULTS: Final = ("none", "after", "before", "silent", "late")
"""What becomes of publishing.

``after``: it fails when the version is there. ``before``: it fails, and certainly nothing is there. ``silent``: it
fails, nothing is there, and that cannot be found out. ``late``: the same, but the version is there a moment later.
"""

PAYLOAD: Final = ("shards", "manifests", "tables")


@contextlib.contextmanager
def publishing(kind: str) -> Iterator[list[set[str]]]:
    """Let the next publication fail; gives the files that were there when it did."""
    publish, certainly_not = VersionFiles.create, VersionFiles._certainly_not
    there: list[set[str]] = []

    def failing(self: VersionFiles, number: int, data: dict[str, Any]) -> bool:
        if there or kind == "none":
            return publish(self, number, data)
        there.append(payload(Path(str(self.folder.location)).parent))
        if kind == "after":
            publish(self, number, data)
        if kind == "late":
            threading.Timer(0.05, publish, (self, number, data)).start()
        error = WriteError("cannot be written: Input/output error", path=str(self.folder.location))
        raise error from OSError(errno.EIO, "Input/output error")

    VersionFiles.create = failing  # type: ignore[method-assign]
    if kind in ("silent", "late"):
        VersionFiles._certainly_not = lambda *_: False  # type: ignore[method-assign]
    try:
        yield there
    finally:
        VersionFiles.create = publish  # type: ignore[method-assign]
        VersionFiles._certainly_not = certainly_not  # type: ignore[method-assign]


def payload(home: Path) -> set[str]:
    """What lies in a store beside its versions."""
    return {f"{name}/{path.name}" for name in PAYLOAD for path in (home / name).iterdir()}


class Schedule:
    """One seeded sequence of steps in a folder."""

    def __init__(self, folder: Path, seed: int, number: int) -> None:
        self._draw = random.Random(f"{seed}:{number}")
        self._folder = folder
        self._drive = Drive(str(folder), rrds=False)
        self._expected: dict[str, list[str]] = {}
        self._landed = 0
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        (folder / "landing").mkdir(parents=True)
        RecordingsFolder(folder / "lake").prepare()

    def run(self) -> list[str]:
        """All steps, and the account; what is wrong."""
        for _ in range(self._draw.randint(2, 4)):
            self._land()
            self._start(self._draw.choice(FAULTS))
            if self._draw.random() < 0.4:
                self._again()
            if self._draw.random() < 0.15:
                shutil.rmtree(self._folder / "lake" / "ingest")
        self._settle()
        self._land()
        self._start("none")
        self._again()
        self._account()
        return self.wrong

    def _land(self) -> None:
        for _ in range(self._draw.randint(1, 3)):
            self._landed += 1
            path = self._folder / "landing" / f"{self._landed}.rrd"
            draft = self._folder / f"{self._landed}.rrd"
            recording(draft, self._landed, rows=3)
            digest = digest_of_path(draft)
            self._expected[digest] = sorted(converted(draft))
            age = LONG_AGO + self._landed
            os.utime(draft, (age, age))
            draft.replace(path)

    def _settle(self) -> None:
        """Wait until what is late has arrived."""
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.join()

    def _query(self) -> Any:
        return Ingest(
            self._folder / "landing",
            into=self._folder / "lake",
            optimize=None,
            max_files_per_trigger=2,
            executor="inline",
        ).start(once=True)

    def _start(self, kind: str) -> None:
        if kind == "before":
            self._settle()  # else it is what is late that cannot be told from this one
        before = self._version()
        with publishing(kind) as there:
            try:
                self._query().await_termination()
                outcome = "done"
            except CommitUnknownError as error:
                outcome = "unknown"
                if not error.transient or not error.path:
                    self.wrong.append(f"{error!r} does not say that it may be tried again, and where")
            except WriteError:
                outcome = "failed"
        self.outcomes[outcome] += 1
        expected = {"none": "done", "after": "unknown", "silent": "unknown", "late": "unknown", "before": "failed"}[
            kind
        ]
        if there and outcome != expected:
            self.wrong.append(f"publishing that fails {kind!r} was told as {outcome}, not {expected}")
        now = payload(self._folder / "lake")
        if outcome == "unknown" and there[0] - now:
            self.wrong.append(f"the outcome was not known, and there was removed {sorted(there[0] - now)}")
        if kind == "before" and there and self._version() != before:
            self.wrong.append("a commit that failed left a version")

    def _again(self) -> None:
        """Hand batches over that are done, as a query does whose last commits were lost."""
        self._settle()
        query = self._query()
        query.await_termination()
        before, there = self._version(), payload(self._folder / "lake")
        parts = query._parts
        newest = parts.landing.log.newest()
        for number in range(max(1, newest - self._draw.randint(0, 2)), newest + 1):
            query.handle(number, parts.landing.log.files(number))
        if self._version() != before or payload(self._folder / "lake") != there:
            self.wrong.append(f"batches up to {newest} that came again changed the store")

    def _version(self) -> Any:
        return RecordingsFolder(self._folder / "lake").newest()

    def _account(self) -> None:
        store = RecordingStore.open(self._folder / "lake")
        found: dict[str, list[str]] = {}
        for entry in store:
            found.setdefault(entry.source_digest, []).append(kept_content(store, entry))
        if {digest: sorted(contents) for digest, contents in found.items()} != self._expected:
            lost = len(self._expected.keys() - found.keys())
            more = sum(len(contents) > 1 for contents in found.values())
            self.wrong.append(f"{lost} files are lost, {more} doubled")
        numbers = [version.number for version in store.versions()]
        if numbers != list(range(1, len(numbers) + 1)):
            self.wrong.append(f"versions are {numbers}")
        made = [version for version in store.versions() if version.operation == "ingest"]
        batches = [tuple(sorted(version.batches.items())) for version in made]
        if len(set(batches)) != len(batches):
            self.wrong.append(f"a batch made two versions: {batches}")
        store.vacuum()
        self.wrong += left_over(self._drive)


def run(seed: int, number: int) -> tuple[list[str], Counter[str]]:
    """One schedule, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="chunkmill-replay-") as folder:
        schedule = Schedule(Path(folder), seed, number)
        try:
            return schedule.run(), schedule.outcomes
        except Exception:  # noqa: BLE001 (a failure like others)
            return [traceback.format_exc()], schedule.outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one schedule")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    numbers = range(options.schedules) if options.only is None else [options.only]
    passed = failed = 0
    outcomes: Counter[str] = Counter()
    for number in numbers:
        wrong, told = run(options.seed, number)
        outcomes.update(told)
        if wrong:
            failed += 1
            print(f"FAILED schedule {number}\n  " + "\n  ".join(wrong))
            print(f"  again: python tests/faults/replay_schedules.py --seed {options.seed} --only {number}")
        else:
            passed += 1
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{passed} passed, {failed} failed; seed {options.seed}, commits: {said}; {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
