"""Compaction: the files of a store of recordings written anew, fewer and without what is dead."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import UsageError
from ..execution.stage import RunOptions
from ..execution.staging import Staging
from ..faults import reach
from ..optimisation import OptimizationProfile
from .compaction_plan import Survey
from .entries import Key, RecordingEntry
from .new_files import NewFiles
from .rewriting import Layout, Rewriting, files_of
from .writer import Commit, StoreWriter

MIN_SHARD: Final = 64 << 20
"""Shards below this size, in bytes, are joined."""

BUDGET: Final = 4 << 30
"""Bytes that one commit of a compaction writes, at most."""


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The report of a compaction.

    ``versions``: the numbers of those it published. Counts of files and their ``bytes`` are of those that the newest
    version needs. ``moved``: how many recordings were written anew, ``laid_out`` of them in new chunks; ``written``:
    bytes of new shards. ``damaged``: ids of recordings that cannot be read, and were left as they are.
    """

    versions: tuple[int, ...]
    shards_before: int
    shards_after: int
    manifests_before: int
    manifests_after: int
    tables_before: int
    tables_after: int
    bytes_before: int
    bytes_after: int
    written: int
    moved: int
    laid_out: int
    damaged: tuple[str, ...]
    seconds: float


def compact_store(
    writer: StoreWriter,
    *,
    profile: OptimizationProfile | None = None,
    run: RunOptions | None = None,
    min_shard: int = MIN_SHARD,
    budget: int = BUDGET,
    thorough: bool = True,
) -> CompactionReport:
    """Write small and mostly dead shards anew, join manifests, and merge tables into one.

    Chunks are copied as they are, with their digests; only a recording whose chunks are smaller than ``profile``
    wants is laid out anew. Each commit writes at most about ``budget`` bytes and publishes a version that has the same
    recordings. Old versions keep their files until a vacuum, so who reads one is undisturbed. A store that needs
    nothing of it gets no version. ``thorough=False`` leaves what is not worth it yet, for a compaction every so often.

    Guarantee: a crash loses nothing; what it leaves is removed by a vacuum. Raises ``WriteError`` and
    ``CommitUnknownError`` as :meth:`StoreWriter.commit` does, ``ReadError`` for a store whose tables are damaged, and
    ``UsageError`` for sizes that are not positive.
    """
    if min_shard < 1 or budget < 1:
        raise UsageError(f"sizes must be positive, not {min_shard} and {budget}")
    return _Compaction(writer, profile, run or RunOptions(), min_shard, budget, thorough).run()


class _Compaction:
    def __init__(
        self,
        writer: StoreWriter,
        profile: OptimizationProfile | None,
        run: RunOptions,
        min_shard: int,
        budget: int,
        thorough: bool,
    ) -> None:
        self._writer = writer
        self._survey = Survey(writer.folder)
        self._layout = None if profile is None else Layout(writer.folder, profile, run)
        self._min_shard = min(min_shard, max(writer.shard_bytes // 2, 1))  # so that joined ones are small no more
        self._budget = max(budget, writer.shard_bytes)
        self._thorough = thorough
        self._skip: set[str] = set()
        self._damaged: dict[Key, RecordingEntry] = {}
        self._moved: set[Key] = set()
        self._laid_out: set[Key] = set()
        self._written = 0

    def run(self) -> CompactionReport:
        """Round after round, until nothing is worth it."""
        began = time.perf_counter()
        self._writer.catch_up()
        before = self._counts()
        first = self._writer.number
        while self._writer.version is not None and (self._round(began) or self._merge_tables(began)):
            self._survey.look(self._writer.live)
        after = self._counts()
        return CompactionReport(
            versions=tuple(range(first + 1, self._writer.number + 1)),
            shards_before=before[0],
            shards_after=after[0],
            manifests_before=before[1],
            manifests_after=after[1],
            tables_before=before[2],
            tables_after=after[2],
            bytes_before=before[3],
            bytes_after=after[3],
            written=self._written,
            moved=len(self._moved),
            laid_out=len(self._laid_out),
            damaged=tuple(sorted(entry.recording_id for entry in self._damaged.values())),
            seconds=time.perf_counter() - began,
        )

    def _counts(self) -> tuple[int, int, int, int]:
        survey, version = self._survey, self._writer.version
        survey.look(self._writer.live)
        return len(survey.shards), len(survey.manifests), len(version.tables) if version else 0, survey.size

    def _round(self, began: float) -> bool:
        """One commit; whether there was anything for it."""
        writer, survey = self._writer, self._survey
        anew = self._layout.next(writer.live, self._budget) if self._layout else []
        if anew:
            shards, manifests = set[str](), set[str]()
        else:
            found = survey.doomed_shards(self._min_shard, self._budget, self._skip, thorough=self._thorough)
            shards = set(found)
            manifests = set(survey.doomed_manifests(found, self._budget, self._skip, thorough=self._thorough))
            if not shards and not manifests:
                return False
        with Staging.beside(writer.folder.path / "compact") as staging:
            files = NewFiles(writer.folder, staging, writer.shard_bytes)
            with writer.undoing(files):
                rewriting = Rewriting(writer.folder, files)
                if self._layout and anew:
                    self._layout.run(anew, rewriting, staging)
                for entry in _touched(writer.live, shards, manifests):
                    if entry.key not in self._damaged:
                        rewriting.move(entry, shards)
                files.finish()
                reach("compact.run")
                self._note_damaged(rewriting)
                if not self._helps(rewriting, files, laid_out=bool(anew)):
                    self._skip |= shards | manifests
                    files.discard()
                    return bool(anew)
                entries = [rewriting.entries.get(entry.key, entry) for entry in writer.live]
                writer.rewrite(entries, Commit("compact", began=began))
            reach("compact.commit")
        self._moved |= rewriting.entries.keys()
        if anew:
            self._laid_out |= rewriting.entries.keys()
        self._written += files.shards.size
        return True

    def _note_damaged(self, rewriting: Rewriting) -> None:
        """Leave what lies in a file with a damaged recording where it is: the file cannot go."""
        self._damaged.update(rewriting.damaged)
        self._skip |= files_of(rewriting.damaged)

    def _helps(self, rewriting: Rewriting, files: NewFiles, *, laid_out: bool) -> bool:
        """Whether the store has fewer files with the new ones, or fewer bytes."""
        if laid_out or not rewriting.entries:
            return bool(rewriting.entries)
        now = {entry.key: entry for entry in self._writer.live}
        old, new = files_of(now), files_of(now | rewriting.entries)
        gone = old - new
        uses = self._survey.shards | self._survey.manifests
        freed = sum(uses[name].size for name in gone)
        manifests = sum(entry.manifest_size for entry in rewriting.entries.values())
        return len(new) < len(old) or 4 * freed > 5 * (files.shards.size + manifests)

    def _merge_tables(self, began: float) -> bool:
        """Merge tables into one, and leave out what was replaced; whether that was needed."""
        version, live = self._writer.version, self._writer.live
        if not self._thorough or version is None:
            return False
        if len(version.tables) < 2 and sum(table.entries for table in version.tables) == len(live):
            return False
        self._writer.rewrite(list(live), Commit("compact", began=began))
        reach("compact.commit")
        return True


def _touched(live: Iterable[RecordingEntry], shards: set[str], manifests: set[str]) -> Sequence[RecordingEntry]:
    return [e for e in live if e.manifest in manifests or not shards.isdisjoint(e.shards)]
