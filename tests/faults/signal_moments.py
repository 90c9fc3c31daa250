"""Ctrl-C and SIGTERM at every moment: a command ends within two seconds, clears up, and the next run completes.

    python tests/faults/signal_moments.py [--commands convert-file,…] [--executors spark,inline] [--moments 20]
                                          [--kinds INT,TERM] [--targets process,group] [--seconds 2]
                                          [--only CASE] [--keep]

``convert FILE``, ``convert FOLDER``, ``compact``, ``ingest`` and a script that uses the API are each run once to their
end, and then once for each of so many moments, evenly spread over the time that took, for each signal, sent to the
process alone or to its group (as a terminal does). Then the exit code has to be that of the signal (or 0, where the
work was done), within two seconds; no process, no staging folder and no partial file may be left; what is there has to
hold what it should, and the same command, run again, has to bring about the rest. ``ingest`` lets its batch come to
its end, so it gets a second signal. Prints ``N passed, M failed``, the longest end, and a command for each failure.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.store import RecordingStore
from chunkmill.engine.stream import LazyChunkStream
from fault_content import kept_content, rrd_contents

SECONDS: Final = 2.0
"""By then a command that was told to end has ended."""

ECHO: Final = 1.1
"""Seconds after which a second signal is not taken for an echo of the first."""

FILES: Final = 6
KINDS: Final = ("INT", "TERM")
TARGETS: Final = ("process", "group")
PIPELINE: Final = """
import time

def slow(chunk):
    time.sleep(0.1)
    return chunk

def pipeline(stream):
    return stream.map(slow)
"""
SCRIPT: Final = """
import sys
from chunkmill.readers import RrdReader
sys.path.insert(0, sys.argv[1])
from pipeline import pipeline
stream = pipeline(RrdReader(sys.argv[2]).stream())
stream.write_rrd(sys.argv[3], application_id="signals", recording_id="recording-0", executor=sys.argv[4])
"""
MARKS: Final = (".chunkmill-", ".open", ".draft", ".tmp")


@dataclass(frozen=True)
class World:
    """The folder of a case."""

    root: Path

    @property
    def sources(self) -> Path:
        """The recordings."""
        return self.root / "sources"

    @property
    def scratch(self) -> Path:
        """Where Spark's files and staging of results lie; its name tells whose a process is."""
        return self.root / "scratch"

    def environment(self) -> dict[str, str]:
        """Of every process of the case."""
        return {**os.environ, "CHUNKMILL_SCRATCH": str(self.scratch), "CHUNKMILL_MASTER": "local[2]"}


def program(*words: str) -> list[str]:
    """The command line of this very interpreter."""
    return [sys.executable, "-c", "from chunkmill.engine.cli import main; main()", *words]


def rrds(world: World) -> dict[str, list[str]]:
    """The RRDs that came out, read whole."""
    return {path.name: rrd_contents(path) for path in sorted((world.root / "out").glob("*.rrd"))}


def kept(world: World) -> dict[str, list[str]]:
    """The recordings of the store, read whole."""
    home = world.root / "store"
    if not (home / "versions").is_dir() or not any((home / "versions").iterdir()):
        return {}
    store = RecordingStore.open(home)
    return {entry.recording_id: [kept_content(store, entry)] for entry in store}


def words(world: World, name: str, executor: str) -> list[str]:
    """The command line of a command."""
    root, piped, where = str(world.root), ["--pipeline", str(world.root / "pipeline.py")], ["--executor", executor]
    one, out, store, sources = f"{root}/one.rrd", f"{root}/out", f"{root}/store", str(world.sources)
    return {
        "convert-file": program("convert", one, "-o", f"{out}/one.rrd", *piped, *where),
        "convert-folder": program("convert", sources, "-o", out, *piped, *where),
        "ingest": program(
            "ingest", sources, "--into", store, "--settle", "0s", "--once", "--max-files", "3", *piped, *where
        ),
        "compact": program("compact", store, "--optimize", "object-store", *where),
        "script": [sys.executable, f"{root}/script.py", root, one, f"{out}/one.rrd", executor],
    }[name]


COMMANDS: Final = {"convert-file": rrds, "convert-folder": rrds, "ingest": kept, "compact": kept, "script": rrds}
"""What is run, and what is there when it is done: names, each with contents."""


@dataclass(frozen=True)
class Case:
    """A command, where it runs, and what it is told when: at a part of the time that it takes."""

    command: str
    executor: str
    kind: str
    target: str
    moment: float

    def __str__(self) -> str:
        return f"{self.command}:{self.executor}:{self.kind}:{self.target}:{self.moment:.3f}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """The case of a printed command."""
        *words, moment = text.split(":")
        return cls(*words, float(moment))


def recording(path: Path, number: int, chunks: int) -> None:
    """A small RRD; all with another ``number`` differ."""
    times = TimeColumn("frame", sequence=range(20))
    values = [[1e3 * number + i + row for row in range(20)] for i in range(chunks)]
    made = [Chunk.from_columns(f"/e/{i}", [times], [ComponentColumn("x", values[i])]) for i in range(chunks)]
    stream = LazyChunkStream.from_iter(made)
    stream.write_rrd(path, application_id="signals", recording_id=f"recording-{number}", executor="inline")


def make_template(root: Path) -> None:
    """The sources, the pipeline, the script, and a store that a compaction has work with."""
    world = World(root)
    world.sources.mkdir(parents=True)
    world.scratch.mkdir()
    (root / "out").mkdir()
    (root / "pipeline.py").write_text(PIPELINE)
    (root / "script.py").write_text(SCRIPT)
    recording(root / "one.rrd", 0, 30)
    for number in range(FILES):
        recording(world.sources / f"{number}.rrd", number + 1, 5)


def make_store(world: World) -> None:
    """A store of one shard for each recording."""
    words = ("ingest", str(world.sources), "--into", str(world.root / "store"), "--settle", "0s", "--once")
    more = ("--max-files", "1", "--optimize", "none", "--executor", "inline")
    subprocess.run(program(*words, *more), check=True, capture_output=True, env=world.environment())


def ran(command: str, world: World, executor: str) -> float:
    """Run a command to its end; gives the seconds that took."""
    began = time.monotonic()
    done = subprocess.run(
        words(world, command, executor), capture_output=True, text=True, check=False, env=world.environment()
    )
    if done.returncode:
        raise RuntimeError(f"{command} failed: {done.stderr[-2000:]}")
    return time.monotonic() - began


@dataclass
class Ended:
    """How a command ended: its code, when after its last signal, and what it said."""

    code: int
    seconds: float
    said: str


def interrupted(case: Case, world: World, seconds: float) -> Ended:
    """Run a command, and tell it to end at its moment."""
    number = signal.SIGINT if case.kind == "INT" else signal.SIGTERM
    with (world.root / "said").open("w+") as said:
        process = subprocess.Popen(
            words(world, case.command, case.executor),
            stdout=said, stderr=said, stdin=subprocess.DEVNULL, env=world.environment(), start_new_session=True,
        )  # fmt: skip

        def tell() -> float:
            if process.poll() is None:
                (os.kill if case.target == "process" else os.killpg)(process.pid, number)
            return time.monotonic()

        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(case.moment * seconds)
        told = tell()
        try:
            process.wait(ECHO if case.command == "ingest" else 60)
        except subprocess.TimeoutExpired:
            told = tell()
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        ended = time.monotonic() - told
        said.seek(0)
        return Ended(code, ended, said.read())


def processes_of(world: World) -> list[str]:
    """The processes of a world: its scratch folder is in their environment or their command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if str(world.scratch).encode() in told and state != "Z":
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100])
    return found


def wrong_with(
    case: Case, world: World, ended: Ended, reference: dict[str, list[str]], seconds: float
) -> Iterator[str]:
    """What should not be so after a command was told to end."""
    until = time.monotonic() + max(0.5, seconds - ended.seconds)
    while (left := processes_of(world)) and time.monotonic() < until:
        time.sleep(0.02)
    if left:
        yield f"processes are left: {left}"
    if ended.seconds > seconds:
        yield f"it ended after {ended.seconds:.1f} s"
    there = COMMANDS[case.command](world)
    number = 2 if case.kind == "INT" else 15
    codes = {128 + number, -number} | ({0} if there == reference or case.command == "ingest" else set())
    if ended.code not in codes:
        yield f"its exit code is {ended.code}"
    if "Traceback" in ended.said or "Exception" in ended.said:
        yield f"it said {ended.said[-3000:]}"
    differing = {name for name, held in there.items() if reference.get(name) != held}
    if differing:
        yield f"{sorted(differing)} hold something else"
    if case.command == "compact" and len(there) != FILES:
        yield f"the store has {len(there)} recordings"
    yield from left_over(world, after=case.command)


def left_over(world: World, after: str | None = None) -> Iterator[str]:
    """Staging, drafts and scratch files that lie about; ``after`` a command that was cut, what it goes on with may."""
    for path in sorted(world.root.rglob("*")):
        inner = path.relative_to(world.root)
        if after == "convert-folder" and ".chunkmill-convert" in inner.parts:
            continue
        if any(mark in path.name for mark in MARKS) or (inner.parts[0] == "scratch" and len(inner.parts) == 2):
            yield f"{inner} is left over"


def tried(
    case: Case, world: World, whole: float, reference: dict[str, list[str]], seconds: float
) -> tuple[float, list[str]]:
    """One case in a fresh world; gives how long the end took, and what was wrong."""
    ended = interrupted(case, world, whole)
    wrong = list(wrong_with(case, world, ended, reference, seconds))
    try:
        ran(case.command, world, case.executor)
    except RuntimeError as error:
        return ended.seconds, [*wrong, f"the next run: {error}"]
    if COMMANDS[case.command](world) != reference:
        wrong.append("the next run left something undone")
    return ended.seconds, [*wrong, *(f"after the next run {text}" for text in left_over(world))]


class Moments:
    """The cases of some commands, each in a copy of one world."""

    def __init__(self, root: Path, *, seconds: float, keep: bool) -> None:
        self._root = root
        self._seconds = seconds
        self._keep = keep
        self._known: dict[tuple[str, str], tuple[float, dict[str, list[str]]]] = {}
        self._count = 0
        self.longest = 0.0
        make_template(root / "template")

    def run(self, case: Case) -> list[str]:
        """What is wrong with a case."""
        whole, reference = self._whole(case.command, case.executor)
        self._count += 1
        world = self._world(f"{self._count:04d}", case.command)
        took, wrong = tried(case, world, whole, reference, self._seconds)
        self.longest = max(self.longest, took)
        if not (wrong and self._keep):
            shutil.rmtree(world.root)
        return wrong

    def _whole(self, name: str, executor: str) -> tuple[float, dict[str, list[str]]]:
        """How long a command takes, and what it brings about."""
        if (name, executor) not in self._known:
            world = self._world(f"{name}-{executor}", name)
            seconds = ran(name, world, executor)
            self._known[name, executor] = seconds, COMMANDS[name](world)
        return self._known[name, executor]

    def _world(self, name: str, command: str) -> World:
        world = World(self._root / name)
        shutil.copytree(self._root / "template", world.root)
        if command == "compact":
            make_store(world)
        return world


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print what came of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--executors", default="spark,inline")
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="By when a command has to have ended.")
    parser.add_argument("--only", type=Case.parse)
    parser.add_argument("--keep", action="store_true", help="Keep the folders of cases that fail.")
    options = parser.parse_args(arguments)
    cases = [options.only] if options.only else [
        Case(command, executor, kind, target, (number + 0.5) / options.moments)
        for command in options.commands.split(",")
        for executor in options.executors.split(",")
        for kind in options.kinds.split(",")
        for target in options.targets.split(",")
        for number in range(options.moments)
    ]  # fmt: skip
    root = Path(tempfile.mkdtemp(prefix="signal-moments-"))
    counts: Counter[str] = Counter()
    try:
        moments = Moments(root, seconds=options.seconds, keep=options.keep)
        for case in cases:
            wrong = moments.run(case)
            counts["failed" if wrong else "passed"] += 1
            for text in wrong:
                print(f"{case}: {text}", flush=True)
            if wrong:
                print(f"  python {sys.argv[0]} --keep --only {case}", flush=True)
    finally:
        if not (options.keep and counts["failed"]):
            shutil.rmtree(root, ignore_errors=True)
    print(f"{counts['passed']} passed, {counts['failed']} failed; the longest end took {moments.longest:.2f} s")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
