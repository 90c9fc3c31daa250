"""Whoever works on a store is held at every step and every request, while others go on and clean up; then it wakes up.

    python tests/faults/slept_writers.py [--where local|s3] [--first OPERATION] [--second OPERATION]
                                         [--how HOW] [--at TEXT] [--every N] [--seed N]
    python tests/faults/slept_writers.py --case WHERE:FIRST:SECOND:HOW:STEP

Operations on a store of recordings: `ingest` (of files that are deleted when they are in the store), `compact`,
`vacuum`; on one that a recording is collected into: `collect` and `tidy`, its vacuum. The first one is held at one
step; the second, and a vacuum after it, run to their ends; then the first goes on. There are no leases here, as if
the first had lost its own right after it was checked: only the order in which versions appear is left. How, locally:
`stopped` before an operation on a folder or at a fault point; `doubted`, too, and vacuums take whoever has announced
something for dead. With a server of S3's protocol `stopped` holds a request on its way; `late` lets the client send it
again, and the first one arrives when all is over; `lost` lets nothing of it through until then.

Afterwards every version has its files, every recording is there and whole or its source is, and after another round of
all operations each is there once, and nothing is left over. Prints ``N passed, M failed`` and a command for each
failure.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from chunkmill.engine import Ingest
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.execution.lease import Lease
from chunkmill.engine.ingest.quarantine import FileQuarantine
from chunkmill.engine.locations import located
from chunkmill.engine.recordings import vacuum
from chunkmill.engine.recordings.folder import RecordingsFolder
from chunkmill.engine.storage.folder import LocalFolder
from chunkmill.engine.store import ChunkStore, RecordingStore
from chunkmill.readers import RrdReader
from fault_content import content_of, digest_of_path, kept_content, rrd_contents
from fault_world import recording
from held_requests import PATIENCE, Gate, Server, steps_through

PAIRS: Final = {
    **dict.fromkeys(("ingest", "compact", "vacuum"), ("ingest", "compact", "vacuum")),
    **dict.fromkeys(("collect", "tidy"), ("collect", "tidy")),
}
"""What runs while each operation is held."""

HOW: Final = {"local": ("stopped", "doubted"), "s3": ("stopped", "doubted", "late", "lost")}

OLD, NEW = 3, 2
_STEPS: Final = ("put", "create", "new", "delete", "names", "get", "get_range", "remove")


class NoLease:
    """A lease of which nobody finds out that it was lost."""

    def check(self) -> None:
        """Be sure of it."""

    def release(self) -> None:
        """Do nothing."""

    def __enter__(self) -> NoLease:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Places:
    """Where stores are: below a folder, or a bucket of their own."""

    def __init__(self, where: str, scratch: Path) -> None:
        self.where = where
        self.scratch = scratch
        self.server = Server() if where == "s3" else None
        self._number = 0
        self.values: dict[str, list[str]] = {}
        self.files: list[Path] = []
        self.template = ""

    def make_template(self) -> None:
        """Make the recordings, and a store that has some of them, one a version, and something that is left over."""
        (self.scratch / "files").mkdir(parents=True)
        for number in range(OLD + NEW):
            path = self.scratch / "files" / f"{number}.rrd"
            recording(path, number, rows=2)
            self.files.append(path)
            self.values[digest_of_path(path)] = rrd_contents(path)
        case = Case(self, self.root())
        for path in self.files[:OLD]:
            case.land(path)
            case.run("ingest")
            case.run("collect")
        RecordingsFolder(case.lake).shards.put("left.rrd", b"left")
        self.template = case.root

    def root(self) -> str:
        """A new root of stores."""
        self._number += 1
        if self.server is None:
            return str(self.scratch / f"case-{self._number}")
        bucket = f"{self.scratch.name.lower().replace('_', '-')}-{self._number}"  # moto's are those of all its servers
        self.server.client.create_bucket(Bucket=bucket)
        return f"s3://{bucket}"

    def copied(self) -> str:
        """A new root, with what the template has."""
        root = self.root()
        if self.server is None:
            shutil.copytree(self.template, root)
            return root
        client, source = self.server.client, self.template[5:]
        for found in client.list_objects_v2(Bucket=source)["Contents"]:
            body = client.get_object(Bucket=source, Key=found["Key"])["Body"].read()
            client.put_object(Bucket=root[5:], Key=found["Key"], Body=body)
        return root

    def remove(self, case: Case) -> None:
        """Remove a case."""
        shutil.rmtree(case.own, ignore_errors=True)
        if self.server is None:
            shutil.rmtree(case.root, ignore_errors=True)

    @contextlib.contextmanager
    def gated(self, gate: Gate) -> Iterator[None]:
        """Let a gate see every step."""
        if self.server is not None:
            self.server.gate = gate
            try:
                yield
            finally:
                self.server.gate = None
            return

        def counted(name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
            def call(folder: LocalFolder, *args: Any, **options: Any) -> Any:
                gate.step(f"{name} {folder.location.name}")
                return usual(folder, *args, **options)

            return call

        with steps_through(lambda point, _=None: gate.step(point), counted, _STEPS):
            yield


class Case:
    """A store of recordings and one of a collected recording, and what is done to them."""

    def __init__(self, places: Places, root: str) -> None:
        self.places = places
        self.root = root
        self.lake = f"{root}/lake"
        self.kept = f"{root}/kept"
        self.own = Path(tempfile.mkdtemp(prefix="case-", dir=places.scratch))
        self.landing = self.own / "landing"
        self.landing.mkdir()
        self.wrong: list[str] = []

    def land(self, path: Path) -> None:
        """Let a file land."""
        shutil.copy2(path, self.landing / path.name)

    def run(self, operation: str) -> None:
        """Do something."""
        {
            "ingest": self._ingest,
            "compact": lambda: RecordingStore.open(self.lake).compact(executor="inline"),
            "vacuum": lambda: RecordingStore.open(self.lake).vacuum(),
            "collect": self._collect,
            "tidy": lambda: ChunkStore.open(self.kept).vacuum(),
        }[operation]()

    def _ingest(self) -> None:
        query = Ingest(
            self.landing,
            into=self.lake,
            checkpoint=self.own / "checkpoint",
            source_done="delete",
            executor="inline",
            settle=0,
            optimize=None,
            max_files_per_trigger=1,
        ).start(once=True)
        if not query.await_termination(PATIENCE):
            raise TimeoutError("the ingestion does not end")

    def _collect(self) -> None:
        stream = RrdReader(self.places.files[-1]).stream()
        stream.collect(into=self.kept, recording_id="kept", executor="inline")

    def attempt(self, operation: str) -> ChunkmillError | None:
        """Do something that may fail, but not in any odd way."""
        try:
            self.run(operation)
        except ChunkmillError as error:
            return error
        except BaseException as error:  # noqa: BLE001 (it is what is looked for)
            self.wrong.append(f"{operation} ended with {type(error).__name__}: {error}")
        return None

    # --- what has to be there

    def check(self, *, is_settled: bool) -> None:
        """Look at both stores; when all is settled each recording is there, and nothing is left over."""
        try:
            self._check_lake(is_settled=is_settled)
            self._check_kept(is_settled=is_settled)
        except ChunkmillError as error:
            self.wrong.append(f"a store cannot be read: {error}")

    def _check_files(self, place: str, *, is_settled: bool) -> None:
        folder = RecordingsFolder(place)
        there = {name: set(getattr(folder, name).names()) for name in ("tables", "manifests", "shards")}
        named: dict[str, set[str]] = {name: set() for name in there}
        for version in folder.versions():
            tables = {table.name for table in version.tables}
            named["tables"] |= tables
            if not tables <= there["tables"]:
                self.wrong.append(f"version {version.number} names tables that are gone")
                return
            manifests, shards = folder.named(version.tables)
            named["manifests"] |= manifests
            named["shards"] |= shards
        self._compare(there, named, is_settled=is_settled)

    def _check_lake(self, *, is_settled: bool) -> None:
        self._check_files(self.lake, is_settled=is_settled)
        store = RecordingStore.open(self.lake)
        found = Counter(entry.source_digest for entry in store)
        for entry in store:
            if [kept_content(store, entry)] != self.places.values[entry.source_digest]:
                self.wrong.append(f"{entry.source} is not what it was")
        held = FileQuarantine(located(self.lake)).count()
        if held:
            self.wrong.append(f"{held} files are in quarantine")
        sources = {digest_of_path(path) for path in self.landing.iterdir()}
        for digest in self.places.values:
            if not found[digest] and digest not in sources:
                self.wrong.append(f"{digest} is lost")
            if found[digest] > 1 or (is_settled and (found[digest] != 1 or digest in sources)):
                self.wrong.append(f"{digest} is there {found[digest]} times")

    def _check_kept(self, *, is_settled: bool) -> None:
        self._check_files(self.kept, is_settled=is_settled)
        content = content_of(ChunkStore.open(self.kept).stream().to_chunks(executor="inline"))
        if [content] not in self.places.values.values():
            self.wrong.append("the kept store is not what it was")

    def _compare(self, there: dict[str, set[str]], named: dict[str, set[str]], *, is_settled: bool) -> None:
        for name, files in there.items():
            if not named[name] <= files:
                self.wrong.append(f"{name} are named and gone: {sorted(named[name] - files)}")
            if is_settled and files - named[name]:
                self.wrong.append(f"{name} are left over: {sorted(files - named[name])}")


@contextlib.contextmanager
def doubting() -> Iterator[None]:
    """Let a vacuum take every writer for dead that has announced a run."""
    usual = vacuum.announced_runs

    def none_lives(folder: RecordingsFolder) -> tuple[set[str], set[str]]:
        living, dead = usual(folder)
        return set(), living | dead

    with patch.object(vacuum, "announced_runs", none_lives):
        yield


def play(places: Places, first: str, second: str, how: str, at: int | None) -> tuple[list[str], Gate]:
    """Hold the first operation at a step, and let others go on; what is wrong, and what was held."""
    case = Case(places, places.copied())
    for path in places.files[OLD:]:
        case.land(path)
    gate = Gate(at, how)
    failure: list[ChunkmillError | None] = []
    with places.gated(gate):
        thread = threading.Thread(target=lambda: failure.append(case.attempt(first)), daemon=True)
        thread.start()
        while thread.is_alive() and not gate.held.wait(0.002):
            pass
        if at is not None and gate.held.is_set():
            if how in ("late", "lost"):
                thread.join(PATIENCE)
            with doubting() if how == "doubted" else contextlib.nullcontext():
                for operation in (second, "tidy" if second in ("collect", "tidy") else "vacuum"):
                    case.attempt(operation)
        gate.released.set()
        thread.join(PATIENCE)
    if thread.is_alive():
        return ["the first operation does not end"], gate
    if places.server is not None:
        places.server.deliver()
    case.check(is_settled=False)
    for operation in ("ingest", "compact", "vacuum", "collect", "tidy"):
        if error := case.attempt(operation):
            case.wrong.append(f"afterwards {operation} ended with {error}")
    if not case.wrong:
        case.check(is_settled=True)
    wrong = [*case.wrong, *(f"the first: {error}" for error in failure if error and case.wrong)]
    if not wrong:
        places.remove(case)
    return wrong, gate


@contextlib.contextmanager
def prepared(where: str) -> Iterator[Places]:
    """A place for cases, without leases, where requests are tried again quickly."""
    from datetime import timedelta

    from chunkmill.engine.storage import bucket, objects

    shared = Path("/dev/shm")
    scratch = Path(tempfile.mkdtemp(prefix="chunkmill-slept-", dir=shared if shared.is_dir() else None))
    quick = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=2), "base": 2}
    places = Places(where, scratch)
    with contextlib.ExitStack() as patches:
        patches.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        patches.enter_context(patch.object(Lease, "take", lambda *_, **__: NoLease()))
        patches.enter_context(patch.dict(bucket._RETRIES, {"backoff": quick}))
        patches.enter_context(patch.object(objects, "_open", {}))
        if places.server is not None:
            patches.enter_context(patch.dict("os.environ", places.server.environment))
        try:
            places.make_template()
            yield places
        finally:
            if places.server is not None:
                places.server.stop()
            shutil.rmtree(scratch, ignore_errors=True)


def cases_of(places: Places, options: argparse.Namespace) -> Iterator[tuple[str, str, str, int]]:
    """All cases that are asked for: each operation is run once without being held, to know its steps."""
    for first in [options.first] if options.first else PAIRS:
        for how in [options.how] if options.how else HOW[options.where]:
            _, gate = play(places, first, "", how, None)
            steps = [at for at, step in enumerate(gate.steps, 1) if options.at in step]
            for second in [options.second] if options.second else PAIRS[first]:
                yield from ((first, second, how, at) for at in steps)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--where", choices=["local", "s3"], default="local")
    parser.add_argument("--first", choices=list(PAIRS))
    parser.add_argument("--second")
    parser.add_argument("--how", help="stopped; with s3 also late, lost")
    parser.add_argument("--at", default="", help="steps with this text in them, such as a method and a path")
    parser.add_argument("--every", type=int, default=1, help="one in so many cases, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case")
    options = parser.parse_args(arguments)
    began, passed, failed = time.monotonic(), 0, 0
    where = options.case.partition(":")[0] if options.case else options.where
    draw = random.Random(options.seed)
    with prepared(where) as places:
        if options.case:
            _, first, second, how, at = options.case.split(":")
            cases = [(first, second, how, int(at))]
        else:
            cases = [case for case in cases_of(places, options) if draw.randrange(options.every) == 0]
        for case in cases:
            wrong, gate = play(places, *case)
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                name = ":".join([where, *map(str, case)])
                print(f"FAILED {name}, held at {gate.what}\n  " + "\n  ".join(wrong))
                print(f"  again: python tests/faults/slept_writers.py --case {name}", flush=True)
    print(f"{passed} passed, {failed} failed; seed {options.seed}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
