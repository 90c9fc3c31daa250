"""Random sequences of changes, tags, restorations and vacuums of a dataset or a table, against a dict of its versions.

    python tests/faults/version_sequences.py [--runs 500] [--seed 1] [--only NUMBER] [--of dataset|table]

After each step the newest version, each version that has to be there, each tag and a reader that was opened at a tag
hold what the dict says, and a version that is gone is refused. Prints ``N passed, M failed``, and for each failure its
story.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry, NotFoundError, TableEntry
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import AlreadyExistsError, ChunkmillError

STEPS: Final = 14
FILES: Final = 5
SEGMENTS: Final = ("a", "b", "c")
TAGS: Final = ("kept", "v1.0", "x_y-z")
SCHEMA: Final = pa.schema(
    [pa.field("id", pa.int64(), nullable=False, metadata={"rerun:is_table_index": "true"}), ("x", pa.int64())]
)

Content = dict[Any, int]
"""By segment the number of rows of its file; by key of a table the value."""


@dataclass
class Dataset:
    """A dataset, and what can be done with it."""

    files: Path
    entry: DatasetEntry

    def change(self, draw: random.Random, content: Content) -> Content:
        """Register or drop something, and return what is there then."""
        segment = draw.choice(SEGMENTS)
        if draw.random() < 0.3 and content:
            self.entry.unregister(segments_to_drop=segment)
            return {key: rows for key, rows in content.items() if key != segment}
        rows = draw.randint(1, FILES)
        self.entry.register(str(self.files / f"{segment}{rows}.rrd"), copy=draw.random() < 0.5).wait()
        return {**content, segment: rows}

    def upkeep(self, draw: random.Random) -> None:
        """Compact, or remove what nothing needs."""
        if draw.random() < 0.3:
            self.entry.do_maintenance(compact_fragments=True)
        self.entry.do_maintenance(cleanup_before=timedelta(), unsafe_allow_recent_cleanup=True)

    @staticmethod
    def content(entry: Any) -> Content:
        """What an entry holds, its chunks read."""
        stores = {segment: entry.download_segment(segment) for segment in entry.segment_ids()}
        return {segment: sum(len(chunk.data.row_ids) for chunk in store) for segment, store in stores.items()}


@dataclass
class Table:
    """A table, and what can be done with it."""

    entry: TableEntry

    def change(self, draw: random.Random, content: Content) -> Content:
        """Append, replace or remove rows, and return what is there then."""
        key, value = draw.randint(0, 5), draw.randint(0, 99)
        how = draw.random()
        if how < 0.2 and content:
            self.entry.computed().delete(f"id = {key}")
            return {other: kept for other, kept in content.items() if other != key}
        if how < 0.3:
            self.entry.overwrite(id=[key], x=[value])
            return {key: value}
        self.entry.upsert(id=[key], x=[value])
        return {**content, key: value}

    def upkeep(self, draw: random.Random) -> None:
        """Compact, and remove what nothing needs."""
        self.entry.do_maintenance(
            compact_fragments=draw.random() < 0.3, cleanup_before=timedelta(), unsafe_allow_recent_cleanup=True
        )

    @staticmethod
    def content(entry: Any) -> Content:
        """What an entry holds."""
        return {row["id"]: row["x"] for row in entry.to_arrow_reader().read_all().to_pylist()}


@dataclass
class Play:
    """One sequence, and what there has to be."""

    what: Any
    draw: random.Random
    versions: dict[int, Content] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    readers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def play(self) -> None:
        """Play it, until something is wrong."""
        self._note({})
        for _ in range(STEPS):
            step = self.draw.choice(self._steps)
            self.story.append(step.__name__.strip("_"))
            try:
                step()
                self._check()
            except ChunkmillError as error:
                self.wrong.append(f"{type(error).__name__}: {error}")
            if self.wrong:
                return

    @property
    def _steps(self) -> list[Callable[[], None]]:
        """The steps, as often as they are to be drawn."""
        return [*[self._change] * 5, *[self._tag] * 4, self._untag, *[self._restore] * 2, *[self._upkeep] * 2]

    @property
    def newest(self) -> int:
        """The number of the newest version, 0 before the first."""
        return max(self.versions, default=0)

    def _note(self, content: Content) -> None:
        """Take what is listed now as the versions there are; a new one has this content."""
        listed = self.what.entry.list_versions()["version"].to_pylist()
        missing = set(self.tags.values()) - set(listed)
        if missing:
            self.wrong.append(f"versions {missing} have tags, and are gone")
        self.versions = {number: self.versions.get(number, content) for number in listed}

    def _change(self) -> None:
        self._note(self.what.change(self.draw, self.versions.get(self.newest, {})))

    def _point(self) -> tuple[Any, int]:
        """A version, as a number, a tag or a time, and its number."""
        number = self.draw.choice(list(self.versions))
        tags = [tag for tag, tagged in self.tags.items() if tagged == number]
        rows = {row["version"]: row["made_at"] for row in self.what.entry.list_versions().to_pylist()}
        points = [number, *tags]
        if not any(later > number and rows[later] <= rows[number] for later in rows):
            points.append(rows[number])
        return self.draw.choice(points), number

    def _tag(self) -> None:
        if not self.versions:
            return
        tag, move = self.draw.choice(TAGS), self.draw.random() < 0.5
        point, number = self._point()
        self.story[-1] += f" {tag} at {point} move={move}"
        try:
            named = self.what.entry.tag(tag, point, move=move)
        except AlreadyExistsError:
            if move or self.tags.get(tag, number) == number:
                self.wrong.append(f"tag {tag} at {point} was refused")
            return
        if named != number or (not move and self.tags.get(tag, number) != number):
            self.wrong.append(f"tag {tag} at {point} names {named}")
        self.tags[tag] = number
        self.readers[tag] = number, self.what.entry.at(tag)
        self._note(self.versions[self.newest])

    def _untag(self) -> None:
        tag = self.draw.choice(TAGS)
        self.story[-1] += f" {tag}"
        try:
            self.what.entry.untag(tag)
        except NotFoundError:
            if tag in self.tags:
                self.wrong.append(f"there is no tag {tag}")
            return
        if self.tags.pop(tag, None) is None:
            self.wrong.append(f"tag {tag} was there")
        self.readers.pop(tag, None)
        self._note(self.versions[self.newest])

    def _restore(self) -> None:
        if not self.versions:
            return
        point, number = self._point()
        self.story[-1] += f" {point}"
        content = self.versions[number]
        newest = self.what.entry.restore(point)
        self._note(content)
        if newest != self.newest or self.versions[newest] != content:
            self.wrong.append(f"version {newest} of a restoration has {self.versions.get(newest)}, not {content}")

    def _upkeep(self) -> None:
        before = dict(self.versions)
        self.what.upkeep(self.draw)
        self._note(self.versions.get(self.newest, {}))
        gone = next((number for number in before if number not in self.versions), None)
        if gone is not None:
            try:
                self.what.entry.at(gone)
                self.wrong.append(f"version {gone} was removed, and can be opened")
            except NotFoundError:
                pass

    def _check(self) -> None:
        entry = self.what.entry
        if entry.tags() != dict(sorted(self.tags.items())):
            self.wrong.append(f"the tags are {entry.tags()}, not {self.tags}")
        seen = self.what.content(entry)
        wanted = self.versions.get(self.newest, {})
        if seen != wanted:
            self.wrong.append(f"the newest has {seen}, not {wanted}")
        chosen = self.draw.sample(sorted(self.versions), min(2, len(self.versions)))
        looks = [(number, entry.at(number)) for number in chosen] + list(self.readers.values())
        for number, reader in looks:
            if (seen := self.what.content(reader)) != self.versions[number]:
                self.wrong.append(f"version {number} has {seen}, not {self.versions[number]}")
        if len(chosen) == 2:
            self._check_difference(*chosen)

    def _check_difference(self, before: int, after: int) -> None:
        """The difference of two versions names every segment, or key, that is not the same in both."""
        old, new = self.versions[before], self.versions[after]
        changes = self.what.entry.diff(before, after)
        key = "rerun_segment_id" if isinstance(self.what, Dataset) else "id"
        named = changes[key].to_pylist()
        for name in {*old, *new}:
            if old.get(name) != new.get(name) and name not in named:
                self.wrong.append(f"the difference of {before} and {after} lacks {name}")
        kinds = changes[changes.column_names[0]].to_pylist()
        if isinstance(self.what, Dataset):
            for name, kind in zip(named, kinds, strict=True):
                is_right = {
                    "added": name not in old,
                    "removed": name not in new,
                    "changed": name in old and name in new,
                }
                if not is_right[kind]:
                    self.wrong.append(f"the difference of {before} and {after} says {kind} of {name}")


def prepare(folder: Path) -> None:
    """Write the files that are registered."""
    for segment in SEGMENTS:
        for rows in range(1, FILES + 1):
            times = TimeColumn("tick", sequence=list(range(rows)))
            chunk = Chunk.from_columns("/value", [times], [ComponentColumn("value", [float(rows)] * rows)])
            stream = LazyChunkStream.from_iter([chunk])
            path = folder / f"{segment}{rows}.rrd"
            stream.write_rrd(path, application_id="tests", recording_id=segment, executor="inline")


def played(number: int, seed: int, of: str, files: Path, folder: Path) -> Play:
    """Play a sequence."""
    client = CatalogClient(folder / "lake")
    entry: Any = client.create_dataset("d") if of == "dataset" else client.create_table("t", SCHEMA)
    sequence = Play(Dataset(files, entry) if of == "dataset" else Table(entry), random.Random(f"{seed}:{number}"))
    sequence.play()
    return sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--of", default="dataset", choices=["dataset", "table"])
    options = parser.parse_args(arguments)
    numbers = range(options.runs) if options.only is None else [options.only]
    failed, steps, began = 0, 0, time.monotonic()
    warnings.simplefilter("ignore")
    scratch = Path(
        tempfile.mkdtemp(prefix="chunkmill-versions-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    )
    try:
        files = scratch / "files"
        files.mkdir()
        prepare(files)
        for number in numbers:
            sequence = played(number, options.seed, options.of, files, scratch / str(number))
            shutil.rmtree(scratch / str(number))
            steps += len(sequence.story)
            if sequence.wrong:
                failed += 1
                print("\n  ".join([f"FAILED {number}", *sequence.story, *sequence.wrong]))
                print(
                    f"  again: version_sequences.py --of {options.of} --seed {options.seed} --only {number}", flush=True
                )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    seconds = time.monotonic() - began
    print(f"{len(numbers) - failed} passed, {failed} failed; {steps:,} steps in {seconds:.0f} s, seed {options.seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
