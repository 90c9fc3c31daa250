"""Recordings land while the driver, the JVM and the Python workers are killed at random moments.

    python tests/faults/random_kills.py [--files 200] [--kills 25] [--executor spark|inline] [--master local[2,4]]
                                        [--seed 1] [--keep FOLDER]

Half of the files land by a rename, half are copied slowly. Who is to be killed comes in turn (inline there is only the
driver), the moment is seeded; a driver that ends is started again at once. Whatever is killed, ingestion must go on
within 60 s: what is measured is the time from a kill to the next version of the store. In the end every file has to be
there once, with the content to which it is converted by itself, and a vacuum must leave nothing that no version names.
Prints ``N passed, M failed`` and the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chunkmill.engine.ingest.quarantine import FileQuarantine
from chunkmill.engine.recordings.folder import RecordingsFolder
from chunkmill.engine.store import RecordingStore
from fault_content import Known, converted, digest_of_path, kept_content
from fault_driver import Drive, command
from fault_ledger import left_over
from fault_runs import Watching, forked, waited, warm_up
from fault_world import Template, recording, table

RECOVERY: Final = 60.0
"""Seconds after a kill by which another version must be there."""

HURRY: Final = 1_000_000
"""How many files may land when there is nothing more to be killed."""

SLOWLY: Final = 0.3
"""Seconds that a slow copy pauses in the middle."""


def make_recordings(folder: Path, count: int) -> None:
    """Small recordings, and what each holds."""
    folder.mkdir()
    known: Known = {}
    for number in range(count):
        path = folder / f"{number:03d}{'.parquet' if number % 4 == 3 else '.rrd'}"
        (table if path.suffix == ".parquet" else recording)(path, number)
        known[digest_of_path(path)] = sorted(converted(path))
    Template(folder, {}, known).save()


def drop(source: Path, landing: Path, pause: float, allowed: Path) -> int:
    """Let the files land, one after the other, as many as the file ``allowed`` says."""
    for number, path in enumerate(sorted(p for p in source.iterdir() if p.suffix != ".json")):
        while (most := int(allowed.read_text() or 0)) <= number:
            time.sleep(0.02)
        data, target = path.read_bytes(), landing / path.name
        if number % 2:
            with target.open("wb") as file:
                file.write(data[: len(data) // 2])
                file.flush()
                time.sleep(SLOWLY)
                file.write(data[len(data) // 2 :])
        else:
            draft = landing / f".{path.name}.part"
            draft.write_bytes(data)
            draft.rename(target)
        if most < HURRY:
            time.sleep(pause)
    return 0


def tree(pid: int) -> dict[int, tuple[int, str]]:
    """All processes below ``pid``, with their parents and command lines."""
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if fields[0] != "Z":
                found[int(entry.name)] = int(fields[1]), line
    below: dict[int, tuple[int, str]] = {}
    todo = [pid]
    while todo:
        parent = todo.pop()
        mine = {child: told for child, told in found.items() if told[0] == parent}
        below.update(mine)
        todo += mine
    return below


class Run:
    """Files landing, a driver, and who kills it."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self.root = root
        self.options = options
        spark = options.executor == "spark"
        self.drive = Drive(
            str(root), executor=options.executor, master=options.master if spark else None, watch=True, merge_log=False
        )
        self.targets = ["driver", "jvm", "worker"] if spark else ["driver"]
        self.draw = random.Random(options.seed)
        self.killed: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.recoveries: list[float] = []
        self.wrong: list[str] = []
        self._driver: subprocess.Popen[bytes] | None = None

    def version(self) -> int:
        """The number of the newest version."""
        folder = self.drive.home / "versions"
        return max((int(p.stem) for p in folder.glob("[0-9]*.json")), default=0)

    def allow(self, parts: int | None = None) -> None:
        """Let so many parts of the files land, or all: there are some before and after each kill."""
        draft = self.root / "allowed.draft"
        files = HURRY if parts is None else self.options.files * parts // (2 * self.options.kills + 2)
        draft.write_text(str(files))
        draft.replace(self.root / "allowed")

    def keep_alive(self) -> subprocess.Popen[bytes]:
        """The driver; started where it is not running."""
        if self._driver is None or self._driver.poll() is not None:
            if self._driver is not None:
                self.ended[f"exit {self._driver.returncode}"] += 1
            with (self.root / "driver.log").open("ab") as out:
                self._driver = subprocess.Popen(command(self.drive), stdout=out, stderr=out, start_new_session=True)
        return self._driver

    def is_done(self) -> bool:
        """Whether all files are there."""
        newest = RecordingsFolder(self.drive.home).newest() if self.version() else None
        return newest is not None and newest.recordings >= int(self.options.files)

    def wait_for_version(self, after: int) -> float | None:
        """Seconds until there is a version after this one; None where there is none in time."""
        began = time.monotonic()
        while time.monotonic() - began < RECOVERY:
            self.keep_alive()
            if self.version() > after:
                return time.monotonic() - began
            time.sleep(0.02)
        return None

    def kill(self, target: str) -> None:
        """Kill one of its processes, once there is one of that kind."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            pid = self._find(target)
            if pid is not None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed[target] += 1
                return
            time.sleep(0.01)
        self.wrong.append(f"there was no {target} to be killed")

    def _find(self, target: str) -> int | None:
        driver = self.keep_alive()
        if target == "driver":
            return driver.pid
        below = tree(driver.pid)
        jvms = [pid for pid, (_, line) in below.items() if "java" in line.partition(" ")[0] and "archive" not in line]
        if target == "jvm":
            return self.draw.choice(jvms) if jvms else None
        mine = [pid for jvm in jvms for pid, (_, line) in tree(jvm).items() if "python" in line.partition(" ")[0]]
        return self.draw.choice(mine) if mine else None

    def all_kills(self) -> None:
        """Kill, wait until it goes on, and again."""
        if self.wait_for_version(0) is None:
            self.wrong.append("nothing was ever committed")
            return
        for number in range(self.options.kills):
            self.allow(2 * number + 2)
            time.sleep(self.draw.uniform(0.1, 2.0))
            self.keep_alive()
            before = self.version()
            self.kill(self.targets[number % len(self.targets)])
            self.allow(2 * number + 3)
            seconds = self.wait_for_version(before)
            if seconds is None:
                self.wrong.append(f"kill {number}: nothing was committed in {RECOVERY:.0f} s; see driver.log")
                return
            self.recoveries.append(seconds)

    def until_all_is_done(self) -> None:
        """Wait until everything that landed is in the store, and stop."""
        until = time.monotonic() + 2 * RECOVERY
        while time.monotonic() < until:
            self.keep_alive()
            if self.is_done():
                break
            time.sleep(0.2)
        (self.root / "stop").touch()
        driver = self.keep_alive()
        try:
            if driver.wait(RECOVERY):
                self.wrong.append(f"the driver ended with {driver.returncode} when it was stopped")
        except subprocess.TimeoutExpired:
            self.wrong.append("the driver did not stop")
            driver.kill()


def account(drive: Drive, template: Template) -> list[str]:
    """What is wrong in the end."""
    store = RecordingStore.open(drive.home)
    found: dict[str, list[str]] = {}
    for entry in store:
        found.setdefault(entry.source_digest, []).append(kept_content(store, entry))
    wrong = [f"{digest} is lost" for digest in template.known.keys() - found.keys()]
    differing = [digest for digest, contents in found.items() if contents != template.known.get(digest)]
    wrong += [f"{digest} is there {len(found[digest])} times, or differs" for digest in differing]
    wrong += [f"{row.path} is in quarantine: {row.message}" for row in FileQuarantine(drive.home).rows()]
    store.vacuum()
    return wrong + left_over(drive)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    options = _options(arguments)
    root = Path(options.keep or tempfile.mkdtemp(prefix="chunkmill-kills-")).resolve()
    (root / "landing").mkdir(parents=True)
    warm_up()
    if waited(forked(lambda: make_recordings(root / "template", options.files) or 0)) != 0:
        raise RuntimeError("the recordings could not be made")
    template = Template.load(root / "template")
    began = time.monotonic()
    run = Run(root, options)
    watching = Watching(run.drive, template)
    run.allow(1)
    dropper = forked(lambda: drop(root / "template", root / "landing", options.pause, root / "allowed"))
    try:
        run.all_kills()
        run.allow()
        waited(dropper, 600)
        run.until_all_is_done()
    finally:
        (root / "stop").touch()
    looks, seen = watching.end()
    said = root / "said.json"
    check = forked(lambda: said.write_text(json.dumps(account(run.drive, template))) and 0, root / "account.log")
    wrong = [*run.wrong, *seen]
    wrong += json.loads(said.read_text()) if waited(check) == 0 else [(root / "account.log").read_text()[-2000:]]
    for line in wrong:
        print(f"FAILED {line}")
    killed = ", ".join(f"{target} {count}" for target, count in run.killed.items())
    if run.recoveries:
        ordered = sorted(run.recoveries)
        print(f"killed: {killed}; drivers ended: {dict(run.ended)}; looks of the reader: {looks}")
        print(f"a version after a kill in {statistics.median(ordered):.1f} s (median), {ordered[-1]:.1f} s (longest)")
    failed = len(wrong)
    print(f"{options.files - min(failed, options.files)} passed, {failed} failed; seed {options.seed}", end="")
    print(f", {sum(run.killed.values())} kills in {time.monotonic() - began:.0f} s")
    if wrong:
        print(f"  again: python tests/faults/random_kills.py {' '.join(arguments or sys.argv[1:])}")
    elif not options.keep:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if wrong else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--executor", choices=["spark", "inline"], default="spark")
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="a folder for what the run leaves")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
