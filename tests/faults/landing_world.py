"""A landing folder to which files come, and in which names change hands; and what each of the files holds."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fault_content import digest_of_path, rrd_contents
from fault_world import LONG_AGO, recording

NAMES: Final = ("drive.rrd", "drive.1.rrd", "drive.2.rrd", "a.rrd", "below/b.rrd")
GOOD: Final = 7
RIVALS: Final = 2
BAD: Final = 2


@dataclass
class Contents:
    """Files to land: good ones; some with one recording id, of which the store takes one; some that are broken."""

    files: dict[str, bytes] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def made_in(cls, folder: Path) -> Contents:
        """Make them."""
        made = cls()
        folder.mkdir()
        for number in range(GOOD + RIVALS):
            path = folder / (f"good-{number}" if number < GOOD else f"rival-{number}")
            recording(path.with_suffix(".rrd"), number if number < GOOD else GOOD, rows=2 + number % 2 + number // GOOD)
            path.with_suffix(".rrd").rename(path)
        for number in range(BAD):
            (folder / f"bad-{number}").write_bytes(b"no recording" + bytes(number))
        for path in sorted(folder.iterdir()):
            made.files[path.name] = path.read_bytes()
            made.digests[path.name] = digest_of_path(path)
            if not path.name.startswith("bad"):
                target = path.with_suffix(".rrd")
                path.rename(target)
                made.values[made.digests[path.name]] = rrd_contents(target)
        return made

    def name_of(self, digest: str) -> str:
        """The content of a digest."""
        return next(name for name, found in self.digests.items() if found == digest)


class World:
    """A landing folder and what is known of it."""

    def __init__(self, root: Path, contents: Contents, draw: random.Random) -> None:
        self.root = root
        self.landing = root / "landing"
        (self.landing / "below").mkdir(parents=True)
        self.contents = contents
        self.draw = draw
        self.story: list[str] = []
        self.made: set[str] = set()
        """Names under which something has appeared since the last ingestion that came to its end."""
        self._clock = LONG_AGO

    def tell(self, text: str) -> None:
        """Go on with the story."""
        self.story.append(text)

    # --- what happens to the folder

    def change(self) -> None:
        """Do something."""
        kinds = [self.write] * 5 + [self.rename, self.swap, self.rotate, self.rotate, self.copy, self.remove, self.hide]
        self.draw.choice(kinds)()

    def write(self) -> None:
        """Write a file, in one step."""
        kind = self.draw.choices(["good", "rival", "bad"], [8, 1, 2])[0]
        self._write(self.draw.choice(NAMES), self.draw.choice([c for c in self.contents.files if c.startswith(kind)]))

    def _write(self, name: str, content: str) -> None:
        draft = self.landing / ".draft"
        draft.write_bytes(self.contents.files[content])
        self._date(draft)
        self._move(draft, name)
        self.tell(f"{name} := {content}")

    def rename(self) -> None:
        """Give a file another name, over what is there."""
        one, other = self.draw.sample(NAMES, 2)
        if (self.landing / one).exists():
            self._move(self.landing / one, other)
            self.tell(f"mv {one} {other}")

    def swap(self) -> None:
        """Let two files have each other's names."""
        one, other = self.draw.sample(NAMES, 2)
        if (self.landing / one).exists() and (self.landing / other).exists():
            (self.landing / one).rename(self.landing / ".swap")
            self._move(self.landing / other, one)
            self._move(self.landing / ".swap", other)
            self.tell(f"swap {one} {other}")

    def rotate(self) -> None:
        """Rotate files, as a recorder does; often with a new one."""
        for one, other in (("drive.1.rrd", "drive.2.rrd"), ("drive.rrd", "drive.1.rrd")):
            if (self.landing / one).exists():
                self._move(self.landing / one, other)
        self.tell("rotate")
        if self.draw.random() < 0.7:
            self._write("drive.rrd", f"good-{self.draw.randrange(GOOD)}")

    def copy(self) -> None:
        """Copy a file, with its time or a new one."""
        one, other = self.draw.sample(NAMES, 2)
        if (self.landing / one).exists():
            shutil.copy2(self.landing / one, self.landing / ".copy")
            keeps = self.draw.random() < 0.5
            if not keeps:
                self._date(self.landing / ".copy")
            self._move(self.landing / ".copy", other)
            self.tell(f"cp {'-p ' * keeps}{one} {other}")

    def remove(self) -> None:
        """Remove a file."""
        name = self.draw.choice(NAMES)
        (self.landing / name).unlink(missing_ok=True)
        self.tell(f"rm {name}")

    def hide(self) -> None:
        """Move a file out of sight, or back."""
        name = self.draw.choice(NAMES)
        hidden = self.landing / f".{Path(name).name}.hidden"
        if hidden.exists():
            self._move(hidden, name)
            self.tell(f"show {name}")
        elif (self.landing / name).exists():
            (self.landing / name).rename(hidden)
            self.tell(f"hide {name}")

    def _move(self, path: Path, name: str) -> None:
        path.replace(self.landing / name)
        self.made.add(name)

    def _date(self, path: Path) -> None:
        self._clock += 1
        os.utime(path, (self._clock + self.draw.choice([0, 0, -5000]),) * 2)

    # --- what is there

    def there(self) -> dict[str, str]:
        """The content under each name."""
        found = {name: self.landing / name for name in NAMES if (self.landing / name).exists()}
        return {name: self.contents.name_of(digest_of_path(path)) for name, path in found.items()}
