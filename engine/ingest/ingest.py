"""``Ingest``: a landing folder into recordings, continuously and exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from ...readers import all_suffixes, checked_options, lands_whole
from ..errors import UsageError
from ..execution import Lease, RunOptions, executor_name
from ..inputs import SourceOptions
from ..limits import MIB
from ..locations import Location, local_path, located
from ..optimisation import OptimizationProfile
from ..pipelines import Pipeline, load_pipeline
from ..recordings import RecordingsFolder, StoreWriter, check_no_catalog
from ..storage import ObjectUrl
from ..stream import LazyChunkStream, PlaceholderSource
from ..units import seconds_of
from ..writers import ExportSpec
from .batch import DIAGNOSE, BatchOptions, BatchRunner
from .checkpoint import HIDDEN_HOME, Checkpoint
from .files import Disposal, SourceDone
from .landing import Landing, Lister
from .landing_log import LandingLog
from .metrics import IngestListener
from .quarantine import FileQuarantine
from .query import IngestParts, IngestQuery, LeRobotSink, Upkeep

MAX_FILES: Final = 256
MAX_BYTES: Final = 4096 * MIB

_PipelineLike = str | os.PathLike[str] | Callable[[LazyChunkStream], LazyChunkStream] | Pipeline


@dataclass(frozen=True, kw_only=True)
class _Places:
    source: Location
    home: Location
    into: Location | None
    rrds: Location | None
    checkpoint: Location


class Ingest:
    """Watches a landing folder, and brings every file that lands there into a store of recordings, once.

    ::

        Ingest("landing/", pipeline="pipeline.py", into="lake/drives").start().await_termination()

    Guarantee: every complete file becomes visible exactly once, known by the digest of its content, whatever is killed
    meanwhile; a batch of files appears in one step. A file that fails goes into quarantine with its error and stops
    nothing. A file that is replaced under its name gets a new segment version; files with known content are skipped.

    Parameters
    ----------
    source
        The landing folder: a local path, or the prefix of an object store. MCAP, RRD and Parquet files in it and below
        are taken; names that begin with ``.`` or ``_`` or end with ``.tmp``, ``.part`` and the like are passed over.
    pipeline
        A Python file that defines ``pipeline(stream)`` (``FILE.py`` or ``FILE.py:NAME``), or a function.
    into
        The store of recordings, a folder or URL; it is made when there is none. See :class:`RecordingStore`. Or a
        dataset of a catalog, whose columns have one type each: a file with another goes into quarantine. The ingestion
        ends with a ``NotFoundError`` once the dataset was deleted.
    rrds
        A folder that gets an RRD for each file, beside the store or instead of it.
    checkpoint
        What the ingestion knows of its progress; by default in the store (in ``.chunkmill`` of the folder of RRDs).
    optimize
        How chunks are laid out; None leaves them as the pipeline gave them.
    max_files_per_trigger, max_bytes_per_trigger
        How much goes into one batch, at most; a batch has one file at least. None: no bound.
    settle
        A file is taken when it has not changed for so long (``"1s"``, ``"5 minutes"``, or seconds).
    source_done
        What to do with a file once it is in the store: ``"keep"``, ``"archive"`` (into ``archive``, a local folder for
        local files, a prefix of the same bucket for objects) or ``"delete"``.
    content, application_id
        Which entities are kept, and the application of recordings that have none; as for ``chunkmill convert``.
    replace_same_id
        Whether a recording takes the place of another file's with the same id; otherwise it is refused, which means
        that its file goes into quarantine.
    diagnose
        Examine each file for faults of meaning, as :func:`diagnose` does, before it is stored: ``"warn"`` warns of
        them, ``"quarantine"`` also puts files with errors into quarantine. Each file is read once more.
    keep_versions
        How long old versions of the store stay for those who read them.
    compact_every
        After how many batches small files of the store are joined, where that is worth it; None leaves them.
    lerobot, lerobot_spec
        A LeRobot dataset of the recordings in the store, which is brought up to date whenever no batch waits; a local
        folder. ``lerobot_spec`` says what is in it: see :func:`write_lerobot`, whose ``append`` and
        ``on_error="skip"`` apply. A recording of the store that is replaced or deleted is, in the dataset, too.
    executor, master, conf
        Where it runs: ``"spark"`` (the default) or ``"inline"``, Spark's master and settings.
    listeners
        Objects that are called with each event; see :class:`IngestListener`.
    reading
        Options of formats, of which each file takes those of its own, by the names that they have as flags of
        ``chunkmill convert`` or as arguments of the reader: ``topics``, ``exclude_topics``, ``start_time_ns``,
        ``recover``, ``index_columns`` and so on. ``parquet`` takes those of :class:`ParquetReader` as a mapping.

    Raises
    ------
    UsageError
        The call makes no sense; nothing has been written then.
    PipelineError
        The file of the pipeline is not fit to run, whatever lands; see ``chunkmill check``.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        into: str | os.PathLike[str] | None = None,
        rrds: str | os.PathLike[str] | None = None,
        pipeline: _PipelineLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        optimize: OptimizationProfile | None = OptimizationProfile.OBJECT_STORE,
        max_files_per_trigger: int | None = MAX_FILES,
        max_bytes_per_trigger: int | None = MAX_BYTES,
        settle: float | str = "1s",
        source_done: str = "keep",
        archive: str | os.PathLike[str] | None = None,
        content: Sequence[str] = (),
        parquet: Mapping[str, Any] | None = None,
        application_id: str | None = None,
        replace_same_id: bool = False,
        diagnose: str | None = None,
        keep_versions: float | str = "1h",
        compact_every: int | None = None,
        lerobot: str | os.PathLike[str] | None = None,
        lerobot_spec: ExportSpec | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        executor: str | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        listeners: Sequence[IngestListener] = (),
        **reading: Any,
    ) -> None:
        self._places = _places(source, into, rrds, checkpoint)
        self._dataset = None if into is None or isinstance(into, str | PurePath | ObjectUrl) else into
        for name, value in (("max_files", max_files_per_trigger), ("max_bytes", max_bytes_per_trigger)):
            if value is not None and value < 1:
                raise UsageError(f"{name}_per_trigger must be at least 1, not {value}")
        if compact_every is not None and compact_every < 1:
            raise UsageError(f"compact_every must be at least 1, not {compact_every}")
        self._compact_every = compact_every
        self._max_files = max_files_per_trigger
        self._max_bytes = max_bytes_per_trigger
        self._settle = seconds_of(settle)
        self._keep_versions = seconds_of(keep_versions)
        self._profile = optimize
        self._run = RunOptions(executor_name(executor), master, conf)
        self._lerobot = _lerobot(lerobot, lerobot_spec, self._places, self._run)
        self._reading = SourceOptions(
            content=tuple(content),
            pipeline=None if pipeline is None else _fit_to_run(load_pipeline(pipeline), self._run.executor),
            reading=checked_options({**(parquet or {}), **reading}),
            application_id=application_id,
            executor=self._run.executor,
        )
        self._replace_same_id, self._diagnose = replace_same_id, _policy(diagnose)
        done = _source_done(source_done)
        if archive is not None and done is not SourceDone.ARCHIVE:
            raise UsageError(
                f"files that are to be {'kept' if done is SourceDone.KEEP else 'deleted'} need no archive",
                path=str(archive),
                hint="Ask for it (--source-done archive, source_done='archive'), or leave the folder out.",
            )
        self._disposal = Disposal(done, self._places.source, None if archive is None else located(archive))
        self._listeners = tuple(listeners)

    @property
    def home(self) -> Location:
        """The folder of the store, the quarantine and (by default) the checkpoint."""
        return self._places.home

    def check(self) -> Lister:
        """Check that the landing folder exists and that the checkpoint belongs to it, without writing anything.

        Raises ``SourceMissingError`` and ``UsageError`` as :meth:`start` does. Returns what lists the landing folder.
        """
        source = str(self._places.source)
        lister = Lister(source, settle_seconds=self._settle, suffixes=all_suffixes(), is_one=lands_whole)
        Checkpoint(self._places.checkpoint).check(self._places.source)
        return lister

    def start(self, *, once: bool = False, every: float | str = "1s") -> IngestQuery:
        """Begin to look for files, ``every`` so often; with ``once``, take the present files and end.

        The first batch runs soon after; :meth:`IngestQuery.await_termination` waits for the end.

        Raises
        ------
        SourceMissingError
            There is no such landing folder.
        WriteError
            Another process runs this ingestion, or the store cannot be written.
        UsageError
            The checkpoint is of another landing folder; nothing has been written then.
        ReadError
            The store or the checkpoint is damaged.
        """
        places = self._places
        pause = seconds_of(every)
        lister = self.check()
        folder = RecordingsFolder(places.home)
        folder.prepare()
        checkpoint = Checkpoint(places.checkpoint)
        identity = checkpoint.begin(places.source)
        lease = Lease.take(places.home, "ingest", name=identity.query_id)
        names = None
        try:
            if places.rrds is not None:  # nothing but this keeps two from giving two files one name
                names = Lease.take(places.home, "ingest", name="rrds")
            writer = StoreWriter(folder, lease)
            quarantine = FileQuarantine(places.home)
            log = LandingLog(checkpoint.landing)
            landing = Landing(lister, log, max_files=self._max_files, max_bytes=self._max_bytes)
            options = BatchOptions(
                places.source,
                self._reading,
                self._run,
                self._profile,
                keep_chunks=places.into is not None,
                rrds=places.rrds,
                replace_same_id=self._replace_same_id,
                dataset=self._dataset,
                diagnose=self._diagnose,
            )
            parts = IngestParts(
                query_id=identity.query_id,
                source=str(places.source),
                home=places.home,
                checkpoint=checkpoint,
                landing=landing,
                runner=BatchRunner(identity.query_id, writer, options, quarantine, self._disposal, landing),
                writer=writer,
                quarantine=quarantine,
                leases=(lease,) if names is None else (lease, names),
                run=self._run,
                settle=self._settle,
                listeners=self._listeners,
                upkeep=Upkeep(writer, self._keep_versions, self._compact_every),
                lerobot=self._lerobot,
            )
            return IngestQuery(parts, once=once, every=pause)
        except BaseException:
            for held_lease in (lease, names):
                if held_lease is not None:
                    held_lease.release()
            raise


def _places(
    source: str | os.PathLike[str],
    into: str | os.PathLike[str] | None,
    rrds: str | os.PathLike[str] | None,
    checkpoint: str | os.PathLike[str] | None,
) -> _Places:
    if into is None and rrds is None:
        raise UsageError("an ingestion needs a destination", hint="Name a store (into=…) or a folder of RRDs (rrds=…).")
    landing = located(source)
    store = None if into is None else located(into)
    folder = None if rrds is None else located(rrds)
    home = store if store is not None else located(rrds or "") / HIDDEN_HOME
    for place in (store, folder):
        if place is not None and f"{place}/".startswith(f"{landing}/"):
            raise UsageError(
                f"{place} is in the landing folder, whose files are ingested",
                path=str(landing),
                hint="Choose a folder beside it.",
            )
    if store is not None:
        check_no_catalog(store)
    if store is not None and folder is not None and f"{folder}/".startswith(f"{store}/"):
        raise UsageError(
            "the folder of RRDs is in the store, which has files of its own",
            path=str(folder),
            hint="Choose a folder beside it.",
        )
    if checkpoint is None and isinstance(home, ObjectUrl):
        raise UsageError(
            "a store in an object store needs a checkpoint elsewhere",
            path=str(home),
            hint="Name a local folder for it (--checkpoint, checkpoint=…); the store itself knows what is done.",
        )
    return _Places(
        source=landing,
        home=home,
        into=store,
        rrds=folder,
        checkpoint=home / "ingest" if checkpoint is None else located(checkpoint),
    )


def _lerobot(
    destination: str | os.PathLike[str] | None,
    spec: ExportSpec | Mapping[str, Any] | str | os.PathLike[str] | None,
    places: _Places,
    run: RunOptions,
) -> LeRobotSink | None:
    if destination is None and spec is None:
        return None
    if destination is None or spec is None:
        raise UsageError(
            "a LeRobot dataset needs a folder and a specification",
            hint="Name both (--lerobot and --lerobot-spec, lerobot=… and lerobot_spec=…).",
        )
    if places.into is None:
        raise UsageError("a LeRobot dataset is made of a store", hint="Name a store, too (--into, into=…).")
    place = local_path(destination)
    for other in (places.source, places.into):
        if f"{place.absolute()}/".startswith(f"{other}/"):
            raise UsageError(f"{place} is in {other}", hint="Choose a folder beside it.")
    return LeRobotSink(place, ExportSpec.given(spec), run)


def _fit_to_run(pipeline: Pipeline, executor: str | None) -> Pipeline:
    """Return the pipeline. One from a file must return a stream, which for Spark must pickle.

    Else every file that lands would be said to have failed.
    """
    if not pipeline.from_file:
        return pipeline  # from this program, which may have called it itself
    made = pipeline.apply(LazyChunkStream.from_source(PlaceholderSource()))
    if executor == "spark":
        pipeline.check_travels(made)
    return pipeline


def _policy(diagnose: str | None) -> str | None:
    if diagnose is not None and diagnose not in DIAGNOSE:
        raise UsageError(f"diagnose is one of {' and '.join(DIAGNOSE)}, not {diagnose!r}")
    return diagnose


def _source_done(given: str) -> SourceDone:
    try:
        return SourceDone(given)
    except ValueError:
        raise UsageError(f"source_done is one of keep, archive and delete, not {given!r}") from None
