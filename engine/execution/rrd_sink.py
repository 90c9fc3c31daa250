"""RRDs as sinks: one file, or a folder of shards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import WriteError
from ..locations import Location
from ..objects import ObjectUrl
from ..reports import RunReport
from ..rrd import FileRun, StoreEntry
from .commit import RrdCommit, commit_shards
from .extents import RunPlaces, all_extents
from .folders import Folder
from .joined import JoinedWork
from .part import RrdParts
from .reporting import Ran
from .sink import Sink, write_to
from .stage import RunOptions
from .staging import Staging
from .work import Work, whole_run_of


class RrdSink(Sink):
    """One RRD of some stores; each has the chunks of its work.

    Guarantee: it appears whole or not at all.
    """

    def __init__(self, destination: Location, outputs: Sequence[tuple[StoreEntry, Work]]) -> None:
        self.destination = destination
        self._outputs = outputs
        self._stores = tuple(store for store, work in outputs for _ in work.tasks)
        self._commit: RrdCommit | None = None

    def begin(self, work: Work, staging: Staging) -> RrdParts:
        """Begin the file, where parts can be brought into it while tasks run."""
        self._commit = RrdCommit(staging, self.destination, [store for store, _ in self._outputs])
        whole = whole_name(self.destination, self._outputs)
        runs = RunPlaces() if whole and whole_run_of(work, 0) is None else self._places(work, self._commit)
        return RrdParts(self._stores, str(self.destination), runs=runs, whole=(whole,) if whole else ())

    def commit(self, ran: Ran, staging: Staging) -> int:  # noqa: ARG002 (it was begun there)
        """Name the one part that is a whole RRD, or bring parts together."""
        assert self._commit is not None
        return commit_ran(self._commit, ran, self._stores)

    def abort(self) -> None:
        """Throw away what was begun."""
        if self._commit is not None:
            self._commit.close()

    def _places(self, work: Work, commit: RrdCommit) -> RunPlaces:
        runs = [(whole_run_of(work, i), store) for i, store in enumerate(self._stores)]
        sizes = [run.size_in(store) for run, store in runs if run is not None]
        if sizes and len(sizes) == len(self._stores):
            return RunPlaces(commit.reserve(sizes))
        files = [(run if isinstance(run, FileRun) else None, store) for run, store in runs]
        return RunPlaces(at_source=commit.follow(files))


class ShardSink(Sink):
    """A folder of RRDs of one store, each of at most ``shard_bytes``.

    Guarantee: it appears whole or not at all. In an object store the shards appear one after the other, in quick
    succession, when all are there.
    """

    def __init__(self, destination: Location, store: StoreEntry, shard_bytes: int) -> None:
        self.destination = destination
        self._store = store
        self._shard_bytes = shard_bytes

    def begin(self, work: Work, staging: Staging) -> RrdParts:  # noqa: ARG002
        """Nothing needs to be prepared."""
        return RrdParts((self._store,) * len(work.tasks), str(self.destination))

    def commit(self, ran: Ran, staging: Staging) -> int:
        """Divide the chunks among shards."""
        return commit_shards(staging, self.destination, self._store, ran.chunks, self._shard_bytes)


def write_rrd(destination: Location, outputs: Sequence[tuple[StoreEntry, Work]], options: RunOptions) -> RunReport:
    """Run works and commit their chunks as one RRD with a store for each; see :func:`write_to`."""
    work: Work = outputs[0][1] if len(outputs) == 1 else JoinedWork([w for _, w in outputs])
    check_destination(destination, work)
    return write_to(RrdSink(destination, outputs), work, options)


def write_rrd_shards(
    destination: Location, store: StoreEntry, shard_bytes: int, work: Work, options: RunOptions
) -> RunReport:
    """Run work and commit its chunks as a folder of RRDs; see :class:`ShardSink`."""
    _check_shard_folder(destination)
    return write_to(ShardSink(destination, store, shard_bytes), work, options)


def commit_ran(commit: RrdCommit, ran: Ran, stores: Sequence[StoreEntry]) -> int:
    """Let what tasks wrote appear as one RRD, ``stores`` being those of the tasks; gives its size in bytes."""
    whole = ran.whole()
    if whole is None:
        return commit.finish(stores, all_extents(ran.chunks, ran.listed))
    name, size = whole
    commit.take(name)
    return size


def whole_name(destination: Location, outputs: Sequence[tuple[StoreEntry, Work]]) -> str:
    """The name of a file that one task may write whole, as nothing else comes into it; empty where there is none."""
    alone = len(outputs) == 1 and len(outputs[0][1].tasks) == 1
    return str(destination) if alone and not isinstance(destination, ObjectUrl) else ""


def _check_shard_folder(destination: Location) -> None:
    if isinstance(destination, ObjectUrl):
        is_taken = Folder.at(destination).exists()
    else:
        is_taken = destination.exists() and (not destination.is_dir() or any(destination.iterdir()))
    if is_taken:
        raise WriteError(
            "is there already", path=str(destination), hint="Shards go into a folder that is new or empty."
        )


def check_destination(destination: Location, work: Work, *, parents: bool = True) -> None:
    """Whether an RRD can be written there: ``parents``, its folder must be there already. Raises ``WriteError``."""
    if isinstance(destination, ObjectUrl):
        if str(destination) in work.source_paths():
            raise _is_source(destination)
        return
    if destination.is_dir():
        raise WriteError("is a folder", path=str(destination), hint="Give the name of a file in it.")
    if parents and not destination.parent.is_dir():
        raise WriteError(
            "cannot be written: No such file or directory (os error 2)",
            path=str(destination),
            hint=f"Make the folder {destination.parent} first.",
        )
    if destination.exists():
        for source in work.source_paths():
            if Path(source).exists() and destination.samefile(source):
                raise _is_source(destination)


def _is_source(destination: Location) -> WriteError:
    return WriteError(
        "is a source of the same pipeline",
        path=str(destination),
        hint="Write to another file; the source would be lost while it is read.",
    )
