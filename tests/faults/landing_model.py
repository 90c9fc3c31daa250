"""A landing folder in which everything happens: writes, renames, swaps, rotations, copies, removals, crashes.

    python tests/faults/landing_model.py [--runs 5000] [--seed 1] [--only NUMBER]

A run is some acts: a few changes of the folder, then an ingestion (`--once`) that may be cut at any durable step, or in
the middle of which the folder changes. After each that comes to its end the model says what has to be there: each
content that a file has is in the store, once and readable; nothing is there twice; what was removed stays; what cannot
be read is in quarantine, and nothing else; no source was disposed of that is not in the store; and the next one finds
nothing to do. Everything is in this process: from the cut on, nothing more is written. Prints ``N passed, M failed``
and for each failure its story and the number that replays it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from chunkmill.engine import Ingest
from chunkmill.engine.errors import WriteError
from chunkmill.engine.ingest import landing
from chunkmill.engine.ingest.quarantine import FileQuarantine
from chunkmill.engine.storage.folder import LocalFolder
from chunkmill.engine.store import RecordingStore
from fault_content import digest_of_path, kept_content
from held_requests import steps_through
from landing_world import Contents, World

MOST_BATCHES: Final = 60
"""Batches of one ingestion, after which it is taken for one without an end."""

REACHED: Final = 45
"""How often a small ingestion reaches a durable step, about."""


class CutError(BaseException):
    """The process is killed."""


@dataclass(frozen=True)
class Choice:
    """What an ingestion does with its sources, and how."""

    source_done: str
    max_files: int | None
    compact_every: int | None


class Cut:
    """Cuts the process at one of the durable steps, or lets something happen there; each is counted."""

    def __init__(self, at: int | None, instead: Callable[[], None] | None) -> None:
        self._left = at
        self._instead = instead
        self.point: str | None = None
        self.is_off = False

    def reach(self, point: str, written: object = None) -> None:
        """In place of the real one."""
        del written
        if self._left is None:
            return
        self._left -= 1
        if self._left == 0:
            self.point = point
            if self._instead is not None:
                self._instead()
                return
            self.is_off = True
            raise CutError(point)

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """From the cut on, nothing is written: what cleans up after a failure is not run by who is dead."""

        def guarded(_: str, usual: Callable[..., Any]) -> Callable[..., Any]:
            def call(folder: LocalFolder, *args: Any, **options: Any) -> Any:
                if self.is_off and "lease" in folder.location.parts:
                    raise WriteError("it is over")
                if self.is_off:
                    raise CutError(str(self.point))
                return usual(folder, *args, **options)

            return call

        with steps_through(self.reach, guarded, ("put", "create", "new", "delete", "remove", "make")):
            yield


class Run:
    """One run of the model."""

    def __init__(self, number: int, seed: int, contents: Contents, scratch: Path) -> None:
        self.draw = random.Random(f"{seed}:{number}")
        self.world = World(scratch / str(number), contents, self.draw)
        self.lake = self.world.root / "lake"
        self.source_done = self.draw.choice(["keep", "keep", "archive", "delete"])
        self.wrong: list[str] = []
        self._results: list[str] = []
        self._kept: dict[str, str] = {}
        """The digests in the store after the last ingestion that came to its end, and their sources' names."""

    def play(self) -> list[str]:
        """Play it; what went wrong."""
        acts = self.draw.randint(2, 4)
        for act in range(acts):
            for _ in range(self.draw.randint(1, 5)):
                self.world.change()
            self._act(is_last=act == acts - 1)
            if self.wrong:
                break
        return self.wrong

    def _act(self, *, is_last: bool) -> None:
        draw, keeps = self.draw, self.source_done == "keep"
        choice = Choice(self.source_done, draw.choice([1, 2, None]), draw.choice([None, None, 1]))
        while not self.wrong:
            how = draw.choices(["to its end", "cut", "changed"], [5, 4, 2 * keeps])[0]
            cut = Cut(None if how == "to its end" else draw.randint(1, REACHED), None)
            if how == "changed":
                cut = Cut(draw.randint(1, REACHED), self.world.change)
            before = self.world.there()
            came = self._ingest(choice, cut)
            if how != "changed":
                self._check_disposed(before)
            if came and (how != "changed" or not is_last):
                break
            if draw.random() < 0.5:
                self.world.change()
        if not self.wrong and how != "changed":
            self._check(choice)

    def _ingest(self, choice: Choice, cut: Cut) -> bool:
        """Run an ingestion; whether it came to its end."""
        world = self.world
        world.tell(f"ingest {choice.source_done}, {choice.max_files} files a batch, compact {choice.compact_every}")
        for name in ("lease", "writers"):  # of a process that would be dead
            shutil.rmtree(self.lake / name, ignore_errors=True)
        with cut.armed():
            try:
                query = Ingest(
                    world.landing,
                    into=self.lake,
                    executor="inline",
                    settle=0,
                    optimize=None,
                    source_done=choice.source_done,
                    archive=world.root / "archive" if choice.source_done == "archive" else None,
                    max_files_per_trigger=choice.max_files,
                    compact_every=choice.compact_every,
                ).start(once=True)
                until = time.monotonic() + 60
                while not query.await_termination(5):
                    if len(query.recent) > MOST_BATCHES or time.monotonic() > until:
                        self.wrong.append(f"it goes on for ever: {len(query.recent)} batches")
                        query.stop()
            except CutError as error:
                world.tell(f"  cut at {error}")
                return False
        results = [f"{Path(r.file.path).name}: {r.outcome}" for b in query.recent for r in b.files]
        world.tell(f"  {', '.join(results) or 'nothing'}" + (f"; changed at {cut.point}" if cut.point else ""))
        if len(query.recent) > MOST_BATCHES:
            self.wrong.append(f"it goes on for ever: {len(query.recent)} batches")
        self._results = results
        return True

    # --- what has to be there

    def _in_store(self) -> Counter[str]:
        if not list((self.lake / "versions").glob("[0-9]*.json")):
            return Counter()
        return Counter(entry.source_digest for entry in RecordingStore.open(self.lake))

    def _check_disposed(self, before: dict[str, str]) -> None:
        """What is no longer in the folder, though nobody else has removed it, is in the store, and in the archive."""
        now, store = self.world.there(), self._in_store()
        gone = {name: content for name, content in before.items() if name not in now}
        for name, content in gone.items():
            if self.source_done == "keep" or not store[self.world.contents.digests[content]]:
                self.wrong.append(f"{name} was removed, and {content} is not in the store")
        if self.source_done == "archive" and gone:
            archived = {digest_of_path(p) for p in (self.world.root / "archive").rglob("*.rrd")}
            lost = [c for c in gone.values() if self.world.contents.digests[c] not in archived]
            self.wrong += [f"{content} is not in the archive" for content in lost]

    def _check(self, choice: Choice) -> None:
        """Look at everything, after an ingestion that came to its end."""
        world, contents = self.world, self.world.contents
        there = world.there()
        if not list((self.lake / "versions").glob("[0-9]*.json")):
            self.wrong += [f"{name} was never taken" for name in there]
            return
        store = RecordingStore.open(self.lake)
        found = Counter(entry.source_digest for entry in store)
        self.wrong += [f"{contents.name_of(d)} is there {n} times" for d, n in found.items() if n > 1]
        self._check_files(there, found)
        self._check_entries(store, there)
        for digest, name in self._kept.items():
            content = contents.name_of(digest)
            is_due = name in world.made and choice.source_done == "keep"
            if not found[digest] and not is_due and not content.startswith("rival"):
                self.wrong.append(f"{content}, which came from {name}, went without a reason")
        self._kept = {e.source_digest: os.path.relpath(e.source, world.landing) for e in store}
        world.made.clear()
        if not self.wrong and self._ingest(choice, Cut(None, None)) and self._results:
            self.wrong.append(f"a second ingestion finds {self._results}")

    def _held(self) -> set[str]:
        return {os.path.relpath(row.path, self.world.landing) for row in FileQuarantine(self.lake).rows()}

    def _check_files(self, there: dict[str, str], found: Counter[str]) -> None:
        held = self._held()
        for name, content in there.items():
            is_kept = bool(found[self.world.contents.digests[content]])
            is_right = {
                "good": is_kept and name not in held and self.source_done == "keep",
                "bad": name in held and not is_kept,
                "rival": is_kept or name in held,
            }
            if not is_right[content.partition("-")[0]]:
                self.wrong.append(f"{name} has {content}: in the store {is_kept}, in quarantine {name in held}")

    def _check_entries(self, store: RecordingStore, there: dict[str, str]) -> None:
        held, contents = self._held(), self.world.contents
        for entry in store:
            content = contents.name_of(entry.source_digest)
            if [kept_content(store, entry)] != contents.values.get(entry.source_digest):
                self.wrong.append(f"{content} is not what it was")
            name = os.path.relpath(entry.source, self.world.landing)
            if self.source_done == "keep" and there.get(name, content) != content and name not in held:
                self.wrong.append(f"{content} is there as of {name}, which has {there[name]}")


def played(number: int, seed: int, contents: Contents, scratch: Path) -> tuple[list[str], list[str]]:
    """Play a run; what went wrong, and its story."""
    run = Run(number, seed, contents, scratch)
    try:
        wrong = run.play()
    except Exception as error:  # noqa: BLE001 (it is what is looked for)
        wrong = [f"{type(error).__name__}: {error}"]
    if not wrong:
        shutil.rmtree(run.world.root, ignore_errors=True)
    return wrong, [f"sources: {run.source_done}", *run.world.story]


def play_all(numbers: Sequence[int], seed: int) -> list[str]:
    """Play runs; a text for each that failed."""
    scratch = Path(tempfile.mkdtemp(prefix="chunkmill-landing-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    failures = []
    logging.getLogger("chunkmill").setLevel(logging.CRITICAL)
    try:
        with patch.object(landing, "KEPT_ENTRIES", 1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            contents = Contents.made_in(scratch / "contents")
            for number in numbers:
                wrong, story = played(number, seed, contents, scratch)
                if wrong:
                    again = f"python tests/faults/landing_model.py --seed {seed} --only {number}"
                    failures.append("\n  ".join([f"FAILED {number}", *story, *wrong, f"again: {again}"]))
    finally:
        logging.getLogger("chunkmill").setLevel(logging.NOTSET)
        shutil.rmtree(scratch, ignore_errors=True)
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    options = parser.parse_args(arguments)
    numbers = range(options.first, options.first + options.runs) if options.only is None else [options.only]
    began = time.monotonic()
    failures = play_all(numbers, options.seed)
    print("\n".join(failures))
    seconds = time.monotonic() - began
    print(f"{len(numbers) - len(failures)} passed, {len(failures)} failed; seed {options.seed}, {seconds:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
