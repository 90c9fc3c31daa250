"""The landing log: which files were offered to the ingestion, batch by batch, and as what.

Guarantees. An entry appears whole or not at all, and never changes: it is written and synced under another name, and
gets its own in one step, on the condition that there is none of its number. After a failure the log is read anew, so
that an entry of which nobody knows whether it appeared is found. Merging old entries
writes their sum first, in the same way, and removes them then; until they are gone they are passed over. So a process
may be killed anywhere, and the next one finds what was appended, all of it and nothing else.

An append costs the same however long the log is. Memory and the merged file grow with the number of paths that are
known: one million take 0.4 GB of memory and some 20 MB of disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ReadError, SourceMissingError, WriteError, writing
from ..execution import Folder, LocalFolder, sync_folder
from ..faults import reach
from ..locations import Location
from .files import LandedFile
from .landing_files import (
    SCHEMA,
    entry_bytes,
    entry_name,
    gone_bytes,
    gone_name,
    merged_bytes,
    merged_name,
    newest_entry,
    numbers_in,
    read_entry,
    read_gone,
    read_merged,
)

_POINTS: Final = ("landing.write", "landing.append")
_DRAFT: Final = ".draft"
_ATTEMPTS: Final = 10


@dataclass(slots=True)
class _State:
    """The content of the log: its numbers, each path with what it was offered as last, and its entry if not merged."""

    merged: int = 0
    newest: int = 0
    seen: dict[str, LandedFile] = field(default_factory=dict)
    entry_of: dict[str, int] = field(default_factory=dict)

    def add(self, number: int, files: Iterable[LandedFile]) -> None:
        for file in files:
            self.seen[file.path] = file
            self.entry_of[file.path] = number
        self.newest = number

    def forget(self, number: int, paths: Iterable[str]) -> None:
        """Know no more of ``paths``, unless an entry after ``number`` offered them."""
        for path in paths:
            if self.entry_of.get(path, 0) <= number:
                self.entry_of.pop(path, None)
                self.seen.pop(path, None)


class LandingLog:
    """The landing log in a folder. One process writes to it at a time; it may be read meanwhile."""

    def __init__(self, folder: Location) -> None:
        self._folder = Folder.at(folder)
        self._state: _State | None = None
        self._is_made = False

    # --- reading

    def newest(self) -> int:
        """The number of the newest entry, 0 where there is none; as it is in the folder."""
        return newest_entry(self._folder)

    def files(self, number: int) -> list[LandedFile]:
        """The files of an entry, in its order.

        Raises ``SourceMissingError`` where there is no such entry, or it was merged with others; ``ReadError`` where it
        is torn.
        """
        return read_entry(self._folder, number)

    def seen(self, path: str) -> LandedFile | None:
        """The file that ``path`` was last offered as, or None. Raises ``ReadError`` where the log is torn."""
        return self._loaded().seen.get(path)

    @property
    def paths(self) -> Collection[str]:
        """All paths that are known to have been offered."""
        return self._loaded().seen.keys()

    @property
    def merged(self) -> int:
        """The number up to which entries are merged."""
        return self._loaded().merged

    def check(self, done: int) -> None:
        """Raise ``ReadError`` where the log is torn, or ends before the batch that is known to be ``done``."""
        newest = self._loaded().newest
        if newest < done:
            raise ReadError(
                f"the checkpoint is torn: batch {done} is done, and the landing log ends at {newest}",
                path=str(self._folder.location),
                hint="Restore the log from a copy. Without one, remove the whole checkpoint and start again: every "
                "file is offered anew, and those whose content is in the store are recognised.",
            )

    # --- writing

    def append(self, files: Sequence[LandedFile]) -> int:
        """Write the next entry, and give its number. Raises ``WriteError``."""
        state = self._loaded()
        number = state.newest + 1
        self._make()
        self._create(entry_name(number), entry_bytes(number, files), _POINTS)
        state.add(number, files)
        return number

    def forget(self, number: int, paths: Collection[str]) -> None:
        """Note that of ``paths`` nothing is known any more, as at entry ``number``: they count as never offered.

        To be called before the entry's batch is done; when it is repeated for an entry, the last time counts.
        Raises ``WriteError``, and ``ValueError`` for an entry that was merged.
        """
        state = self._loaded()
        if number <= state.merged:
            raise ValueError(f"entry {number} was merged: its batch is done")
        if not paths:
            return
        self._make()
        name, data = gone_name(number), gone_bytes(number, paths)
        if self._folder.exists(name) and self._folder.get(name) != data:
            with writing(self._folder.place(name)):
                self._folder.delete([name])  # of a run that was cut before its batch was done
            self._state = None
        self._create(name, data, again=True)
        if self._state is not None:
            state.forget(number, paths)

    def compact(self, before: int, present: Collection[str] | None) -> int:
        """Merge the entries below ``before``, and give how many those were; the newest entry always stays.

        Paths that were offered by merged entries and are not ``present`` are dropped: should they come back, they are
        offered again. None drops nothing. Costs as much as the number of known paths. Raises ``WriteError``.
        """
        state = self._loaded()
        last = min(before, state.newest) - 1
        count = last - state.merged
        if count <= 0:
            return 0
        whole = self._merged_up_to(state, last)
        kept = whole if present is None else whole.filter(pc.is_in(whole["path"], _paths(present)))
        self._make()
        self._create(merged_name(last), merged_bytes(last, kept))
        reach("landing.compact")
        state.merged = last
        state.entry_of = {path: number for path, number in state.entry_of.items() if number > last}
        if kept.num_rows < whole.num_rows:
            state.forget(last, whole.filter(pc.invert(pc.is_in(whole["path"], kept["path"])))["path"].to_pylist())
        self._tidy()
        return count

    def _merged_up_to(self, state: _State, last: int) -> pa.Table:
        """The files of the entries up to ``last``, each path once, as it was offered last."""
        added, numbers = _State(), numbers_in(self._folder.names())
        gone: set[str] = set()
        for number in range(state.merged + 1, last + 1):
            added.add(number, read_entry(self._folder, number))
            if number in numbers.gone:
                paths = read_gone(self._folder, number)
                added.forget(number, paths)
                gone.update(paths)
        table = _table(added.seen.values())
        if not state.merged:
            return table
        before = read_merged(self._folder, state.merged)
        superseded = pa.concat_arrays([table["path"].combine_chunks(), _paths(gone)])
        return pa.concat_tables([before.filter(pc.invert(pc.is_in(before["path"], superseded))), table])

    def _create(self, name: str, data: bytes, points: tuple[str, str] | None = None, *, again: bool = False) -> None:
        place = self._folder.place(name)
        try:
            with writing(place):
                created = self._folder.create(name, data, points)
        except BaseException:
            self._state = None  # whether it is there is to be seen
            raise
        if not created and not again:
            self._state = None
            raise WriteError(
                "this file of the landing log is there already, with other content",
                path=place,
                hint="Another ingestion writes to this checkpoint; let only one run.",
            )

    def _make(self) -> None:
        """Make the folder, or clear away in it what an earlier process left, the first time."""
        if self._is_made:
            return
        with writing(str(self._folder.location)):
            self._folder.make()
            if isinstance(self._folder, LocalFolder):
                sync_folder(self._folder.location.parent)
            self._folder.delete(name for name in list(self._folder.names()) if name.endswith(_DRAFT))
        self._is_made = True
        self._tidy()

    def _tidy(self) -> None:
        """Remove what the newest merged file has made superfluous."""
        with writing(str(self._folder.location)):
            entries, gone, merged = numbers_in(self._folder.names())
            newest = max(merged, default=0)
            self._folder.delete(entry_name(n) for n in entries if n <= newest)
            self._folder.delete(gone_name(n) for n in gone if n <= newest)
            self._folder.delete(merged_name(n) for n in merged if n < newest)

    # --- loading

    def _loaded(self) -> _State:
        """The content of the log; read once, and again after a failure."""
        attempts = _ATTEMPTS
        while self._state is None:
            try:
                self._state = self._load()
            except SourceMissingError:
                attempts -= 1
                if not attempts:
                    raise
                # Otherwise another process has merged it since the folder was listed.
        return self._state

    def _load(self) -> _State:
        try:
            numbers = numbers_in(self._folder.names())
        except (FileNotFoundError, SourceMissingError):
            return _State()
        state = _State(merged=max(numbers.merged, default=0))
        state.newest = state.merged
        if state.merged:
            state.seen = {file.path: file for file in _files(read_merged(self._folder, state.merged))}
        gone = set(numbers.gone)
        for number in range(state.merged + 1, numbers.newest + 1):
            state.add(number, read_entry(self._folder, number))
            if number in gone:
                state.forget(number, read_gone(self._folder, number))
        return state


def _table(files: Collection[LandedFile]) -> pa.Table:
    columns = ([getattr(file, name) for file in files] for name in SCHEMA.names)
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def _files(table: pa.Table) -> Iterable[LandedFile]:
    return map(LandedFile, *(table[name].to_pylist() for name in SCHEMA.names))


def _paths(paths: Collection[str]) -> pa.Array:
    return pa.array(list(paths), SCHEMA.field("path").type)
