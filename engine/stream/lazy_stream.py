"""``LazyChunkStream``: a pipeline over chunks that runs when a terminal is called; and stores of chunks.

A stream collects into a store, and a store returns a stream, so both classes are here. Higher packages implement what a
store needs from queries and kept stores, see :func:`terminal`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Unpack, cast

import pyarrow as pa

from ..chunk import Chunk, ChunkHeader, LensLike, Origin, Schema, ValueSchema, columns_of, summarise_chunks
from ..errors import UsageError, check_argument
from ..execution import (
    SHARD_BYTES,
    PlannedRecording,
    Progress,
    QuarantineTable,
    RunOptions,
    RunStart,
    Sink,
    check_frame,
    chunk_frame,
    collect_chunks,
    executor_name,
    inline_chunks,
    iterated_chunks,
    progress_shown,
    transformed_frame,
    write_rrd,
    write_rrd_shards,
    write_to,
)
from ..lazy_names import terminal
from ..locations import local_path, located, writable
from ..reports import RunReport
from ..rrd import StoreEntry
from ..storage import ObjectUrl
from .frames import FrameRequest, Frames, RowChoices
from .kept import Kept, StoreVersion
from .operators import Components, Content, Filter, FlatMap, Map, Operator, Selection, as_chunk, content_filter
from .plan import (
    MergeNode,
    Node,
    OperatorNode,
    Plan,
    SourceNode,
    branches,
    compile_plan,
    executor_of,
    explain_plan,
    is_frame,
    known_columns,
    known_entities,
    needs_no_task,
    nodes_of,
    rows_in,
    unrolled,
    warn_of_nothing,
    within_contents,
)
from .source import (
    ChunkListSource,
    FrameSource,
    IteratedSource,
    PlainSource,
    RowsSource,
    Source,
    SourceLike,
    travelling,
    travelling_in_pieces,
)

if TYPE_CHECKING:
    import datafusion

    from ..execution import DataFrame, SparkSession
    from ..optimisation import OptimizationProfile
    from ..query import HeldRecording
    from ..writers import ExportReport, ExportSpec

_CONSUMED = "This stream has already been consumed by a pipeline operation (e.g. filter, drop, split, or merge)."


class LazyChunkStream(Frames):
    """A lazy pipeline over chunks, which are read, transformed and written only when a terminal runs.

    Builders (``filter``, ``drop``, ``split``, ``merge``, ``map``, ``flat_map``) consume the streams they are called on.
    Afterwards, use only the new stream; the old one raises ``ValueError``. Terminals (``to_chunks``, iteration,
    ``write_rrd``) do not consume a stream. Each runs the pipeline again.

    Order: the chunks of a source keep their order. A merge yields the chunks of the first input, then those of the
    second, and so on; merged branches of one split have the order of their source. Two runs over the same bytes give
    the same chunks in the same order, with every executor. Ids of new chunks and rows ascend in that order. Except for
    the start time that they contain, ids are the same in every run and every try of a task.

    >>> from chunkmill import ComponentColumn
    >>> chunks = [Chunk.from_columns(p, [], [ComponentColumn("volume", [1.0])]) for p in ("/a", "/b/c")]
    >>> stream = LazyChunkStream.from_iter(chunks).filter(content="/b/**")
    >>> [c.entity_path for c in stream.to_chunks(executor="inline")]
    ['/b/c']
    """

    __slots__ = ("_consumed", "_node")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._consumed = False

    # --- sources

    @classmethod
    def from_source(cls, source: SourceLike[Any]) -> LazyChunkStream:
        """A stream over a reader's :class:`Source`, or over any object with its methods ``describe, splits, read``."""
        return cls(SourceNode(source if isinstance(source, Source) else PlainSource(source)))

    @staticmethod
    def from_iter(chunks: Iterable[Chunk]) -> LazyChunkStream:
        """A stream over existing chunks.

        Each run iterates over them again; a consumed generator raises ``UsageError``.

        A generator is closed when the terminal ends, even if it is not exhausted. With Spark, the chunks are first
        written to the scratch folder, and tasks read them from there.
        """
        return LazyChunkStream(SourceNode(IteratedSource(chunks)))

    @staticmethod
    def from_spark(frame: DataFrame) -> LazyChunkStream:
        """A stream over the chunks of a DataFrame that :meth:`to_spark` or a data source ``chunkmill.*`` has made.

        With a column ``payload``, a stage of tasks writes the chunks to scratch parts. The columns ``task`` and
        ``position`` give the order; other columns are not used. Without it, rows refer to stored chunks (``path``,
        ``offset``, ``size``), which are read on use. If the frame also has the columns that describe the chunks,
        filters on entity, timeline and ``is_static`` read nothing. Each terminal runs the DataFrame again.

        Raises
        ------
        UsageError
            The DataFrame lacks these columns; or, in a terminal, a row does not refer to a chunk, or describes a
            different one.
        ReadError
            In a terminal, a payload is not a chunk, or there is no chunk at the location in a row.
        """
        return LazyChunkStream(SourceNode(FrameSource(frame)))

    @staticmethod
    def from_stream(frame: DataFrame) -> LazyChunkStream:
        """A stream over the chunks of a streaming DataFrame, such as one of ``readStream.format("chunkmill")``.

        Its only terminal is ``to_spark(payload=True)``, which returns a streaming DataFrame. All operators in between
        form one ``mapInArrow`` stage. Rows are as for :meth:`from_spark`. Chunks made from a row keep its ``path`` and
        recording. Order: within a partition, the order of the rows. A DataFrame that is not streaming works too.

        Raises
        ------
        UsageError
            The DataFrame has no chunks, another terminal was called, or another stream was merged in.
        """
        check_frame(frame)
        return LazyChunkStream(SourceNode(RowsSource(frame)))

    # --- builders

    def filter(
        self,
        *,
        content: Content | None = None,
        has_timeline: str | None = None,
        is_static: bool | None = None,
        components: Components | None = None,
    ) -> LazyChunkStream:
        """Keep the chunks that match all given predicates; with ``components``, keep only those columns.

        ``content`` is an entity path expression, a list of them or a :class:`ContentFilter`; ``components`` holds names
        or descriptors. Without ``components``, chunks pass unchanged, and nothing is decoded. With it, they are new
        chunks (fresh ids, same row ids).
        """
        return self._then(Filter(Selection.of(content, has_timeline, is_static, components)))

    def drop(
        self,
        *,
        content: Content | None = None,
        has_timeline: str | None = None,
        is_static: bool | None = None,
        components: Components | None = None,
    ) -> LazyChunkStream:
        """The complement of :meth:`filter`: keep everything that it would remove.

        Without arguments, nothing is left.
        """
        return self._then(Filter(Selection.of(content, has_timeline, is_static, components), drops=True))

    def split(
        self,
        *,
        content: Content | None = None,
        has_timeline: str | None = None,
        is_static: bool | None = None,
        components: Components | None = None,
    ) -> tuple[LazyChunkStream, LazyChunkStream]:
        """Return the pair ``(filter, drop)`` of the same selection.

        If both are merged again, the source is read only once.
        """
        selected, rest = branches(Selection.of(content, has_timeline, is_static, components), self._take())
        return LazyChunkStream(selected), LazyChunkStream(rest)

    def map(self, fn: Callable[[Chunk], Chunk]) -> LazyChunkStream:
        """Call ``fn`` on each chunk.

        The function runs in tasks, so its side effects stay there, except with the inline executor.
        """
        return self._then(Map(fn))

    def flat_map(self, fn: Callable[[Chunk], Iterable[Chunk]]) -> LazyChunkStream:
        """Call ``fn`` on each chunk and pass on all chunks it returns, in order.

        ``fn`` may be a generator that holds a resource. The generator is closed when its task ends, also if a later
        operator fails or the remaining chunks are not needed.
        """
        return self._then(FlatMap(fn))

    def lenses(
        self,
        lenses: Iterable[LensLike] | LensLike,
        *,
        output_mode: str = "drop_unmatched",
        content: Content | None = None,
        on_error: str = "raise",
        quarantine: str | os.PathLike[str] | None = None,
    ) -> LazyChunkStream:
        """Apply one lens or several to each chunk.

        ``output_mode`` sets the output: ``"drop_unmatched"`` gives only the results of lenses, ``"forward_unmatched"``
        also the chunks and columns that no lens matches, and ``"forward_all"`` also the originals. Entities that
        ``content`` does not match pass unchanged. ``on_error`` applies to chunks on which a lens fails. With
        ``"raise"`` the run fails, and the error names entity, component, selector and chunk. With ``"skip"`` the chunk
        is left out and logged. With ``"quarantine"`` it is left out, and once the run has succeeded, the chunk and its
        error become a row of the Lance table at ``quarantine``.
        """
        entities = None if content is None else content_filter(content)
        table = None if quarantine is None else QuarantineTable.at(quarantine)
        lens_set = terminal("LensSet")(lenses, output_mode, content=entities, on_error=on_error, quarantine=table)
        return self._then(lens_set)

    @staticmethod
    def merge(*streams: LazyChunkStream) -> LazyChunkStream:
        """Merge the chunks of any number of streams. No source is read twice."""
        for i, stream in enumerate(streams):
            if not isinstance(stream, LazyChunkStream):
                raise AttributeError(f"expected a LazyChunkStream, got a '{type(stream).__name__}' object")
            stream._live_node()  # noqa: SLF001 (same class)
            if any(stream is earlier for earlier in streams[:i]):
                raise ValueError(_CONSUMED)
        return LazyChunkStream(MergeNode(tuple([stream._take() for stream in streams])))  # noqa: SLF001 (same class)

    # --- terminals

    def to_chunks(
        self,
        *,
        executor: str | None = None,
        master: str | None = None,
        progress: Progress = None,
    ) -> list[Chunk]:
        """Run the pipeline and return its chunks.

        On Spark, chunks of 1 KiB or more stay in scratch until they are used. If the pipeline only selects chunks of a
        list or tuple given to :meth:`from_iter`, the results are the same objects.
        """
        chosen = executor_of(executor, self._live_node())
        if chosen == "inline" or needs_no_task(self._live_node()):
            with progress_shown(progress, "to_chunks") as listener:
                return list(inline_chunks(self._plan("inline"), listener))
        with self._ready(chosen, master, progress, "to_chunks") as (plan, options):
            return collect_chunks(plan, options)

    def __iter__(self) -> Iterator[Chunk]:
        if executor_of(None, self._live_node()) == "inline" or needs_no_task(self._live_node()):
            return inline_chunks(self._plan("inline"))
        plan = compile_plan(self._live_node(), travelling_in_pieces)
        warn_of_nothing(plan)
        plan, splits = unrolled(plan)
        return iterated_chunks(splits, plan.some, RunOptions())

    def write_rrd(
        self,
        path: str | os.PathLike[str],
        *,
        application_id: str,
        recording_id: str,
        shards: bool = False,
        shard_bytes: int = SHARD_BYTES,
        executor: str | None = None,
        master: str | None = None,
        progress: Progress = None,
    ) -> RunReport:
        """Run the pipeline into one RRD file with a footer, or with ``shards`` into a folder of them.

        Guarantee: the file appears complete or not at all. Until then an existing file of that name is kept. Chunks
        that no operator changes are copied without decoding. A folder must be new or empty. It appears with all its
        shards (``shard-00000.rrd`` …). Each shard is a complete RRD of the same recording, of at most ``shard_bytes``;
        a larger chunk gets its own shard.

        Raises
        ------
        ReadError
            A source is damaged; the message names file and byte.
        WriteError, NoSpaceError
            The destination cannot be written.
        PipelineError
            A function given to ``map`` or ``flat_map`` cannot be pickled, or raised an exception that cannot be
            pickled. Other exceptions of the function are raised unchanged, with notes on where they occurred.
        """
        for name, value in (("application_id", application_id), ("recording_id", recording_id)):
            check_argument(name, value, str)
        store = StoreEntry("recording", application_id, recording_id)
        if shards:
            with self._ready(executor, master, progress, str(path)) as (plan, options):
                return write_rrd_shards(writable(located(path)), store, shard_bytes, plan, options)
        return write_stores(path, [(store, self)], executor=executor, master=master, progress=progress)

    def write_lerobot(
        self,
        path: str | os.PathLike[str],
        spec: ExportSpec | Mapping[str, Any] | str | os.PathLike[str],
        *,
        recording_id: str,
        append: bool = False,
        executor: str | None = None,
        master: str | None = None,
        progress: Progress = None,
    ) -> ExportReport:
        """Run the pipeline and write a LeRobot dataset, or with ``append`` add the recording to an existing one.

        ``spec`` is an :class:`ExportSpec`, a mapping, or a file. If the dataset has a recording with this id, it is
        replaced. Guarantees and errors are those of :func:`write_lerobot`, which accepts several recordings.
        """
        given = {"append": append, "executor": executor, "master": master, "progress": progress}
        return cast("ExportReport", terminal("write_recording")(self, path, spec, recording_id, **given))

    def write_mcap(
        self,
        path: str | os.PathLike[str],
        *,
        sort: bool = True,
        compression: str | None = None,
        chunk_bytes: int = 4 << 20,
        executor: str | None = None,
        master: str | None = None,
        progress: Progress = None,
    ) -> RunReport:
        """Run the pipeline and write one MCAP: chunked, indexed, sorted by log time, with CRCs and statistics.

        If the stream only merges and filters entities, records of MCAPs, bags and rosbag2 are copied as stored.
        Otherwise messages are made from the chunks. Options, guarantees and errors are those of :func:`write_mcap`.
        """
        given = {"executor": executor, "master": master, "progress": progress}
        write = terminal("write_mcap")
        return cast(
            "RunReport", write(self, path, sort=sort, compression=compression, chunk_bytes=chunk_bytes, **given)
        )

    def write_to(
        self,
        sink: Sink,
        *,
        executor: str | None = None,
        master: str | None = None,
        progress: Progress = None,
    ) -> RunReport:
        """Run the pipeline into a :class:`~chunkmill.engine.execution.Sink`. Its class documents its guarantees."""
        with self._ready(executor, master, progress, type(sink).__name__) as (plan, options):
            return write_to(sink, plan, options)

    def collect(
        self,
        *,
        optimize: OptimizationProfile | None = None,
        into: str | os.PathLike[str] | None = None,
        application_id: str = "chunkmill",
        recording_id: str | None = None,
        shard_bytes: int = SHARD_BYTES,
        executor: str | None = None,
        master: str | None = None,
        progress: Progress = None,
    ) -> ChunkStore:
        """Run the pipeline into a :class:`ChunkStore` on disk, which may be larger than memory.

        By default the store is in the scratch folder while it is used. With ``into`` it is kept in that folder, as a
        new version of a :class:`RecordingStore` with only this recording, in shards of about ``shard_bytes`` bytes.

        ``optimize`` is an :class:`OptimizationProfile`. Without a profile, chunks are only split and merged as the
        viewer does on insertion.
        """
        if optimize is not None:
            optimize.max_bytes  # noqa: B018 (an invalid profile fails here, before the run)
        label = "collect" if into is None else str(into)
        with self._ready(executor, master, progress, label, runs=True) as (plan, options):
            store = terminal("collect_plan")(plan, options, optimize, into, application_id, recording_id, shard_bytes)
        return cast("ChunkStore", store)

    def to_spark(
        self,
        payload: bool = False,
        *,
        contents: Content | None = None,
        into: str | os.PathLike[str] | None = None,
        spark: SparkSession | None = None,
        **choices: Unpack[RowChoices],
    ) -> DataFrame:
        """Return the chunks of the stream, or its values, as a Spark DataFrame made by one ``mapInArrow`` stage.

        With ``contents``, ``index``, ``columns`` and the like, rows are values: the rows of :meth:`to_arrow` in Spark's
        types, without an order. Each action runs the pipeline. If the source does not know the columns, this call runs
        it once to find them. Otherwise rows are chunks, with the columns ``task, position`` (the order), ``chunk_id,
        entity_path, is_static, num_rows, timelines, components, types`` (the header) and ``path, offset, size,
        uncompressed_size, digest`` (the location). :data:`~chunkmill.engine.execution.COLUMNS` has their types.

        Without ``payload``, rows refer to parts, which are files of chunks. The first action on the frame runs the
        pipeline and writes the parts. Later actions, and frames derived from this one, use the same rows. Parts are in
        the scratch folder until the Spark session or this Python process ends. With ``into``, parts are kept in that
        new folder, with digests of the chunks, which are checked on reading. You can then save the rows, and use them
        later.

        With ``payload`` each row contains its chunk as an Arrow IPC stream of less than 64 MiB. Larger chunks are split
        into chunks of fewer rows. Nothing is stored. Each action runs the pipeline again, with the same chunks and ids.

        Sources are divided into splits immediately. Errors of tasks are raised as Spark's ``PythonException``, whose
        text contains the error of chunkmill and its code. ``spark`` is the session to use, by default
        :func:`get_session`.

        Raises ``WriteError`` if ``into`` is not empty, and ``UsageError`` for ``into`` with ``payload``.
        """
        if contents is not None or choices:
            if payload or into is not None:
                raise UsageError("a frame of values takes no `payload` and no `into`", hint="Leave out both.")
            request = FrameRequest.of(contents, **choices)
            work, schema = task_plan(framed(self, request)), value_schema(self, request)
            warn_of_nothing(work)
            session = spark or terminal("get_session")()
            return cast("DataFrame", terminal("value_frame")(work, schema, request.bounds, session))
        if payload and into is not None:
            raise UsageError("to_spark() takes `into` or `payload`, not both", hint="Leave out `into` or `payload`.")
        streamed = rows_in(self._live_node())
        if streamed is not None:
            if not payload:
                raise UsageError("a from_stream pipeline needs payload=True", hint="Call to_spark(payload=True).")
            return transformed_frame(streamed, compile_plan(self._live_node(), RowsSource.travelling).over)
        plan = self._plan("spark")
        session = spark or terminal("get_session")()
        return chunk_frame(plan, session, payload=payload, into=None if into is None else local_path(into))

    def explain(self, *, executor: str | None = None) -> str:
        """Return the plan as text: sources, splits, the fused stage, and the data that passes through undecoded.

        Reads no chunk.
        """
        executor_name(executor)
        node = self._live_node()
        return explain_plan(node, compile_plan(node, None if rows_in(node) is None else RowsSource.travelling))

    def _table(self, request: FrameRequest, **run: Any) -> pa.Table:
        node = self._live_node()
        columns = known_columns(node, request)
        schema = None if columns is None else request.schema(*columns, entities=lambda: known_entities(node))
        chunks = framed(self, request).to_chunks(**run)
        if schema is None:
            schema = request.schema(*columns_of(c.data for c in chunks), entities=lambda: known_entities(node))
        table = request.table(chunks, schema)
        request.warn_of_no_rows(table)
        return table

    def _then(self, operator: Operator) -> LazyChunkStream:
        return LazyChunkStream(OperatorNode(operator, self._take()))

    def _take(self) -> Node:
        node = self._live_node()
        self._consumed = True
        return node

    def _live_node(self) -> Node:
        if self._consumed:
            raise ValueError(_CONSUMED)
        return self._node

    def _plan(self, executor: str | None, *, runs: bool = False) -> Plan:
        node = self._live_node()
        plan = compile_plan(node, None if executor_name(executor) == "inline" else travelling, runs=runs)
        if not is_frame(node):
            warn_of_nothing(plan)
        return plan

    @contextmanager
    def _ready(
        self, executor: str | None, master: str | None, progress: Progress, label: str, *, runs: bool = False
    ) -> Iterator[tuple[Plan, RunOptions]]:
        """Yield the plan and the options of a run; its progress is shown during the block."""
        with progress_shown(progress, label) as listener:
            start = RunStart()
            executor = executor_of(executor, self._live_node())
            plan = self._plan(executor, runs=runs)
            yield plan, RunOptions(executor, master, None, listener, start.planned(explain_plan(self._node, plan)))

    def __repr__(self) -> str:
        return "LazyChunkStream()"

    def _repr_html_(self) -> str:
        from .drawing import stream_panel

        return stream_panel(self._node, is_consumed=self._consumed)


def by_chunk_id(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The sort key of chunks in a store."""
    return tuple(sorted(chunks, key=lambda c: c.id.lower()))


class StoredChunks:
    """The base of :class:`ChunkStore` and :class:`LazyStore`.

    ``silent_columns`` are headers of columns with only nulls, which no header of a chunk has. ``kept`` is the kept
    store, if any.
    """

    def __init__(
        self,
        chunks: Iterable[Chunk],
        *,
        name: str,
        kept: Kept | None = None,
        silent_columns: Sequence[ChunkHeader] = (),
    ) -> None:
        self._chunks = tuple(chunks)
        self._name = name
        self._kept = kept
        self._silent = tuple(silent_columns)

    def schema(self) -> Schema:
        """All timelines and components, from the headers alone."""
        return Schema.from_headers(chain((c.header for c in self._chunks), self._silent))

    def segment(self, segment_id: str) -> HeldRecording:
        """Return the chunks as a segment for queries."""
        return cast("HeldRecording", terminal("segment_of")(self, segment_id))

    def summary(self) -> str:
        """One line per chunk, sorted by entity: ``{entity} rows=… static=… timelines=[…] cols=[…]``.

        Headers from an RRD's footer lack the components that it omits, because all their rows are null.
        """
        return summarise_chunks(c.header for c in self._chunks)

    def stream(self) -> LazyChunkStream:
        """A stream over all chunks, in the store's order."""
        return LazyChunkStream.from_source(ChunkListSource(self._name, self._chunks))

    def reader(
        self,
        index: str | None,
        *,
        contents: Content | None = None,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
        fill_latest_at: bool = False,
        using_index_values: Any = None,
        executor: str | None = None,
        ctx: datafusion.SessionContext | None = None,
    ) -> datafusion.DataFrame:
        """Return the rows of the recording by an index, as a DataFrame of DataFusion; see :meth:`DatasetEntry.reader`.

        There is no column ``rerun_segment_id``. ``contents`` are the entities, by default all except properties.
        ``ctx`` is the DataFusion context, by default a new one. ``executor`` selects where chunks are read. Chunks are
        read only when rows are requested.

        Raises
        ------
        TypeError
            ``contents`` or ``using_index_values`` has another type.
        ValueError
            There is no such index; index values are given twice, or without an index; or the types of a component in
            chunks conflict.
        """
        rows: datafusion.DataFrame = terminal("read_rows")(
            self,
            self._name,
            index,
            contents,
            executor,
            ctx,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
            fill_latest_at=fill_latest_at,
            using_index_values=using_index_values,
        )
        return rows

    def write_rrd(
        self,
        path: str | os.PathLike[str],
        *,
        application_id: str,
        recording_id: str,
        shards: bool = False,
        shard_bytes: int = SHARD_BYTES,
        progress: Progress = None,
    ) -> RunReport:
        """Write all chunks to an RRD file, or a folder of them; see :meth:`LazyChunkStream.write_rrd`."""
        return self.stream().write_rrd(
            path,
            application_id=application_id,
            recording_id=recording_id,
            shards=shards,
            shard_bytes=shard_bytes,
            progress=progress,
        )

    def write_lerobot(
        self,
        path: str | os.PathLike[str],
        spec: ExportSpec | Mapping[str, Any] | str | os.PathLike[str],
        *,
        recording_id: str,
        append: bool = False,
        progress: Progress = None,
    ) -> ExportReport:
        """Write the recording as a LeRobot dataset, or add it to one; see :meth:`LazyChunkStream.write_lerobot`."""
        return self.stream().write_lerobot(path, spec, recording_id=recording_id, append=append, progress=progress)

    def versions(self) -> list[StoreVersion]:
        """All versions of a kept store, oldest first; none for a store in scratch, in memory or in an RRD."""
        return [] if self._kept is None else self._kept.versions()

    def vacuum(self, keep: int = 1) -> int:
        """Remove versions of a kept store older than the newest ``keep``, with their files; return the bytes freed.

        If there is something to remove, a version with the same chunks is published first, in addition to ``keep``.

        Raises
        ------
        WriteError
            Another process writes to the store, or it cannot be written. No file was removed.
        """
        return 0 if self._kept is None else self._kept.vacuum(keep)

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._chunks)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} chunks)"

    def _repr_html_(self) -> str:
        title = f"{type(self).__name__} {self._name}".replace("ChunkStore ChunkStore", "ChunkStore")
        panel: str = terminal("chunks_panel")(title, self)
        return panel


class ChunkStore(StoredChunks):
    """The chunks of a recording, by ascending chunk id. Immutable.

    Made by :meth:`from_chunks`, :meth:`LazyChunkStream.collect` or :meth:`open`. Collected chunks are stored on disk
    and read on use, so a store may be larger than memory. Each chunk is verified by its digest when it is read.

    Order: ascending chunk id, for iteration, ``stream`` and ``write_rrd``.
    """

    def __init__(self, chunks: Iterable[Chunk], *, kept: Kept | None = None) -> None:
        super().__init__(by_chunk_id(list(chunks)), name="ChunkStore", kept=kept)

    @staticmethod
    def from_chunks(chunks: Iterable[Chunk]) -> ChunkStore:
        """A store of the given chunks, in memory. Nothing is merged or split.

        Chunks without rows or components, and duplicates, are left out. Static chunks that newer ones overwrite
        completely are dropped. Raises ``ReadError`` if the row ids of a chunk do not ascend, ``AttributeError`` for
        objects that are not chunks.
        """
        from ..optimisation import OptimizationProfile, optimised

        none = OptimizationProfile(max_bytes=0, max_rows=0, max_rows_if_unsorted=0, extra_passes=0, gop_batching=False)
        return ChunkStore(optimised(map(as_chunk, chunks), none))

    @staticmethod
    def open(path: str | os.PathLike[str], *, version: int | None = None) -> LazyStore:
        """Open a kept store of one recording, as it was at ``version`` (by default the newest).

        Reads only the manifest. The chunks are in the order of their ids. Raises ``SourceMissingError`` if there is no
        store, ``ReadError`` if it is damaged, and ``UsageError`` if it holds several recordings.
        """
        return cast("LazyStore", terminal("open_recording")(path, version))


class LazyStore(StoredChunks):
    """The chunks of a recording in the order of its manifest.

    Length, schema and summary are available without reading a chunk.

    Made by :meth:`RrdReader.store`, :meth:`ChunkStore.open` and :meth:`RecordingStore.recording`.
    """

    @property
    def version(self) -> StoreVersion | None:
        """The open version of a kept store."""
        return None if self._kept is None else self._kept.version


Streams = Iterable[tuple[StoreEntry, LazyChunkStream]]


def write_stores(
    path: str | os.PathLike[str],
    streams: Streams,
    *,
    executor: str | None = None,
    master: str | None = None,
    conf: dict[str, str] | None = None,
    progress: Progress = None,
) -> RunReport:
    """Run several streams into one RRD file, each as its own store; see :meth:`LazyChunkStream.write_rrd`."""
    with progress_shown(progress, str(path)) as listener:
        pairs = list(streams)
        executor = executor_of(executor, *(sink_of(stream) for _, stream in pairs))
        planned = plan_recording(path, pairs, executor=executor)
        options = RunOptions(executor, master, conf, listener, planned.start)
        return write_rrd(planned.destination, planned.outputs, options)


def plan_recording(path: str | os.PathLike[str], streams: Streams, *, executor: str | None = None) -> PlannedRecording:
    """Plan an RRD of several streams, each as its own store. This opens and divides the sources."""
    pairs = [(store, stream) for store, stream in streams]
    if not pairs:
        raise UsageError("an RRD file needs at least one store")
    for _, stream in pairs:
        stream._live_node()  # noqa: SLF001 (same module)
    destination = writable(located(path))
    start = RunStart()
    runs = not isinstance(destination, ObjectUrl)
    plans = [(store, stream._plan(executor, runs=runs)) for store, stream in pairs]  # noqa: SLF001 (same module)
    texts = [explain_plan(stream._node, plan) for (_, stream), (_, plan) in zip(pairs, plans, strict=True)]  # noqa: SLF001
    return PlannedRecording(destination, plans, start.planned("\n".join(texts)))


def plan_outputs(stores: Streams, *, executor: str | None = None) -> list[tuple[StoreEntry, Plan]]:
    """Plan several stores of one recording, like :func:`plan_recording`."""
    return [(store, stream._plan(executor)) for store, stream in stores]  # noqa: SLF001 (same module)


def framed(stream: LazyChunkStream, request: FrameRequest) -> LazyChunkStream:
    """Return the stream of the chunks for a frame, for :meth:`ValueSchema.batches`. Does not consume the stream."""
    node = stream._live_node()  # noqa: SLF001 (same module)
    return LazyChunkStream(OperatorNode(request, within_contents(node, request)))


def value_schema(stream: LazyChunkStream, request: FrameRequest) -> ValueSchema:
    """Return the schema of a frame before its rows are read; see :func:`value_columns`."""
    return request.schema(*value_columns(stream, request), entities=lambda: known_entities(sink_of(stream)))


def value_columns(stream: LazyChunkStream, request: FrameRequest) -> tuple[Schema, frozenset[Origin]]:
    """Return the columns for a frame, and the components with at most one value in every row.

    They come from the source, if it knows them and only filters of entities follow it. Otherwise the pipeline runs
    once, in this process.
    """
    columns = known_columns(sink_of(stream), request)
    if columns is not None:
        return columns
    return columns_of(chunk.data for chunk in inline_chunks(framed(stream, request)._plan("inline")))  # noqa: SLF001


def sink_of(stream: LazyChunkStream) -> Node:
    """Return the last node of a stream. Raises ``ValueError`` if the stream has been consumed."""
    return stream._live_node()  # noqa: SLF001 (same module)


def other_sources(sink: Node) -> list[LazyChunkStream]:
    """Return streams of a node's source files whose messages cannot be copied."""
    nodes = [node for node in nodes_of(sink) if isinstance(node, SourceNode)]
    return [LazyChunkStream(node) for node in nodes if node.source.paths() and node.source.records() is None]


def task_plan(stream: LazyChunkStream) -> Plan:
    """Compile a stream for tasks. Warnings about sources with nothing selected are only in ``Plan.nothing``."""
    return compile_plan(sink_of(stream), travelling)


def single_tasks(stream: LazyChunkStream) -> list[Plan]:
    """Return each task of a stream as a separate plan, with only the data it needs."""
    return task_plan(stream).singles()
