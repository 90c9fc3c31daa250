"""A lake that is used by ten processes at once, any of which is killed at any moment, for as long as one likes.

    python tests/faults/lake_hour.py [--minutes 60] [--kills 30] [--executor spark|inline] [--seed 1] [--page FILE]

Recordings land, are ingested, get a layer of labels, are asked for by this package and, through ``chunkmill serve``, by
Rerun's SDK; the table of their frames gets a column that a function computes, and a view of it is refreshed; it is
indexed and searched; everything is compacted and vacuumed.
At the end, when each has ended and been done once more: every recording is there once, every query gives what the
ledger's drives hold, every computed value is the function's, nothing is left over, and the memory of no life of the
ingestion's driver that lasted five minutes grew by more than a tenth. The page shows rates, versions and restarts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lake_content import TICKS, label_of, number_of, wrong_frames, wrong_rows, wrong_view
from lake_page import page
from lake_roles import Embedder, Labeller, Place, Recorder, Refresher, commands

PATIENCE: Final = 90.0
SETTLED, LONG, GROWTH = 120.0, 300.0, 1.1
"""Seconds after which a driver's memory is taken, seconds of the lives that are judged, and what it may grow by."""


class Life:
    """One process of a role, and its memory in time."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.began = time.monotonic()
        self.memory: list[tuple[float, float]] = []
        self._log = log / f"{name}.out"
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def sample(self) -> None:
        """Note its resident memory, in MB."""
        try:
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        except OSError:
            return
        kilobytes = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
        if kilobytes:
            self.memory.append((time.monotonic() - self.began, kilobytes[0] * 1024 / 1e6))

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it, and all that it started."""
        os.killpg(self.process.pid, number)

    def ended(self) -> str | None:
        """What is wrong with its end, once it has ended."""
        code = self.process.wait(PATIENCE)
        said = self._log.read_text(errors="replace")[-2000:]
        return f"{self.name} ended with {code}: {said}" if code not in (0, 143, -signal.SIGTERM) else None

    def growth(self) -> float | None:
        """What the memory grew by since it settled, of a life that was long."""
        if not self.memory or self.memory[-1][0] < LONG:
            return None
        settled = statistics.median(mb for at, mb in self.memory if SETTLED <= at <= SETTLED + 60)
        return statistics.median(mb for _, mb in self.memory[-10:]) / settled


class Run:
    """The processes, what befalls them, and what was seen."""

    def __init__(self, place: Place, minutes: float, kills: int, seed: int) -> None:
        self.place = place
        self.seconds = minutes * 60
        draw = random.Random(seed)
        names = [name for name, _ in commands(place)]
        victims = [name for _ in range(kills // len(names) + 1) for name in draw.sample(names, len(names))][:kills]
        moments = sorted(draw.uniform(0.15, 0.9) * self.seconds for _ in victims)
        self._planned = list(zip(moments, victims, strict=True))
        self.kills: list[tuple[float, str]] = []
        self.wrong: list[str] = []
        self.versions: list[tuple[float, float]] = []
        self.lives: dict[str, list[Life]] = {name: [] for name in names}
        self.began = time.time()

    def go(self) -> None:
        """Let all of them work, and be killed, until the time is over or something is wrong."""
        began = time.monotonic()
        for name in self.lives:
            self._start(name)
        while (at := time.monotonic() - began) < self.seconds and not self.wrong:
            if self._planned and self._planned[0][0] <= at:
                _, name = self._planned.pop(0)
                self.lives[name][-1].kill()
                self.lives[name][-1].process.wait()
                self.kills.append((at, name))
                self._start(name)
            for name, lives in self.lives.items():
                if lives[-1].process.poll() is not None:
                    self.wrong.append(lives[-1].ended() or f"{name} ended by itself")
                lives[-1].sample()
            self.wrong += [line["error"] for line in self.lines() if line["what"] == "wrong"]
            self.versions.append((at, float(len(list(self.place.lake.glob("datasets/*/versions/*.json"))))))
            time.sleep(1)
        (self.place.root / "stop").touch()
        for name in ("ingest", "serve"):
            self.lives[name][-1].kill(signal.SIGTERM)
        for lives in self.lives.values():
            try:
                self.wrong += filter(None, [lives[-1].ended()])
            except subprocess.TimeoutExpired:
                self.wrong.append(f"{lives[-1].name} does not end")
                lives[-1].kill()

    def _start(self, name: str) -> None:
        self.lives[name].append(Life(name, dict(commands(self.place))[name], self.place.log))

    def lines(self) -> Iterator[dict[str, Any]]:
        """What all of them did; the last line of one that was killed may be cut."""
        for path in sorted(self.place.log.iterdir()):
            if path.suffix != ".out":
                for text in path.read_text().splitlines():
                    if text.startswith("{") and text.endswith("}"):
                        yield {"role": path.name, **json.loads(text)}

    def told(self, drives: int) -> dict[str, Any]:
        """What the page shows."""
        lines = list(self.lines())
        roles, series = [], {}
        for name, lives in self.lives.items():
            own = [line for line in lines if line["role"] == name]
            done = [line for line in own if line["what"] not in ("refused", "wrong")]
            half = f"{statistics.median(line['seconds'] for line in done):.2f}" if done else ""
            refused = sum(line["what"] == "refused" for line in own)
            roles.append((name, len(done), sum(line["count"] for line in done), refused, len(lives) - 1, half))
            if done:
                series[f"{done[0]['what']}, a minute"] = self._rates(done)
        series["files of versions of datasets"] = self.versions
        memory = [(life.began + at, mb) for life in self.lives["ingest"] for at, mb in life.memory]
        series["memory of the ingestion's driver, MB"] = [(at - memory[0][0], mb) for at, mb in memory]
        return {
            "seconds": self.seconds,
            "drives": drives,
            "kills": self.kills,
            "wrong": self.wrong,
            "roles": roles,
            "series": series,
            "executor": self.place.settings["executor"],
        }

    def _rates(self, lines: Sequence[dict[str, Any]], parts: int = 60) -> list[tuple[float, float]]:
        width = self.seconds / parts
        counts = [0.0] * parts
        for line in lines:
            part = int((line["at"] - self.began) / width)
            if 0 <= part < parts:
                counts[part] += line["count"]
        return [((part + 0.5) * width, count * 60 / width) for part, count in enumerate(counts)]


def finish(place: Place) -> None:
    """Do once more what each of them does, until nothing is left to do."""
    Recorder("record", place).step()
    ingest = next(command for name, command in commands(place) if name == "ingest")
    ingest = [word for word in ingest if word not in ("--every", "1s")]
    done = subprocess.run([*ingest, "--once"], check=False, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    labeller, embedder = Labeller("label", place), Embedder("embed", place)
    for role in (labeller, embedder):
        while role.step()[1]:
            pass
    options: dict[str, Any] = {"cleanup_before": datetime.now(UTC), "unsafe_allow_recent_cleanup": True}
    labeller.dataset.do_maintenance(compact_fragments=True, **options)
    embedder.frames().do_maintenance(compact_fragments=True, **options)
    embedder.frames().computed().cleanup_checkpoints()
    Refresher("refresh", place).step()


def judge(place: Place) -> Iterator[str]:
    """What is wrong with the lake that is left."""
    from chunkmill import CatalogClient

    client = CatalogClient(place.lake)
    dataset, drives = client.get_dataset("drives"), place.recorded()
    found = sorted(map(number_of, dataset.segment_ids()))
    if found != drives:
        yield f"{len(found)} recordings are there of {len(drives)}: {sorted(set(found) ^ set(drives))[:10]}"
    rows = dataset.filter_contents("/pose/**").reader("tick", executor="inline").to_arrow_table().to_pylist()
    by_drive: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_drive.setdefault(row["rerun_segment_id"], []).append(row)
    for segment, own in by_drive.items():
        if text := wrong_rows(number_of(segment), iter(sorted(own, key=lambda row: row["tick"]))):
            yield text
    labels = dataset.filter_contents("/labels/**").reader("tick", executor="inline").to_arrow_table().to_pylist()
    said = {number_of(row["rerun_segment_id"]): row["/labels:label"] for row in labels}
    if len(labels) != len(drives) or said != {number: [label_of(number)] for number in drives}:
        yield f"{len(labels)} labels for {len(drives)} drives, or others"
    frames = client.get_table("frames").computed().to_arrow()
    if frames.num_rows != len(drives) * TICKS:
        yield f"the table has {frames.num_rows} rows of {len(drives) * TICKS}"
    if text := wrong_frames(frames, complete=True):
        yield text
    view = Refresher("refresh", place).view()
    if text := wrong_view(view.to_arrow(), drives):
        yield text
    if view.plan_refresh().has_work:
        yield "the view that was just refreshed wants to be refreshed"
    yield from (f"check: {fault}" for fault in client.check())
    yield from left_over(place)


def left_over(place: Place) -> Iterator[str]:
    """What nobody needs any more."""
    for folder in (place.landing, place.drafts):
        yield from (f"left in {folder.name}: {path.name}" for path in sorted(folder.iterdir())[:10])
    for path in sorted(place.lake.rglob("*")):
        name = path.name
        if path.is_file() and (name.endswith((".open", ".draft", ".tmp")) or "/checkpoints/" in str(path)):
            yield f"left over: {path.relative_to(place.lake)}"


def main() -> int:
    """Run it; 0 where nothing is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--executor", default="spark", choices=("spark", "inline"))
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two recordings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, help="where the report is written")
    parser.add_argument("--keep", action="store_true", help="leave the lake where it is")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"rerun+http://127.0.0.1:{free.getsockname()[1]}"
    root = Path(tempfile.mkdtemp(prefix="lake-hour-"))
    try:
        place = Place.make(root / "run", executor=options.executor, url=url, every=options.every)
        run = Run(place, options.minutes, options.kills, options.seed)
        run.go()
        if not run.wrong:
            finish(place)
            run.wrong += judge(place)
            for life in run.lives["ingest"]:
                if (growth := life.growth()) is not None and growth > GROWTH:
                    run.wrong.append(f"the memory of the ingestion's driver grew {growth:.2f} times")
        told = run.told(len(place.recorded()))
        if options.page:
            options.page.write_text(page(told))
    finally:
        if options.keep:
            print(f"the lake is in {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    for row in told["roles"]:
        print("{:8s} {:6d} times, {:6d} done, {:4d} refused, {:3d} restarts, median {} s".format(*row))
    print("\n".join(told["wrong"]) or "nothing is wrong")
    print(f"{told['drives']} drives, {len(run.kills)} kills, seed {options.seed}, {options.minutes:g} minutes")
    return int(bool(told["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
