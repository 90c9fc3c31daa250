"""The plan of a pipeline: its nodes, their fusion into one function per task, and the plan as text."""

from __future__ import annotations

import logging
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, repeat
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..chunk import Chunk, ChunkKind, Fate, Minter, Origin, RunIds, Schema, minted_by, minting
from ..errors import ReadWarning, UnmatchedWarning
from ..execution import Packed, Piece, Task, Work, executor_for
from ..rrd import Run, RunRows
from ..storage import is_url
from ..task_context import OPERATE, READ, came_in, find, held, is_measuring, timed
from .frames import FrameRequest
from .operators import Chain, Filter, FlatMap, Map, Operator, Selection, Step
from .source import ChunkListSource, PlaceholderSource, RowsSource, Source, Split

if TYPE_CHECKING:
    from ..execution import DataFrame
    from .records import RecordChannel, RecordSource

_log = logging.getLogger("chunkmill")


@dataclass(frozen=True, eq=False, slots=True)
class SourceNode:
    """Chunks of a source."""

    source: Source[Any]


@dataclass(frozen=True, eq=False, slots=True)
class OperatorNode:
    """An operator over another node."""

    operator: Operator
    upstream: Node


@dataclass(frozen=True, eq=False, slots=True)
class MergeNode:
    """All chunks of several nodes."""

    upstreams: tuple[Node, ...]


@dataclass(frozen=True, eq=False, slots=True)
class SplitNode:
    """Chunks divided in two; its branches are :class:`BranchNode`."""

    selection: Selection
    upstream: Node


@dataclass(frozen=True, eq=False, slots=True)
class BranchNode:
    """One side of a split."""

    split: SplitNode
    selected: bool


Node = SourceNode | OperatorNode | MergeNode | SplitNode | BranchNode


def branches(selection: Selection, upstream: Node) -> tuple[BranchNode, BranchNode]:
    """Both sides of a split: the selection, and the rest."""
    split = SplitNode(selection, upstream)
    return BranchNode(split, True), BranchNode(split, False)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Predicate for :meth:`Source.narrowed`: the entities that the first filters of a chain keep."""

    filters: tuple[Filter, ...]

    def __call__(self, entity_path: str) -> bool:
        for entity_filter in self.filters:
            selection = entity_filter.selection
            if selection.content is None:
                continue
            if not entity_filter.drops:
                if not selection.content.matches(entity_path):
                    return False
            elif selection == Selection(selection.content) and selection.content.matches(entity_path):
                return False
        return True


@dataclass(frozen=True, eq=False)
class Plan(Work):
    """A compiled pipeline: its tasks, and the function that runs them.

    ``sources`` are in the order of the output. ``consumers`` maps the index of a node to its downstream nodes; the sink
    has none. Plans can be pickled for Spark tasks. ``nothing`` has the reason why no data of a source is selected, if
    known before reading.
    """

    sources: tuple[Source[Any], ...]
    chains: tuple[Chain, ...]
    splits: Sequence[tuple[int, Split]] = field(default=())
    ids: RunIds = field(default_factory=RunIds.begin)
    nothing: tuple[ReadWarning, ...] = ()

    @property
    def tasks(self) -> Sequence[Task]:
        """One task per split, in output order."""
        return [Task(i, split.label, split.size) for i, (_, split) in enumerate(self.splits)]

    def run(self, index: int) -> Iterator[Chunk]:
        """Yield the chunks of task ``index``, in order."""
        at, split = self.splits[index]
        yield from self._fused(at, held(self.sources[at].read(split)))

    def over(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Yield the output for the given chunks, as if they came from its only source."""
        return self._fused(0, chunks)

    def _fused(self, at: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Apply the chain after a source to chunks."""
        chain = self.chains[at]
        measured, is_empty = is_measuring(), len(chain.steps) == 1
        for chunk in timed(chunks, READ):
            if measured:
                came_in(chunk.byte_size)
            if is_empty:
                yield chunk
            else:
                yield from timed(chain(chunk), OPERATE)

    def pieces(self, index: int) -> Iterator[Piece]:
        """Yield the output of task ``index`` in order: chunks, and between them runs of unread messages."""
        at, split = self.splits[index]
        source, chain = self.sources[at], self.chains[at]
        if not (source.has_runs and chain.may_pass_on):
            yield from self.run(index)
            return
        for piece in timed(held(source.pieces(split, chain.fate)), READ):
            if isinstance(piece, RunRows):
                yield piece
            else:
                yield from self._fused(at, piece)

    def some(self, splits: Sequence[tuple[int, Split]], first: int) -> Plan:
        """Return the plan for some splits; ``first`` is the number in this plan of the new plan's first task."""
        return replace(self, splits=splits, ids=self.ids.after(first))

    def singles(self) -> list[Plan]:
        """Return each task as a separate plan, with only the data it needs."""
        return [self.some((split,), i) for i, split in enumerate(self.splits)]

    def minter(self, index: int) -> Minter:
        """Return the source of ids for the chunks of a task."""
        return self.ids.task(index)

    @property
    def later(self) -> RunIds:
        """The ids for later work on the chunks."""
        return self.ids.after(len(self.splits))

    def whole_run(self, index: int) -> Run | None:
        """Return the output of task ``index`` as one run of unread messages, or None."""
        at, split = self.splits[index]
        source, chain = self.sources[at], self.chains[at]
        return source.whole_run(split, chain.fate) if source.has_runs and chain.may_pass_on else None

    def source_paths(self) -> set[str]:
        """Return the known files of the sources."""
        return {path for source in self.sources for path in source.paths()}


MOST_PLANNED: Final = 64
"""The most sources in object stores whose indexes the driver reads; of more, each task reads its own."""


class PlannedInTasks:
    """A context marker: the driver plans very many recordings, one at a time."""


def compile_plan(
    sink: Node, replace_source: Callable[[Source[Any]], Source[Any]] | None = None, *, runs: bool = False
) -> Plan:
    """Fuse everything between the sources and ``sink``, and divide the sources into splits.

    With ``runs``, sources pass on whole selected chunks unread, if they can.
    """
    consumers: dict[Node, list[Node]] = defaultdict(list)
    sources: list[SourceNode] = []
    _collect(sink, consumers, sources, set())
    if any(isinstance(node, SplitNode) and len(fed) == 1 for node, fed in consumers.items()):
        _log.warning(
            "Only one branch of a split is connected to the pipeline. "
            "The split has been optimized into a filter/drop operation."
        )
    read: list[Source[Any]] = []
    splits: list[tuple[int, Split]] = []
    nothing: list[ReadWarning] = []
    ids = RunIds.begin()
    chains = tuple(Chain(_number(node, consumers, sink)) for node in sources)
    are_many = len(sources) > MOST_PLANNED or find(PlannedInTasks) is not None
    for i, (node, fused) in enumerate(zip(sources, chains, strict=True)):
        with minted_by(ids.task(len(splits))):
            source = node.source if replace_source is None else replace_source(node.source)
        head, request = _leading_selections(node, consumers)
        whole = source
        if head:
            source = source.narrowed(_Kept(head))
        if request is not None:
            source = source.projected(request)
        read.append(source)
        undivided = source.undivided() if are_many else None
        if undivided is not None:
            splits += [(i, split) for split in undivided]
            continue
        runs_only = source.run_splits(fused.fate) if runs and source.has_runs and fused.may_pass_on else None
        splits += [(i, split) for split in (source.splits() if runs_only is None else runs_only)]
        why = source.nothing
        if why is None and request is None:  # a frame without data raises an error for its missing columns
            why = _nothing_kept(whole, head)
        if why is not None:
            nothing.append(why)
    return Plan(tuple(read), chains, Packed(splits), ids, tuple(nothing))


def _nothing_kept(source: Source[Any], head: tuple[Filter, ...]) -> ReadWarning | None:
    """Return a warning if filters of entities keep nothing of a source that knows its entities."""
    filters = [
        entity_filter
        for entity_filter in head
        if entity_filter.selection.content is not None and not entity_filter.drops
    ]
    entities = source.entities() if filters else None
    if not entities or any(map(_Kept(tuple(filters)), entities)):
        return None
    content = filters[0].selection.content
    assert content is not None
    return UnmatchedWarning(f"{source.describe()}: {filters[0].describe()} keeps nothing. {content.nearest(entities)}")


_MESSAGE_TIMES: Final = ("message_log_time", "message_publish_time")
"""The timelines that every message has."""


@dataclass(frozen=True, slots=True)
class CopiedRecords:
    """A file whose messages are copied unchanged, after the filters that follow it."""

    records: RecordSource
    chain: Chain

    def wants(self, channel: RecordChannel) -> bool:
        """Return True if messages of a channel are kept, because one of their entities is."""
        return any(self._keeps(entity, is_static=False) for entity in self.records.entities(channel))

    def wants_entity(self, entity: str) -> bool:
        """Return True if static data of an entity is kept."""
        return self._keeps(entity, is_static=True)

    def _keeps(self, entity: str, *, is_static: bool) -> bool:
        kind = ChunkKind(entity, is_static, () if is_static else _MESSAGE_TIMES)
        return self.chain.fate(kind) is not Fate.LEFT_OUT


def copied_records(sink: Node) -> list[CopiedRecords] | None:
    """Return the files upstream of a node if only filters of entities and merges follow them; None otherwise.

    Also return None if a source has no messages to copy.
    """
    consumers: dict[Node, list[Node]] = defaultdict(list)
    sources: list[SourceNode] = []
    _collect(sink, consumers, sources, set())
    if not all(map(_copies, nodes_of(sink))):
        return None
    copied: list[CopiedRecords] = []
    for node in sources:
        records = node.source.records()
        if records is None:
            return None
        chain = Chain(_number(node, consumers, sink))
        copied += [CopiedRecords(file, chain) for file in records]
    return copied


def source_records(sink: Node) -> list[CopiedRecords]:
    """Return the files upstream of a node whose messages can be copied, even if their chunks are not used."""
    sources = [node.source for node in nodes_of(sink) if isinstance(node, SourceNode)]
    everything = Chain((Step(None, None, (), (), True),))
    return [CopiedRecords(file, everything) for source in sources for file in source.records() or ()]


def _copies(node: Node) -> bool:
    """Return whether a node passes all messages of a topic unchanged, or none."""
    if isinstance(node, OperatorNode):
        return isinstance(node.operator, Filter) and _selects_topics(node.operator.selection)
    return not isinstance(node, SplitNode) or _selects_topics(node.selection)


def _selects_topics(selection: Selection) -> bool:
    has_all = selection.has_timeline is None or selection.has_timeline in _MESSAGE_TIMES
    return selection.components is None and not selection.is_static and has_all


def warn_of_nothing(plan: Plan) -> None:
    """Warn (``ReadWarning``) of sources from which nothing is selected."""
    for why in plan.nothing:
        warnings.warn(why, stacklevel=4)


def unrolled(plan: Plan) -> tuple[Plan, Generator[tuple[int, Split], None, None]]:
    """The plan over picklable sources, and its splits. Chunks in this process are written as their splits are taken."""
    sources = list(plan.sources)
    splits: list[Iterable[tuple[int, Split]]] = []
    for at, group in groupby(plan.splits, key=itemgetter(0)):
        spooled = sources[at].spooled_pieces()
        if spooled is None:
            splits.append(list(group))
        else:
            sources[at], pieces = spooled
            splits.append(zip(repeat(at), pieces))
    return replace(plan, sources=tuple(sources)), _taken(plan.ids, splits)


def _taken(ids: RunIds, splits: Iterable[Iterable[tuple[int, Split]]]) -> Generator[tuple[int, Split], None, None]:
    """Yield the splits of several sources. Ids minted while a split is written precede those of its task."""
    count = 0
    for some in splits:
        for split in minting(ids.task(count), some):
            count += 1
            yield split


def _collect(node: Node, consumers: dict[Node, list[Node]], sources: list[SourceNode], seen: set[Node]) -> None:
    """Walk from the sink to the sources, depth first in the order of merging."""
    if node in seen:
        return
    seen.add(node)
    for upstream in upstreams_of(node):
        consumers[upstream].append(node)
        _collect(upstream, consumers, sources, seen)
    if isinstance(node, SourceNode):
        sources.append(node)


def upstreams_of(node: Node) -> tuple[Node, ...]:
    """The nodes that feed ``node``."""
    if isinstance(node, MergeNode):
        return node.upstreams
    if isinstance(node, BranchNode):
        return (node.split,)
    if isinstance(node, SourceNode):
        return ()
    return (node.upstream,)


def needs_no_task(sink: Node) -> bool:
    """Return whether the plan only selects chunks from lists of this process: tasks would bring them back.

    Writing 20,000 small chunks for tasks and reading them back takes more than a second
    (``benchmarks/bench_small_chunks.py``).
    """
    return all(_stays(node) for node in nodes_of(sink))


def _stays(node: Node) -> bool:
    if isinstance(node, SourceNode):
        return node.source.is_held
    if isinstance(node, OperatorNode):
        if isinstance(node.operator, FrameRequest):
            return True
        return isinstance(node.operator, Filter) and node.operator.selection.components is None
    return not isinstance(node, SplitNode) or node.selection.components is None


def within_contents(node: Node, request: FrameRequest) -> Node:
    """Return the node with only a frame's ``contents``."""
    return node if request.contents is None else OperatorNode(Filter(Selection(request.contents)), node)


def known_columns(sink: Node, request: FrameRequest) -> tuple[Schema, frozenset[Origin]] | None:
    """Return the columns for a frame, if its source knows them, or None if chunks must be read.

    Chunks must be read if operators other than filters of entities are in between, or if the source lacks the columns.
    """
    sink = within_contents(sink, request)
    filters: list[Filter] = []
    while isinstance(sink, OperatorNode):
        if not isinstance(sink.operator, Filter) or sink.operator.selection.components is not None:
            return None
        filters.append(sink.operator)
        sink = sink.upstream
    if not isinstance(sink, SourceNode):
        return None
    columns = sink.source.narrowed(_Kept(tuple(filters))).columns()
    return None if columns is None else request.known(*columns)


def is_frame(sink: Node) -> bool:
    """Return whether a node ends with the operator of a frame."""
    return isinstance(sink, OperatorNode) and isinstance(sink.operator, FrameRequest)


def known_entities(sink: Node) -> list[str]:
    """Return the entities that the sources of a node know, sorted, as suggestions for a missing one."""
    sources = [node.source for node in nodes_of(sink) if isinstance(node, SourceNode)]
    entities = {entity for source in sources for entity in source.entities() or ()}
    lists = (source.chunks for source in sources if isinstance(source, ChunkListSource))
    return sorted(entities.union(chunk.entity_path for chunks in lists for chunk in chunks))


def nodes_of(sink: Node) -> tuple[Node, ...]:
    """Return ``sink`` and every node upstream of it, each once, in topological order."""
    order: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in order:
            for upstream in upstreams_of(node):
                visit(upstream)
            order[node] = None

    visit(sink)
    return tuple(order)


def local_bytes(sinks: Iterable[Node]) -> int | None:
    """Return the bytes of the files upstream of some nodes; None if one is not local, or a source reads none."""
    sources = [node.source for sink in sinks for node in nodes_of(sink) if isinstance(node, SourceNode)]
    files = [set(source.paths()) for source in sources]
    if not all(files) or any(is_url(file) for some in files for file in some):
        return None
    try:
        return sum(Path(file).stat().st_size for file in set().union(*files))
    except OSError:
        return None  # opening it reports the error


def executor_of(given: str | None, *sinks: Node) -> str:
    """Return the executor for streams, given by their last nodes; ``auto`` depends on the files they read."""
    return executor_for(given, lambda: local_bytes(sinks), own_functions=any(map(calls_functions, sinks)))


def calls_functions(sink: Node) -> bool:
    """Return whether a user's functions feed a node."""
    operators = [node.operator for node in nodes_of(sink) if isinstance(node, OperatorNode)]
    return any(isinstance(operator, Map | FlatMap) for operator in operators)


def _leading_selections(
    source: SourceNode, consumers: dict[Node, list[Node]]
) -> tuple[tuple[Filter, ...], FrameRequest | None]:
    """Return the filters directly after a source, before any operator that could change an entity path. Also return
    the frame made from their output, or None.
    """
    filters: list[Filter] = []
    node: Node = source
    while len(consumers[node]) == 1:
        node = consumers[node][0]
        if isinstance(node, OperatorNode) and isinstance(node.operator, FrameRequest):
            whole = all(entity_filter.selection.components is None for entity_filter in filters)
            return tuple(filters), node.operator if whole else None
        if not isinstance(node, OperatorNode) or not isinstance(node.operator, Filter):
            break
        filters.append(node.operator)
    return tuple(filters), None


def _number(source: SourceNode, consumers: dict[Node, list[Node]], sink: Node) -> tuple[Step, ...]:
    """The part of the graph after ``source`` as numbered steps, so that its pickle is small."""
    order: list[Node] = [source]
    for node in order:
        order.extend(c for c in consumers[node] if c not in order)
    at = {node: i for i, node in enumerate(order)}
    steps = []
    for node in order:
        fed = consumers[node]
        rest: tuple[int, ...] = ()
        feeds = tuple(at[c] for c in fed)
        if isinstance(node, SplitNode):
            feeds = tuple(at[c] for c in fed if isinstance(c, BranchNode) and c.selected)
            rest = tuple(at[c] for c in fed if isinstance(c, BranchNode) and not c.selected)
        steps.append(
            Step(
                node.operator if isinstance(node, OperatorNode) else None,
                node.selection if isinstance(node, SplitNode) else None,
                feeds,
                rest,
                node is sink,
            )
        )
    return tuple(steps)


def rows_in(sink: Node) -> DataFrame | None:
    """The DataFrame of :meth:`LazyChunkStream.from_stream` that feeds a node, or None."""
    sources = (node.source for node in nodes_of(sink) if isinstance(node, SourceNode))
    return next((source.frame for source in sources if isinstance(source, RowsSource)), None)


def explain_plan(sink: Node, plan: Plan) -> str:
    """Describe the sources with their splits, the operators of the fused stage, and where payloads are decoded."""
    splits = [sum(1 for at, _ in plan.splits if at == i) for i in range(len(plan.sources))]
    sizes = [sum(s.size for at, s in plan.splits if at == i) for i in range(len(plan.sources))]
    lines = [f"Pipeline: {len(plan.sources)} source(s), {len(plan.splits)} split(s), 1 stage"]
    for source, count, size in zip(plan.sources, splits, sizes, strict=True):
        lines.append(f"  source {source.describe()}: {_extent(source, count, size)}")
    taken = "chunk rows" if any(isinstance(source, RowsSource) for source in plan.sources) else "split number"
    lines.append(f"  stage (mapInArrow: {taken} in, chunk rows out)")
    lines += [f"    {line}" for line in _tree(sink, 0, set())]
    lines.append(f"  payloads: {_decoding(sink)}")
    return "\n".join(lines)


def _extent(source: Source[Any], splits: int, size: int) -> str:
    """Return the end of a source's line: the extent that is known before reading."""
    if isinstance(source, PlaceholderSource):
        return "not named yet"
    if isinstance(source, RowsSource):
        return "rows of a DataFrame, partition by partition"
    return f"{splits} split(s), {size:,} bytes"


def _tree(node: Node, depth: int, shown: set[Node]) -> Iterator[str]:
    """Yield the sink first, and its upstream nodes below, indented. A split shows its upstream nodes only once."""
    if node in shown:
        yield f"{'  ' * depth}{_line(node)}, as above"
        return
    shown.add(node)
    yield "  " * depth + _line(node)
    for upstream in upstreams_of(node):
        yield from _tree(upstream, depth + 1, shown)


def _line(node: Node) -> str:
    if isinstance(node, SourceNode):
        return f"read {node.source.describe()}"
    if isinstance(node, OperatorNode):
        return node.operator.describe()
    if isinstance(node, MergeNode):
        return f"merge of {len(node.upstreams)}"
    if isinstance(node, SplitNode):
        return f"split({node.selection.describe()})"
    return "branch: selected" if node.selected else "branch: rest"


def _decoding(sink: Node) -> str:
    decoding = sorted({_line(node) for node in nodes_of(sink) if decodes(node)})
    if not decoding:
        return "passed through undecoded if the source stores them encoded"
    return "decoded by " + "; ".join(decoding)


def decodes(node: Node) -> bool:
    """Return whether a node looks into payloads, or only at headers."""
    if isinstance(node, OperatorNode):
        operator = node.operator
        return not isinstance(operator, Filter) or operator.selection.components is not None
    return isinstance(node, SplitNode) and node.selection.components is not None
