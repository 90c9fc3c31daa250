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
    """Watches a landing folder, and ingests every file that arrives there into a store of recordings, exactly once.

    ::

        Ingest("landing/", pipeline="pipeline.py", into="lake/drives").start().await_termination()

    Guarantee: every complete file becomes visible exactly once, whichever process is killed meanwhile. Files are
    identified by the digest of their content. A batch of files becomes visible in one step. A file that fails goes into
    quarantine with its error; the other files are ingested. If a file is replaced under the same name, its segment gets
    a new version. Files with known content are skipped.

    Parameters
    ----------
    source
        The landing folder: a local path, or the prefix of an object store. MCAP, RRD and Parquet files in it and its
        subfolders are ingested. Names that begin with ``.`` or ``_``, or end with ``.tmp``, ``.part`` and the like, are
        ignored.
    pipeline
        A Python file that defines ``pipeline(stream)`` (``FILE.py`` or ``FILE.py:NAME``), or a function.
    into
        The store of recordings, a folder or URL, created if missing; or a dataset of a catalog. See
        :class:`RecordingStore`. In a dataset each column has one type; a file with another type goes into quarantine.
        If the dataset is deleted, the ingestion ends with a ``NotFoundError``.
    rrds
        A folder for one RRD per file, in addition to the store or instead of it.
    checkpoint
        The folder for the progress of the ingestion; by default it is in the store (or in ``.chunkmill`` of the folder
        of RRDs).
    optimize
        The chunk layout; None keeps the chunks of the pipeline.
    max_files_per_trigger, max_bytes_per_trigger
        The maximum size of a batch; None means no limit. A batch has at least one file.
    settle
        How long a file must stay unchanged before it is ingested (``"1s"``, ``"5 minutes"``, or seconds).
    source_done
        What to do with a file once it is in the store: ``"keep"``, ``"archive"`` (into ``archive``, a local folder for
        local files, a prefix of the same bucket for objects) or ``"delete"``.
    content, application_id
        The entities to keep, and the application id for recordings without one; as for ``chunkmill convert``.
    replace_same_id
        Whether a recording replaces one with the same id from another file. If not, its file goes into quarantine.
    diagnose
        Check the data of each file, as :func:`diagnose` does, before it is stored: ``"warn"`` warns of faults,
        ``"quarantine"`` also puts files with errors into quarantine. This reads each file one more time.
    keep_versions
        How long old versions of the store are kept for readers.
    compact_every
        The number of batches between compactions of the store, which join small files; None means no compaction.
    lerobot, lerobot_spec
        A local folder for a LeRobot dataset of the recordings in the store. It is updated whenever no batch is waiting.
        ``lerobot_spec`` is its specification. Datasets are written as by :func:`write_lerobot` with ``append`` and
        ``on_error="skip"``. If a recording of the store is replaced or deleted, it is replaced or deleted in the
        dataset too.
    executor, master, conf
        Where the ingestion runs: ``"spark"`` (the default) or ``"inline"``, with Spark's master and settings.
    listeners
        Objects whose methods are called for each event; see :class:`IngestListener`.
    reading
        Options of the formats; each file uses those of its own format. They are named like flags of ``chunkmill
        convert`` or arguments of the reader: ``topics``, ``exclude_topics``, ``start_time_ns``, ``recover``,
        ``index_columns`` and so on. ``parquet`` takes the arguments of :class:`ParquetReader` as a mapping.

    Raises
    ------
    UsageError
        The arguments are invalid or contradict each other. Nothing was written.
    PipelineError
        The pipeline file itself is faulty; see ``chunkmill check``.
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
                f"an archive is given, but files are {'kept' if done is SourceDone.KEEP else 'deleted'}",
                path=str(archive),
                hint="Set source_done to archive (--source-done archive), or leave out the archive.",
            )
        self._disposal = Disposal(done, self._places.source, None if archive is None else located(archive))
        self._listeners = tuple(listeners)

    @property
    def home(self) -> Location:
        """The folder of the store, the quarantine and (by default) the checkpoint."""
        return self._places.home

    def check(self) -> Lister:
        """Check that the landing folder exists and that the checkpoint belongs to it, without writing anything.

        Raises ``SourceMissingError`` and ``UsageError`` as :meth:`start` does. Returns an object that lists the landing
        folder.
        """
        source = str(self._places.source)
        lister = Lister(source, settle_seconds=self._settle, suffixes=all_suffixes(), is_one=lands_whole)
        Checkpoint(self._places.checkpoint).check(self._places.source)
        return lister

    def start(self, *, once: bool = False, every: float | str = "1s") -> IngestQuery:
        """Start the ingestion, and check for files at the interval ``every``.

        With ``once``, ingest the present files and end.

        The first batch runs soon afterwards. :meth:`IngestQuery.await_termination` waits for the end.

        Raises
        ------
        SourceMissingError
            There is no such landing folder.
        WriteError
            Another process runs this ingestion, or the store cannot be written.
        UsageError
            The checkpoint belongs to another landing folder. Nothing was written.
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
            if places.rrds is not None:  # only this keeps two from giving two files the same name
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
        raise UsageError("an ingestion needs a destination", hint="Give a store (into=…) or a folder of RRDs (rrds=…).")
    landing = located(source)
    store = None if into is None else located(into)
    folder = None if rrds is None else located(rrds)
    home = store if store is not None else located(rrds or "") / HIDDEN_HOME
    for place in (store, folder):
        if place is not None and f"{place}/".startswith(f"{landing}/"):
            raise UsageError(
                f"{place} is in the landing folder, whose files are ingested",
                path=str(landing),
                hint="Choose a folder outside it.",
            )
    if store is not None:
        check_no_catalog(store)
    if store is not None and folder is not None and f"{folder}/".startswith(f"{store}/"):
        raise UsageError(
            "the folder of RRDs is inside the store",
            path=str(folder),
            hint="Choose a folder outside it.",
        )
    if checkpoint is None and isinstance(home, ObjectUrl):
        raise UsageError(
            "a store in an object store needs a local checkpoint",
            path=str(home),
            hint="Give a local folder (--checkpoint, checkpoint=…). Losing it loses no data: the store has the "
            "finished batches.",
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
            hint="Give both (--lerobot and --lerobot-spec, lerobot=… and lerobot_spec=…).",
        )
    if places.into is None:
        raise UsageError("a LeRobot dataset needs a store", hint="Also give a store (--into, into=…).")
    place = local_path(destination)
    for other in (places.source, places.into):
        if f"{place.absolute()}/".startswith(f"{other}/"):
            raise UsageError(f"{place} is in {other}", hint="Choose a folder outside it.")
    return LeRobotSink(place, ExportSpec.given(spec), run)


def _fit_to_run(pipeline: Pipeline, executor: str | None) -> Pipeline:
    """Return the pipeline. One from a file must return a stream, for Spark one that can be pickled.

    Otherwise, every landed file would fail.
    """
    if not pipeline.from_file:
        return pipeline  # from this program, which may have called it itself
    made = pipeline.apply(LazyChunkStream.from_source(PlaceholderSource()))
    if executor == "spark":
        pipeline.check_travels(made)
    return pipeline


def _policy(diagnose: str | None) -> str | None:
    if diagnose is not None and diagnose not in DIAGNOSE:
        raise UsageError(f"diagnose must be {' or '.join(DIAGNOSE)}, not {diagnose!r}")
    return diagnose


def _source_done(given: str) -> SourceDone:
    try:
        return SourceDone(given)
    except ValueError:
        raise UsageError(f"source_done must be keep, archive or delete, not {given!r}") from None
