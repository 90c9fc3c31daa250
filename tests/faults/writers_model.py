"""Writers, compactions and vacuums of one store, any number at once, step by step in any order, some of them late.

    python tests/faults/writers_model.py [--runs 20000] [--seed 1] [--only NUMBER] [--unsafe NAME]

A model in memory of what protects a store: no leases, no clocks, every step of everybody on its own, in an order that
is drawn. Any request may arrive much later than its sender gave it up, a second time too; a vacuum may take anybody for
dead; who was given up may wake up. Versions get tags, lose them, and are restored. What decides is the project's own:
which files a vacuum removes, what its version says, which versions count, and on which version a writer may go on.
After every step each version that counts has its files, nothing that was committed since the last restoration is lost,
no batch is there twice, and nothing that came late is seen.

``--unsafe`` plants a mistake, which has to be found. Prints ``N passed, M failed`` and for each failure its story.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Final

from chunkmill.engine.recordings.history import restoration_of
from chunkmill.engine.recordings.vacuum import following, following_version, is_doomed
from chunkmill.engine.recordings.versions import RecordingsVersion, TableRef

UNSAFE: Final[Mapping[str, str]] = {
    "ignores_spared": "a writer goes on whatever vacuums have said",
    "spares_for_ever": "a vacuum spares whoever is announced, as if every one before it had",
    "removes_first": "a vacuum removes files, and then publishes its version",
    "keeps_its_list": "a vacuum that was overtaken does not look what came in between",
    "trusts_its_number": "whoever has put a version believes in it without a look",
    "cleans_up_unknown": "a writer removes its files where it does not know whether they are named",
    "asks_once": "a writer whose number is taken goes on top of that without asking its rule again",
    "compacts_all": "a compaction puts its own in the place of what has changed meanwhile",
    "reads_late": "a writer notes the version it began with after it has written its files",
    "forgets_tags": "a vacuum removes the versions that tags name",
    "forgets_files_of_tags": "a vacuum removes the files of versions that tags name",
    "tags_what_is_gone": "a tag is given to a version that a vacuum has removed meanwhile",
    "restores_what_is_gone": "a version is restored that a vacuum has removed meanwhile",
}
"""Mistakes, each with what is wrong then."""

MOST_STEPS: Final = 2000
Content = Mapping[int, tuple[int, str]]
"""By recording: the number of its content, and the file that has it."""

Actor = Generator[None, None, None]


@dataclass
class Run:
    """The store of one run, and what is on its way to it."""

    draw: random.Random
    unsafe: str = ""
    versions: dict[int, RecordingsVersion] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    announced: set[str] = field(default_factory=set)
    late: list[Callable[[], None]] = field(default_factory=list)
    contents: dict[str, Content] = field(default_factory=dict)
    committed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By recording the newest content that a writer believes is there, and the number of its version."""
    restored: int = 0
    """The number of the last restoration."""
    story: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    names: count[int] = field(default_factory=count)

    def play(self) -> list[str]:
        """Play it; what went wrong."""
        actors = [self._actor(which) for which in self._cast()]
        for _ in range(MOST_STEPS):
            if self.late and self.draw.random() < 0.05:
                self.late.pop(self.draw.randrange(len(self.late)))()
            elif actors:
                one = self.draw.choice(actors)
                for _ in range(self.draw.choice((1, 1, 1, 2, 5, 20))):  # so that some get far while others sleep
                    if next(one, self) is self:
                        actors.remove(one)
                        break
            elif self.late:
                self.late.pop()()
            else:
                break
            self._check()
            if self.wrong:
                break
        if not self.wrong and actors:
            self.wrong.append("it goes on for ever")
        return self.wrong

    def _cast(self) -> list[str]:
        draw = self.draw
        cast = ["write"] * draw.randint(1, 3) + ["compact"] * draw.randint(0, 1) + ["vacuum"] * draw.randint(1, 2)
        return cast + ["tag"] * draw.randint(0, 2) + ["restore"] * draw.randint(0, 1)

    def _actor(self, which: str) -> Actor:
        name = f"{which}{next(self.names)}"
        actors = {"write": self._write, "compact": self._compact, "vacuum": self._vacuum}
        return {**actors, "tag": self._tag, "restore": self._restore}[which](name)

    # --- what is seen

    @property
    def newest(self) -> RecordingsVersion:
        """The newest version."""
        if not self.versions:
            return _EMPTY
        return self.versions[max(self.versions)]

    def _content(self, version: RecordingsVersion) -> Content:
        return self.contents[version.tables[0].name] if version.tables else {}

    def _named(self, version: RecordingsVersion) -> set[str]:
        return {table.name for table in version.tables} | {file for _, file in self._content(version).values()}

    def _check(self) -> None:
        newest = self.newest
        for number, version in self.versions.items():
            gone = self._named(version) - self.files if newest.counts(number) else ()
            if gone:
                self.wrong.append(f"version {number} names {sorted(gone)}, which are gone")
        lost = [number for number in newest.tags.values() if number not in self.versions]
        self.wrong += [f"version {number} has a tag, and is gone" for number in lost]
        content = self._content(newest)
        for recording, (value, number) in self.committed.items():
            if number > self.restored and (recording not in content or content[recording][0] < value):
                self.wrong.append(f"recording {recording} is {content.get(recording)}, not {value} or a later one")
        self.wrong += [f"batch {batch} is there {n} times" for batch, n in newest.batches.items() if n > 1]

    # --- requests

    def _send(self, request: Callable[[], None]) -> None:
        """A request that nobody waits for the answer of in vain: it arrives, or later, or both."""
        how = self.draw.random()
        if how > 0.1:
            request()
        if how < 0.2:
            self.late.append(request)

    def _put(self, who: str, version: RecordingsVersion) -> bool | None:
        """Put a version where there is none of its number: whether that was done, None where nobody knows."""

        def arrive() -> None:
            if version.number not in self.versions:
                self.versions[version.number] = version
                if version.restored is not None:
                    self.restored = max(self.restored, version.number)
                self.story.append(f"{who}: version {version.number} appears")

        how = self.draw.random()
        if how < 0.08:
            self.late.append(arrive)  # given up, and on its way
            return None
        taken = version.number in self.versions
        arrive()
        if how < 0.16:
            return None
        if how < 0.3:
            self.late.append(arrive)  # sent a second time
        return not taken

    def _counts(self, number: int) -> bool:
        return self.unsafe == "trusts_its_number" or self.newest.counts(number)

    # --- who does something

    def _write(self, who: str) -> Actor:
        """Commit a few batches of one query, of which another may run, too: each a recording, new or replaced."""
        query = self.draw.randint(0, 1)
        for batch in range(2):
            yield from self._commit(who, 10 * query + batch)

    def _commit(self, who: str, batch: int) -> Actor:
        recording, value = self.draw.choice((batch, 99)), next(self.names)
        for _ in range(20):
            base = self.newest
            run = f"{who}r{next(self.names)}"
            yield
            self._send(lambda run=run: self.announced.add(run))  # type: ignore[misc]
            yield
            mine = f"{run}-{next(self.names)}"
            self.files.add(mine)
            yield
            began = self.newest if self.unsafe == "reads_late" else base
            change = partial(self._with, batch, recording, value, mine)
            done = yield from self._publish(who, run, began.number, began, change)
            if done is not False:
                if done:
                    self.committed[recording] = max((value, done), self.committed.get(recording, (0, 0)))
                if done is None and self.unsafe == "cleans_up_unknown":
                    self.files.discard(mine)
                yield
                self._send(lambda run=run: self.announced.discard(run))  # type: ignore[misc]
                if done is not None or batch in self._batches(self.newest):
                    return
                continue
            self.files.discard(mine)
            yield
            self._send(lambda run=run: self.announced.discard(run))  # type: ignore[misc]
            if batch in self._batches(self.newest):
                return

    def _batches(self, version: RecordingsVersion) -> tuple[int, ...]:
        return tuple(int(batch) for batch, count in version.batches.items() for _ in range(count))

    def _with(
        self, batch: int, recording: int, value: int, file: str, on: RecordingsVersion
    ) -> tuple[Content, tuple[int, ...]] | None:
        """The rule of a writer: its batch is not there yet. A later content takes the place of an earlier one."""
        content, batches = self._content(on), self._batches(on)
        if batch in batches:
            return None
        value_there = content.get(recording, (0, ""))[0]
        given = (max(value, value_there + 1), file)
        return {**content, recording: given}, (*batches, batch)

    def _publish(
        self,
        who: str,
        run: str,
        began: int,
        base: RecordingsVersion,
        change: Callable[[RecordingsVersion], tuple[Content, tuple[int, ...]] | None],
    ) -> Generator[None, None, int | bool | None]:
        """Publish on top of what there is, as often as it takes, and give the number of the version.

        False where nothing was published, None where it is not known whether that was done.
        """
        asked: tuple[Content, tuple[int, ...]] | None = None
        while True:
            if not base.spares(run, began) and self.unsafe != "ignores_spared":
                self.story.append(f"{who}: may not go on top of version {base.number}")
                return False
            changed = change(base)
            if self.unsafe == "asks_once" and asked is not None:
                content, batches = self._content(base), self._batches(base)
                changed = (
                    {**content, **{k: v for k, v in asked[0].items() if k not in content}},
                    (
                        *batches,
                        asked[1][-1],
                    ),
                )
            if changed is None:
                return False
            asked = changed
            table = f"{run}-{next(self.names)}"
            self.files.add(table)
            self.contents[table], batches = changed
            yield
            version = replace(
                following_version(base, who, 0.0),
                tables=(TableRef(table, "", 1),),
                batches={str(batch): n for batch, n in Counter(batches).items()},
            )
            made = self._put(who, version)
            yield
            if made and self._counts(version.number):
                return version.number
            if made or made is None:
                return None
            self.files.discard(table)
            yield
            base = self.newest
            yield

    def _compact(self, who: str) -> Actor:
        """Write all recordings into one file, and keep those of them that are still the same."""
        base = before = self.newest
        run = f"{who}r{next(self.names)}"
        yield
        self._send(lambda: self.announced.add(run))
        yield
        mine = f"{run}-{next(self.names)}"
        self.files.add(mine)
        yield

        def rewritten(on: RecordingsVersion) -> tuple[Content, tuple[int, ...]] | None:
            old, now = self._content(before), self._content(on)
            if self.unsafe == "compacts_all":
                return {k: (old.get(k, v)[0], mine) for k, v in now.items()}, self._batches(on)
            same = {k for k, v in now.items() if old.get(k) == v}
            if not same:
                return None
            return {k: (v[0], mine) if k in same else v for k, v in now.items()}, self._batches(on)

        done = yield from self._publish(who, run, base.number, base, rewritten)
        if done is False:
            self.files.discard(mine)
        yield
        self._send(lambda: self.announced.discard(run))

    def _tag(self, who: str) -> Actor:
        """Give a version a tag, or move one, and mostly remove it again."""
        name = self.draw.choice("ab")
        yield from self._named_change(who, "tags_what_is_gone", lambda _, number: {"tags": {name: number}})
        yield
        if self.draw.random() < 0.7:
            yield from self._named_change(who, "", lambda _, __: {"tags": {name: None}})

    def _restore(self, who: str) -> Actor:
        yield
        yield from self._named_change(who, "restores_what_is_gone", lambda old, _: restoration_of(old))

    def _named_change(self, who: str, unsafe: str, fields: Callable[[RecordingsVersion, int], Any]) -> Actor:
        """Publish a version with some fields that follow from an earlier one, unless that is gone by then."""
        base = self.newest
        if not base.number:
            return
        number = self.draw.choice([number for number in self.versions if base.counts(number)])
        old = self.versions[number]
        while True:
            yield
            if not base.counts(number) and not (unsafe and self.unsafe == unsafe):
                return
            changed = dict(fields(old, number))
            if "tags" in changed:
                tags = {**base.tags, **changed["tags"]}
                changed["tags"] = {tag: tagged for tag, tagged in tags.items() if tagged is not None}
            version = replace(following_version(base, who, 0.0), **changed)
            made = self._put(who, version)
            yield
            if made or made is None:
                return
            base = self.newest

    def _vacuum(self, who: str) -> Actor:
        for _ in range(2):
            yield from self._vacuum_once(who)

    def _vacuum_once(self, who: str) -> Actor:
        there = list(self.files)
        yield
        newest = self.newest
        needed = self._needed(newest)
        while True:
            yield
            living = {run for run in self.announced if self.draw.random() < 0.8}
            dead = self.announced - living
            yield
            doomed = [name for name in there if is_doomed(name, needed, living)]
            version = following(newest, living, newest.number, 0.0)
            if self.unsafe == "spares_for_ever":
                version = replace(version, spared=dict.fromkeys(living, 0))
            if self.unsafe == "removes_first":
                yield from self._remove(doomed)
            made = self._put(who, version)
            yield
            if made and self._counts(version.number):
                break
            if made or made is None:
                return
            newest = self.newest
            if self.unsafe != "keeps_its_list":
                needed = self._needed(newest)
        self.story.append(f"{who}: spares {sorted(living)}, removes {sorted(doomed)}")
        for run in dead:
            self._send(lambda run=run: self.announced.discard(run))  # type: ignore[misc]
            yield
        for number in sorted(self.versions):
            if version.counts(number) and not (self.unsafe == "forgets_tags" and number < version.first):
                continue
            if number > version.number:
                continue
            self._send(lambda number=number: self._forget(number, version.first))  # type: ignore[misc]
            yield
        yield from self._remove(doomed)

    def _needed(self, newest: RecordingsVersion) -> set[str]:
        """The files that a vacuum has to leave."""
        tagged = () if self.unsafe == "forgets_files_of_tags" else newest.tags.values()
        versions = [newest, *(self.versions[number] for number in tagged if number in self.versions)]
        return set().union(*map(self._named, versions))

    def _forget(self, number: int, first: int) -> None:
        assert number < first
        self.versions.pop(number, None)

    def _remove(self, names: Sequence[str]) -> Actor:
        for name in names:
            self._send(lambda name=name: self.files.discard(name))  # type: ignore[misc]
            yield


_EMPTY: Final = RecordingsVersion(0, 0.0, "", (), {}, 0, 0, 0, 0)


def played(number: int, seed: int, unsafe: str = "") -> Run:
    """Play a run."""
    run = Run(random.Random(f"{seed}:{number}"), unsafe)
    run.play()
    return run


def found_at(unsafe: str, seed: int = 1, most: int = 20000) -> int | None:
    """The number of the first run that finds a mistake."""
    return next((number for number in range(most) if played(number, seed, unsafe).wrong), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--unsafe", default="", choices=["", *UNSAFE])
    options = parser.parse_args(arguments)
    numbers = range(options.runs) if options.only is None else [options.only]
    failed = 0
    for number in numbers:
        run = played(number, options.seed, options.unsafe)
        if run.wrong:
            failed += 1
            print("\n  ".join([f"FAILED {number}", *run.story, *run.wrong]))
            print(f"  again: python tests/faults/writers_model.py --seed {options.seed} --only {number}", flush=True)
    print(f"{len(numbers) - failed} passed, {failed} failed; seed {options.seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
