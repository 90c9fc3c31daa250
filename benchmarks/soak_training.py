"""A soak: epochs of video by two workers, some of which are killed, and states that go on with other numbers of them.

    python -m tests.run benchmarks soak_training --folder FOLDER --minutes 20

One process trains all the time. Every 100 seconds a worker is killed by SIGKILL, which must be an error; then a new
loader goes on from the state, as JSON, for a while with none, one or three workers, and then with two again. Minute by
minute it prints the resident MB of that process and of all that it has started, those of two workers alone.
It ends with 1 where a sample of any epoch was lost, came twice or at another place, or where memory is more than 10 %
larger in the last minute than in the third. ``--folder`` is that of ``training.py``, which makes the recordings.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil
from training import DATA, fields_of, make

KILLED_AFTER, OTHERS_AFTER, MORE = 100.0, 12.0, 1.1


def loaded(lake: Path, workers: int, state: str | None) -> Any:
    """A loader of so many workers that goes on from a state."""
    from chunkmill import CatalogClient
    from chunkmill import training as t

    source = t.DataSource(CatalogClient(lake).get_dataset("training"))
    samples = t.IterableSamples(source, "frame", fields_of("video"), shuffle=t.BlockShuffle(1000, 12), batch_size=32)
    batches = t.loader(samples, num_workers=workers)
    if state is not None:
        batches.load_state_dict(json.loads(state))
    return batches


class Soak:
    """What was trained on, and the memory of it."""

    def __init__(self, lake: Path, minutes: float, pause: float) -> None:
        self.lake, self.pause = lake, pause
        self.began = time.monotonic()
        self.ends = self.began + 60 * minutes
        self.random = random.Random(0)
        self.state: str | None = None
        self.seen: list[int] = []
        self.epochs = self.kills = self.samples = 0
        self.memory: dict[int, list[tuple[float, float]]] = {}
        self.wrong: list[str] = []
        self.is_wanted: list[int] = []
        self.told = -1

    def run(self) -> None:
        """Train until the time is over."""
        others = cycle((0, 3, 1))
        while time.monotonic() < self.ends and not self.wrong:
            self.phase(next(others), OTHERS_AFTER, kills=False)
            self.phase(2, KILLED_AFTER, kills=True)

    def phase(self, workers: int, seconds: float, *, kills: bool) -> None:
        """Train for a while with so many workers; at the end one is killed."""
        batches = loaded(self.lake, workers, self.state)
        stops, settled = time.monotonic() + seconds, time.monotonic() + 20
        killed = False
        try:
            for batch in self.steps(batches):
                self.take(batches, batch)
                now = time.monotonic()
                if workers == 2 and now > settled and not killed:
                    self.measure(now)
                if killed and self.kills_late(stops):
                    self.wrong.append("a worker was killed, and the loader went on without it for a minute")
                if now > self.ends or (now > stops and not kills) or self.wrong:
                    break
                if now > stops and not killed:
                    time.sleep(self.random.random() / 4)  # anywhere in what they do
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch would raise wherever this program is
                    victim = self.random.choice(batches._batches._iterator._workers)
                    os.kill(victim.pid, signal.SIGKILL)
                    killed = True
        except Exception as error:
            if not killed:
                raise
            self.kills += 1
            print(f"       a killed worker: {type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)
        self.state = json.dumps(batches.state_dict())
        iterator = batches._batches._iterator
        if iterator is not None:
            iterator._shutdown_workers()

    def kills_late(self, stops: float) -> bool:
        """Whether a worker was killed so long ago that an error is due."""
        return time.monotonic() > stops + 60

    def steps(self, batches: Any) -> Iterator[Any]:
        """Batches, epoch after epoch."""
        while True:
            epoch = batches.dataset.epoch
            self.is_wanted = batches.dataset.job.plan.epoch(epoch).samples.tolist()
            yield from batches
            if self.seen != self.is_wanted:
                self.wrong.append(f"epoch {epoch} had {len(self.seen)} samples, of {len(self.is_wanted)}")
            self.seen = []
            self.epochs += 1

    def take(self, batches: Any, batch: Any) -> None:
        """One step of the training: each sample must be the one that the plan has there."""
        place = len(self.seen)
        self.seen += batch["sample"].tolist()
        self.samples += len(self.seen) - place
        if self.seen[place:] != self.is_wanted[place : len(self.seen)]:
            self.wrong.append(f"epoch {batches.dataset.epoch} has other samples at place {place}")
        time.sleep(self.pause)

    def measure(self, now: float) -> None:
        """Note the memory about once a second, and tell it each minute."""
        minute = int((now - self.began) // 60)
        kept = self.memory.setdefault(minute, [])
        if len(kept) >= now - self.began - 60 * minute:
            return
        me = psutil.Process()
        below = [some.memory_info().rss / 1e6 for some in me.children(recursive=True)]
        kept.append((me.memory_info().rss / 1e6, sum(below)))
        if minute > self.told:
            self.told = minute
            own, rest = kept[-1]
            files = me.num_fds()
            print(
                f"{minute:6} {self.epochs:6} {self.samples:9} {self.kills:5} {own:8.0f} {rest:9.0f} {files:6}",
                flush=True,
            )


def main() -> int:
    """Run the soak; 0 where nothing was lost or doubled, and memory stayed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where recordings are, or are made")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--pause", type=float, default=0.03, help="seconds that a step takes besides")
    given = parser.parse_args()
    from chunkmill import CatalogClient

    *shape, parts, _ = DATA["small"]
    folder = given.folder / "small"
    paths = make(folder / "recordings", *shape, parts)
    if not (folder / "lake").exists():
        uris = [path.resolve().as_uri() for path in paths]
        CatalogClient(folder / "lake").create_dataset("training").register(uris).wait()
    print("minute epochs   samples kills  main MB  workers MB  files", flush=True)
    soak = Soak(folder / "lake", given.minutes, given.pause)
    soak.run()
    minutes = sorted(soak.memory)
    if len(minutes) > 3:
        early = next(minute for minute in minutes if minute >= 3)
        for number, name in enumerate(("this process", "all processes")):
            medians = [
                statistics.median(some[0] if not number else sum(some) for some in soak.memory[minute])
                for minute in (early, minutes[-1])
            ]
            print(f"{name}: {medians[0]:.0f} MB in minute {early}, {medians[1]:.0f} MB in minute {minutes[-1]}")
            if medians[1] > MORE * medians[0]:
                soak.wrong.append(f"{name} grew to {medians[1] / medians[0]:.2f} times its memory")
    print(f"{soak.epochs} epochs, {soak.samples:,} samples, {soak.kills} workers killed:", *(soak.wrong or ["fine"]))
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # torch raises again where the other workers of a killed one end
