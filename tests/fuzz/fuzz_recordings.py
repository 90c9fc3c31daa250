"""Damage small recordings at random and look at what the readers make of them.

    python tests/fuzz/fuzz_recordings.py KIND --mutants 2000 --seed 1 [--only N] [--keep FOLDER]

Each mutant is read in another process. It must come out right, be refused with a ``ReadError`` that names the file and
says what to do, or, where the format has no checksum, come out different; never a crash, a foreign exception, more
than 10 s or 512 MiB. How many came out different without a word is printed, by the kind of damage. Prints
``N passed, M failed``; for each failure the command that repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fuzz_bags import bag_sources
from fuzz_hdf5 import hdf5_sources
from fuzz_parquet import parquet_sources
from fuzz_rosbag2 import rosbag2_sources
from fuzz_sources import Source, make_store, mcap_sources, rrd_sources, store_files
from mutation import Mutant, mutate

SECONDS = 10.0
"""Most CPU time for one mutant; the wall clock would make a busy machine fail."""

MIB = 512
"""Most memory for one mutant, above what the process used before."""

PATIENCE = 60.0
"""Seconds on the wall clock after which a reader is taken to hang."""

KINDS = ("rrd", "mcap", "bag", "parquet", "rosbag2", "hdf5", "store")

SOURCES = {
    "rrd": rrd_sources,
    "mcap": mcap_sources,
    "bag": bag_sources,
    "parquet": parquet_sources,
    "rosbag2": rosbag2_sources,
    "hdf5": hdf5_sources,
}


class Worker:
    """The process that reads; started anew after each death."""

    def __init__(self, script: str = "fuzz_worker.py") -> None:
        self._script = script
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._errors.close()

    def read(self, kind: str, path: Path) -> dict[str, Any]:
        """What came of reading ``path``."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # a process that died does not answer, which is seen next
            process.stdin.write(json.dumps({"kind": kind, "path": str(path)}) + "\n")
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        answer = process.stdout.readline() if ready else ""
        if answer:
            found: dict[str, Any] = json.loads(answer)
            return found
        self._stop()
        what = f"the reader died ({process.returncode})" if ready else f"no answer within {PATIENCE} s"
        self._errors.seek(0)
        return {"outcome": "dead", "text": f"{what}: {self._errors.read()[-2000:]}"}

    def _start(self) -> subprocess.Popen[str]:
        self._errors.truncate(0)
        command = [sys.executable, "-X", "faulthandler", str(Path(__file__).with_name(self._script))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, bufsize=1
        )
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()


@dataclass
class Tally:
    """What came of all mutants: outcomes, kinds of damage; ``failures`` holds number, damage and reason."""

    seen: Counter[str] = field(default_factory=Counter)
    damage: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    seconds: float = 0.0
    mib: float = 0.0

    @property
    def passed(self) -> int:
        """Mutants that came out as they may."""
        return self.seen.total() - len(self.failures)


@dataclass(frozen=True)
class Case:
    """One mutant, where it is put and what is read then; ``unguarded``: nothing could tell it from the original.

    ``forgiving``: of a format that passes over damage with a warning.
    """

    number: int
    source: str
    mutant: Mutant
    unguarded: bool
    forgiving: bool
    file: Path
    read: Path
    original: bytes


class Bench:
    """The recordings of one kind in a folder, and how undamaged ones read."""

    def __init__(self, kind: str, folder: Path, worker: Worker) -> None:
        self._kind, self._folder, self._worker = kind, folder, worker
        if kind == "store":
            make_store(folder / "store")
            self._sources = [Source(str(p.relative_to(folder)), p.read_bytes()) for p in store_files(folder / "store")]
            right = self._digest(folder / "store")
            self._right = {s.name: right for s in self._sources}
            return
        self._sources = SOURCES[kind]()
        self._right = {}
        for source in self._sources:
            path = folder / _name(kind, source)
            path.write_bytes(source.data)
            self._right[source.name] = self._digest(path)

    def case(self, seed: int, number: int) -> Case:
        """The mutant ``number`` of a seed."""
        chance = random.Random(f"{self._kind} {seed} {number}")
        source = chance.choice(self._sources)
        mutant = mutate(chance, source.data, source.lengths)
        unguarded = mutant.touched is None and self._kind in ("rrd", "bag", "parquet", "rosbag2", "hdf5")
        if mutant.touched is not None:
            begin, end = mutant.touched
            unguarded = any(begin < b and a < end for a, b in source.unguarded)
        if source.seal is not None and chance.random() < 0.3:
            sealed = source.seal(mutant.data)
            mutant = mutant._replace(data=sealed, what=f"{mutant.what}, checksums mended", way="checksums mended")
            unguarded = True
        store = self._kind == "store"
        file = self._folder / source.name if store else self._folder / _name(self._kind, source)
        read = self._folder / "store" if store else file
        return Case(number, source.name, mutant, unguarded, self._kind == "rrd", file, read, source.data)

    def run(self, case: Case, tally: Tally) -> None:
        """Read one mutant and note what came of it."""
        case.file.write_bytes(case.mutant.data)
        try:
            answer = self._worker.read(self._kind, case.read)
        finally:
            case.file.write_bytes(case.original)
        tally.seconds = max(tally.seconds, answer.get("seconds", 0.0))
        tally.mib = max(tally.mib, answer.get("mib", 0.0))
        what, wrong = judge(answer, self._right[case.source], case)
        tally.seen[what] += 1
        tally.damage[case.mutant.way] += 1
        if wrong:
            tally.failures.append((case.number, f"{case.source}: {case.mutant.what}", wrong))

    def _digest(self, path: Path) -> str:
        answer = self._worker.read(self._kind, path)
        assert answer["outcome"] == "read" and not answer["warned"], answer
        return str(answer["digest"])


def _name(kind: str, source: Source) -> str:
    return f"x{source.suffix or f'.{kind}'}"


def judge(answer: dict[str, Any], right: str, case: Case) -> tuple[str, str | None]:
    """What to count the answer as, and what is wrong with it."""
    outcome = answer["outcome"]
    if outcome in ("dead", "foreign"):
        return outcome, answer["text"]
    if answer["seconds"] > SECONDS:
        return "slow", f"took {answer['seconds']:.1f} s"
    if answer["mib"] > MIB:
        return "large", f"took {answer['mib']:.0f} MiB"
    if outcome == "refused":
        return outcome, _shape_of_refusal(answer, case)
    if answer["digest"] == right:
        return "right", None
    if answer["warned"]:
        wrong = None if case.unguarded or case.forgiving else "different values in spite of a checksum"
        return "different, with a warning", wrong
    return f"different, {case.mutant.way}", None if case.unguarded else "different values, and nothing said so"


def _shape_of_refusal(answer: dict[str, Any], case: Case) -> str | None:
    if not answer["path"] or not Path(answer["path"]).is_relative_to(case.read):
        return f"the error names no path: {answer['text']}"
    if not answer["hint"]:
        return f"the error has no hint: {answer['text']}"
    return None


def fuzz(kind: str, numbers: Iterable[int], seed: int, keep: Path | None = None) -> Tally:
    """Read the mutants of the given numbers; inputs that fail are kept in ``keep``."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder, Worker() as worker:
        bench = Bench(kind, Path(folder), worker)
        for number in numbers:
            case = bench.case(seed, number)
            failed = len(tally.failures)
            bench.run(case, tally)
            if keep is not None and len(tally.failures) > failed:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{kind}-{seed}-{number}-{case.file.name}").write_bytes(case.mutant.data)
    return tally


def replay(kind: str, seed: int, number: int) -> str:
    """The command that repeats one mutant."""
    return f"python tests/fuzz/fuzz_recordings.py {kind} --seed {seed} --only {number}"


def main() -> int:
    """The command line; 1 when a mutant failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="read this mutant alone")
    parser.add_argument("--keep", type=Path, help="a folder for inputs that fail")
    given = parser.parse_args()
    numbers = range(given.mutants) if given.only is None else range(given.only, given.only + 1)
    tally = fuzz(given.kind, numbers, given.seed, given.keep)
    for number, damage, reason in tally.failures:
        print(f"FAILED {damage}\n    {reason}\n    {replay(given.kind, given.seed, number)}")
    total = tally.seen.total()
    for what, count in tally.seen.most_common():
        of = tally.damage[what.removeprefix("different, ")] or total
        print(f"{what}: {count} of {of} ({100 * count / of:.1f} %)")
    print(f"at most {tally.seconds:.2f} s and {tally.mib:.0f} MiB for one mutant")
    print(f"{tally.passed} passed, {len(tally.failures)} failed")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
